from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.slogd.columns import encode
from penstock.slogd.columns.encode import append_request, logs, response, responses
from penstock.slogd.columns.entries import to_body
from penstock.slogd.slogd_pb2 import AppendRequest, GetLogsResponse, LogEntry
from tests.slogd.columns.test_entries import entries, from_batch, stored


@given(st.lists(entries, min_size=1, max_size=8), st.integers(0, 2**62), st.data())
def test_encoded_columns_equal_protobuf(sent: list[LogEntry], first: int, data: st.DataObject) -> None:
    begin = data.draw(st.integers(0, len(sent) - 1))
    batch = stored(to_body(sent), first).slice(begin)
    expected = GetLogsResponse(logs=from_batch(batch))
    written = logs(batch)
    assert GetLogsResponse.FromString(written) == expected
    assert len(written) == expected.ByteSize()


def test_encoded_bytes_equal_protobuf() -> None:
    sent = [LogEntry(raw_bytes=b"x" * n, key=b"k", annotations={"a": "b"} if n % 2 else None) for n in range(300)]
    batch = stored(to_body(sent))
    assert logs(batch) == GetLogsResponse(logs=from_batch(batch)).SerializeToString()


@pytest.mark.parametrize("small", [-1, 100])
def test_response_of_several_batches_has_next_offset(small: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encode, "MAX_PROTOBUF_ROWS", small)
    batch = stored(to_body([LogEntry(raw_bytes=b"a"), LogEntry()]))
    decoded = GetLogsResponse.FromString(response([batch.slice(0, 1), batch.slice(1)], next_offset=7))
    assert decoded == GetLogsResponse(logs=from_batch(batch), next_offset=7)


@given(st.lists(entries, min_size=1, max_size=12), st.integers(1, 13), st.integers(0, 3))
def test_responses_equal_single_responses(sent: list[LogEntry], rows: int, before: int) -> None:
    batch = stored(to_body(sent)).slice(min(before, len(sent) - 1))
    alone = [response([batch.slice(begin, rows)]) for begin in range(0, len(batch), rows)]
    together = responses([batch.slice(0, 1), batch.slice(1)], rows)
    parsed = [[GetLogsResponse.FromString(answer) for answer in answers] for answers in (together, alone)]
    assert parsed[0] == parsed[1]


def test_response_without_rows_is_empty() -> None:
    assert response([]) == b""
    assert GetLogsResponse.FromString(response([], 3)).next_offset == 3


@given(st.lists(entries, max_size=8))
def test_append_request_has_the_rows(sent: list[LogEntry]) -> None:
    request = AppendRequest.FromString(append_request("t", to_body(sent), producer_id="me", sequence=3))
    assert request == AppendRequest(topic="t", logs=sent, producer_id="me", sequence=3)


def test_null_annotation_is_encoded_as_empty_text() -> None:
    body = to_body([LogEntry(annotations={"a": ""})])
    null = pa.MapArray.from_arrays([0, 1], ["a"], pa.nulls(1, pa.string()))
    with_null = pa.RecordBatch.from_arrays([*body.columns[:3], null], schema=body.schema)
    assert AppendRequest.FromString(append_request("t", with_null)).logs[0].annotations == {"a": ""}
