from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rltrain.checkpoint.manifest import MANIFEST, Damaged, Manifest, facts_of
from rltrain.checkpoint.retention import Retention
from rltrain.checkpoint.steps import LATEST, SavedSteps

SAVE = """
import os, signal, sys
from pathlib import Path
from rltrain.checkpoint.manifest import facts_of
from rltrain.checkpoint.retention import Retention
from rltrain.checkpoint.steps import SavedSteps

root, dies_at = Path(sys.argv[1]), int(sys.argv[2])
calls = 0
def count(event, _args):
    global calls
    if event.split(".")[0] in ("open", "os", "shutil"):
        calls += 1
        if calls == dies_at:
            os.kill(os.getpid(), signal.SIGKILL)
steps = SavedSteps(root, Retention(keep_last=1))
sys.addaudithook(count)
partial = steps.begin(20)
(partial / "weights").write_bytes(b"b" * 1000)
steps.commit(20, {"weights": facts_of(partial / "weights")}, metrics={})
"""


def save(steps: SavedSteps, step: int, *, text: str = "abc", **metrics: float) -> None:
    partial = steps.begin(step)
    for name in ("weights", "state.json"):
        (partial / name).write_text(f"{text}{step}")
    files = {name: facts_of(partial / name) for name in ("weights", "state.json")}
    steps.commit(step, files, metrics=metrics)


def names(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir())


def test_a_saved_step_is_whole_and_the_newest(tmp_path: Path) -> None:
    steps = SavedSteps(tmp_path / "checkpoints", Retention())
    assert steps.newest() is None
    save(steps, 3, reward=0.5)
    found = steps.newest()
    assert found is not None
    assert (found.step, found.path, dict(found.manifest.metrics)) == (
        3,
        tmp_path / "checkpoints/step_3",
        {"reward": 0.5},
    )
    assert (found.path / "weights").read_text() == "abc3"
    assert (tmp_path / "checkpoints" / LATEST).read_text() == "step_3\n"
    found.manifest.check(found.path, contents=True)


def test_ckp_12_the_newest_is_by_number_among_whole_ones(tmp_path: Path) -> None:
    """CKP-12."""
    steps = SavedSteps(tmp_path, Retention())
    for step in (9, 100, 10):
        save(steps, step)
    shutil.copytree(tmp_path / "step_9", tmp_path / "step_final.tmp")
    shutil.copytree(tmp_path / "step_9", tmp_path / ".step_200.partial")
    (tmp_path / "step_300").mkdir()
    found = steps.newest()
    assert found is not None
    assert found.step == 100
    assert list(steps.damaged()) == [300]


@pytest.mark.parametrize("damage", ["missing", "truncated", "no manifest", "half a manifest"])
def test_ckp_04_a_damaged_step_is_passed_over_and_said(tmp_path: Path, damage: str) -> None:
    """CKP-04."""
    steps = SavedSteps(tmp_path, Retention())
    save(steps, 10)
    save(steps, 20)
    file = tmp_path / "step_20" / (MANIFEST if "manifest" in damage else "weights")
    if damage in ("missing", "no manifest"):
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:-3])
    found = steps.newest()
    assert found is not None
    assert found.step == 10
    assert file.name in steps.damaged()[20]


def test_a_flipped_bit_is_found_when_contents_are_checked(tmp_path: Path) -> None:
    steps = SavedSteps(tmp_path, Retention())
    save(steps, 10)
    file = tmp_path / "step_10" / "weights"
    data = bytearray(file.read_bytes())
    data[1] ^= 1
    file.write_bytes(data)
    manifest = Manifest.read(file.parent)
    manifest.check(file.parent, contents=False)
    with pytest.raises(Damaged, match="weights has other bytes"):
        manifest.check(file.parent, contents=True)


def test_ckp_02_a_save_that_fails_loses_nothing(tmp_path: Path) -> None:
    """CKP-02: keep one, the second save fails, the first is still there; after a success only the second is."""
    steps = SavedSteps(tmp_path, Retention(keep_last=1))
    save(steps, 1)
    partial = steps.begin(2)
    (partial / "weights").write_text("abc")
    facts = facts_of(partial / "weights")
    (partial / "weights").write_text("ab")
    with pytest.raises(Damaged, match="weights has 2 bytes, 3 were written"):
        steps.commit(2, {"weights": facts}, metrics={})
    steps.abandon(2)
    assert names(tmp_path) == [LATEST, "step_1"]
    save(steps, 2)
    assert names(tmp_path) == [LATEST, "step_2"]
    assert (tmp_path / LATEST).read_text() == "step_2\n"


def test_ckp_03_retention_looks_at_the_disk(tmp_path: Path) -> None:
    """CKP-03: three processes with one save each and two to keep."""
    for step in (1, 2, 3):
        save(SavedSteps(tmp_path, Retention(keep_last=2)), step)
    assert names(tmp_path) == [LATEST, "step_2", "step_3"]


def test_a_damaged_newer_step_never_costs_the_whole_one(tmp_path: Path) -> None:
    steps = SavedSteps(tmp_path, Retention(keep_last=1))
    save(steps, 10)
    shutil.copytree(tmp_path / "step_10", tmp_path / "step_30")
    (tmp_path / "step_30" / "weights").unlink()
    save(steps, 20)
    assert names(tmp_path) == [LATEST, "step_20", "step_30"]


def test_the_best_by_a_metric_stays(tmp_path: Path) -> None:
    steps = SavedSteps(tmp_path, Retention(keep_last=1, keep_best=1), metric="eval/accuracy")
    for step, accuracy in ((1, 0.2), (2, 0.9), (3, 0.4), (4, 0.3)):
        save(steps, step, **{"eval/accuracy": accuracy})
    assert names(tmp_path) == [LATEST, "step_2", "step_4"]


def test_ckp_04_a_process_killed_at_any_call_leaves_a_whole_step(tmp_path: Path) -> None:
    """CKP-04: SIGKILL before each of the system's calls that a save makes; the next save then goes through."""
    finished, dies_at = False, 0
    while not finished:
        dies_at += 1
        root = tmp_path / str(dies_at)
        save(SavedSteps(root, Retention()), 10)
        done = subprocess.run([sys.executable, "-c", SAVE, str(root), str(dies_at)], check=False, env=os.environ)
        finished = done.returncode == 0
        assert finished or done.returncode == -signal.SIGKILL
        steps = SavedSteps(root, Retention(keep_last=1))
        found = steps.newest()
        assert found is not None
        assert (root / LATEST).read_text().strip() in {"step_10", "step_20"}
        assert found.step in {10, 20}
        found.manifest.check(found.path, contents=True)
        save(steps, 30)
        assert names(root) == [LATEST, "step_30"]
    assert dies_at > 10
