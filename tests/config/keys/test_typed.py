"""Keys of typed tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.config import ConfigError, load
from penstock.landing.typed.columns import Column, TypedTable, configured_tables

WRITTEN = """
[pipeline.typed.click]
columns = { path = "string", data_host = { type = "string", field = "host" } }

[pipeline.typed.page_views]
type = "page.view"
on_misfit = "quarantine"

[pipeline.typed.page_views.columns]
ms = { type = "int", required = true }
"""


def test_column_is_a_type_or_a_table(tmp_path: Path) -> None:
    path = tmp_path / "penstock.toml"
    path.write_text(WRITTEN)
    assert configured_tables(load(path, environment={}).pipeline) == (
        TypedTable("click", "click", (Column("path", "string", "path"), Column("data_host", "string", "host"))),
        TypedTable("page_views", "page.view", (Column("ms", "int", "ms", True),), strict=True),
    )


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ('pipeline.typed.click.columns={path="text"}', r"pipeline\.typed\.click\.columns\.path: 'text' is not"),
        ('pipeline.typed.click.columns={price="decimal(39,2)"}', "a decimal has 1 to 38 digits"),
        ('pipeline.typed.click.columns={tags="array<array<int>>"}', "'array<array<int>>' is not a type"),
        ('pipeline.typed.click.columns={Host="string"}', 'data_Host = { type = "string", field = "Host" }'),
        ('pipeline.typed.click.columns={path="string", PATH="int"}', "two have the name 'path'"),
        ('pipeline.typed.click.columns={"a b"="string"}', "does not match"),
        ('pipeline.typed.click.columns={a={type="int", required=true}}', 'needs on_misfit = "quarantine"'),
        ("pipeline.typed.Click.on_misfit=rest", "does not match"),
        (
            'pipeline.typed.click.columns={a={type="int", field="user..id"}}',
            r"pipeline\.typed\.click\.columns\.a\.field: 'user\.\.id' is not the path of a field",
        ),
        ('pipeline.typed.click.columns={a={type="int", field="items[0].id"}}', r"columns\.a\.field: 'items\[0\]\.id'"),
        ("pipeline.typed.click.on_misfit=drop", "on_misfit"),
    ],
)
def test_invalid_typed_table_is_named(options: str, expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        load(None, [options], environment={})
