"""Queries over the table and the unlanded part of the log."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from penstock.landing.duplicates.landed_keys import MANIFEST
from penstock.landing.from_kafka.rows import LOG_ROW, with_null_partition
from penstock.landing.requests.backfill_requests import write_request
from penstock.landing.requests.conditions import parse_conditions
from penstock.landing.requests.deletions import REQUESTED
from penstock.landing.requests.deletions import request_deletion as delete
from penstock.landing.table.landed_table import begin_table
from penstock.landing.table_paths import Layout
from penstock.landing.topics.from_folder import FolderStore
from penstock.landing.topics.topic_store import Range
from penstock.landing.transform.rules import TransformRules
from penstock.landing.writing.batch_commit import BatchCommit
from penstock.landing.writing.part_writer import Job, MessageBatch, write_part
from penstock.proof.watermarks import keep_watermarks
from penstock.sql import query as module
from penstock.sql.query import BadQuery, Query
from penstock.sql.tables import Tables
from penstock.upkeep.compaction.compaction import compact_table
from penstock.upkeep.deletion.removal import execute_deletions
from tests.spark.spark_helpers import append, event

WINDOW = 600_000_000
NUMBERS = 'select uuid from events order by "offset"'
PLAN = '{"batchWatermarkMs":0,"batchTimestampMs":1}'


@dataclass
class Pipeline:
    """Lands as the pipeline does, without Spark: its plan, the files, the commit."""

    topics: Path
    layout: Layout
    end: dict[str, int] = field(default_factory=dict)
    batch: int = -1

    def __post_init__(self) -> None:
        table = begin_table(self.layout)
        self._commit = BatchCommit(table, self.layout.keys, WINDOW)
        self._job = Job(table.folder, self.layout.keys, WINDOW)

    def plan(self, **end: int) -> None:
        self.batch += 1
        self.end |= end
        path = self.layout.checkpoint / "offsets" / str(self.batch)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(["v1", PLAN, json.dumps(self.end)]))

    def commit(self, begin: int, end: int) -> None:
        store = FolderStore(self.topics)
        sources = [MessageBatch(with_null_partition(rows)) for rows in store.read(Range("t", begin, end), LOG_ROW)]
        self._commit.land(self.batch, lambda: [write_part(sources, self._job, 1)])

    def land(self, begin: int, end: int) -> None:
        self.plan(t=end)
        self.commit(begin, end)


@pytest.fixture
def pipeline(topics: Path, tmp_path: Path) -> Pipeline:
    return Pipeline(topics, Layout.for_tables(tmp_path / "tables"))


@pytest.fixture
def tables(topics: Path, tmp_path: Path) -> Tables:
    return Tables(Layout.for_tables(tmp_path / "tables"), FolderStore(topics), window=WINDOW)


def run_query(tables: Tables, text: str) -> list[tuple[Any, ...]]:
    with Query(tables, text) as query:
        return [tuple(row.values()) for row in query.answer().to_pylist()]


def doubled(levels: int) -> str:
    """Return a query whose WITH doubles its columns with each level."""
    queries = [f'a{n} as (select p.*, q.* from A{n - 1} p, "a{n - 1}" q)' for n in range(1, levels + 1)]
    return f"with {', '.join(['a0 as (select 1 x)', *queries])} select count(*) from a{levels}"


def test_with_may_name_its_queries_many_times(tables: Tables) -> None:
    assert run_query(tables, doubled(8)) == [(1,)]
    assert run_query(tables, "with recursive r(n) as (select 1 union all select n + 1 from r where n < 9) from r")[
        -1
    ] == (9,)


def uuids(tables: Tables) -> list[str]:
    return [str(uuid) for (uuid,) in run_query(tables, NUMBERS)]


def test_each_event_is_in_the_answer_once(topics: Path, tables: Tables, pipeline: Pipeline) -> None:
    append(topics, "t", [event(0), event(1), event(0)], [event(2), event(1), b"{", b"plain", event(3), event(3)])
    for end in (0, 1, 3, 4, 9):
        pipeline.land(pipeline.end.get("t", 0), end)
        assert uuids(tables) == ["u0", "u1", "u2", "u3"]
        rows = dict(run_query(tables, "select kind, count(*) from landed group by 1"))
        assert rows == {"event": 4, "quarantine": 1, "message": 1}


def test_query_without_a_table_reads_the_log_only(topics: Path, tables: Tables) -> None:
    append(topics, "t", [event(0), event(0), b"plain"])
    append(topics, "other", [event(0)])
    assert run_query(tables, "select topic, uuid, landed_at from events order by 1") == [
        ("other", "u0", None),
        ("t", "u0", None),
    ]
    with Query(tables, "select 1 from messages") as query:
        assert (query.batch, query.newer) == (-1, 4)


def test_repeated_annotation_name_is_joined_before_and_after_landing(
    topics: Path, tables: Tables, pipeline: Pipeline
) -> None:
    append(topics, "t", [event(0), b"plain"], codec="gelf", annotations=[[("_a", "1"), ("_a", "2")]] * 2)
    for landed in (0, 1, 2):
        pipeline.land(0, landed) if landed else None
        assert run_query(tables, 'select annotations from landed order by "offset"') == [([("_a", "1\0002")],)] * 2
        assert run_query(tables, "select annotations['_a'] from events") == [("1\0002",)]
        assert run_query(tables, "select annotations from topics.t") == [([("_a", "1\0002")],)] * 2


def test_views_leave_out_topics_that_the_pipeline_does_not_read(topics: Path, tables: Tables) -> None:
    append(topics, "t", [event(0)])
    append(topics, "other", [event(1)])
    readable = Tables(tables.layout, tables.store, ["t"], window=WINDOW)
    assert uuids(readable) == ["u0"]
    assert run_query(readable, 'select "offset", payload from topics.other') == [(0, event(1))]


def test_planned_uncommitted_rows_come_from_the_log(topics: Path, tables: Tables, pipeline: Pipeline) -> None:
    append(topics, "t", [event(n) for n in range(4)])
    pipeline.land(0, 2)
    pipeline.plan(t=4)
    assert uuids(tables) == ["u0", "u1", "u2", "u3"]
    pipeline.commit(2, 4)
    assert uuids(tables) == ["u0", "u1", "u2", "u3"]


def test_missing_keys_are_read_from_the_table(topics: Path, tables: Tables, pipeline: Pipeline) -> None:
    append(topics, "t", [event(0), event(1), event(1), event(0)])
    pipeline.land(0, 1)
    before = (pipeline.layout.keys / MANIFEST).read_bytes()
    pipeline.land(1, 2)
    (pipeline.layout.keys / MANIFEST).write_bytes(before)  # as between commit and keys
    assert uuids(tables) == ["u0", "u1"]
    (pipeline.layout.keys / MANIFEST).unlink()
    assert uuids(tables) == ["u0", "u1"]


def test_commit_during_the_query_repeats_the_cut(
    topics: Path, tables: Tables, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(topics, "t", [event(n) for n in range(6)])
    pipeline.land(0, 2)
    genuine = module.take_cut

    def landed_after(*arguments: Any) -> Any:
        cut = genuine(*arguments)
        pipeline.land(pipeline.end["t"], pipeline.end["t"] + 1)
        return cut

    monkeypatch.setattr(module, "take_cut", landed_after)
    for _ in range(4):
        assert uuids(tables) == [f"u{n}" for n in range(6)]


def test_backfilled_offsets_are_not_read_from_the_log(topics: Path, tables: Tables, pipeline: Pipeline) -> None:
    append(topics, "t", [b"a", b"b", b"c", b"d"])
    write_request(pipeline.layout.backfills, "t", [(2, 3)])
    pipeline.plan(**{"t": 1, "t@1": 1})
    sources = [
        MessageBatch(with_null_partition(r))
        for run in ((0, 1), (2, 3))
        for r in FolderStore(topics).read(Range("t", *run), LOG_ROW)
    ]
    pipeline._commit.land(0, lambda: [write_part(sources, pipeline._job, 1)])
    assert sorted(run_query(tables, "select payload from messages")) == [(b"a",), (b"b",), (b"c",), (b"d",)]


def test_merged_files_give_the_same_answer(topics: Path, tables: Tables) -> None:
    pipeline = Pipeline(topics, tables.layout)
    append(topics, "t", [event(n) for n in range(20)])
    for end in range(1, 15):
        pipeline.land(end - 1, end)
    compact_table(pipeline.layout.landed)
    assert uuids(tables) == [f"u{n}" for n in range(20)]


def test_landed_only_leaves_out_the_log(topics: Path, tables: Tables, pipeline: Pipeline) -> None:
    append(topics, "t", [event(n) for n in range(4)])
    pipeline.land(0, 3)
    assert uuids(Tables(tables.layout, None, window=WINDOW)) == ["u0", "u1", "u2"]


def test_columns_have_types_of_times_and_json(topics: Path, tables: Tables, pipeline: Pipeline) -> None:
    append(topics, "t", [event(0, data={"cart": [7, 8]}), event(1, data={"cart": [9]})])
    pipeline.land(0, 1)
    text = "select data->'cart'->0, event_time > now() - interval 100 years, date_trunc('hour', event_time) from events"
    rows = run_query(tables, f"{text} order by uuid")
    assert [row[:2] for row in rows] == [("7", True), ("9", True)]
    assert str(rows[0][2]) == "2023-11-14 22:00:00+00:00"


def test_watermarks_are_the_stored_ones(tables: Tables) -> None:
    tables.layout.watermarks.parent.mkdir(parents=True)
    keep_watermarks(tables.layout, [{"table": "landed", "topic": "t", "until": 60.0, "landed": 7, "share": 1.0}])
    ((table, topic, until, landed, share),) = run_query(tables, "select * from watermarks")
    assert (table, topic, landed, share) == ("landed", "t", 7, 1.0)
    assert until.timestamp() == 60.0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "query is empty"),
        ("select 1; select 2", "only one statement"),
        ("selec 1", "syntax error"),
        ("select * from nosuch", "Existing views: landed, events"),
        ("select offset from events", "needs quotes"),
        ("create table x as select 1", "only SELECT is allowed"),
        ("copy (select 1) to '/tmp/never'", "only SELECT is allowed"),
        ("set threads = 1", "only SELECT is allowed"),
        ("with x as (copy (select 1) to '/tmp/never') select 1", "only SELECT is allowed"),
        ("with x as (insert into y values (1) returning *) from x", "only SELECT is allowed"),
        ("explain with x as (copy (select 1) to '/tmp/never') select 1", "only SELECT is allowed"),
        ("explain copy (select 1) to '/tmp/never'", "only SELECT is allowed"),
        ("explain analyze copy (select 1) to '/tmp/never'", "EXPLAIN is allowed"),
        ("/**/Explain/**/analyze select 1", "EXPLAIN is allowed as"),
        ("explain /* /* */ select 1 -- */ analyze copy (select 1) to '/tmp/never'", "EXPLAIN is allowed as"),
        ("explain\n(format json, analyze) select 1", "EXPLAIN is allowed as"),
        ("explain (analyze) select 1", "EXPLAIN is allowed as"),
        ("explain pragma version", "only SELECT is allowed"),
        ("explain (format json) pragma version", "only SELECT is allowed"),
        ("from \"READ_TEXT\"('/etc/passwd')", "read_text is disabled"),
        ("select 1 where 1 in (select 1 from main.glob('/*'))", "glob is disabled"),
        ("from query('from read_text(''/etc/passwd'')')", "query is disabled"),
        (doubled(25), "more than 4,096 times"),
        (f"with b as ({doubled(25)}) select 1", "more than 4,096 times"),
        ("from arrow_scan(1, 2, 3)", "arrow_scan is disabled"),
        ("select * from read_text('/etc/passwd')", "disabled"),
        ("select 1 / 'x'", "Could not convert"),
        pytest.param("select '\ud800'", "not UTF-8", id="lone surrogate"),
    ],
)
def test_bad_query_names_its_cause(text: str, words: str, tables: Tables) -> None:
    with pytest.raises(BadQuery, match=words):
        run_query(tables, text)


def test_query_without_views_reads_no_rows(topics: Path, tables: Tables) -> None:
    append(topics, "t", [event(0)])
    with Query(tables, "select 42") as query:
        assert query.answer().to_pylist() == [{"42": 42}]
        assert (query.batch, query.newer) == (None, 0)


def test_query_may_name_a_view_twice(topics: Path, tables: Tables, pipeline: Pipeline) -> None:
    append(topics, "t", [event(n) for n in range(4)])
    pipeline.land(0, 2)
    assert run_query(tables, "select count(*) from events a join events b using (uuid)") == [(4,)]


def test_user_sees_rows_of_readable_topics_only(topics: Path, tables: Tables, pipeline: Pipeline) -> None:
    append(topics, "t", [event(0), event(1)])
    append(topics, "other", [event(2)])
    pipeline.land(0, 1)
    readable = Tables(tables.layout, tables.store, window=WINDOW, readable=frozenset({"other"}))
    assert uuids(readable) == ["u2"]
    both = Tables(tables.layout, tables.store, window=WINDOW, readable=frozenset({"other", "t"}))
    assert sorted(uuids(both)) == ["u0", "u1", "u2"]
    with pytest.raises(BadQuery, match="does not exist"):
        run_query(readable, "select * from topics.t")
    file = next(pipeline.layout.landed.rglob("*.parquet"))
    for user in (tables, readable):
        with pytest.raises(BadQuery, match="disabled"):
            run_query(user, f"select * from read_parquet('{file}'), events")
    with pytest.raises(BadQuery, match="disabled"):
        run_query(readable, f"select * from '{file}', events")


def test_query_cannot_change_files_of_the_table(topics: Path, tables: Tables, pipeline: Pipeline) -> None:
    append(topics, "t", [event(0)])
    pipeline.land(0, 1)
    file = next(pipeline.layout.landed.rglob("*.parquet"))
    before = file.read_bytes()
    copy = f"copy (select 7 from landed) to '{file}' (format parquet, use_tmp_file false)"
    for text in (f"explain analyze {copy}", f"with x as ({copy}) select * from landed, x"):
        with pytest.raises(BadQuery, match="SELECT"):
            run_query(tables, text)
    assert file.read_bytes() == before


@pytest.mark.parametrize("prefix", ["explain", "EXPLAIN  (format JSON )", "-- why\n explain"])
def test_plan_of_a_select_is_answered(prefix: str, topics: Path, tables: Tables) -> None:
    append(topics, "t", [event(0)])
    ((_, plan),) = run_query(tables, f"{prefix} select count(*), 'read_text(' from events")
    assert "count_star" in plan.lower()


def test_copies_without_deleted_rows_are_hidden_from_the_query(topics: Path, tables: Tables) -> None:
    pipeline = Pipeline(topics, tables.layout)
    append(topics, "t", [event(0), event(1), event(2)])
    pipeline.land(0, 3)
    delete(tables.layout, REQUESTED, parse_conditions("uuid = 'u0'"))
    execute_deletions(tables.layout, WINDOW)
    readable = Tables(tables.layout, tables.store, window=WINDOW, readable=frozenset({"other"}))
    with Query(readable, "select current_setting('temp_directory') from events right join (select 1) on true") as query:
        ((folder,),) = [tuple(row.values()) for row in query.answer().to_pylist()]
        assert not list(Path(folder).rglob("*.parquet"))


def test_query_is_stopped_after_its_timeout(topics: Path, tables: Tables) -> None:
    with (
        pytest.raises(BadQuery, match="stopped after"),
        Query(tables, "select sum(a.range * b.range) from range(1000000) a, range(1000000) b", timeout_s=0.2) as query,
    ):
        query.answer()


def test_cancelled_query_is_interrupted(tables: Tables) -> None:
    cancelled = threading.Event()
    threading.Timer(0.2, cancelled.set).start()
    began = time.monotonic()
    with (
        pytest.raises(BadQuery, match=r"^cancelled$"),
        Query(
            tables, "select sum(a.range * b.range) from range(10000000) a, range(10000000) b", cancelled=cancelled
        ) as query,
    ):
        query.answer()
    assert time.monotonic() - began < 20, "it would run for hours"


def test_unlanded_rows_are_redacted_in_the_answer(topics: Path, tables: Tables, pipeline: Pipeline) -> None:
    rules = TransformRules(patterns=("[0-9]{4}-[0-9]{4}",))
    pipeline._job = replace(pipeline._job, transform=rules)
    append(topics, "t", [event(0, data="card 1234-5678"), event(1, data="card 1234-5678")])
    pipeline.land(0, 1)
    redacted = replace(tables, transform=rules)
    rows = run_query(redacted, "select data, payload from events order by uuid")
    assert [data for data, _ in rows] == ['"card ***"'] * 2
    assert not any(b"1234" in payload for _, payload in rows)


def test_unlanded_offsets_of_an_open_backfill_come_from_the_log(
    topics: Path, tables: Tables, pipeline: Pipeline
) -> None:
    append(topics, "t", [b"%d" % n for n in range(8)])
    write_request(pipeline.layout.backfills, "t", [(2, 6)])
    pipeline.plan(**{"t": 1, "t@1": 2})
    ranges = [Range("t", 0, 1), Range("t", 2, 4)]
    sources = [
        MessageBatch(with_null_partition(rows)) for row in ranges for rows in FolderStore(topics).read(row, LOG_ROW)
    ]
    pipeline._commit.land(0, lambda: [write_part(sources, pipeline._job, 1)])
    assert sorted(run_query(tables, "select payload from messages")) == [(b"%d" % n,) for n in range(8)]


def test_column_and_view_names_are_case_insensitive(topics: Path, tables: Tables) -> None:
    append(topics, "mixed-1", [event(0)])
    with Query(tables, "select 1 as a, 2 as a, 3 as a_1 from EVENTS") as query:
        assert query.answer().to_pylist() == [{"a": 1, "a_1": 2, "a_1_1": 3}]
    assert run_query(tables, 'select count(*) from topics."mixed-1" a, TOPICS."MIXED-1" b') == [(1,)]
    assert ("events",) in run_query(tables, "show tables")
    assert run_query(tables, "select 'topics.mixed events' as text") == [("topics.mixed events",)]


def test_deleted_row_is_in_no_answer(topics: Path, tables: Tables) -> None:
    pipeline = Pipeline(topics, tables.layout)
    append(topics, "t", [event(0), event(1), event(0), event(2)])
    pipeline.land(0, 2)
    delete(tables.layout, REQUESTED, parse_conditions("uuid = 'u0'"))
    execute_deletions(tables.layout, WINDOW)
    assert uuids(tables) == ["u1", "u2"]
