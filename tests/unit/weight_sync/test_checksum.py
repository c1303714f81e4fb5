from __future__ import annotations

from rltrain.weight_sync.checksum import checksum


def test_the_checksum_is_the_standard_crc_32() -> None:
    assert checksum(memoryview(b"123456789")) == 0xCBF43926  # the check value of CRC-32/ISO-HDLC


def test_a_flipped_bit_changes_it() -> None:
    assert checksum(memoryview(b"\x00\x01")) != checksum(memoryview(b"\x00\x00"))
