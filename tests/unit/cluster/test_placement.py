"""Who runs where: a pure plan of ranks, engines, machines and shares of GPUs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rltrain.cluster.placement import Demand, Node, Placement, plan_placement
from rltrain.config.errors import UserError

LAPTOP = [Node("laptop", 0, 8)]


def plan(nodes: list[Node], *, trainers: int = 1, engines: int = 1, device: str = "cpu", **more: int) -> Placement:
    demand = Demand(num_trainers=trainers, num_engines=engines, **({"tensor": 1, "gpus_per_engine": 1} | more))
    return plan_placement(demand, nodes, device=device)


def gpus(*counts: int) -> list[Node]:
    return [Node(f"node-{number}", count, 8) for number, count in enumerate(counts)]


def test_on_a_cpu_each_kind_gets_all_cores_since_they_take_turns() -> None:
    placement = plan(LAPTOP, trainers=2)
    assert [share.num_threads for share in placement.trainers] == [4, 4]
    assert placement.engines[0].num_threads == 8
    assert {share.num_gpus for share in (*placement.trainers, *placement.engines)} == {0}


def test_threads_of_the_config_win() -> None:
    placement = plan(LAPTOP, trainer_threads=1, engine_threads=3)
    assert (placement.trainers[0].num_threads, placement.engines[0].num_threads) == (1, 3)


def test_more_workers_than_cores_still_get_a_thread() -> None:
    placement = plan([Node("laptop", 0, 2)], trainers=4, engines=3)
    assert {share.num_threads for share in (*placement.trainers, *placement.engines)} == {1}
    assert {share.node for share in placement.trainers} == {"laptop"}


def test_names_are_unique_and_in_order_of_rank() -> None:
    placement = plan(gpus(4), trainers=2, engines=2, device="cuda")
    names = [share.name for share in (*placement.trainers, *placement.engines)]
    assert names == ["trainer-0", "trainer-1", "engine-0", "engine-1"]


def test_where_there_are_enough_each_has_gpus_of_its_own() -> None:
    placement = plan(gpus(8), trainers=4, engines=2, gpus_per_engine=2, device="cuda")
    assert [share.num_gpus for share in placement.trainers] == [1] * 4
    assert [share.num_gpus for share in placement.engines] == [2, 2]


@pytest.mark.parametrize("engines", [1, 2, 3])
def test_trainer_and_engines_share_one_gpu(engines: int) -> None:
    placement = plan(gpus(1), engines=engines, device="cuda")
    shares = [share.num_gpus for share in (*placement.trainers, *placement.engines)]
    assert min(shares) > 0 and 0.95 <= sum(shares) <= 1.0


def test_no_two_ranks_meet_on_a_gpu() -> None:
    placement = plan(gpus(4), trainers=4, engines=2, device="cuda")
    assert all(2 * share.num_gpus > 1 for share in placement.trainers)
    assert all(share.num_gpus + placement.trainers[0].num_gpus <= 1 for share in placement.engines)


def test_a_tensor_group_stays_on_one_machine() -> None:
    placement = plan(gpus(3, 8, 6), trainers=12, tensor=4, engines=0, device="cuda")
    assert [share.node for share in placement.trainers] == ["node-1"] * 8 + ["node-2"] * 4


def test_groups_larger_than_a_machine_fill_machines_in_order() -> None:
    placement = plan(gpus(2, 2), trainers=4, tensor=4, engines=0, device="cuda")
    assert [share.node for share in placement.trainers] == ["node-0", "node-0", "node-1", "node-1"]


def test_an_engine_stays_on_one_machine() -> None:
    placement = plan(gpus(4, 4), trainers=2, engines=2, gpus_per_engine=2, device="cuda")
    assert [share.node for share in placement.engines] == ["node-0", "node-1"]


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ({"trainers": 9}, ["actor.parallel", "9 ranks", "8 GPUs", "2 machines with 5 + 3"]),
        ({"trainers": 8, "tensor": 2}, ["2 neighbours"]),
        ({"trainers": 4, "engines": 2, "gpus_per_engine": 3}, ["rollout.tensor_parallel", "2 engines of 3 GPUs"]),
    ],
)
def test_what_does_not_fit_is_said_with_the_numbers(wanted: dict[str, int], words: list[str]) -> None:
    with pytest.raises(UserError) as caught:
        plan(gpus(5, 3), device="cuda", **wanted)
    assert all(word in str(caught.value) for word in words), caught.value


@given(
    st.lists(st.integers(1, 8), min_size=1, max_size=4), st.integers(1, 12), st.sampled_from([1, 2, 4]),
    st.integers(1, 6), st.sampled_from([1, 2]),
)  # fmt: skip
def test_no_machine_gives_more_gpus_than_it_has(
    counts: list[int], trainers: int, tensor: int, engines: int, size: int
) -> None:
    nodes = gpus(*counts)
    try:
        placement = plan(
            nodes, trainers=trainers * tensor, tensor=tensor, engines=engines, gpus_per_engine=size, device="cuda"
        )
    except UserError:
        return
    for node in nodes:
        held = [s.num_gpus for s in (*placement.trainers, *placement.engines) if s.node == node.name]
        assert round(sum(held), 6) <= node.num_gpus
    for start in range(0, trainers * tensor, tensor):
        group = {share.node for share in placement.trainers[start : start + tensor]}
        assert len(group) == 1 or all(node.num_gpus < tensor for node in nodes if node.name in group)
