"""The ledger checkpoint: read back unchanged, or refused with a reason."""

from __future__ import annotations

import contextlib
import json
import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from crc32c import crc32c
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.counts import Counts
from penstock.ledger.book.book_pages import BookPages, Covered, TopicFates
from penstock.ledger.book.bucket_tables import CountTable, RowTable
from penstock.ledger.book.checkpoint import BadCheckpoint, dump, parse, read, write
from penstock.ledger.posts import ClientPost

NAMES = st.text(max_size=6)
KEYS = st.tuples(NAMES, st.integers(0, 1 << 40))
COUNTS = st.dictionaries(NAMES, st.integers(-(1 << 60), 1 << 60).filter(bool), max_size=4).map(Counts)
BY_KEY = st.dictionaries(KEYS, COUNTS, max_size=4).map(CountTable)
PAIR = st.tuples(st.integers(0, 99), st.integers(0, 99))
BACKFILLS = st.frozensets(PAIR, max_size=3)
LANDED = st.builds(
    TopicFates, st.integers(0, 1 << 60), st.integers(-1, 99), BY_KEY, BY_KEY, st.lists(PAIR).map(tuple), BACKFILLS
)
PAGES = st.builds(
    BookPages,
    received=BY_KEY,
    logged=st.dictionaries(
        NAMES, st.dictionaries(KEYS, st.integers(0, 1 << 60), min_size=1, max_size=3).map(RowTable), max_size=3
    ),
    ends=st.dictionaries(NAMES, st.integers(0, 1 << 60), max_size=3),
    landed=st.dictionaries(NAMES, LANDED, max_size=3),
    clients=st.dictionaries(
        st.tuples(NAMES, NAMES), st.builds(ClientPost, NAMES, NAMES, st.integers(0, 99), COUNTS), max_size=3
    ).map(lambda posts: {key: replace(post, listener=key[0], sender=key[1]) for key, post in posts.items()}),
    audits=st.dictionaries(
        st.tuples(NAMES, NAMES, NAMES),
        st.dictionaries(KEYS, st.tuples(st.integers(0, 99), COUNTS), max_size=3),
        max_size=3,
    ),
    covered=st.dictionaries(NAMES, st.builds(Covered, st.integers(0, 99), st.integers(0, 99)), max_size=3),
    unreadable_ranges=st.dictionaries(
        NAMES, st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=3), max_size=2
    ),
    rolled=st.integers(0, 1 << 40),
).map(lambda pages: replace(pages, last_posts={life: number for number, life in enumerate(pages.audits)}))
KEPT = dump(
    BookPages(received=CountTable({("a", 60): Counts({"accepted": 5})}), covered={"t": Covered(5, 7)}, rolled=86_400)
)


@settings(max_examples=30, deadline=None)
@given(PAGES)
def test_checkpoint_is_read_back_unchanged(pages: BookPages) -> None:
    assert parse(dump(pages)) == pages


def test_checkpoint_replaces_the_previous_checkpoint(tmp_path: Path) -> None:
    for number in range(3):
        write(tmp_path, BookPages(rolled=number))
    assert read(tmp_path).rolled == 2
    assert [path.name for path in tmp_path.iterdir()] == ["LEDGER"]


@example(b"00000000")
@given(st.binary() | st.integers(0, len(KEPT) - 1).map(lambda cut: KEPT[:cut]))
def test_random_bytes_are_not_a_checkpoint(data: bytes) -> None:
    with pytest.raises(BadCheckpoint, match="it is damaged"):
        parse(data)


@pytest.mark.survives("ledger", "damaged bytes")
@given(st.integers(0, 8 * len(KEPT) - 1))
def test_flipped_bit_is_detected(bit: int) -> None:
    data = bytearray(KEPT)
    data[bit // 8] ^= 1 << bit % 8
    with pytest.raises(BadCheckpoint):
        parse(bytes(data))


def sealed(packed: bytes, version: bytes = b"2") -> bytes:
    """Return bytes with a valid checksum."""
    data = b"penstock ledger " + version + b"\n" + packed
    return b"%08x" % crc32c(data) + data


def packed(lines: Sequence[Any]) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write("\n".join(map(json.dumps, lines)).encode())
    return bytes(sink.getvalue())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
KINDS = ["rolled", "covered", "lost", "ends", "received", "logged", "landed", "fates", "client", "audit", "other"]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(KINDS), st.lists(JSON, max_size=5)).map(lambda line: [line[0], *line[1]])))
def test_lines_that_no_ledger_wrote_are_refused(lines: list[Any]) -> None:
    with contextlib.suppress(BadCheckpoint):
        parse(sealed(packed(lines)))


@pytest.mark.parametrize(
    ("data", "error_text"),
    [
        (sealed(packed([]), b"0"), "it has format 0, this version of Penstock reads 2"),
        (sealed(packed([]), b"1"), "it has format 1, this version of Penstock reads 2"),
        (sealed(packed([]), b"3"), "it has format 3, this version of Penstock reads 2"),
        (sealed(zlib.compress(b"[]")), "its content is impossible"),
        (sealed(packed([["unheard-of", 1]])), "its content is impossible"),
    ],
)
def test_other_version_or_content_is_refused_by_name(data: bytes, error_text: str) -> None:
    with pytest.raises(BadCheckpoint, match=error_text):
        parse(data)
