from __future__ import annotations

import signal
import subprocess
import sys

WATCHER = """
import sys, time
from rltrain.backends.vllm.owner_watch import die_with
die_with(int(sys.argv[1]))
print("watching", flush=True)
time.sleep(60)
"""


def test_a_process_dies_with_its_owner() -> None:
    owner = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    watcher = subprocess.Popen([sys.executable, "-c", WATCHER, str(owner.pid)], stdout=subprocess.PIPE)
    assert watcher.stdout is not None
    assert watcher.stdout.readline() == b"watching\n"
    assert watcher.poll() is None
    owner.kill()
    owner.wait()
    assert watcher.wait(timeout=10) == -signal.SIGKILL
    watcher.stdout.close()


def test_it_dies_at_once_when_the_owner_is_gone_already() -> None:
    owner = subprocess.Popen([sys.executable, "-c", "pass"])
    owner.wait()
    done = subprocess.run([sys.executable, "-c", WATCHER, str(owner.pid)], capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL
