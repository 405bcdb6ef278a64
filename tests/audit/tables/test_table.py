"""Kinds of tables of other packages are found by the scheme of an address."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.audit.tables.address import identity_of, password_in, without_credentials
from penstock.audit.tables.table import TableUnreadable, open_table
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


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("postgresql://u:p/w?#x@host:5432/db?table=t&password=p", "postgresql://host:5432/db?table=t"),
        ("postgresql://u:12/3@host/db?table=t", "postgresql://host/db?table=t"),
        ("postgresql://u:p@[bad/db?table=t", "postgresql://[bad/db?table=t"),
        ("postgresql:///db?password=p&table=t", "postgresql:///db?table=t"),
        ("kafka://a:9092,b:9092/orders", "kafka://a:9092,b:9092/orders"),
        ("s3://lake/orders@v1", "s3://lake/orders@v1"),
        ("abfss://prod@acc.dfs.core.windows.net/orders", "abfss://prod@acc.dfs.core.windows.net/orders"),
        ("abfss://u:p@acc.dfs.core.windows.net/orders", "abfss://acc.dfs.core.windows.net/orders"),
        ("file:///lake/a?b@c", "file:///lake/a?b@c"),
        ("/lake/a?b@c", "/lake/a?b@c"),
    ],
)
def test_address_of_a_report_has_no_credentials(address: str, expected: str) -> None:
    assert without_credentials(address) == expected


def test_identity_of_an_address_changes_with_all_but_secrets() -> None:
    address = "postgresql://u:p/w@host/db?schema=a&table=t&password=x"
    assert identity_of(address) == "postgresql://u@host/db?schema=a&table=t"
    assert password_in(address) == "p/w"
    prod, test = (identity_of(f"abfss://{name}@acc.dfs.core.windows.net/orders") for name in ("prod", "test"))
    assert prod != test


def test_path_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(TableUnreadable, match=r"/nowhere does not exist$"):
        open_table(str(tmp_path / "nowhere"))
