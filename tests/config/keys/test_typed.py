"""Keys of typed tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.config import ConfigError, load
from penstock.config.keys.typed import ColumnConfig
from penstock.landing.typed.column_types import Column
from penstock.landing.typed.columns import TypedTable, configured_tables

WRITTEN = """
[pipeline.typed.click]
columns = { path = "string", data_host = { type = "string", field = "host", default = "none" } }

[pipeline.typed.page_views]
type = "page.view"
on_misfit = "quarantine"

[pipeline.typed.page_views.columns]
ms = { type = "int", required = true }
item = "struct<sku: string, prices: array<struct<price: decimal(10, 2)>>>"
"""


def test_column_is_a_type_or_a_table(tmp_path: Path) -> None:
    path = tmp_path / "penstock.toml"
    path.write_text(WRITTEN)
    item = Column("item", "struct<sku:string,prices:array<struct<price:decimal(10,2)>>>", "item")
    assert configured_tables(load(path, environment={}).pipeline) == (
        TypedTable(
            "click",
            "click",
            (Column("path", "string", "path"), Column("data_host", "string", "host", default='"none"')),
        ),
        TypedTable("page_views", "page.view", (Column("ms", "int", "ms", True), item), strict=True),
    )


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ('pipeline.typed.click.columns={path="text"}', r"pipeline\.typed\.click\.columns\.path: 'text' is not"),
        ('pipeline.typed.click.columns={price="decimal(39,2)"}', "a decimal has 1 to 38 digits"),
        ('pipeline.typed.click.columns={tags="array<array<int>>"}', "'array<array<int>>' is not a type"),
        ('pipeline.typed.click.columns={a="struct<id:string,b:text>"}', r"columns\.a.*: 'text' is not a type"),
        ('pipeline.typed.click.columns={a="struct<id>"}', "'id' is not a field of a struct: write name:type"),
        ('pipeline.typed.click.columns={a="struct<id:int,ID:int>"}', "has two fields 'ID'"),
        ('pipeline.typed.click.columns={a="array<struct<b:array<array<int>>>>"}', "'array<array<int>>' is not a type"),
        (
            'pipeline.typed.click.columns={a={type="int", default=2147483648}}',
            "2147483648 is not a value of the type",
        ),
        (
            'pipeline.typed.click.columns={a={type="decimal(4,2)", default=1.5}}',
            r"1\.5 is not a value of the type decimal",
        ),
        ('pipeline.typed.click.columns={a={type="decimal(4,2)", default="123.00"}}', "'123.00' is not a value"),
        ('pipeline.typed.click.columns={a={type="date", default="2026-2-1"}}', "'2026-2-1' is not a value"),
        ('pipeline.typed.click.columns={a={type="timestamp", default="2026-02-01T00:00:00"}}', "is not a value"),
        ('pipeline.typed.click.columns={a={type="array<int>", default=1}}', "1 is not a value of the type array<int>"),
        (
            'pipeline.typed.click={on_misfit="quarantine", columns={a={type="int", required=true, default=1}}}',
            "a required field has none",
        ),
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
        ("pipeline.typed.click.on_violation=drop", "on_violation"),
        ('pipeline.typed.click.columns={a={type="int", min=2, max=1}}', r"columns\.a.*min: 2 is greater than max, 1"),
        (
            'pipeline.typed.click.columns={a={type="int", min=0.5}}',
            r"min: 0\.5 is not a bound of a column of the type int",
        ),
        ('pipeline.typed.click.columns={a={type="string", max="z"}}', "max: 'z' is not a bound"),
        ('pipeline.typed.click.columns={a={type="timestamp", max="2026-01-01T00Z"}}', "max: '2026-01-01T00Z' is no"),
        ('pipeline.typed.click.columns={a={type="timestamp", min="0001-01-01T00:00:00+05:00"}}', "is not a bound"),
        (
            'pipeline.typed.click.columns={a={type="string", pattern="(a"}}',
            r"pattern: '\(a' is not a regular",
        ),
        ('pipeline.typed.click.columns={a={type="string", pattern="(?=a)"}}', "is not a regular expression of RE2"),
        ('pipeline.typed.click.columns={a={type="int", pattern="1"}}', "pattern: a column of the type int has none"),
        (
            'pipeline.typed.click.columns={a={type="int", enum=["a"]}}',
            "enum: 'a' is not a choice of a column of",
        ),
        ('pipeline.typed.click.columns={a={type="json", enum=["a"]}}', "enum: 'a' is not a choice"),
        ('pipeline.typed.click.columns={a={type="int", min=true}}', "true is a boolean"),
        ('pipeline.typed.click.columns={a={type="double", max=false}}', "false is a boolean"),
        ('pipeline.typed.click.columns={a={type="int", enum=[2, true]}}', "true is a boolean"),
        ('pipeline.typed.click.columns={a={type="int", min=1, default=0}}', "default: 0 violates min"),
        (
            'pipeline.typed.click.columns={a={type="string", pattern="^a", default="b"}}',
            "default: 'b' violates pattern",
        ),
    ],
)
def test_invalid_typed_table_is_named(options: str, expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        load(None, [options], environment={})


def test_bound_that_no_double_has_is_named() -> None:
    with pytest.raises(ValueError, match="min: 1000"):
        ColumnConfig(type="double", min=10**400)
