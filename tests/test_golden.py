"""Data directories that earlier versions wrote open in this one: nothing of them is lost, and the balance closes.

Each archive in ``tests/golden`` is what ``tests/golden/make.py`` wrote with the version it is named for; it is never
changed, and a version that changes a format adds its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.counts import Origin
from penstock.landing.journal import read_journal
from penstock.landing.table.table_file import as_written
from penstock.landing.table_paths import Layout
from penstock.ledger.balance import balance
from penstock.ledger.book.book_from_topics import recompute, usable
from penstock.log import Limits, Log, ProducerSequence, TopicReader
from penstock.proof.evidence import read_rows
from penstock.proof.proofs import proved_backfills, read_proofs
from penstock.proof.prover import rebuild
from penstock.records import body
from penstock.testing.pipe import Pipe, wait_until

ARCHIVES = sorted(Path(__file__).with_name("golden").glob("*.tar.xz"))
ORIGIN = Origin("http", 0, 0, 0)
FOR_EVER = Limits(producer_memory=1e10)


def columns(table: pa.Table | pa.RecordBatch, *names: str) -> list[list[Any]]:
    return [table.column(name).to_pylist() for name in names]


class Golden:
    """A data directory from its archive, and its expected content."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.data = folder, folder / "data"
        self.topics, self.layout = self.data / "topics", Layout.for_tables(self.data / "tables")
        self.expected: dict[str, Any] = json.loads((folder / "expected.json").read_text())

    def rows(self, topic: str) -> list[list[Any]]:
        """Return offset and payload of all rows of a topic."""
        batches = [stored.batch for stored in TopicReader(self.topics / topic).read(0)]
        pairs = (zip(*columns(batch, "offset", "payload"), strict=True) for batch in batches)
        return [[offset, payload.decode()] for each in pairs for offset, payload in each]

    def wait_for(self, topic: str, end: int) -> None:
        """Wait until the daemon has stored the waiting frames of the topic."""
        wait_until(lambda: TopicReader(self.topics / topic).end == end, what=f"{topic} ends at {end}")


@pytest.fixture(params=ARCHIVES, ids=lambda path: path.name.removesuffix(".tar.xz"))
def golden(request: pytest.FixtureRequest, tmp_path: Path) -> Golden:
    with tarfile.open(request.param) as archive:
        archive.extractall(tmp_path, filter="data")
    return Golden(tmp_path)


@pytest.fixture
def log(golden: Golden) -> Iterator[Log]:
    opened = Log(golden.topics, transactions=FOR_EVER)
    yield opened
    opened.close()


@pytest.fixture
def pipe(golden: Golden) -> Iterator[Pipe]:
    """A ``penstock serve`` that continues with the directory."""
    pipe = Pipe(golden.folder)
    pipe.configure(golden.expected["config"])
    pipe.start()
    yield pipe
    pipe.stop()


def test_golden_directory_exists() -> None:
    assert ARCHIVES


def test_topics_have_exactly_their_rows(golden: Golden) -> None:
    for topic, rows in golden.expected["rows"].items():
        assert golden.rows(topic) == rows, topic


def test_segments_are_arrow_streams(golden: Golden) -> None:
    files = sorted((golden.topics / "segments").glob("*.arrows"))
    assert len(files) > 2
    tables = [pa.ipc.open_stream(file.read_bytes()).read_all() for file in files]
    payloads = [payload.decode() for table in tables for payload in table["payload"].to_pylist()]
    assert payloads == [payload for _, payload in golden.expected["rows"]["segments"]]
    assert tables[0]["annotations"][0].as_py() == [("batch", "0")]
    assert tables[0]["key"][0].as_py() == b"k0"


def test_gaps_are_unchanged(golden: Golden) -> None:
    for topic, gaps in golden.expected["gaps"].items():
        actual_gaps = [[gap.begin, gap.end, gap.reason] for gap in TopicReader(golden.topics / topic).gaps()]
        assert actual_gaps == gaps, topic


@pytest.mark.survives("cursors", "other format")
@pytest.mark.survives("log", "other format")
def test_log_opens_with_settings_and_cursors_and_without_deleted_topics(golden: Golden, log: Log) -> None:
    held = {topic for topic, rows in golden.expected["rows"].items() if rows}
    assert set(log.names()) == held
    for topic, settings in golden.expected["settings"].items():
        document = log.topic(topic).settings.document()
        assert {name: document[name] for name in settings} == settings
    for topic, cursors in golden.expected["cursors"].items():
        assert log.topic(topic).cursors.offsets() == cursors


def test_offsets_continue_in_each_topic_including_a_deleted_one(golden: Golden, log: Log) -> None:
    for topic, end in golden.expected["ends"].items():
        appended = log.topic(topic, create=True).append(body([b"new"]), ORIGIN).result(10)
        assert (topic, appended.first) == (topic, end)


def test_repeated_append_of_a_producer_is_recognised(golden: Golden, log: Log) -> None:
    repeated_rows = body([payload.encode() for _, payload in golden.expected["rows"]["retried"]])
    topic = log.topic("retried")
    answer = topic.append(repeated_rows, ORIGIN, producer=ProducerSequence("golden", 0)).result(10)
    assert (answer.first, answer.count, topic.end) == (0, 3, 3)


@pytest.mark.survives("transactions", "other format")
def test_open_and_undecided_transactions_are_rolled_back(golden: Golden, log: Log) -> None:
    assert [log.topic(topic).end for topic in ("one", "two")] == [2, 2]
    assert not list(golden.topics.glob("TRANSACTION-*"))
    stored = golden.topics / "one" / f"{0:020}.arrows"
    assert b"never" not in stored.read_bytes()


def test_verification_finds_no_damage(golden: Golden, log: Log) -> None:
    for topic in log.names(internal=True):
        assert log.topic(topic, internal=True).verify() == [], topic


@pytest.mark.survives("ledger", "other format")
def test_ledger_checkpoint_is_used_and_equals_the_topics(golden: Golden) -> None:
    pages, why = usable(golden.topics)
    assert pages is not None, why
    assert recompute(golden.topics)[1] == [], "and so does a book made without it"
    topics = {topic.topic: topic for topic in balance(pages, {}, {}).topics}
    assert {topic: topics[topic].fates for topic in golden.expected["fates"]} == golden.expected["fates"]
    assert {topic: topics[topic].end for topic in topics} == golden.expected["ends"]


def test_tables_are_read_and_proved_again(golden: Golden) -> None:
    commits = list(read_journal(golden.layout))
    rows = read_rows(golden.layout.landed, as_written(name for commit in commits for name in commit.files))
    for topic, fates in golden.expected["fates"].items():
        offsets = [offset for offset, name in zip(*columns(rows, "offset", "topic"), strict=True) if name == topic]
        table_rows = sum(count for name, count in fates.items() if name.startswith(("landed.", "quarantined.")))
        assert len(offsets) == len(set(offsets)) == table_rows > 0
    written = [proof for proofs in read_proofs(golden.layout) for proof in proofs]
    assert written
    assert list(proved_backfills(golden.layout))
    assert list(rebuild(golden.topics, golden.layout)) == [*written, *proved_backfills(golden.layout)]


@pytest.mark.survives("log buffer", "other format")
def test_pipe_continues_with_frames_in_the_log_buffers(golden: Golden, pipe: Pipe) -> None:
    for topic, unread in golden.expected["unread"].items():
        end = golden.expected["ends"][topic]
        golden.wait_for(topic, end + len(unread))
        assert [payload for _, payload in golden.rows(topic)[end:]] == unread
    delivered = {**golden.expected["accepted"]}
    for source, topic in (("datagrams", "events"), ("lines", "lines")):
        delivered[source] += len(golden.expected["unread"][topic])

    def settled() -> bool:
        balance = pipe.balance()
        assert balance["unaccounted"] == 0
        return {route["source"]: route["delivered"] for route in balance["routes"]} == delivered

    wait_until(settled, what="each route has delivered all of it")
    assert not list((golden.data / "buffers").glob("*.unusable-*")), "no file was put aside"
    assert any(route["handler"] == "discard" for route in pipe.balance()["routes"])
    rebuilt = rebuilt_balance(pipe)
    assert (rebuilt["unaccounted"], rebuilt["differs"]) == (0, [])


def rebuilt_balance(pipe: Pipe) -> dict[str, Any]:
    command = [sys.executable, "-m", "penstock.cli.main", "balance", "--rebuild", "--json", *pipe.options]
    document: dict[str, Any] = json.loads(pipe.run(*command))
    return document


@pytest.mark.survives("landing from the log", "other format")
@pytest.mark.spark
def test_landing_continues_from_its_checkpoint(golden: Golden, pipe: Pipe) -> None:
    unread = golden.expected["unread"]["events"]
    golden.wait_for("events", golden.expected["ends"]["events"] + len(unread))
    command = [sys.executable, "-m", "penstock.spark.pipeline", "--once", *pipe.options]
    subprocess.run(command, check=True, cwd=golden.folder)
    fates = dict(golden.expected["fates"]["events"])
    fates["landed.event"] += len(unread)
    wait_until(lambda: pipe.fates("events") == fates, what="the ledger knows what has landed")
    assert pipe.balance()["unaccounted"] == 0
    rebuilt = rebuilt_balance(pipe)
    assert (rebuilt["unaccounted"], rebuilt["differs"]) == (0, [])
