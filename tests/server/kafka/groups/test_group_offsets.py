from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.server.kafka.groups.group_offsets import cursor_of, group_of
from penstock.server.kafka.groups.group_state import Refused


@given(st.text(max_size=300))
def test_any_name_is_a_distinct_group_or_refused(name: str) -> None:
    try:
        cursor = cursor_of(name)
    except Refused:
        assert not name or len(name.encode(errors="surrogatepass")) > 90
    else:
        assert group_of(cursor) == name
        assert len(cursor) <= 200


def test_group_with_a_valid_cursor_name_is_that_cursor() -> None:
    assert cursor_of("my-group_1.a") == "my-group_1.a"
    assert group_of("kafka-hex.zz") == "kafka-hex.zz"
    with pytest.raises(Refused):
        cursor_of("")
