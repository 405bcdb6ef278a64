from __future__ import annotations

import contextlib
import struct

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from penstock.kafka.errors import BadRecords, BatchTooLarge, UnknownCodec
from penstock.kafka.records import compression
from penstock.records import as_batch
from penstock.server.kafka.errors import BadChecksum, TakesLong
from penstock.server.kafka.records import decode as decoding
from penstock.server.kafka.records.decode import (
    MAX_HEADERS,
    QUICK_BYTES,
    QUICK_HEADERS,
    QUICK_RECORDS,
    are_quick,
    decode,
)
from tests.server.kafka.produced import CODECS, in_topic, plain, produced, read_back

VALUES = st.one_of(
    st.none(), st.binary(max_size=300), st.just(bytes(200)), st.just(b"\x00\x10\x00\x00\x00\x01\x00" * 9)
)
HEADERS = st.lists(st.tuples(st.text(max_size=5), st.one_of(st.none(), st.binary(max_size=9))), max_size=4)
RECORDS = st.lists(st.tuples(VALUES, VALUES, HEADERS), min_size=1, max_size=70)


def signed(batch: bytes) -> bytes:
    """Return the batch with the checksum of its current bytes."""
    return batch[:17] + struct.pack(">I", crc32c(batch[21:])) + batch[21:]


@given(RECORDS, st.sampled_from(list(CODECS)))
def test_produced_records_are_read_back(records, codec):
    rows = as_batch(decode(produced(records, codec)).rows)
    rows.validate(full=True)
    assert read_back(in_topic(rows)) == records


@pytest.mark.parametrize("size", [0, 1, 40, 100, 1000, 10_000])
def test_records_of_any_size_are_decoded(size):
    values = [bytes([number % 256]) * size for number in range(300)]
    assert as_batch(decode(plain(*values)).rows).column("payload").to_pylist() == values


def test_record_that_looks_like_records_is_one_record():
    inner = plain(b"a", b"b", b"c")[61:]
    assert as_batch(decode(plain(inner, inner * 50, b"")).rows).column("payload").to_pylist() == [
        inner,
        inner * 50,
        b"",
    ]


def test_text_and_binary_headers_become_annotations():
    headers = [("a", b"1"), ("a", b"2"), ("b", b"\xff"), ("c", None), ("kafka.base64.x", b"y"), ("", b"")]
    rows = as_batch(decode(produced([(b"k", b"v", headers), (None, None, [])])).rows)
    assert rows.column("annotations").to_pylist() == [
        [
            ("a", "1"),
            ("a", "2"),
            ("kafka.base64.b", "/w=="),
            ("kafka.none.c", ""),
            ("kafka.base64.kafka.base64.x", "eQ=="),
            ("", ""),
        ],
        [],
    ]
    assert read_back(in_topic(rows)) == [(b"k", b"v", headers), (None, None, [])]


def test_producer_id_epoch_and_sequence_are_returned():
    batch = decode(produced([(None, b"a", [])], producer=(77, 3, 12)))
    assert (batch.producer, batch.epoch, batch.sequence, batch.transactional) == (77, 3, 12, False)


@given(st.binary(max_size=400))
def test_any_bytes_are_records_or_refused(data):
    with pytest.raises(BadRecords):
        decode(data)


@given(RECORDS, st.sampled_from(list(CODECS)), st.data())
def test_any_bytes_with_a_good_checksum_are_records_or_refused(records, codec, data):
    batch = bytearray(produced(records, codec))
    for _ in range(data.draw(st.integers(1, 4))):
        batch[data.draw(st.integers(21, len(batch) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(BadRecords):
        as_batch(decode(signed(bytes(batch))).rows).validate(full=True)


def test_damage_and_unsupported_formats_raise_different_errors():
    batch = plain(b"a", b"b")
    with pytest.raises(BadChecksum):
        decode(batch[:-1] + b"?")
    with pytest.raises(UnknownCodec):
        decode(batch[:16] + b"\x01" + batch[17:])
    with pytest.raises(BadRecords, match="exactly one"):
        decode(batch + batch)
    with pytest.raises(UnknownCodec):
        decode(signed(batch[:22] + b"\x05" + batch[23:]))
    with pytest.raises(BadRecords, match="headers"):
        decode(produced([(None, b"", [("a", b"")] * (MAX_HEADERS + 1))]))


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_decompression_bomb_is_refused(monkeypatch, codec):
    monkeypatch.setattr(compression, "MAX_UNPACKED_BYTES", 1 << 20)
    with pytest.raises(BatchTooLarge):
        decode(produced([(None, bytes(2 << 20), [])], codec))


def test_snappy_header_with_an_impossible_size_is_damage_and_not_a_large_batch() -> None:
    announced = bytes([0x80, 0x80, 0x80, 0x10])  # 32 MiB, below the limit of a batch
    for block in (announced + b"x", b"\x82SNAPPY\x00" + bytes(8) + struct.pack(">i", 5) + announced + b"x"):
        with pytest.raises(BadRecords) as refusal:
            compression.unpack(memoryview(block), 2)
        assert not isinstance(refusal.value, BatchTooLarge)


def test_records_and_headers_over_the_limits_are_refused(monkeypatch):
    monkeypatch.setattr(decoding, "MAX_RECORDS", 3)
    monkeypatch.setattr(decoding, "MAX_ALL_HEADERS", 2)
    with pytest.raises(BadRecords):
        decode(plain(b"a", b"b", b"c", b"d"))
    with pytest.raises(BadRecords, match="headers"):
        decode(produced([(None, b"", [("a", b"")])] * 3))
    assert decode(produced([(None, b"", [("a", b"")])] * 2)).rows.num_rows == 2


def test_only_small_uncompressed_batches_are_quick() -> None:
    small, half = plain(b"a"), plain(bytes(QUICK_BYTES // 2))
    assert are_quick([small, b"", b"no batch", half])
    assert not are_quick([half, half])
    assert not are_quick([small, produced([(None, b"a", [])], "zstd")])
    many = plain(*[b""] * (QUICK_RECORDS // 2 + 1))
    assert are_quick([many])
    assert not are_quick([many, many])
    below_none = small[:57] + struct.pack(">i", -(2**31)) + small[61:]
    assert not are_quick([below_none, many, many])


def test_many_headers_raise_takes_long() -> None:
    headers: list[tuple[str, bytes | None]] = [("", b"\xff")] * (QUICK_HEADERS // 2)
    few, many = (produced([(None, bytes(100), headers)] * count) for count in (2, 3))
    assert are_quick([few, many])
    assert decode(few, quickly=True).rows.num_rows == 2
    with pytest.raises(TakesLong):
        decode(many, quickly=True)
    assert decode(many).rows.num_rows == 3
