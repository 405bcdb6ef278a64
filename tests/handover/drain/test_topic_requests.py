"""Requested topics of whole batches."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.handover.drain.topic_requests import TOPIC_REQUEST, requested_topics, with_refused_requests
from penstock.records import ANNOTATIONS, body

TAGS = st.lists(st.text("ktp:abcx", max_size=6), max_size=4)


def batch_of(tags: list[list[str]]) -> pa.RecordBatch:
    annotations = pa.array([[("tags", "\0".join(each))] if each else None for each in tags], ANNOTATIONS)
    return body([b"%d" % number for number in range(len(tags))], annotations=annotations)


def expected(tags: list[str]) -> str | None:
    return next((tag[3:] for tag in reversed("\0".join(tags).split("\0")) if tag.startswith("kt:")), None)


@given(st.lists(TAGS, min_size=1, max_size=20))
def test_last_kt_tag_is_the_request(tags: list[list[str]]) -> None:
    requested = requested_topics(batch_of(tags))
    assert (requested.to_pylist() if requested is not None else [None] * len(tags)) == [expected(each) for each in tags]


def test_batch_without_tags_has_no_requests() -> None:
    assert requested_topics(body([b"a", b"b"])) is None


def test_tag_in_another_annotation_is_no_request() -> None:
    annotations = pa.array([[("path", "kt:other"), ("tags", "pk:a")], [("tags", "")]], ANNOTATIONS)
    assert requested_topics(body([b"a", b"b"], annotations=annotations)) is None


def test_part_of_a_batch_has_only_its_own_requests() -> None:
    batch = batch_of([["kt:first"], ["pk:a"], [], ["kt:last"]])
    assert requested_topics(batch.slice(1, 2)) is None
    requested = requested_topics(batch.slice(2))
    assert requested is not None
    assert requested.to_pylist() == [None, "last"]


@given(st.lists(st.tuples(TAGS, st.none() | st.text(max_size=5)), min_size=1, max_size=20))
def test_refused_requests_become_annotations(rows: list[tuple[list[str], str | None]]) -> None:
    batch = batch_of([tags for tags, _ in rows])
    requested = with_refused_requests(batch, pa.array([request for _, request in rows], pa.string()))
    requested.validate(full=True)
    assert requested.column("payload").equals(batch.column("payload"))
    collected = [dict(entry or []) for entry in requested.column("annotations").to_pylist()]
    before = [dict(entry or []) for entry in batch.column("annotations").to_pylist()]
    assert [entry.pop(TOPIC_REQUEST, None) for entry in collected] == [request for _, request in rows]
    assert collected == before
