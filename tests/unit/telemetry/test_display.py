from __future__ import annotations

import io

import pytest
from rich.console import Console

from rltrain.telemetry.display import Display, make_display, num_samples_due
from rltrain.telemetry.live_display import LiveDisplay
from rltrain.telemetry.plain_display import PlainDisplay
from rltrain.telemetry.progress import SampleText

METRICS = {
    "reward/mean": 0.5,
    "response/length_mean": 4.0,
    "kl/reference": 0.0125,
    "train/loss": -0.01,
    "throughput/tokens_per_s": 12345.0,
    "time/step_s": 0.5,
    "time/rollout_s": 0.3,
    "time/update_s": 0.19,
    "time/other_s": 0.01,
}
HOSTILE = SampleText(prompt="7=", response="\x1b[2J[red]77\u202e\n\x9b1m", label="7777", reward=0.5)


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def live(stream: io.StringIO) -> LiveDisplay:
    console = Console(file=stream, force_terminal=True, width=150, highlight=False)
    return LiveDisplay(num_steps=200, name="quick", console=console)


def show_everything(display: Display) -> None:
    display.start()
    display.note("starting [bold]engines[/bold] \x1b[2J")
    display.step(10, METRICS)
    display.evaluation(10, {"eval/rep/reward_mean": 0.25, "eval/rep/pass@1": 0.125, "train/loss": 3.0})
    display.samples(10, [HOSTILE])
    display.close()
    display.close()


def test_without_a_terminal_each_step_is_one_plain_line() -> None:
    stream = io.StringIO()
    display = make_display(num_steps=200, name="quick", stream=stream)
    show_everything(display)
    assert stream.getvalue().split("\n") == [
        "run quick, 200 steps",
        "starting [bold]engines[/bold] \\x1b[2J",
        "step 10/200  reward 0.500  length 4.0  kl 0.0125  loss -0.0100  tok/s 12,345  step s 0.50"
        "  (rollout 60%, update 38%, other 2%)  eta 1m35s",
        "eval at 10  rep/reward_mean 0.250  rep/pass@1 0.125",
        "sample at 10  '7=' -> '\\x1b[2J[red]77\\u202e\\n\\x9b1m'  label '7777'  reward 0.500",
        "",
    ]


def test_the_live_view_shows_step_numbers_time_split_and_evaluations() -> None:
    stream = io.StringIO()
    show_everything(live(stream))
    shown = Console(file=io.StringIO()).render_str(stream.getvalue()).plain
    for text in ("step 10/200", "eta 1m35s", "0.0125", "12,345", "rollout 60%", "update 38%", "rep/pass@1", "0.125"):
        assert text in shown


def test_sec_text_of_models_and_data_reaches_no_terminal_as_escapes_or_markup() -> None:
    stream = io.StringIO()
    show_everything(live(stream))
    written = stream.getvalue()
    assert "\\x1b[2J[red]77\\u202e\\n\\x9b1m" in written
    assert "starting [bold]engines[/bold] \\x1b[2J" in written
    assert "\x1b[2J" not in written
    assert "\u202e" not in written
    assert "\x9b" not in written


def test_the_view_suits_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert isinstance(make_display(num_steps=1, name="x", stream=Terminal()), LiveDisplay)
    assert isinstance(make_display(num_steps=1, name="x", stream=io.StringIO()), PlainDisplay)
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(make_display(num_steps=1, name="x", stream=Terminal()), PlainDisplay)


def test_a_stream_that_cannot_encode_a_character_gets_its_escape() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    display = PlainDisplay(num_steps=1, name="x", stream=stream)
    display.samples(1, [SampleText(prompt="é", response="字", label=None, reward=None)])
    assert raw.getvalue() == b"sample at 1  '\\xe9' -> '\\u5b57'  reward none\n"


@pytest.mark.parametrize(("step", "evaluated", "due"), [(10, False, 2), (11, False, 0), (11, True, 2), (20, True, 2)])
def test_samples_are_shown_with_evaluations_and_every_tenth_step(step: int, evaluated: bool, due: int) -> None:
    assert num_samples_due(step, evaluated=evaluated, show_samples=2) == due
