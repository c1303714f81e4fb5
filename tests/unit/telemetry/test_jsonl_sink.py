import json
from pathlib import Path

from rltrain.telemetry.jsonl_sink import JsonlSink


def test_a_step_is_a_line_that_is_there_when_write_returns(tmp_path: Path) -> None:
    sink = JsonlSink(tmp_path / "metrics.jsonl")
    sink.write(1, {"reward/mean": 0.5})
    assert (tmp_path / "metrics.jsonl").read_text() == '{"step": 1, "reward/mean": 0.5}\n'
    sink.close()


def test_nan_and_infinities_are_null_so_that_lines_stay_json(tmp_path: Path) -> None:
    sink = JsonlSink(tmp_path / "metrics.jsonl")
    sink.write(2, {"a": float("nan"), "b": float("inf"), "c": float("-inf"), "d": 1.0})
    sink.close()

    def refuse(constant: str) -> float:
        raise AssertionError(constant)

    line = json.loads((tmp_path / "metrics.jsonl").read_text(), parse_constant=refuse)
    assert line == {"step": 2, "a": None, "b": None, "c": None, "d": 1.0}


def test_lines_are_appended(tmp_path: Path) -> None:
    for step in (1, 2):
        sink = JsonlSink(tmp_path / "metrics.jsonl")
        sink.write(step, {})
        sink.close()
    assert (tmp_path / "metrics.jsonl").read_text() == '{"step": 1}\n{"step": 2}\n'


def test_rewound_it_has_the_whole_lines_up_to_a_step_and_goes_on_behind_them(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 0}\n{"step": 1}\n{"step": 2}\n{"step": 3, "rew')
    sink = JsonlSink(path)
    sink.rewind(1)
    sink.write(2, {"again": 1.0})
    sink.close()
    assert path.read_text() == '{"step": 0}\n{"step": 1}\n{"step": 2, "again": 1.0}\n'


def test_rewound_to_a_step_that_was_half_written_it_drops_the_half(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 0}\n{"step": 1, "rew')
    sink = JsonlSink(path)
    sink.rewind(1)
    sink.close()
    assert path.read_text() == '{"step": 0}\n'
