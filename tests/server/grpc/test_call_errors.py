"""Requests of gRPC."""

from __future__ import annotations

import contextlib
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from penstock.server.grpc.call_errors import parsed
from penstock.server.reading.query import Query
from penstock.slogd import slogd_pb2 as pb
from penstock.slogd.errors import BadRequest
from tests.fuzzed import RAW

KINDS = [getattr(pb, name) for name in pb.DESCRIPTOR.message_types_by_name if name.endswith("Request")]


@given(st.sampled_from(KINDS), RAW)
def test_any_bytes_are_a_request_or_refused(kind: Any, data: bytes) -> None:
    with contextlib.suppress(BadRequest):
        assert isinstance(parsed(kind, data), kind)


@given(
    st.builds(
        pb.GetLogsRequest,
        topic=st.text(max_size=5),
        max_messages=st.integers(-(2**31), 2**31 - 1),
        filter=st.text(max_size=20),
    )
)
def test_any_request_for_entries_is_a_query_or_refused(request: pb.GetLogsRequest) -> None:
    with contextlib.suppress(BadRequest):
        assert Query.from_request(request).topic == request.topic
