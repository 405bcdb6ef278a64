"""Queries on tables in an object store."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.config.syntax.tables_url import TablesUrl
from penstock.landing.table_paths import Layout
from penstock.sql.cut import StateElsewhere
from penstock.sql.query import Query
from penstock.sql.tables import Tables
from tests.landing.writing.test_landing_at_url import Landing


def test_tables_at_url_are_queried_within_the_readable_topics(at_url: Layout) -> None:
    Landing(at_url).land(0, range(10))
    for readable, rows in ((None, 10), (frozenset({"events"}), 10), (frozenset({"other"}), 0)):
        with Query(Tables(at_url, readable=readable), "select count(*) n from events where type = 'click'") as query:
            assert query.answer().to_pylist() == [{"n": rows}]


def test_tables_with_state_on_another_machine_are_refused(at_url: Layout, tmp_path: Path) -> None:
    Landing(at_url).land(0, range(10))
    assert at_url.store is not None
    here = Layout.for_tables(TablesUrl(at_url.store.root, tmp_path / "none", at_url.store.options))
    with pytest.raises(StateElsewhere):
        Query(Tables(here), "select count(*) from events")
