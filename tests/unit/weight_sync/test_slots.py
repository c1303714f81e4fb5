from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import torch

from rltrain.weight_sync.slots import AttachedSlot, Slot

READER = """
import sys
from rltrain.weight_sync.slots import AttachedSlot
print(AttachedSlot(sys.argv[1]).tensor.tolist())
"""


def test_another_process_reads_what_was_written() -> None:
    slot = Slot(4)
    slot.tensor.copy_(torch.tensor([1, 2, 3, 255], dtype=torch.uint8))
    done = subprocess.run([sys.executable, "-c", READER, slot.path], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[1, 2, 3, 255]"
    slot.close()


def test_a_reader_sees_later_writes_and_outlives_the_writers_descriptor() -> None:
    slot = Slot(2)
    attached = AttachedSlot(slot.path)
    slot.close()
    slot.tensor.copy_(torch.tensor([7, 8], dtype=torch.uint8))
    assert attached.tensor.tolist() == [7, 8]
    assert bytes(attached.view(1)) == b"\x07"


def test_nothing_appears_in_the_shared_memory_directory() -> None:
    before = set(Path("/dev/shm").iterdir())
    slot = Slot(4096)
    assert not [path for path in set(Path("/dev/shm").iterdir()) - before if "rltrain" in path.name]
    slot.close()
