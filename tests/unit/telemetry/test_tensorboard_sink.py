import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from rltrain.telemetry.tensorboard_sink import TensorBoardSink


def test_scalars_can_be_read_back(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    sink = TensorBoardSink(tmp_path)
    sink.write(1, {"reward/mean": 0.25, "train/loss": -1.5})
    sink.write(2, {"reward/mean": 0.5})
    sink.close()
    events: Any = EventAccumulator(str(tmp_path))
    events.Reload()
    assert [(event.step, event.value) for event in events.Scalars("reward/mean")] == [(1, 0.25), (2, 0.5)]
    assert [(event.step, event.value) for event in events.Scalars("train/loss")] == [(1, -1.5)]


def test_steps_that_come_again_are_shown_once(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    first = TensorBoardSink(tmp_path)
    for step in (1, 2, 3):
        first.write(step, {"loss": 1.0})
    first.close()
    time.sleep(1.1)  # files are read in the order of their names, which have the second
    again = TensorBoardSink(tmp_path)
    again.rewind(1)
    for step in (2, 3):
        again.write(step, {"loss": 2.0})
    again.close()
    events: Any = EventAccumulator(str(tmp_path))
    events.Reload()
    assert [(event.step, event.value) for event in events.Scalars("loss")] == [(1, 1.0), (2, 2.0), (3, 2.0)]


def test_it_loads_no_torch_and_no_tensorflow(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from rltrain.telemetry.tensorboard_sink import TensorBoardSink as Sink\n"
        "sink = Sink(Path(sys.argv[1])); sink.write(1, {'a': 1.0}); sink.close()\n"
        "print([name for name in ('torch', 'tensorflow', 'ray', 'vllm') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
    assert list(tmp_path.iterdir())
