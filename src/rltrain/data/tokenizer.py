"""The tokenizer of a Hugging Face model directory: the one way from prompts to token ids, and back to text."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import tokenizers
from jinja2 import TemplateError

from rltrain.config.data import ChatTemplate, PlainTemplate
from rltrain.config.errors import UserError
from rltrain.config.readable import read_json, unreadable
from rltrain.data.chat import ChatRenderer, PromptError
from rltrain.data.control import ControlTokens
from rltrain.types.sample import Ids, Message

SPECIAL_NAMES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
PLAIN_FLAGS = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}


@dataclass(frozen=True, slots=True)
class Rendered:
    """A prompt's text with its control tokens under names that no content can hold."""

    text: str


class Tokenizer:
    """Text to ids and ids to text. Control tokens come from the template alone; content can't forge them."""

    def __init__(self, spec: Mapping[str, Any], config: Mapping[str, Any], *, chat_template: str | None) -> None:
        """`spec` is what `tokenizer.json` holds, `config` what `tokenizer_config.json` holds."""
        spec = _with_tokens_of(spec, config)
        self._decoder = tokenizers.Tokenizer.from_str(json.dumps(spec))
        self._control = ControlTokens(spec)
        self._encoder = tokenizers.Tokenizer.from_str(json.dumps(self._control.renamed(spec)))
        self._encoder.no_padding()
        self._encoder.no_truncation()
        self._special = {name: text for name in SPECIAL_NAMES if (text := _token_text(config.get(name)))}
        self.bos_id = self._id_of("bos_token")
        self.eos_id = self._id_of("eos_token")
        self.vocab_size = 1 + max(self._decoder.get_vocab(with_added_tokens=True).values())
        """One more than the highest id, added tokens included; the model's embedding may have more rows."""
        self.adds_bos = self._adds_bos(config)
        """Whether a text gets a BOS without a template's doing."""
        try:
            self._chat = None if chat_template is None else ChatRenderer(chat_template, self._special)
        except TemplateError as error:
            raise UserError.single("model.path", f"its chat template doesn't compile: {error}") from error

    @classmethod
    def load(cls, model_dir: Path) -> Tokenizer:
        """Reads `tokenizer.json`, `tokenizer_config.json` and `chat_template.jinja`. Raises UserError."""
        config = _read_json(model_dir / "tokenizer_config.json") or {}
        spec = _read_json(model_dir / "tokenizer.json")
        if spec is None:
            spec = _converted_by_transformers(model_dir)
        try:
            return cls(spec, config, chat_template=_chat_template(model_dir, config))
        except UserError:
            raise
        except Exception as error:  # the tokenizers library raises bare Exception
            rule = f"its tokenizer can't be loaded: {error}"
            raise UserError.single("model.path", rule, value=model_dir) from error

    @property
    def has_chat_template(self) -> bool:
        return self._chat is not None

    def encode_prompt(self, content: str | tuple[Message, ...], template: PlainTemplate | ChatTemplate) -> Ids:
        """Ids [T] that the engine gets, for training, evaluation and length filters alike. Raises PromptError."""
        return self.encode_rendered([self.render(content, template)])[0]

    def render(self, content: str | tuple[Message, ...], template: PlainTemplate | ChatTemplate) -> Rendered:
        """The prompt's text, for `encode_rendered`. Raises PromptError."""
        if isinstance(template, PlainTemplate):
            if not isinstance(content, str):
                raise PromptError("the prompt is a list of messages, which needs template.kind: chat")
            return Rendered(self._control.marked(content) if template.parse_special else content)
        if self._chat is None:
            raise PromptError("template.kind is chat, but the model directory has no chat template")
        messages = _messages(content, template.system)
        hidden = [Message(role=turn.role, content=self._control.hidden(turn.content)) for turn in messages]
        text = self._control.marked(self._chat.render(hidden, template.kwargs))
        return Rendered(self._control.shown(text))

    def encode_rendered(self, prompts: Sequence[Rendered]) -> list[Ids]:
        """Ids of many prompts at once, each with exactly one BOS where the model uses one."""
        encoded = self._encoder.encode_batch_fast([prompt.text for prompt in prompts], add_special_tokens=False)
        return [self._with_bos(encoding.ids) for encoding in encoded]

    def decode(self, ids: Ids, *, keep_special: bool = False) -> str:
        """The text of ids; bytes that are no UTF-8 become U+FFFD, ids without a token nothing."""
        return self._decoder.decode(ids.tolist(), skip_special_tokens=not keep_special)

    def _with_bos(self, ids: list[int]) -> Ids:
        if self.adds_bos and self.bos_id is not None and ids[:1] != [self.bos_id]:
            ids = [self.bos_id, *ids]
        return np.asarray(ids, np.int32)

    def _adds_bos(self, config: Mapping[str, Any]) -> bool:
        if self.bos_id is None:
            return False
        stated = config.get("add_bos_token")
        if stated is not None:
            return bool(stated)
        return self._decoder.encode("a", add_special_tokens=True).ids[:1] == [self.bos_id]

    def _id_of(self, name: str) -> int | None:
        text = self._special.get(name)
        return None if text is None else self._decoder.token_to_id(text)


def _messages(content: str | tuple[Message, ...], system: str | None) -> tuple[Message, ...]:
    messages = (Message(role="user", content=content),) if isinstance(content, str) else content
    if system is None or messages[0].role == "system":
        return messages
    return (Message(role="system", content=system), *messages)


def _chat_template(model_dir: Path, config: Mapping[str, Any]) -> str | None:
    """`chat_template.jinja`, else the entry of `tokenizer_config.json` (a text, or a list of named ones)."""
    file = model_dir / "chat_template.jinja"
    if file.exists():
        if reason := unreadable(file):
            raise UserError.single("model.path", reason, value=file)
        return file.read_text(encoding="utf-8")
    found = config.get("chat_template")
    if isinstance(found, list):
        entries = cast(list[dict[str, str]], found)
        return next((entry["template"] for entry in entries if entry["name"] == "default"), None)
    return found


def _with_tokens_of(spec: Mapping[str, Any], config: Mapping[str, Any]) -> Mapping[str, Any]:
    """`tokenizer.json` with the special tokens that only `tokenizer_config.json` names, as transformers adds them."""
    added: list[dict[str, Any]] = list(spec.get("added_tokens") or [])
    known = {token["content"] for token in added}
    declared: dict[str, dict[str, Any]] = config.get("added_tokens_decoder") or {}
    new = [{"id": int(index), **token} for index, token in declared.items() if token["content"] not in known]
    known.update(token["content"] for token in new)
    vocab: Any = spec["model"].get("vocab")
    for text in dict.fromkeys(_token_text(config.get(name)) for name in SPECIAL_NAMES):
        if text is not None and text not in known and isinstance(vocab, dict) and text in vocab:
            new.append({"id": vocab[text], "content": text, **PLAIN_FLAGS})
    return {**spec, "added_tokens": [*added, *sorted(new, key=lambda token: token["id"])]}


def _token_text(entry: str | Mapping[str, Any] | None) -> str | None:
    return entry["content"] if isinstance(entry, Mapping) else entry


def _converted_by_transformers(model_dir: Path) -> dict[str, Any]:
    """`tokenizer.json` as transformers builds it from another format (vocab and merges, sentencepiece)."""
    if not model_dir.is_dir():
        raise UserError.single("model.path", "is no directory", value=model_dir)
    from transformers import AutoTokenizer  # takes seconds, and few models need it

    try:
        loaded = cast(Any, AutoTokenizer).from_pretrained(str(model_dir), local_files_only=True)
        return json.loads(loaded.backend_tokenizer.to_str())
    except Exception as error:
        hint = "the directory needs a tokenizer.json, or files that transformers can make one of"
        raise UserError.single("model.path", f"has no tokenizer: {error}", value=model_dir, hint=hint) from error


def _read_json(path: Path) -> dict[str, Any] | None:
    try:
        return read_json(path)
    except ValueError as error:
        raise UserError.single("model.path", str(error), value=path) from error
