"""Messages are found by a text that is in them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.landing.table_paths import Layout
from penstock.landing.topics.from_folder import FolderStore
from penstock.sql.search import containing
from penstock.sql.tables import Tables
from tests.spark.spark_helpers import append, event

PAYLOADS = [b"plain needle", "über 'quoted' \\x41".encode(), b"\xff\x00raw", event(7, data={"note": "in the data"})]


@pytest.fixture
def tables(topics: Path, tmp_path: Path) -> Tables:
    append(topics, "t", PAYLOADS)
    return Tables(Layout.for_tables(tmp_path / "tables"), FolderStore(topics))


@pytest.mark.parametrize(
    ("text", "offsets"),
    [
        ("needle", [0]),
        ("über", [1]),
        ("'quoted'", [1]),
        ("\\x41", [1]),
        ("raw", [2]),
        ("in the data", [3]),
        ("A", []),
        ("e", [3, 1, 0]),
    ],
)
def test_search_matches_any_text(text: str, offsets: list[int], tables: Tables) -> None:
    assert [matches.position for matches in containing(tables, text, 9)] == [f"t:{offset}" for offset in offsets]


@pytest.mark.parametrize("text", ["größe's", '<a b="x">'])
def test_search_matches_a_text_with_escapes_of_json(text: str, topics: Path, tmp_path: Path) -> None:
    payload = json.dumps({"m": text}).replace("'", r"\u0027").replace("<", r"\u003c").replace(">", r"\u003e")
    append(topics, "t", [payload.replace("=", r"\u003d").encode(), event(7, data={"note": text}), b"other"])
    tables = Tables(Layout.for_tables(tmp_path / "tables"), FolderStore(topics))
    assert [match.position for match in containing(tables, text, 9)] == ["t:1", "t:0"]


@pytest.mark.parametrize("text", ["22", "2", "x22", "5C", "C3", "22m", "2" * 9000])
def test_search_does_not_match_how_duckdb_writes_bytes(text: str, topics: Path, tmp_path: Path) -> None:
    append(topics, "t", [b'{"m":"\xc3\xa4\\\\"}', f"<{text}>".encode(), event(7, data={"note": '"m"'})])
    tables = Tables(Layout.for_tables(tmp_path / "tables"), FolderStore(topics))
    assert [match.position for match in containing(tables, text, 9)] == ["t:1"]


def test_newest_matches_come_first_up_to_the_limit(tables: Tables) -> None:
    (matches,) = containing(tables, "e", 1)
    assert (matches.position, matches.kind, matches.payload) == ("t:3", "event", PAYLOADS[3])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(st.text(min_size=1, max_size=8))
def test_any_text_is_quoted(tables: Tables, text: str) -> None:
    matches = {match.position for match in containing(tables, text, 9)}
    assert matches >= {
        f"t:{index}" for index, payload in enumerate(PAYLOADS) if text.encode(errors="surrogatepass") in payload
    }
