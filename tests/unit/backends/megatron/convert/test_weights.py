"""Parameters from whole Hugging Face tensors and back, for any number of ranks."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch

from rltrain.backends.megatron.convert.weights import Weight


class Recorded:
    """Says which rows were read."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor, self.num_read = tensor, 0

    def __getitem__(self, index: object) -> torch.Tensor:
        found = self.tensor[index]  # pyright: ignore[reportArgumentType,reportCallIssue]
        self.num_read += found.numel()
        return found


def numbered(weight: Weight) -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    return {name: torch.randn(shape) for name, shape in weight.parts.items()}


def shards(weight: Weight, sources: Mapping[str, torch.Tensor], ranks: int) -> list[torch.Tensor]:
    return [weight.shard(sources, rank=rank, ranks=ranks) for rank in range(ranks)]


WEIGHTS = {
    "whole": Weight({"norm": (6,)}),
    "rows": Weight({"embedding": (8, 3)}, dim=0),
    "padded rows": Weight({"embedding": (7, 3)}, dim=0),
    "columns": Weight({"down": (3, 8)}, dim=1),
    "gate and up": Weight({"gate": (8, 3), "up": (8, 3)}, dim=0),
    "gate and up in one": Weight({"gate_up": (16, 3)}, dim=0, pieces=2),
    "heads": Weight({"q": (24, 3), "k": (12, 3), "v": (12, 3)}, dim=0, groups=4),
    "biases": Weight({"q": (24,), "k": (12,), "v": (12,)}, dim=0, groups=4),
}


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("name", WEIGHTS)
def test_what_ranks_hold_makes_the_whole_again(name: str, ranks: int) -> None:
    weight = WEIGHTS[name]
    sources = numbered(weight)
    held = shards(weight, sources, ranks)
    assert len({shard.shape for shard in held}) == 1
    whole = weight.whole(held)
    assert whole.keys() == sources.keys()
    assert all(torch.equal(whole[part], sources[part]) for part in sources)


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("name", WEIGHTS)
def test_pieces_laid_where_they_belong_make_the_whole_once(name: str, ranks: int) -> None:
    weight = WEIGHTS[name]
    sources = numbered(weight)
    found = {part: torch.full(shape, torch.nan) for part, shape in weight.parts.items()}
    for rank, shard in enumerate(shards(weight, sources, ranks if weight.dim is not None else 1)):
        for part, offset, values in weight.placed(shard, rank=rank, ranks=ranks):
            box = found[part][tuple(slice(a, a + n) for a, n in zip(offset, values.shape, strict=True))]
            assert box.shape == values.shape
            assert box.isnan().all()
            box.copy_(values)
    assert all(torch.equal(found[part], sources[part]) for part in sources)


@pytest.mark.parametrize("name", [name for name in WEIGHTS if name not in ("whole", "padded rows")])
def test_a_rank_reads_its_share_alone(name: str) -> None:
    weight = WEIGHTS[name]
    sources = {part: Recorded(tensor) for part, tensor in numbered(weight).items()}
    shard = weight.shard(sources, rank=1, ranks=4)
    assert sum(source.num_read for source in sources.values()) == shard.numel()
    assert all(4 * source.num_read == source.tensor.numel() for source in sources.values())


def test_rows_past_the_vocabulary_are_zeros() -> None:
    first, last = shards(WEIGHTS["padded rows"], {"embedding": torch.ones(7, 3)}, 2)
    assert first.sum() == 12 and last[:3].sum() == 9 and last[3].sum() == 0


def test_gate_lies_above_up_on_each_rank() -> None:
    for name, sources in {
        "gate and up": {
            "gate": torch.arange(8.0)[:, None].expand(8, 3),
            "up": 100 + torch.arange(8.0)[:, None].expand(8, 3),
        },
        "gate and up in one": {
            "gate_up": torch.cat([torch.arange(8.0), 100 + torch.arange(8.0)])[:, None].expand(16, 3)
        },
    }.items():
        last = WEIGHTS[name].shard(sources, rank=1, ranks=2)
        assert last[:, 0].tolist() == [4, 5, 6, 7, 104, 105, 106, 107]


@pytest.mark.parametrize("shape", [(6,), ()])
def test_rows_lie_by_groups_of_heads(shape: tuple[int, ...]) -> None:
    """Two groups, each of two query heads, a key head and a value head of three rows."""

    def rows(heads: list[str]) -> torch.Tensor:
        numbers = [100 * ord(head[0]) + 10 * int(head[1]) + row for head in heads for row in range(3)]
        return torch.tensor(numbers).view(-1, *[1] * len(shape)).expand(-1, *shape).contiguous()

    parts = {"q": rows(["q0", "q1", "q2", "q3"]), "k": rows(["k0", "k1"]), "v": rows(["v0", "v1"])}
    weight = Weight({name: tuple(part.shape) for name, part in parts.items()}, dim=0, groups=2)
    assert torch.equal(weight.shard(parts, rank=0, ranks=1), rows(["q0", "q1", "k0", "v0", "q2", "q3", "k1", "v1"]))
    assert torch.equal(weight.shard(parts, rank=1, ranks=2), rows(["q2", "q3", "k1", "v1"]))
