"""`weight_sync:` how new weights reach the engines and how that is proved."""

from __future__ import annotations

from pydantic import Field

from rltrain.config.section import Seconds, Section


class WeightSyncConfig(Section):
    bucket_bytes: int | None = Field(default=None, ge=2**16, le=2**42)
    """Size of the shared buffers that weights pass through (a larger tensor gets a bucket of its own); when left out
    256 MiB of shared memory, or 2 GiB of the GPU that trainer and engine share."""
    verify_every: int = Field(default=20, ge=1, le=10**9)
    """Compare checksums of the bytes sent and received on the first sync and every this many."""
    canary_tokens: int = Field(default=16, ge=2, le=2**24)
    """Length of the fixed prompt that trainer and engine both score after each sync."""
    canary_limit: float | None = Field(default=None, ge=1e-9, le=1e3)
    """Stop the run when their log-probs differ by more in the mean; 1e-3 in float32 and 1 in bfloat16 when left out."""
    timeout_s: Seconds = 600.0
    """Longest a sync may take."""
