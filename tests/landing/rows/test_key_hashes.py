"""Keys of events: MD5 of topic and uuid."""

from __future__ import annotations

from hashlib import md5

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.landing.duplicates.events_seen import key_hashes

TEXTS = st.text(max_size=20)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(TEXTS, TEXTS), max_size=30))
def test_a_key_is_the_md5_of_its_topic_and_uuid_in_two_halves(rows: list[tuple[str, str]]) -> None:
    topics, uuids = (pa.array([row[at] for row in rows], pa.string()) for at in (0, 1))
    high, low = key_hashes(topics, uuids)
    whole = [int.from_bytes(md5(f"u:{topic}:{uuid}".encode()).digest(), "little") for topic, uuid in rows]
    assert [(int(up) << 64) | int(down) for up, down in zip(high, low, strict=True)] == whole
