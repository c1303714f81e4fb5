"""Prompt sets: files to prompts with the very token ids that are sent, filtered by length."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path

from rltrain.config.data import ChatTemplate, PromptFormat
from rltrain.config.errors import Problem, UserError
from rltrain.data.chat import PromptError
from rltrain.data.rows import RawRow, Row, RowError, parse_row, read_rows
from rltrain.data.tokenizer import Rendered, Tokenizer
from rltrain.types.sample import Prompt

CHUNK = 4096
"""Rows tokenised at once."""
SHOWN = 5
"""Bad rows that an error lists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSpan:
    """Prompts [start, end) of a set come from one file, with its share of the draws."""

    path: Path
    weight: float
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadReport:
    read: int
    kept: int
    too_long: int
    skipped_bad: int
    max_prompt_tokens: int

    def __str__(self) -> str:
        text = f"{self.read} rows read, {self.kept} prompts kept"
        text += f", {self.too_long} dropped (more than {self.max_prompt_tokens} tokens)" if self.too_long else ""
        return text + (f", {self.skipped_bad} bad rows skipped" if self.skipped_bad else "")


@dataclass(frozen=True, kw_only=True, eq=False)
class PromptSet:
    prompts: tuple[Prompt, ...]
    sources: tuple[SourceSpan, ...]
    """Files with at least one prompt, in the config's order."""
    report: LoadReport

    @cached_property
    def fingerprint(self) -> str:
        """Digest of the ids and tokens in their order; a cursor's state is of one set only."""
        digest = hashlib.sha256()
        for prompt in self.prompts:
            digest.update(f"{prompt.id}\0{len(prompt.token_ids)}\0".encode())
            digest.update(prompt.token_ids.tobytes())
        return digest.hexdigest()[:32]


def load_prompt_set(
    fmt: PromptFormat,
    tokenizer: Tokenizer,
    *,
    where: str,
    limit: int | None = None,
    label_check: Callable[[str], str | None] | None = None,
) -> PromptSet:
    """The prompts of all sources, or the first `limit`; `where` is the key that messages start with (`data`).

    `label_check` says what makes a row's label useless, if anything: such a row is a bad one.

    Raises UserError with the first bad rows, or where no prompt is left.
    """
    if isinstance(fmt.template, ChatTemplate) and not tokenizer.has_chat_template:
        hint = "give the model directory a chat_template.jinja, or use template.kind: plain"
        rule = "the model directory has no chat template"
        raise UserError.single(f"{where}.template.kind", rule, value="chat", hint=hint)
    loader = _Loader(fmt, tokenizer, where, label_check)
    spans: list[SourceSpan] = []
    for index, source in enumerate(fmt.sources):
        start = len(loader.prompts)
        loader.load(index, None if limit is None else limit - start)
        if len(loader.prompts) > start:
            span = SourceSpan(path=source.path, weight=source.weight, start=start, end=len(loader.prompts))
            spans.append(span)
    loader.check()
    return PromptSet(prompts=tuple(loader.prompts), sources=tuple(spans), report=loader.report())


class _Loader:
    """Gathers prompts and problems over the sources of one set."""

    def __init__(
        self, fmt: PromptFormat, tokenizer: Tokenizer, where: str, label_check: Callable[[str], str | None] | None
    ) -> None:
        self.prompts: list[Prompt] = []
        self._format = fmt
        self._tokenizer = tokenizer
        self._where = where
        self._label_check = label_check
        self._counts: Counter[str] = Counter()
        self._problems: list[Problem] = []
        self._first_skipped: str | None = None
        self._empty: list[int] = []
        self._stems = _stems(fmt)

    def load(self, source: int, limit: int | None) -> None:
        """Reads one source until its end, or until `limit` prompts are kept."""
        path = self._format.sources[source].path
        rows = read_rows(path, where=f"{self._where}.sources[{source}].path")
        kept_before = len(self.prompts)
        while limit is None or len(self.prompts) - kept_before < limit:
            room = CHUNK if limit is None else min(CHUNK, limit - (len(self.prompts) - kept_before))
            chunk = list(islice(rows, room))
            if not chunk:
                break
            self._counts["read"] += len(chunk)
            self._keep(list(self._rendered(chunk, path)), path, self._stems[source])
        if limit is None and len(self.prompts) == kept_before:
            self._empty.append(source)

    def check(self) -> None:
        """Raises UserError where rows were refused or nothing is left."""
        if self._problems:
            more = self._counts["refused"] - len(self._problems)
            if more:
                rule = f"and {more} more rows like these"
                hint = "on_bad_row: skip leaves bad rows out, too_long: drop the long ones"
                self._problems.append(Problem(key=self._where, rule=rule, hint=hint))
            raise UserError(self._problems)
        if not self.prompts:
            raise UserError.single(self._where, f"no prompt is left: {self.report()}", hint=self._hint())
        if self._empty:  # its share of the draws could not be kept
            rule = f"no prompt of it is left ({self.report()} in all)"
            keys = (f"{self._where}.sources[{source}]" for source in self._empty)
            raise UserError([Problem(key=key, rule=rule, hint=self._hint()) for key in keys])

    def report(self) -> LoadReport:
        return LoadReport(
            read=self._counts["read"],
            kept=len(self.prompts),
            too_long=self._counts["too_long"],
            skipped_bad=self._counts["bad"],
            max_prompt_tokens=self._format.max_prompt_tokens,
        )

    def _hint(self) -> str | None:
        if self._first_skipped is not None:
            return f"the first one skipped: {self._first_skipped}"
        return f"raise {self._where}.max_prompt_tokens" if self._counts["too_long"] else None

    def _rendered(self, chunk: list[RawRow], path: Path) -> Iterator[tuple[int, Row, Rendered]]:
        for raw in chunk:
            try:
                if isinstance(raw.values, RowError):
                    raise raw.values
                row = parse_row(raw.values, self._format)
                self._check_label(row.label)
                yield raw.number, row, self._tokenizer.render(row.content, self._format.template)
            except (RowError, PromptError) as error:
                column = error.column if isinstance(error, RowError) else None
                self._bad(path, raw.number, str(error), column=column)

    def _check_label(self, label: str | None) -> None:
        problem = self._label_check(label) if self._label_check is not None and label is not None else None
        if problem:
            raise RowError(problem)

    def _keep(self, rows: list[tuple[int, Row, Rendered]], path: Path, stem: str) -> None:
        limit = self._format.max_prompt_tokens
        encoded = self._tokenizer.encode_rendered([rendered for _, _, rendered in rows])
        for (number, row, _), ids in zip(rows, encoded, strict=True):
            if len(ids) == 0:
                self._bad(path, number, f"{self._format.prompt_key} has no tokens")
            elif len(ids) > limit and self._format.too_long == "error":
                self._refuse(f"{path}:{number}", f"has {len(ids)} tokens, more than max_prompt_tokens ({limit})")
            elif len(ids) > limit:
                self._counts["too_long"] += 1
            else:
                prompt = Prompt(
                    id=f"{stem}:{number}",
                    token_ids=ids,
                    content=row.content,
                    label=row.label,
                    metadata=row.metadata,
                )
                self.prompts.append(prompt)

    def _bad(self, path: Path, number: int, rule: str, *, column: int | None = None) -> None:
        place = f"{path}:{number}" if column is None else f"{path}:{number}:{column}"
        if self._format.on_bad_row == "skip":
            self._counts["bad"] += 1
            self._first_skipped = self._first_skipped or f"{place}: {rule}"
        else:
            self._refuse(place, rule)

    def _refuse(self, place: str, rule: str) -> None:
        self._counts["refused"] += 1
        if self._counts["refused"] <= SHOWN:
            self._problems.append(Problem(key=self._where, rule=rule, place=place))


def _stems(fmt: PromptFormat) -> list[str]:
    """Names of the files for prompt ids; files of one name get their number too."""
    stems = [source.path.stem for source in fmt.sources]
    return [f"{stem}.{index}" if stems.count(stem) > 1 else stem for index, stem in enumerate(stems)]
