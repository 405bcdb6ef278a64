"""Files of the landing with arbitrary bytes: each is read, or refused with an error of this package."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import PenstockError
from penstock.landing.duplicates.landed_keys import LandedKeys, mapped_runs
from penstock.landing.from_kafka.offset_map import OffsetMap
from penstock.landing.history import read_sum
from penstock.landing.journal import Journal, read_journal
from penstock.landing.mirror_lag import is_behind
from penstock.landing.requests import backfill_requests as requests
from penstock.landing.requests.deletions import load_deletions
from penstock.landing.rows.type_schemas import load_schemas
from penstock.landing.spark_checkpoint import read_plan
from penstock.landing.table.delta_table import DeltaTable
from penstock.landing.table.landed_table import has_landed_table
from penstock.landing.table_paths import Layout
from penstock.landing.typed.typed_delta import read_starts
from penstock.proof.posts.ends import pipeline_id
from penstock.proof.proofs import latest_proofs, proved_backfills, read_proofs
from penstock.proof.watermarks import kept_watermarks
from penstock.upkeep.quarantine.send_once import Resender, read_body
from penstock.upkeep.repair.checkpoint_repair import repair_checkpoint
from tests.fuzzed import RAW, Bytes, documents, journals, json_texts
from tests.landing.test_damaged_files import Sink

VALUES = st.none() | st.integers() | st.text(max_size=3) | st.lists(st.integers(), max_size=1)
FIELDS = st.fixed_dictionaries({}, optional=dict.fromkeys(["name", "kind", "cast", "required", "x"], VALUES))


def _marks(texts: list[bytes]) -> bytes:
    text = b'{"marks": [' + b",".join(texts) + b"]}"
    return b"%08x" % crc32c(text) + text


WRITTEN = {"click": "price double"}
SCHEMAS = st.lists(
    st.fixed_dictionaries({}, optional={"type": VALUES, "fields": st.lists(VALUES | FIELDS, max_size=2) | VALUES}),
    max_size=2,
)


def _schemas(schemas: list[dict[str, Any]]) -> bytes:
    text = json.dumps({"written": WRITTEN, "schemas": schemas}).encode()
    return b"%08x" % crc32c(text) + text


JSON_LINES = st.lists(json_texts("batchTimestampMs", "batchWatermarkMs", "t", "action", "path"), max_size=3)
SPARKS: Bytes = RAW | JSON_LINES.map(lambda lines: b"\n".join([b"v1", *lines]))
"""Files of Spark's checkpoint and sink log, or what was made of them."""
READERS: dict[str, tuple[str, Bytes, Callable[[Layout, Path], object]]] = {
    "a map": (
        "p/in.jsonl",
        journals("kafka", "topic", "begins", "move", "end", "runs"),
        lambda _, p: OffsetMap.load(p),
    ),
    "requests": (
        "r/000001.json",
        documents("topic", "runs", "again", "owed"),
        lambda _, p: requests.load_requests(p.parent),
    ),
    "what was sent": (
        "sent.jsonl",
        journals("ended", "sequence", "producer", "keys", "topic", "at"),
        lambda _, p: Resender(p, Sink()),
    ),
    "the journal": (
        "_checkpoints/landed.commits.jsonl",
        journals("batch", "ranges", "landed_at", "watermark", "files", "moved"),
        lambda layout, _: (list(read_journal(layout)), Journal(layout)),
    ),
    "proofs": (
        "_checkpoints/landed.proofs.jsonl",
        journals("batch", "proofs", "refills"),
        lambda layout, _: (list(read_proofs(layout)), list(proved_backfills(layout)), latest_proofs(layout)),
    ),
    "a day of the history": (
        "_checkpoints/history/2026-01-01.jsonl",
        journals("first", "batch", "landed_at", "end", "totals", "commit", "proofs", "refills"),
        lambda layout, _: (list(read_journal(layout)), list(read_proofs(layout)), Journal(layout)),
    ),
    "the sum of the history": (
        "_checkpoints/landed.sum.json",
        documents("batch", "landed_at", "end", "totals"),
        lambda layout, _: (read_sum(layout), Journal(layout)),
    ),
    "a deletion": (
        "_checkpoints/deletions/000001.json",
        documents("why", "conditions"),
        lambda layout, _: load_deletions(layout),
    ),
    "the version of the table": (
        "_checkpoints/landed.format.json",
        documents("format", "version"),
        lambda layout, _: has_landed_table(layout),
    ),
    "time of the mirror": ("_checkpoints/iceberg.json", documents("at"), lambda layout, _: is_behind(layout)),
    "watermarks": (
        "_checkpoints/watermarks.json",
        documents("marks") | st.lists(json_texts("table", "topic", "until", "landed", "share"), max_size=2).map(_marks),
        lambda layout, _: kept_watermarks(layout),
    ),
    "the id of the pipeline": (
        "_checkpoints/pipeline.json",
        documents("pipeline"),
        lambda layout, _: pipeline_id(layout.pipeline),
    ),
    "the schemas of types": (
        "_checkpoints/landed.schemas.json",
        documents("written", "schemas") | SCHEMAS.map(_schemas),
        lambda layout, _: [
            field.fits for schema in load_schemas(layout.type_schemas, WRITTEN) for field in schema.fields
        ],
    ),
    "since when there are typed tables": (
        "_checkpoints/typed.json",
        documents("since"),
        lambda layout, _: read_starts(layout),
    ),
    "a plan": (
        "_checkpoints/landed/offsets/0",
        SPARKS,
        lambda layout, _: (
            repair_checkpoint(layout),
            (layout.checkpoint / "offsets/0").exists() and read_plan(layout.checkpoint, 0),
        ),
    ),
    "a commit": ("_checkpoints/landed/commits/0", SPARKS, lambda layout, _: repair_checkpoint(layout)),
    "Delta's log": (
        "landed/_delta_log/00000000000000000000.json",
        st.lists(json_texts("txn", "add", "remove", "metaData", "protocol"), max_size=3).map(b"\n".join),
        lambda layout, _: (list(DeltaTable(layout.landed).files()), DeltaTable(layout.landed).active()),
    ),
    "the keys that landed": (
        "_checkpoints/landed.keys/keys.json",
        documents("version", "window", "batch", "number", "runs"),
        lambda layout, _: (mapped_runs(layout.keys, 1), LandedKeys.load(layout.keys, 1)),
    ),
    "rows that are to be sent": ("rows.arrow", RAW, lambda _, p: read_body(p, crc32c(p.read_bytes()))),
}


@pytest.mark.parametrize("reader", READERS)
@given(data=st.data())
def test_any_bytes_are_read_or_an_error_of_ours(
    tmp_path_factory: pytest.TempPathFactory, reader: str, data: st.DataObject
) -> None:
    name, contents, read = READERS[reader]
    layout = Layout.for_tables(tmp_path_factory.mktemp("tables"))
    path = layout.tables / name
    path.parent.mkdir(parents=True, exist_ok=True)
    layout.journal.parent.mkdir(exist_ok=True)
    path.write_bytes(data.draw(contents))
    with contextlib.suppress(PenstockError):
        read(layout, path)
