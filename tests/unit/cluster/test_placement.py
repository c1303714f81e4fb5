from rltrain.cluster.placement import plan_placement


def test_on_a_cpu_each_kind_gets_all_cores_since_they_take_turns():
    placement = plan_placement(
        num_trainers=2, num_engines=1, num_gpus=0, num_cores=8, trainer_threads=None, engine_threads=None
    )
    assert [share.num_threads for share in placement.trainers] == [4, 4]
    assert placement.engines[0].num_threads == 8
    assert placement.engines[0].num_gpus == 0


def test_threads_of_the_config_win():
    placement = plan_placement(
        num_trainers=1, num_engines=1, num_gpus=0, num_cores=8, trainer_threads=1, engine_threads=3
    )
    assert (placement.trainers[0].num_threads, placement.engines[0].num_threads) == (1, 3)


def test_more_workers_than_cores_still_get_a_thread():
    placement = plan_placement(
        num_trainers=4, num_engines=3, num_gpus=0, num_cores=2, trainer_threads=None, engine_threads=None
    )
    assert {share.num_threads for share in (*placement.trainers, *placement.engines)} == {1}


def test_trainer_and_engine_share_one_gpu():
    placement = plan_placement(
        num_trainers=1, num_engines=1, num_gpus=1, num_cores=8, trainer_threads=None, engine_threads=None
    )
    assert placement.trainers[0].num_gpus + placement.engines[0].num_gpus == 1.0


def test_three_workers_on_one_gpu_hold_no_more_than_it():
    placement = plan_placement(
        num_trainers=1, num_engines=2, num_gpus=1, num_cores=8, trainer_threads=None, engine_threads=None
    )
    shares = [share.num_gpus for share in (*placement.trainers, *placement.engines)]
    assert 0.99 <= sum(shares) <= 1.0


def test_names_are_unique():
    placement = plan_placement(
        num_trainers=2, num_engines=2, num_gpus=4, num_cores=8, trainer_threads=None, engine_threads=None
    )
    names = [share.name for share in (*placement.trainers, *placement.engines)]
    assert names == ["trainer-0", "trainer-1", "engine-0", "engine-1"]
