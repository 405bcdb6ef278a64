"""Damaged files with rows of a real Kafka, replaced by the same rows."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession

from penstock.config.syntax.tables_url import TablesUrl
from penstock.kafka.absent_offsets import Absence, AbsentOffsets
from penstock.kafka.broker import Broker
from penstock.kafka.origin_header import ORIGIN_HEADER, encode_origin
from penstock.landing.damaged_files import damaged_files
from penstock.landing.from_kafka.rows import LOG_ROW, with_null_partition
from penstock.landing.requests.conditions import parse_conditions
from penstock.landing.requests.deletions import REQUESTED, request_deletion
from penstock.landing.storage.object_errors import TablesAway
from penstock.landing.table.landed_table import begin_table, table_of
from penstock.landing.table.table_file import TableFile, open_rows
from penstock.landing.table_paths import Layout, kind_and_day
from penstock.landing.table_schema import MICROS
from penstock.landing.topics.from_folder import FolderStore
from penstock.landing.topics.topic_store import Range
from penstock.landing.transform.rules import TransformRules
from penstock.landing.typed.typed_delta import TypedDelta, existing_typed_tables
from penstock.landing.writing.part_writer import Job, MessageBatch, write_part
from penstock.landing.writing.written_file import FileWriter
from penstock.proof.proofs import Proof
from penstock.proof.proofs_table import ProofAppender
from penstock.proof.prover import rebuild
from penstock.proof.reread.kafka import KafkaRecords
from penstock.proof.rollup import roll_up
from penstock.spark.query.landing_query import Landing, start_landing
from penstock.spark.query.proof_worker import ProofWorker
from penstock.testing.pipe import wait_until
from penstock.upkeep.compaction.compaction import compact_table
from penstock.upkeep.deletion.removal import execute_deletions
from penstock.upkeep.repair.scrub import Scrub, find_damaged_files
from tests.landing.table.foreign_writer import delete_by_vector
from tests.landing.typed.typed_life import CLICK, read
from tests.object_store import BUCKET, S3Server
from tests.proof.proof_sql import differences
from tests.spark.query.test_kafka_landing import segments
from tests.spark.spark_helpers import append, event
from tests.upkeep.iceberg.mirror_life import mirror_of
from tests.upkeep.iceberg.test_mirrored_table import iceberg

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
NOW = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
"""Earlier today: a broker refuses times that are more than an hour ahead, and rows of the log are of today."""
WINDOW = 600_000_000
COMPACTION = {
    "cleanup.policy": "compact",
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "0",
}
Record = tuple[bytes | None, bytes | None, list[tuple[str, bytes]]]


def leaf(path: Path, group: int, column: str) -> Any:
    metadata = pq.ParquetFile(path).metadata.row_group(group)
    leaves = [metadata.column(number) for number in range(metadata.num_columns)]
    return next(leaf for leaf in leaves if leaf.path_in_schema.split(".")[0] == column)


def flip_column(path: Path, column: str, group: int = 0) -> None:
    """Flip the last bit of the pages of a column of a row group."""
    chunk = leaf(path, group, column)
    content = bytearray(path.read_bytes())
    begin = min(chunk.data_page_offset, chunk.dictionary_page_offset or chunk.data_page_offset)
    content[begin + chunk.total_compressed_size - 1] ^= 1
    path.write_bytes(content)


def zero_pages(path: Path) -> None:
    """Overwrite all pages with zeros; the footer stays."""
    length = int.from_bytes(path.read_bytes()[-8:-4], "little") + 8
    content = path.read_bytes()
    path.write_bytes(content[:4] + bytes(len(content) - 4 - length) + content[-length:])


def cut_footer(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


def dump(layout: Layout) -> list[str]:
    """Return all rows with all columns, sorted."""
    rows = []
    for name in table_of(layout).active():
        with open_rows(layout.landed, name) as file:
            rows += [f"{name.rpartition('/')[0]} {row}" for row in file.read().to_pylist()]
    return sorted(rows)


class Topics:
    """Topics of a broker for one run of tests; the records of each lie on a day of their own."""

    def __init__(self, broker: Broker) -> None:
        self.kafka = {"bootstrap.servers": broker.address}
        self.admin = AdminClient(self.kafka)
        self.prefix = f"r{uuid.uuid4().hex[:8]}"

    def create(self, name: str, partitions: int = 1, **config: str) -> str:
        topic = f"{self.prefix}-{name}"
        self.admin.create_topics([NewTopic(topic, partitions, 1, config=config)])[topic].result(30)
        return topic

    def send(
        self, topic: str, records: Iterable[Record], partition: int = 0, *, day: int = 0, outcome: str = ""
    ) -> None:
        """Send records; ``outcome``: of a transaction, commit or abort."""
        more = {"transactional.id": uuid.uuid4().hex} if outcome else {}
        producer = Producer({**self.kafka, "linger.ms": 0, **more})
        if outcome:
            producer.init_transactions(30)
            producer.begin_transaction()
        for number, (content, key, headers) in enumerate(records):
            moment = NOW - timedelta(days=day) + timedelta(milliseconds=number)
            producer.produce(
                topic, content, key, partition, headers=headers, timestamp=round(moment.timestamp() * 1000)
            )
        assert producer.flush(30) == 0
        if outcome == "commit":
            producer.commit_transaction(30)
        elif outcome:
            producer.abort_transaction(30)

    def delete_before(self, topic: str, offset: int) -> None:
        partition = TopicPartition(topic, 0, offset)
        self.admin.delete_records([partition])[partition].result(30)


def plain(*contents: bytes) -> list[Record]:
    return [(content, None, []) for content in contents]


def send_all(topics: Topics) -> None:
    """Send what the landing makes rows of: transactions, aborts, large messages, repeats, keys, headers, bad JSON."""
    rich = topics.create("rich", 2)
    large = event(100, data={"text": "x" * 5000})
    topics.send(rich, plain(event(1), event(2, "view"), event(1), b"{bad", b"text", event(3, host="web-2")))
    topics.send(rich, plain(event(50), event(51)), outcome="abort")
    topics.send(rich, [(event(4), b"k4", [("colour", b"red"), ("_x", b"1")]), *plain(event(5), b"")], outcome="commit")
    topics.send(rich, [*segments(large, 2000), *plain(b"after")], 1)
    topics.send(rich, plain(*(event(n, ("click", "view")[n % 2]) for n in range(200, 230)), event(2, "view")), 1)
    compacted = topics.create("compacted", **COMPACTION)
    topics.send(compacted, [(event(4000 + n), b"k%d" % (n % 3), []) for n in range(9)], day=4)
    minute = round((NOW - timedelta(days=5, minutes=1)).timestamp())
    origin = [(ORIGIN_HEADER, encode_origin("edge-1", "web", minute).encode())]
    topics.send(topics.create("hosts"), [(event(5000 + n), None, origin) for n in (1, 0, 3, 1, 2)], day=5)
    for day, name in enumerate(("expired", "again", "gone"), 1):
        topics.send(topics.create(name), plain(*(event(1000 * day + n) for n in range(10))), day=day)


class Landed:
    """Tables that were landed from the topics, and the scrub of them."""

    def __init__(self, topics: Topics, landing: Landing) -> None:
        self.topics, self.landing, self.layout = topics, landing, landing.layout

    def scrub(self, landing: Landing | None = None, *, until: str = "") -> None:
        """Check all files, or until a damaged one is repaired or reported."""
        scrub = Scrub(self.layout, None, (landing or self.landing).row_sources())
        tables = (table_of(self.layout), *existing_typed_tables(self.layout))
        for _ in range(sum(len(table.active()) for table in tables) + 1):
            if until and self.state(until):
                break
            scrub.check_next([CLICK])

    def typed_files(self) -> list[TableFile]:
        return TypedDelta(self.layout.typed(CLICK.name)).active()

    def file(self, kind: str = "event", day: int = 0) -> str:
        date = (NOW - timedelta(days=day)).date().isoformat()
        return next(name for name in table_of(self.layout).active() if name.startswith(f"kind={kind}/date={date}/"))

    def damage(self, damage: Callable[..., None], name: str, *arguments: Any) -> str:
        path = self.layout.landed / name
        if isinstance(path, Path):
            damage(path, *arguments)
            return name
        copy = self.layout.tables / "copy"
        copy.write_bytes(path.open().read())
        damage(copy, *arguments)
        path.unlink()
        if copy.exists():
            with copy.open("rb") as file:
                path.upload(file)
        return name

    def state(self, name: str) -> str | None:
        return damaged_files(self.layout).get(f"{self.layout.landed}/{name}")


def enter_proofs(landing: Landing) -> None:
    worker = ProofWorker(landing, None)
    worker.enter()
    worker.step()
    ProofAppender(landing.layout).step(now=True)


@pytest.fixture(scope="module")
def landed_once(spark: SparkSession, kafka_broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Landed:
    topics, folder = Topics(kafka_broker), tmp_path_factory.mktemp("landed")
    send_all(topics)
    landing = Landing(
        folder / "topics",
        folder / "tables",
        topic=f"{topics.prefix}-*",
        kafka=topics.kafka,
        expiry_gap=50,
        typed=(CLICK,),
    )
    (folder / "topics").mkdir()
    start_landing(spark, landing, available_now=True).wait(240)
    topics.send(f"{topics.prefix}-rich", plain(*(event(n) for n in range(300, 305))))
    start_landing(spark, landing, available_now=True).wait(240)
    enter_proofs(landing)
    return Landed(topics, landing)


@pytest.fixture
def landed(landed_once: Landed, tmp_path: Path) -> Landed:
    """A copy of the tables for one test."""
    shutil.copytree(landed_once.layout.tables, tmp_path / "tables")
    return Landed(landed_once.topics, replace(landed_once.landing, tables=tmp_path / "tables"))


@pytest.fixture
def landed_at_url(landed: Landed, s3: S3Server, tmp_path: Path) -> Landed:
    """The tables in an object store."""
    local, place = landed.layout, TablesUrl(f"s3://{BUCKET}/{tmp_path.name}", tmp_path / "state", s3.options())
    layout = Layout.for_tables(place)
    shutil.copytree(local.tables / "_checkpoints", layout.tables / "_checkpoints")
    for path in filter(Path.is_file, local.tables.rglob("*")):
        if (name := str(path.relative_to(local.tables))).partition("/")[0] != "_checkpoints":
            with path.open("rb") as file:
                layout.table(name).upload(file)  # type: ignore[union-attr]
    begin_table(layout)
    return Landed(landed.topics, replace(landed.landing, tables=place))


def assert_accounted(landed: Landed) -> None:
    """Let the rebuild and the documented SQL compare the table with its proofs."""
    kafka = KafkaRecords(landed.topics.kafka, 50)
    proofs = list(rebuild(landed.landing.topics, landed.layout, kafka=kafka))
    assert proofs
    assert all(isinstance(proof, Proof) and proof.holds for proof in proofs), proofs
    assert differences(landed.layout) == []


@pytest.mark.survives("merge, deletion, restore", "damaged bytes")
@pytest.mark.parametrize("kind", ["event", "message", "quarantine"])
def test_rows_are_the_same_after_damage_of_any_column(landed: Landed, kind: str) -> None:
    before = dump(landed.layout)
    assert_accounted(landed)
    for column in pq.ParquetFile(landed.layout.landed / landed.file(kind)).schema_arrow.names:
        name = landed.damage(flip_column, landed.file(kind), column)
        assert [path for path, _ in find_damaged_files(landed.layout)] == [f"{landed.layout.landed}/{name}"]
        landed.scrub(until=name)
        assert landed.state(name) == "repaired", column
        assert name not in table_of(landed.layout).active()
        assert dump(landed.layout) == before, column
    assert find_damaged_files(landed.layout) == []
    assert_accounted(landed)


def test_damaged_files_of_other_days_are_not_read(landed: Landed) -> None:
    """Several damaged files do not keep each other from being restored, and a large table is not read."""
    before = dump(landed.layout)
    names = [landed.damage(zero_pages, landed.file(day=day)) for day in (1, 2, 3)]
    landed.scrub()
    assert [landed.state(name) for name in names] == ["repaired"] * 3
    assert dump(landed.layout) == before


@pytest.mark.parametrize("column", ["offset", "landed_at", "payload", "partition"])
def test_merged_file_keeps_the_landing_time_of_each_batch(landed: Landed, column: str) -> None:
    compact_table(landed.layout.landed)
    before = dump(landed.layout)
    assert len(set(pq.read_table(landed.layout.landed / landed.file(), columns=["landed_at"])["landed_at"])) == 2
    name = landed.damage(flip_column, landed.file(), column)
    landed.scrub()
    assert landed.state(name) == "repaired"
    assert dump(landed.layout) == before
    assert_accounted(landed)


@pytest.mark.parametrize("damage", [flip_column, zero_pages])
def test_deleted_rows_stay_deleted(landed: Landed, damage: Callable[..., None]) -> None:
    deleted = [json.loads(event(n))["uuid"] for n in (2, 3, 202, 301)]
    names = ", ".join(f"'{name}'" for name in deleted)
    request_deletion(landed.layout, REQUESTED, parse_conditions(f"uuid in ({names})"))
    assert execute_deletions(landed.layout, WINDOW) == 1
    assert_accounted(landed)  # also the repeat of a deleted event in another partition
    before = dump(landed.layout)
    today = f"kind=event/date={NOW.date().isoformat()}/"
    for name in [name for name in table_of(landed.layout).active() if name.startswith(today)]:
        landed.damage(damage, name, *(["offset"] if damage is flip_column else []))
        landed.scrub()
        assert landed.state(name) == "repaired"
    assert dump(landed.layout) == before
    assert not [row for row in before if any(f"'{name}'" in row for name in deleted)]
    assert_accounted(landed)


def test_expired_rows_are_reported_by_their_offsets(landed: Landed, caplog: pytest.LogCaptureFixture) -> None:
    topic = f"{landed.topics.prefix}-expired"
    name = landed.damage(flip_column, landed.file(day=1), "payload")
    before = table_of(landed.layout).active()
    landed.topics.delete_before(topic, 4)
    landed.scrub()
    assert f"because 4 of its rows cannot be read again: {topic}/0: 0-3 (expired): " in caplog.text
    assert table_of(landed.layout).active() == before
    assert landed.state(name) == "reported"
    assert not [file for file in (landed.layout.landed).rglob("*.parquet") if not names_it(file, before)]


def names_it(file: Path, names: Sequence[str]) -> bool:
    return any(str(file).endswith(name) for name in names)


def test_topic_that_was_created_again_does_not_give_other_rows(
    landed: Landed, caplog: pytest.LogCaptureFixture
) -> None:
    topic = f"{landed.topics.prefix}-again"
    name = landed.damage(flip_column, landed.file(day=2), "payload")
    landed.topics.admin.delete_topics([topic])[topic].result(30)
    wait_until(lambda: topic not in landed.topics.admin.list_topics(timeout=10).topics, 30)
    landed.scrub()
    assert f"because Kafka does not give {topic}/0: " in caplog.text
    assert "Unknown partition" in caplog.text
    landed.topics.create("again")
    landed.topics.send(topic, plain(*(event(9000 + n) for n in range(10))), day=2)
    landed.scrub()
    assert "its messages make other rows today (uuid, event_time differ): the topic was created again" in caplog.text
    assert name in table_of(landed.layout).active()
    assert landed.state(name) == "reported"


@pytest.mark.survives("merge, deletion, restore", "changed configuration")
def test_changed_settings_do_not_change_rows(landed: Landed, caplog: pytest.LogCaptureFixture) -> None:
    name, before = landed.damage(flip_column, landed.file(), "payload"), table_of(landed.layout).active()
    landed.scrub(replace(landed.landing, transform=TransformRules(patterns=("web",))))
    assert "its messages make other rows today (host" in caplog.text
    landed.scrub(replace(landed.landing, event_types=("view",)))
    assert "cannot be read again" in caplog.text
    assert "the record exists, but makes no such row" in caplog.text
    landed.scrub(replace(landed.landing, keep_payload=False))
    assert "its messages make other rows today (payload differs)" in caplog.text
    assert table_of(landed.layout).active() == before
    assert landed.state(name) == "reported"
    landed.scrub()
    assert landed.state(name) == "repaired"


@pytest.mark.survives("landing from Kafka", "peer away")
def test_unavailable_kafka_is_reported_and_tried_again(landed: Landed, caplog: pytest.LogCaptureFixture) -> None:
    before = dump(landed.layout)
    name = landed.damage(flip_column, landed.file(), "payload")
    away = {"bootstrap.servers": "127.0.0.1:1", "socket.timeout.ms": "1000", "reconnect.backoff.max.ms": "100"}
    landed.scrub(replace(landed.landing, kafka=away))
    assert landed.state(name) == "reported", caplog.text
    landed.scrub()
    assert landed.state(name) == "repaired"
    assert dump(landed.layout) == before


@pytest.mark.parametrize("damage", [flip_column, zero_pages, cut_footer, Path.unlink])
def test_rows_in_an_object_store_are_the_same(landed_at_url: Landed, damage: Callable[..., None]) -> None:
    landed, before = landed_at_url, dump(landed_at_url.layout)
    assert compact_table(landed.layout.landed)[1]
    for kind in ("event", "message"):
        name = landed.damage(damage, landed.file(kind), *(["payload"] if damage is flip_column else []))
        landed.scrub()
        assert landed.state(name) == "repaired"
    assert dump(landed.layout) == before
    assert find_damaged_files(landed.layout) == []
    assert [path.name for path in landed.layout.keys.parent.glob("*.restore")] == []


@pytest.mark.survives("merge, deletion, restore", "peer away")
def test_unreachable_object_store_changes_nothing(landed_at_url: Landed, s3: S3Server) -> None:
    landed, before = landed_at_url, dump(landed_at_url.layout)
    name = landed.damage(zero_pages, landed.file())
    files = table_of(landed.layout).active()
    with s3.stopped(), pytest.raises(TablesAway):
        landed.scrub()
    assert (landed.state(name), table_of(landed.layout).active()) == (None, files)
    landed.scrub()
    assert landed.state(name) == "repaired"
    assert dump(landed.layout) == before


KILLED = """
import json, os, signal, sys
from pathlib import Path
from penstock.config.syntax.tables_url import TablesUrl
from penstock.landing.table.delta_table import DeltaTable
from penstock.spark.query.landing_query import Landing
from penstock.upkeep.repair.scrub import Scrub

moment, server, folder, *url = sys.argv[1:]
replace = DeltaTable.replace

def replace_and_die(self, removed, files):
    if moment == "after":
        replace(self, removed, files)
    os.kill(os.getpid(), signal.SIGKILL)

DeltaTable.replace = replace_and_die
tables = TablesUrl(url[0], Path(folder), json.loads(url[1])) if url else Path(folder)
landing = Landing(Path(folder) / "topics", tables, kafka={"bootstrap.servers": server}, expiry_gap=50)
scrub = Scrub(landing.layout, None, landing.row_sources())
for _ in range(100):  # more than the tables have files
    scrub.check_next()
"""


@pytest.mark.parametrize("place", ["landed", "landed_at_url"])
@pytest.mark.parametrize("moment", ["before", "after"])
def test_kill_around_the_commit_leaves_each_row_once(moment: str, place: str, request: pytest.FixtureRequest) -> None:
    landed: Landed = request.getfixturevalue(place)
    before = dump(landed.layout)
    name = landed.damage(flip_column, landed.file(), "payload")
    arguments = [moment, landed.topics.kafka["bootstrap.servers"], str(landed.layout.tables)]
    if (store := landed.layout.store) is not None:
        arguments += [store.root, json.dumps(dict(store.options))]
    killed = subprocess.run([sys.executable, "-c", KILLED, *arguments], check=False, timeout=120)
    assert killed.returncode == -signal.SIGKILL
    assert (name in table_of(landed.layout).active()) is (moment == "before")
    assert landed.state(name) == "removing"
    landed.scrub()
    assert landed.state(name) == "repaired"
    assert dump(landed.layout) == before
    assert find_damaged_files(landed.layout) == []
    if place == "landed":
        assert_accounted(landed)


@pytest.mark.parametrize("kind", ["event", "message", "quarantine"])
@pytest.mark.parametrize("damage", [zero_pages, cut_footer, Path.unlink])
def test_rows_are_the_same_if_pages_or_a_file_are_lost(
    landed: Landed, kind: str, damage: Callable[[Path], None]
) -> None:
    compact_table(landed.layout.landed)
    before = dump(landed.layout)
    name = landed.damage(damage, landed.file(kind))
    landed.scrub()
    assert landed.state(name) == "repaired"
    assert dump(landed.layout) == before
    assert_accounted(landed)


def write_in_groups(landed: Landed, old: str, *sizes: int) -> str:
    """Write a file again with row groups of these sizes, and a last one with the rest; return its name."""
    table, start = table_of(landed.layout), 0
    with FileWriter(table.folder, *kind_and_day(old)) as writer, open_rows(table.folder, TableFile(old)) as file:
        (rows,) = file.batches()
        for size in (*sizes, rows.num_rows - sum(sizes)):
            writer.write(rows.slice(start, size))
            start += size
        written = writer.close()
    table.replace([old], [written])
    return written.name


def zero_group(path: Path, group: int) -> None:
    """Overwrite the pages of a row group with zeros."""
    content = bytearray(path.read_bytes())
    for column in pq.ParquetFile(path).schema_arrow.names:
        chunk = leaf(path, group, column)
        begin = min(chunk.data_page_offset, chunk.dictionary_page_offset or chunk.data_page_offset)
        content[begin : begin + chunk.total_compressed_size] = bytes(chunk.total_compressed_size)
    path.write_bytes(content)


@pytest.mark.parametrize("groups", [(1,), (0, 1)])
def test_events_that_repeat_another_row_group_do_not_land(landed: Landed, groups: Sequence[int]) -> None:
    """Their offsets lie between the second row group's, and only the uuids of the first row group exclude them."""
    compact_table(landed.layout.landed)
    before = dump(landed.layout)
    name = write_in_groups(landed, landed.file(), 2, 20)
    for group in groups:
        landed.damage(zero_group, name, group)
    landed.scrub()
    assert landed.state(name) == "repaired"
    assert dump(landed.layout) == before
    assert_accounted(landed)


def test_event_whose_time_was_lost_and_restored_is_not_repeated(landed: Landed) -> None:
    """The repeat of the first row group's event lies between the second one's offsets, times and uuids."""
    before = dump(landed.layout)
    name = write_in_groups(landed, landed.file(day=5), 1)
    landed.damage(flip_column, name, "timestamp", 0)
    landed.damage(zero_group, name, 1)
    landed.scrub()
    assert landed.state(name) == "repaired"
    assert dump(landed.layout) == before


def test_landing_time_of_rolled_up_batches(landed: Landed) -> None:
    """Exact from the table's log, and else the time of the last batch that the row's batch was rolled up with."""
    roll_up(landed.layout, table_of(landed.layout).newest(), lambda: None)
    compact_table(landed.layout.landed)
    before = dump(landed.layout)
    times = pq.read_table(landed.layout.landed / landed.file(), columns=["landed_at"])["landed_at"].to_pylist()
    first, last = map(repr, sorted({*times}))
    landed.damage(flip_column, landed.file(), "landed_at")
    landed.scrub()
    assert dump(landed.layout) == before
    table = table_of(landed.layout)
    table._table.create_checkpoint()
    for commit in sorted((landed.layout.landed / "_delta_log").glob("*.json"))[:-1]:
        commit.unlink()
    landed.damage(flip_column, landed.file(), "landed_at")
    landed.scrub()
    assert len({first, last}) == 2
    assert sorted(row.replace(first, last) for row in before) == sorted(
        row.replace(first, last) for row in dump(landed.layout)
    )
    assert first not in "".join(row for row in dump(landed.layout) if row.startswith(f"kind=event/date={NOW.date()}"))
    assert find_damaged_files(landed.layout) == []


def write_as_before_headers(landed: Landed, old: str) -> tuple[str, list[dict[str, Any]]]:
    """Write a file again as a release that did not read the header; return its name and its rows."""
    table = table_of(landed.layout)
    with FileWriter(table.folder, *kind_and_day(old)) as writer, open_rows(table.folder, TableFile(old)) as file:
        (rows,) = file.batches()
        columns = {name: rows[name].to_pylist() for name in rows.schema.names}
        columns["source"] = ["kafka"] * len(rows)
        columns["bucket"] = [received.replace(second=0, microsecond=0) for received in columns["received"]]
        writer.write(pa.RecordBatch.from_pydict(columns, rows.schema))
        written = writer.close()
    table.replace([old], [written])
    return written.name, rows.to_pylist()


@pytest.mark.parametrize("lost", ["payload", "offset", "source", "bucket", "source bucket", "offset source"])
def test_rows_from_before_the_header_counted_keep_their_origin(landed: Landed, lost: str) -> None:
    name, rows = write_as_before_headers(landed, landed.file(day=5))
    minute = NOW - timedelta(days=5)
    assert {(row["source"], row["bucket"]) for row in rows} == {("edge-1/web", minute - timedelta(minutes=1))}
    before = dump(landed.layout)
    for column in lost.split():
        landed.damage(flip_column, name, column)
    landed.scrub()
    assert landed.state(name) == "repaired"
    assert dump(landed.layout) == before


@pytest.mark.parametrize("kinds_of_rows", ["untimed", "merged"])
def test_documents_from_before_their_time_counted_stay_without_one(
    spark: SparkSession, kafka_broker: Broker, tmp_path: Path, kinds_of_rows: str
) -> None:
    topics = Topics(kafka_broker)
    documents = [json.dumps({"@timestamp": f"2026-01-01T00:00:0{n}Z", "n": n}).encode() for n in range(6)]
    records = [(document, None, [("codec", b"bulk")]) for document in (*documents, b'{"n":6}')]
    topics.send(topics.create("documents"), records)
    (tmp_path / "topics").mkdir()
    landing = Landing(tmp_path / "topics", tmp_path / "tables", topic=f"{topics.prefix}-*", kafka=topics.kafka)
    start_landing(spark, landing, available_now=True).wait(240)
    enter_proofs(landing)
    landed, table = Landed(topics, landing), table_of(landing.layout)
    (old,) = table.active()
    with FileWriter(table.folder, *kind_and_day(old)) as writer, open_rows(table.folder, old) as file:
        (rows,) = file.batches()
        times = rows["event_time"].to_pylist()
        assert [time is None for time in times] == [False] * 6 + [True]
        former = times[:3] + [None] * 4 if kinds_of_rows == "merged" else [None] * 7
        writer.write(rows.set_column(rows.schema.get_field_index("event_time"), "event_time", pa.array(former, MICROS)))
        written = writer.close()
    table.replace([old], [written])
    before = dump(landing.layout)
    # Which rows of a merged file had a time is lost with this column.
    lost_columns = ["payload", "offset", "annotations"]
    damages: list[tuple[Any, ...]] = [(flip_column, column) for column in lost_columns]
    for damage in [*damages, *([(flip_column, "event_time"), (cut_footer,)] if kinds_of_rows == "untimed" else [])]:
        name = landed.damage(damage[0], next(iter(table.active())), *damage[1:])
        landed.scrub(until=name)
        assert landed.state(name) == "repaired", damage
        assert dump(landing.layout) == before, damage


def test_commit_without_a_landing_time_leaves_the_journals(landed: Landed) -> None:
    newest = table_of(landed.layout).batches()[-1]
    roll_up(landed.layout, newest.batch, lambda: None)
    compact_table(landed.layout.landed)
    before = dump(landed.layout)
    commit = landed.layout.landed / "_delta_log" / f"{newest.version:020}.json"
    commit.write_text(commit.read_text().replace(r"\"landed_at\":", r"\"formerly\":"))
    times = ["landed_at" in batch.description for batch in table_of(landed.layout).batches()]
    assert times == [True] * (len(times) - 1) + [False]
    name = landed.damage(flip_column, landed.file(), "landed_at")
    landed.scrub()
    assert landed.state(name) == "repaired"
    assert dump(landed.layout) == before


@pytest.mark.parametrize("function", ["drop_debug", "without_host", "backwards", "audit_to_messages", "fails_on_bad"])
def test_rows_of_the_users_function_are_the_same(
    spark: SparkSession, kafka_broker: Broker, tmp_path: Path, function: str
) -> None:
    topics = Topics(kafka_broker)
    types = ("click", "debug", "audit", "view")
    bodies = [event(n, types[n % 4], host=f"web-{n % 3}", data={"bad": n % 7 == 0}) for n in range(60)]
    topics.send(topics.create("shaped"), plain(*bodies, *bodies[:9], b"text of web-1", b"bad text", b"{"))
    (tmp_path / "topics").mkdir()
    landing = Landing(
        tmp_path / "topics",
        tmp_path / "tables",
        topic=f"{topics.prefix}-*",
        kafka=topics.kafka,
        transform=TransformRules(
            f"tests.landing.transform.functions:{function}",
            patterns=("web-1",),
            fields=("uuid2", "data.bad"),
            salt=b"s",
        ),
    )
    start_landing(spark, landing, available_now=True).wait(240)
    enter_proofs(landing)
    landed = Landed(topics, landing)
    before = dump(landing.layout)
    for damage in (zero_pages, cut_footer, Path.unlink):
        for name in table_of(landing.layout).active():
            landed.damage(damage, name)
            landed.scrub()
        assert dump(landing.layout) == before, damage
    assert find_damaged_files(landing.layout) == []


def read_with_engines(layout: Layout) -> dict[str, list[str]]:
    """Return all rows of ``landed`` as engines read them, with the columns in order of their names."""
    folder = str(layout.landed)
    opened = deltalake.DeltaTable(folder)
    dataset = opened.to_pyarrow_dataset()
    mirror_of(layout.tables).step()
    tables = {
        "delta-rs": opened.to_pyarrow_table(),
        "polars": polars.read_delta(folder).to_arrow(),
        "duckdb": duckdb.sql("select * from dataset").to_arrow_table(),
        "pyiceberg": iceberg(layout).scan().to_arrow(),
    }
    names = sorted(tables["delta-rs"].column_names)
    assert len(dataset.schema.names) == len(names)
    return {engine: sorted(map(plain_row, rows.select(names).to_pylist())) for engine, rows in tables.items()}


def plain_row(row: dict[str, Any]) -> str:
    """Return a row as text; engines differ in the type of days, maps and zones."""
    maps = {
        name: sorted((cell or {}).items() if isinstance(cell, dict) else map(pair, cell or ()))
        for name, cell in row.items()
        if isinstance(cell, dict | list)
    }
    moments = {name: cell.timestamp() for name, cell in row.items() if isinstance(cell, datetime)}
    return str({**row, **maps, **moments, "date": str(row["date"])})


def pair(entry: Any) -> tuple[Any, Any]:
    return (entry["key"], entry["value"]) if isinstance(entry, dict) else tuple(entry)


def test_engines_read_the_same_rows_after_merge_deletion_and_restore(landed: Landed) -> None:
    def check(expected: list[str]) -> None:
        assert {engine: rows == expected for engine, rows in read_with_engines(landed.layout).items()} == dict.fromkeys(
            ("delta-rs", "polars", "duckdb", "pyiceberg"), True
        )

    before = read_with_engines(landed.layout)["delta-rs"]
    assert len(before) > 50
    check(before)
    compact_table(landed.layout.landed)
    check(before)
    request_deletion(landed.layout, REQUESTED, parse_conditions("uuid in ('u2', 'u202')"))
    assert execute_deletions(landed.layout, WINDOW) == 1
    remaining = [row for row in before if "'uuid': 'u2'" not in row and "'uuid': 'u202'" not in row]
    assert len(remaining) == len(before) - 2
    check(remaining)
    for damage in (zero_pages, cut_footer, Path.unlink):
        for kind in ("event", "message", "quarantine"):
            name = landed.damage(damage, landed.file(kind))
            landed.scrub()
            assert landed.state(name) == "repaired"
        check(remaining)


def test_rows_with_lost_offsets_are_not_guessed(landed: Landed, caplog: pytest.LogCaptureFixture) -> None:
    topic = f"{landed.topics.prefix}-gone"
    landed.topics.delete_before(topic, 3)
    name = landed.damage(cut_footer, landed.file(day=3))
    landed.scrub()
    assert f"because 3 of its rows cannot be read again: {topic}/0: 0-2 (expired): " in caplog.text
    assert landed.state(name) == "reported"


def test_compacted_rows_are_reported_by_their_offsets(landed: Landed, caplog: pytest.LogCaptureFixture) -> None:
    topic = f"{landed.topics.prefix}-compacted"
    name = landed.damage(flip_column, landed.file(day=4), "payload")

    def is_compacted() -> bool:
        landed.topics.send(topic, [(b"roll", b"roll", [])])  # newer than the segment, which ends
        spans = AbsentOffsets(landed.topics.kafka).classify((topic, 0), [(0, 9)])
        return (0, 6) in [(span.begin, span.end) for span in spans if span.absence is Absence.COMPACTED]

    wait_until(is_compacted, 60)
    landed.scrub()
    assert f"because 6 of its rows cannot be read again: {topic}/0: 0-5 (compacted): " in caplog.text
    assert landed.state(name) == "reported"


def test_only_damaged_row_groups_are_read_again(landed: Landed, caplog: pytest.LogCaptureFixture) -> None:
    topic, before = f"{landed.topics.prefix}-expired", dump(landed.layout)
    write_in_groups(landed, landed.file(day=1), 5)
    landed.topics.delete_before(topic, 4)
    landed.damage(flip_column, landed.file(day=1), "payload", 1)
    landed.damage(flip_column, landed.file(day=1), "offset", 1)
    landed.scrub()
    assert dump(landed.layout) == before
    assert find_damaged_files(landed.layout) == []
    landed.damage(flip_column, landed.file(day=1), "payload")
    landed.scrub()
    assert f"because 4 of its rows cannot be read again: {topic}/0: 0-3 (expired): " in caplog.text


def test_merged_file_with_rows_of_the_log_gets_them_from_the_log(
    landed: Landed, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    landing, layout = replace(landed.landing, topics=tmp_path / "topics"), landed.layout
    append(landing.topics, "moved", [event(7000 + n) for n in range(5)])
    messages = list(FolderStore(landing.topics).read(Range("moved", 0, 5), LOG_ROW))
    table = begin_table(layout)
    sources = [MessageBatch(with_null_partition(rows), relands=False) for rows in messages]
    part = write_part(sources, Job(layout.landed, layout.keys, WINDOW), landed_at=1)
    table.commit(table.newest() + 1, part.files)
    compact_table(layout.landed)
    before = dump(layout)
    name = landed.damage(flip_column, landed.file(), "payload")
    assert {None, 0, 1} == set(pq.read_table(layout.landed / name, columns=["partition"])["partition"].to_pylist())
    landed.scrub()
    assert "rows cannot be read again: moved: 0-4 (not in the log)" in caplog.text
    landed.scrub(landing)
    assert landed.state(name) == "repaired"
    assert dump(layout) == before


@pytest.mark.survives("merge, deletion, restore", "foreign writer")
def test_file_with_a_deletion_vector_of_another_program_stays(landed: Landed, caplog: pytest.LogCaptureFixture) -> None:
    delete_by_vector(landed.layout.landed, landed.file(), [1])
    (file,) = (file for file in table_of(landed.layout).active() if file.live is not None)
    landed.damage(flip_column, file, "payload")
    landed.scrub()
    assert "another program deleted rows of it by a deletion vector" in caplog.text
    assert landed.state(file) == "reported"


def test_typed_table_of_kafka_is_restored_from_restored_rows(landed: Landed) -> None:
    folder, before = landed.layout.typed(CLICK.name), dump(landed.layout)
    rows = read(folder)
    assert len(rows) > 50
    today = f"date={NOW.date().isoformat()}/"
    flip_column(folder / next(file for file in landed.typed_files() if file.startswith(today)), "offset")
    for name in table_of(landed.layout).active():
        if name.startswith(f"kind=event/{today}"):
            landed.damage(flip_column, name, "uuid")
    for _ in range(2):  # the rows of landed first
        landed.scrub()
    assert (dump(landed.layout), read(folder)) == (before, rows)
    assert find_damaged_files(landed.layout) == []
