"""Lines for people about what a run's first numbers mean."""

from __future__ import annotations

from collections.abc import Mapping


def truncation_note(metrics: Mapping[str, float], *, max_tokens: int) -> str | None:
    """Said once, after the first step, where every response ended by length; None where some didn't."""
    if metrics.get("response/truncated") != 1.0:
        return None
    return (
        f"every sample ended by length (rollout.max_tokens: {max_tokens}): right where answers have a fixed length, "
        "as in the quick start; otherwise raise rollout.max_tokens"
    )
