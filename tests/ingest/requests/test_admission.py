"""Whose requests are taken, and what is unpacked of them."""

from __future__ import annotations

import base64
import gzip
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.ingest.requests.admission import ENCODINGS, check_token, decompress
from penstock.wire.requests import Refused
from tests.fuzzed import RAW

NAMES = st.sampled_from([*ENCODINGS, "identity", "br", "", "GZIP "])
BODIES = RAW | RAW.map(gzip.compress) | RAW.map(zlib.compress) | st.just(gzip.compress(bytes(1 << 20)))


@given(BODIES, NAMES)
def test_any_body_is_unpacked_within_bounds_or_refused(data: bytes, encoding: str) -> None:
    refused = None
    try:
        assert len(decompress(data, encoding, 30_000)) <= max(30_000, len(data))
    except Refused as error:
        refused = error
    assert refused is None or refused.status in (400, 413, 415)


def test_bomb_is_not_decompressed_beyond_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    produced: list[int] = []
    real = zlib.decompressobj

    class Counting:
        def __init__(self, *how: int) -> None:
            self._one = real(*how)

        def decompress(self, data: bytes, most: int) -> bytes:
            found = self._one.decompress(data, most)
            produced.append(len(found))
            return found

        def __getattr__(self, name: str) -> object:
            return getattr(self._one, name)

    monkeypatch.setattr(zlib, "decompressobj", Counting)
    bomb = gzip.compress(bytes(30 << 20))
    for data in (bomb, gzip.compress(b"x") + bomb):
        with pytest.raises(Refused) as refused:
            decompress(data, "gzip", 1 << 20)
        assert refused.value.status == 413
    assert max(produced) <= (1 << 20) + 1


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
