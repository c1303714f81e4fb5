from __future__ import annotations

import pytest
import torch

from rltrain.weight_sync.checksum import checksum, device_checksum, tensors_digest


def test_the_checksum_is_the_standard_crc_32() -> None:
    assert checksum(memoryview(b"123456789")) == 0xCBF43926  # the check value of CRC-32/ISO-HDLC


def test_a_flipped_bit_changes_it() -> None:
    assert checksum(memoryview(b"\x00\x01")) != checksum(memoryview(b"\x00\x00"))


def test_a_devices_checksum_is_the_sum_of_words_times_odd_numbers() -> None:
    words = torch.tensor([5, -1, 2**62], dtype=torch.int64)
    assert device_checksum(words.view(torch.uint8)) == (5 * 1 - 1 * 3 + 2**62 * 5) % 2**64


def test_a_devices_checksum_notices_any_changed_byte_and_words_that_trade_places() -> None:
    data = torch.arange(64, dtype=torch.uint8)
    first = device_checksum(data)
    for place in range(64):
        changed = data.clone()
        changed[place] ^= 128
        assert device_checksum(changed) != first
    assert device_checksum(data.view(8, 8).flip(0).reshape(-1)) != first


def test_a_devices_checksum_counts_places_over_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    data = torch.arange(80, dtype=torch.uint8)
    whole = device_checksum(data)
    monkeypatch.setattr("rltrain.weight_sync.checksum.CHUNK_WORDS", 3)
    assert device_checksum(data) == whole


def test_a_digest_of_tensors_knows_names_types_and_values_but_no_order() -> None:
    tensors = {"a": torch.arange(3.0), "b": torch.ones(2, 2, dtype=torch.bfloat16)}
    first = tensors_digest(tensors.items())
    assert tensors_digest(reversed(list(tensors.items()))) == first
    others = (
        tensors | {"a": torch.tensor([0.0, 1.0, 2.0000002])},
        tensors | {"a": torch.tensor([-0.0, 1.0, 2.0])},
        tensors | {"b": torch.ones(4, dtype=torch.bfloat16)},
        {"a": tensors["a"], "c": tensors["b"]},
    )
    assert len({first, *(tensors_digest(other.items()) for other in others)}) == 5
