"""A request has a token in one of the forms of its protocol, or is refused."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.ingest.requests.tokens import check_token
from penstock.wire.requests import Refused


@given(st.text(st.characters(codec="latin-1"), max_size=30), st.text(max_size=9))
def test_no_other_header_is_a_token(header: str, query: str) -> None:
    with pytest.raises(Refused):
        check_token(["the only one"], {"authorization": header}, {"token": query})


@pytest.mark.parametrize(
    "headers",
    [
        {"authorization": "Bearer one"},
        {"authorization": "splunk two"},
        {"authorization": "ApiKey one"},
        {"authorization": "ApiKey " + base64.b64encode(b"id:two").decode()},
        {"authorization": "Basic " + base64.b64encode(b"anybody:one").decode()},
    ],
)
def test_each_protocol_has_its_own_form(headers: dict[str, str]) -> None:
    check_token(["one", "two"], headers, {})
    check_token([], {}, {})
    with pytest.raises(Refused) as refused:
        check_token(["three"], headers, {})
    assert refused.value.status == 403
