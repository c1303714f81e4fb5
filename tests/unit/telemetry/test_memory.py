import os
import subprocess
import sys

from rltrain.telemetry.memory import memory_metrics, resident_bytes


def test_this_process_has_a_plausible_size() -> None:
    size = resident_bytes(os.getpid())
    assert size is not None
    assert 2**20 < size < 2**40


def test_a_larger_process_is_larger() -> None:
    code = "import sys; x = b'x' * int(sys.argv[1]); print(flush=True); sys.stdin.read()"
    sizes: list[int] = []
    for num_bytes in (0, 64 * 2**20):
        command = [sys.executable, "-c", code, str(num_bytes)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            size = resident_bytes(process.pid)
            assert size is not None
            sizes.append(size)
    assert 60 * 2**20 < sizes[1] - sizes[0] < 70 * 2**20


def test_a_process_that_is_gone_is_absent() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    metrics = memory_metrics({"driver": os.getpid(), "engine-0": process.pid})
    assert list(metrics) == ["memory/driver_bytes"]
