"""The form of a table: chosen once, and kept."""

from __future__ import annotations

from pathlib import Path

import pytest
from crc32c import crc32c

from penstock.files.checked_document import write_document
from penstock.files.errors import DamagedFile, UnknownFormat
from penstock.landing.table.begun_table import DELTA, PARQUET, FormatDiffers, begin_table, begun_as, is_old, table_of
from penstock.landing.table.delta_table import DeltaTable
from penstock.landing.table.parquet_folder import ParquetFolder
from penstock.landing.table_paths import Layout

FORMS = {DELTA: DeltaTable, PARQUET: ParquetFolder}


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout.of(tmp_path / "tables")


@pytest.mark.parametrize("form", FORMS)
def test_a_table_has_the_form_that_it_was_begun_with(layout: Layout, form: str) -> None:
    assert begun_as(layout) is None
    for _ in range(2):
        assert isinstance(begin_table(layout, form), FORMS[form])
        assert isinstance(table_of(layout), FORMS[form])
        assert begun_as(layout) == form


@pytest.mark.parametrize(("form", "other"), [(DELTA, PARQUET), (PARQUET, DELTA)])
def test_another_form_is_refused(layout: Layout, form: str, other: str) -> None:
    begin_table(layout, form)
    with pytest.raises(FormatDiffers, match=f"has format = {form}: keep it"):
        begin_table(layout, other)
    assert begun_as(layout) == form


def test_a_table_of_an_earlier_version_is_left_alone_and_the_command_is_named(layout: Layout) -> None:
    layout.format.parent.mkdir(parents=True)
    assert not is_old(layout)
    for told in (b'{"format": "delta", "data_format": "variant"}', None):
        if told:
            layout.format.write_bytes(told)
        else:
            write_document(layout.format, {"form": "parquet", "data_format": "json"})
        with pytest.raises(FormatDiffers, match="penstock tables upgrade"):
            begin_table(layout, PARQUET)
        assert is_old(layout)


def test_a_form_that_cannot_be_read_is_asked_for(layout: Layout) -> None:
    begin_table(layout, PARQUET)
    data = bytearray(layout.format.read_bytes())
    data[12] ^= 16
    layout.format.write_bytes(data)
    with pytest.raises(DamagedFile, match=r"landed\.format\.json is damaged"):
        begin_table(layout, PARQUET)
    write_document(layout.format, {"form": "iceberg", "version": 2})
    with pytest.raises(DamagedFile, match="does not say what form"):
        begun_as(layout)


def test_a_table_of_a_later_format_is_left_alone(layout: Layout) -> None:
    begin_table(layout, PARQUET)
    layout.format.write_bytes(b'%08x{"format":2}' % crc32c(b'{"format":2}'))
    with pytest.raises(UnknownFormat, match=r"landed\.format\.json has format 2"):
        begin_table(layout, PARQUET)


def test_before_a_table_is_begun_there_is_nothing_to_read(layout: Layout) -> None:
    assert (table_of(layout).active(), table_of(layout).newest()) == ([], -1)
    assert not layout.tables.exists()
