"""Any body is unpacked within the limit or refused."""

from __future__ import annotations

import gzip
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.ingest.requests.body_decompression import ENCODINGS, decompress
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
