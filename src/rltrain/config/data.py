"""`data:` and `eval.sets`: where prompts come from and how they become token ids."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, JsonValue

from rltrain.config.section import Section


class Source(Section):
    path: Path
    """A `.jsonl` or `.parquet` file, a row a prompt."""
    weight: float = Field(default=1.0, ge=1e-6, le=1e6)
    """Share of the prompts drawn from this file, relative to the other files' weights (only with several sources)."""


class PlainTemplate(Section):
    """The prompt column is text and is sent as it is (with the tokenizer's BOS where it adds one)."""

    kind: Literal["plain"] = "plain"
    parse_special: bool = False
    """Let special tokens spelt in the prompt count as such (prompts rendered beforehand); else they are plain text."""


class ChatTemplate(Section):
    """The prompt column is text (one user turn) or a list of messages, rendered by the tokenizer's chat template."""

    kind: Literal["chat"] = "chat"
    system: str | None = None
    """System message put in front where the row has none."""
    kwargs: dict[str, JsonValue] = {}
    """Further variables of the template, e.g. `enable_thinking: false`."""


Template = Annotated[PlainTemplate | ChatTemplate, Field(discriminator="kind")]


class PromptFormat(Section):
    """What training and evaluation sets have in common: the columns and the way to token ids."""

    sources: tuple[Source, ...] = Field(min_length=1)
    """Files to read."""
    prompt_key: str = "prompt"
    """Column with the prompt: text, or a list of `{role, content}` messages."""
    label_key: str | None = "label"
    """Column with the reference answer (text, or a number, which becomes text once); null where rewards need none."""
    metadata_keys: tuple[str, ...] = ()
    """Columns that reward functions get as `metadata`."""
    template: Template = PlainTemplate()
    """How a row becomes the text that is tokenised."""
    max_prompt_tokens: int = Field(default=1024, ge=1, le=2**24)
    """Longest prompt in tokens, template included (inclusive)."""
    too_long: Literal["drop", "error"] = "drop"
    """What happens to longer prompts; the number dropped is logged, and dropping all is an error."""
    on_bad_row: Literal["error", "skip"] = "error"
    """What happens to a row that can't be read, or whose label no answer can earn a reward with; the number skipped is
    logged."""


class DataConfig(PromptFormat):
    shuffle: bool = True
    """Draw prompts in a new order each epoch."""
    seed: int = Field(default=1, ge=0, lt=2**31)
    """Seed of the prompt order, apart from `run.seed`."""
    small: Literal["error", "repeat"] = "error"
    """When the set has fewer prompts than a step needs: stop with an error, or repeat prompts within the step."""
    max_epochs: int | None = Field(default=None, ge=1, le=10**9)
    """Passes over the set; more than these is an error before the run starts."""
