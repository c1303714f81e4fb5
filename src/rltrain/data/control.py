"""Control tokens that only a template can write: content that spells one stays text."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from typing import Any, cast

BARRED = re.compile(r"<[|\uff5c].*[|\uff5c]>", re.DOTALL)
"""Spelt like a control token: DeepSeek's `<\uff5cUser\uff5c>` is one without being marked as special."""
OPEN, CLOSE = "\ue0f0", "\ue0f1"
"""Private-use characters, which no normaliser changes."""


class ControlTokens:
    """The control tokens of a tokenizer, and their names for the encoder, which hold a key drawn at load.

    Content goes through `hidden` before the template, the rendered text through `marked` and then `shown`:
    what the template wrote has the encoder's name, what content spelt is plain text again.
    """

    def __init__(self, spec: Mapping[str, Any]) -> None:
        """Takes those of `tokenizer.json` that are special or spelt between bars."""
        added: list[dict[str, Any]] = spec.get("added_tokens") or []
        names = [token["content"] for token in added if token["special"] or BARRED.fullmatch(token["content"])]
        self._names: list[str] = sorted(names, key=len, reverse=True)
        self._key = secrets.token_hex(8)
        self._markers = {name: f"{OPEN}{self._key}c{index}{CLOSE}" for index, name in enumerate(self._names)}
        self._spelt = re.compile("|".join(map(re.escape, self._names)) or r"(?!)")
        self._stand_ins = re.compile(f"{OPEN}{self._key}t([0-9a-f]+){CLOSE}")
        self._beginnings = frozenset(name[:end] for name in self._names for end in range(1, len(name)))

    def renamed(self, spec: Mapping[str, Any]) -> dict[str, Any]:
        """`tokenizer.json` with each control token under its encoder name, ids unchanged."""
        new = self._markers
        added = [{**token, "content": new.get(token["content"], token["content"])} for token in spec["added_tokens"]]
        model: dict[str, Any] = dict(spec["model"])
        vocab = model.get("vocab")
        if isinstance(vocab, dict):
            ids = cast(dict[str, int], vocab)
            model["vocab"] = {new.get(token, token): index for token, index in ids.items()}
        elif isinstance(vocab, list):  # Unigram
            scores = cast(list[tuple[str, float]], vocab)
            model["vocab"] = [[new.get(token, token), score] for token, score in scores]
        if model.get("unk_token") in new:
            model["unk_token"] = new[model["unk_token"]]
        return {**spec, "added_tokens": added, "model": model, "post_processor": None}

    def hidden(self, content: str) -> str:
        """Content with every control token that it spells, or begins to spell at its end, behind a stand-in."""
        content = self._spelt.sub(lambda match: self._stand_in(match[0]), content)
        end = len(content.rstrip())
        longest = len(self._names[0]) if self._names else 0
        for start in range(max(0, end - longest + 1), end):
            if content[start:end] in self._beginnings:
                return content[:start] + self._stand_in(content[start]) + content[start + 1 :]
        return content

    def marked(self, text: str) -> str:
        """Text with every control token that it spells under its encoder name."""
        return self._spelt.sub(lambda match: self._markers[match[0]], text)

    def shown(self, text: str) -> str:
        """Text with what stands behind stand-ins spelt out again."""
        return self._stand_ins.sub(lambda match: bytes.fromhex(match[1]).decode(), text)

    def _stand_in(self, text: str) -> str:
        return f"{OPEN}{self._key}t{text.encode().hex()}{CLOSE}"
