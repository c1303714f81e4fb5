import os
import subprocess
import sys
import time
import uuid
from pathlib import Path

from rltrain.cluster.reaper import Reaper, end_all, processes_of

SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]


def sleeper(token: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(SLEEP, env=os.environ | {"RLTRAIN_RUN_TOKEN": token}, start_new_session=True)


def test_only_processes_with_the_token_are_ended():
    token, other = uuid.uuid4().hex, uuid.uuid4().hex
    mine, theirs = sleeper(token), sleeper(other)
    try:
        assert mine.pid in processes_of(token)
        assert end_all(token) == [mine.pid]
        assert mine.wait(5) == -9
        assert theirs.poll() is None
    finally:
        theirs.kill()
        theirs.wait()


def test_the_reaper_acts_when_its_driver_is_killed(tmp_path: Path):
    token = uuid.uuid4().hex
    directory = tmp_path / "temporary"
    directory.mkdir()
    driver = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys, time; from pathlib import Path; from rltrain.cluster.reaper import Reaper;"
            "reaper = Reaper(sys.argv[1], Path(sys.argv[2])); print('up', flush=True); time.sleep(60)",
            token,
            str(directory),
        ],
        stdout=subprocess.PIPE,
    )
    assert driver.stdout is not None and driver.stdout.readline() == b"up\n"
    worker = sleeper(token)
    driver.kill()
    driver.wait()
    assert worker.wait(15) == -9
    deadline = time.monotonic() + 5
    while directory.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not directory.exists()


def test_finish_ends_what_is_left_at_once(tmp_path: Path):
    token = uuid.uuid4().hex
    reaper, worker = Reaper(token, tmp_path / "none"), sleeper(token)
    while worker.pid not in processes_of(token):  # the child has its environment only after exec
        time.sleep(0.01)
    reaper.finish()
    assert worker.wait(5) == -9
