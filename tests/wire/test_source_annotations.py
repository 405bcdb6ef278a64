"""The source address, and a local sender's credentials, among a message's annotations."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.records import ANNOTATIONS, BODY, body
from penstock.wire.source_annotations import annotate_credentials, annotate_sources

MAPS = st.one_of(st.none(), st.lists(st.tuples(st.sampled_from(["tags", "host"]), st.sampled_from(["", "a\0b", "é"]))))


@settings(deadline=None)
@given(st.lists(st.tuples(MAPS, st.integers(0, 2)), max_size=12), st.integers(0, 3))
def test_address_follows_existing_annotations(rows: list[tuple[object, int]], skipped: int) -> None:
    payloads = pa.array([b"%d" % number for number in range(len(rows))], pa.binary())
    batch = body(payloads, annotations=pa.array([entries for entries, _ in rows], ANNOTATIONS)).slice(skipped)
    names = ["127.0.0.1", "::1", "10.0.0.1"]
    got = annotate_sources(batch, names, np.array([indices for _, indices in rows[skipped:]], np.int64))
    got.validate(full=True)
    assert got.schema == BODY
    assert got["payload"].to_pylist() == batch["payload"].to_pylist()
    assert got["annotations"].to_pylist() == [
        [*(entries or ()), ("source_address", names[indices])] for entries, indices in rows[skipped:]
    ]


IDS = st.one_of(st.sampled_from([0, 1 << 31, (1 << 32) - 2, (1 << 32) - 1]), st.integers(0, (1 << 32) - 1))


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1 << 22), IDS, IDS), max_size=8))
def test_credentials_are_numbers_of_any_process_user_and_group(rows: list[tuple[int, int, int]]) -> None:
    batch = body(pa.array([b""] * len(rows), pa.binary()))
    annotated = annotate_credentials(batch, np.array(rows, np.int64).reshape(-1, 3))
    assert annotated["annotations"].to_pylist() == [
        [("source_pid", str(pid)), ("source_uid", str(uid)), ("source_gid", str(gid))] for pid, uid, gid in rows
    ]
