"""What differs between the releases of vLLM that rltrain runs on: 0.26 on GPUs, 0.32 on CPUs."""

from __future__ import annotations

from typing import Any

import vllm.exceptions

REFUSALS: tuple[type[Exception], ...] = (ValueError, getattr(vllm.exceptions, "VLLMClientError", ValueError))
"""What a request that can't be served is refused with; before 0.32 always a ValueError."""


async def name_weights(core: Any, version: int) -> None:
    """Tells the engine's core which weights it samples from; before 0.32 it keeps no track of that.

    Results then carry no versions, and `sampling.result` stamps the newest: the synchronous loop never changes weights
    while it generates.
    """
    setter = getattr(core, "set_weight_version_async", None)
    if setter is not None:
        await setter(str(version))
