from __future__ import annotations

from itertools import product

from rltrain.rollout.seeds import engine_seed, request_seed


def all_seeds(run_seed: int, *, stream: str = "train", n: int = 8) -> list[int]:
    """Of every sample of 5 steps of 16 groups: the engine gives child i of a request `seed + i`."""
    return [
        request_seed(run_seed, stream=stream, step=step, group=group, n=n) + child
        for step, group, child in product(range(5), range(16), range(n))
    ]


def test_rol_03_every_sample_has_a_seed_of_its_own() -> None:
    seeds = all_seeds(1)
    assert len(set(seeds)) == len(seeds)


def test_rol_03_seeds_repeat_and_another_run_seed_gives_others() -> None:
    assert all_seeds(1) == all_seeds(1)
    assert not set(all_seeds(1)) & set(all_seeds(2))


def test_evaluation_doesnt_share_seeds_with_training() -> None:
    assert not set(all_seeds(1, stream="train")) & set(all_seeds(1, stream="heldout"))


def test_seeds_are_what_torch_takes() -> None:
    assert all(0 <= seed < 2**63 for seed in all_seeds(2**31 - 1))


def test_rol_03_engines_have_generators_of_their_own() -> None:
    seeds = [engine_seed(seed, engine=engine) for seed in (1, 2) for engine in range(8)]
    assert len(set(seeds)) == 16
    assert all(0 <= seed < 2**31 for seed in seeds)
