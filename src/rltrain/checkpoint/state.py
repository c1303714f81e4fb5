"""`state.json` of a saved step: where the run was, apart from what its processes hold."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rltrain.checkpoint.manifest import Damaged

STATE = "state.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """JSON values only."""

    step: int
    version: int
    """Of the weights, as the engines count them."""
    updates: int
    """Of the optimizer, without those that were skipped."""
    moments: bool
    """Whether the optimizer's are saved."""
    data: Mapping[str, Any]
    """The prompt cursor's."""
    config: Mapping[str, Any]
    """Resolved, without secrets."""
    model: Mapping[str, Any]
    """What `ModelSpec.facts` says."""
    reference: str | None
    """Digest of the reference model's weights, if the run has one."""
    packages: Mapping[str, str]

    def write(self, directory: Path) -> None:
        """Raises OSError."""
        text = json.dumps(dataclasses.asdict(self), indent=1, ensure_ascii=False)
        (directory / STATE).write_text(text + "\n", encoding="utf-8")

    @classmethod
    def read(cls, directory: Path) -> RunState:
        """Raises Damaged."""
        try:
            return cls(**json.loads((directory / STATE).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError) as error:
            raise Damaged(f"{STATE} can't be read: {error}") from error
