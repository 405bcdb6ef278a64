"""Kinds of tables of other packages are found by the scheme of an address."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.audit.tables.table import open_table
from tests.audit.audited import run_audit, write_parquet

PLUGIN = """
import pyarrow.parquet as pq
from penstock.audit.tables.table import AuditedTable

class Warehouse(AuditedTable):
    kind = "Warehouse"

    def __init__(self, path):
        super().__init__()
        self.path = path

    def column_names(self):
        return pq.read_schema(self.path).names

    def batches(self, names, dictionaries=()):
        for batch in pq.read_table(self.path, columns=list(names)).to_batches():
            yield self.path, batch

def open_warehouse(address, options):
    return Warehouse(address.partition("://")[2] + options["suffix"])
"""


def test_table_of_another_package_is_opened_by_its_scheme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "warehouse_for_tests.py").write_text(PLUGIN)
    package = tmp_path / "warehouse_for_tests-1.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: warehouse-for-tests\nVersion: 1\n")
    (package / "entry_points.txt").write_text("[penstock_audit_tables]\nwh = warehouse_for_tests:open_warehouse\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    rows = [(0, offset) for offset in range(20)]
    source = write_parquet(tmp_path / "source", rows)
    table = write_parquet(tmp_path / "t", rows[1:], files=1) / "part-0"
    assert open_table(f"wh://{table}", {"suffix": ".parquet"}).kind == "Warehouse"
    status, report, errors = run_audit("", str(source), f"wh://{table}", "--store", "suffix=.parquet")
    assert (status, report.get("missing"), report.get("kind")) == (1, 1, "Warehouse"), errors
