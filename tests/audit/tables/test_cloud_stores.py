"""Delta tables and Parquet folders in Azure's and Google's object stores are audited, with files of no version."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.audit.audited import filled_topic, rows_table, run_audit, write_delta, write_parquet
from tests.audit.cloud_stores import CannotFetchStore, CloudStore, azure_store, google_store
from tests.kafka.kafka_helpers import Topics

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1200)]


@pytest.mark.parametrize("start", [azure_store, google_store])
def test_tables_in_a_cloud_store_are_audited(
    topics: Topics, tmp_path: Path, start: Callable[[Path], AbstractContextManager[CloudStore]]
) -> None:
    topic, rows = filled_topic(topics, partitions=2)
    faulty = [*[row for row in rows if row != (1, 17)], (0, 5)]
    local = tmp_path / "local"
    local.mkdir()
    for kind, write in (("Delta", write_delta), ("Parquet", write_parquet)):
        write(local / kind, faulty, topic)
        write(local / f"complete-{kind}", rows, topic)
    pq.write_table(rows_table([(1, 17)], topic), local / "Delta" / "part-lost.parquet")
    try:
        with start(tmp_path) as store:
            store.upload(local)
            options = [word for name, text in store.options.items() for word in ("--store", f"{name}={text}")]
            for kind in ("Delta", "Parquet"):
                status, report, errors = run_audit(topics, topic, f"{store.root}/complete-{kind}", *options)
                assert (status, report.get("required"), report.get("kind")) == (0, 120, kind), errors
                status, report, errors = run_audit(topics, topic, f"{store.root}/{kind}", *options)
                assert (status, report.get("missing"), report.get("doubled")) == (1, 1, 1), errors
                lost = report["partitions"][1]
                orphans = {"part-lost.parquet": 1} if kind == "Delta" else {}
                assert (lost["missing"], lost["orphans"], report["unsearched"]) == ([[17, 18]], orphans, [])
    except CannotFetchStore as error:
        pytest.skip(str(error))
