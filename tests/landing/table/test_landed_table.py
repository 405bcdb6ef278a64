"""A table is created once, and not touched if it has another version."""

from __future__ import annotations

from pathlib import Path

import pytest
from crc32c import crc32c

from penstock.files.checked_document import write_document
from penstock.files.errors import DamagedFile, UnknownFormat
from penstock.landing.table.landed_table import VERSION, begin_table, has_landed_table, table_of
from penstock.landing.table_paths import Layout


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout.for_tables(tmp_path / "tables")


def test_table_is_created_once(layout: Layout) -> None:
    assert not has_landed_table(layout)
    for _ in range(2):
        assert begin_table(layout).exists
        assert table_of(layout).exists
        assert has_landed_table(layout)


def test_table_of_another_version_is_not_touched(layout: Layout) -> None:
    layout.format.parent.mkdir(parents=True)
    write_document(layout.format, {"version": VERSION + 1})
    for read in (begin_table, table_of, has_landed_table):
        with pytest.raises(UnknownFormat, match="has version 2, and this Penstock reads version 1"):
            read(layout)
    assert not layout.landed.exists()


@pytest.mark.survives("SQL", "damaged bytes")
def test_damaged_version_raises_its_file_name(layout: Layout) -> None:
    begin_table(layout)
    data = bytearray(layout.format.read_bytes())
    data[12] ^= 16
    layout.format.write_bytes(data)
    with pytest.raises(DamagedFile, match=r"landed\.format\.json is damaged"):
        begin_table(layout)
    write_document(layout.format, {})
    with pytest.raises(DamagedFile, match="does not contain the version"):
        has_landed_table(layout)


@pytest.mark.survives("SQL", "other format")
def test_later_document_format_is_refused(layout: Layout) -> None:
    begin_table(layout)
    layout.format.write_bytes(b'%08x{"format":2}' % crc32c(b'{"format":2}'))
    with pytest.raises(UnknownFormat, match=r"landed\.format\.json has format 2"):
        begin_table(layout)


def test_missing_table_reads_as_empty(layout: Layout) -> None:
    assert (table_of(layout).active(), table_of(layout).newest()) == ([], -1)
    assert not layout.tables.exists()
