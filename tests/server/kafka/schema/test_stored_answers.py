"""The answer to a stored batch, compared with kio's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.server.kafka.schema.messages import VERSIONS, Api, Request, encode_answer
from penstock.server.kafka.schema.stored_answers import stored_answer

FIRST, LAST = VERSIONS[Api.PRODUCE]
OFFSETS = st.integers(0, 2**63 - 1)
MILLIS = st.integers(0, 250_000_000_000_000 // 1000)


@pytest.mark.parametrize("version", range(FIRST, LAST + 1))
@given(offset=OFFSETS, millis=MILLIS, number=st.integers(-(2**31), 2**31 - 1), topic=st.sampled_from(["t", "a" * 249]))
def test_stored_answer_equals_the_one_built_by_kio(
    version: int, offset: int, millis: int, number: int, topic: str
) -> None:
    request = Request(Api.PRODUCE, version, number, "", None)
    part = {"index": 0, "base_offset": offset, "log_append_time": millis, "log_start_offset": 0}
    by_kio = encode_answer(request, {"responses": [{"name": topic, "partition_responses": [part]}]})
    assert stored_answer(request, topic, offset, millis) == by_kio
