"""Seeds that differ for every sample of a run, whatever the number of engines."""

from __future__ import annotations

import zlib

import numpy as np

from rltrain.config.rollout import MOST_SAMPLES_PER_STEP


def request_seed(run_seed: int, *, stream: str, step: int, group: int, n: int) -> int:
    """Seed of a group's request, whose child i the engine gives `seed + i`: seeds of a step's groups lie n apart.

    The upper 40 bits depend on the run's seed, the stream (training, or an evaluation set) and the step, by numpy's
    SeedSequence; the lower ones count the step's samples.
    """
    first = group * n
    if first + n > MOST_SAMPLES_PER_STEP:
        raise ValueError(f"group {group} of {n} samples: a step has at most {MOST_SAMPLES_PER_STEP} samples")
    high, low = np.random.SeedSequence([run_seed, zlib.crc32(stream.encode()), step]).generate_state(2, np.uint32)
    return ((int(high) << 8 | int(low) & 0xFF) << 22) + first


def engine_seed(run_seed: int, *, engine: int) -> int:
    """Seed of an engine's own generator, which samples unseeded requests: engines must not draw the same."""
    return int(np.random.SeedSequence([run_seed, engine]).generate_state(1, np.uint32)[0]) >> 1
