"""Operations of other programs on ``landed``, and what Penstock does: ``python -m tests.engines.foreign_operations``.

Prints the table of docs/tables.md. ``test_foreign_operations`` runs each operation with Delta's own Spark.
"""

from __future__ import annotations

from typing import NamedTuple

TOLERATED, COUNTED, NAMED, DELETED_AGAIN = "tolerated", "counted", "named", "deleted again"
REFUSED, REFUSED_BY_DELTA = "refused", "refused by Delta"
MEANINGS = {
    TOLERATED: "each row is there once, and the balance has nothing to report; changed rows are in the log",
    COUNTED: "removed rows are `deleted.foreign`, with version, engine and operation",
    NAMED: "log and timeline name version, engine, operation and the number of rows",
    DELETED_AGAIN: "as named; rows that Penstock had deleted are deleted again",
    REFUSED: "nothing lands until the line's statement is run; messages stay in the log",
    REFUSED_BY_DELTA: "an error in that program; nothing changes",
}


class Operation(NamedTuple):
    """Statements in Spark, ``{}`` is the table, and the result; ``rows``: how many it removes or is named with.

    ``words``: in the complaint or refusal. ``shown``: the operation's text on the page, "" for the statements.
    """

    statements: tuple[str, ...]
    result: str
    rows: int = 0
    words: str = ""
    shown: str = ""


def _properties(**values: str) -> str:
    pairs = ", ".join(f"'delta.{name.replace('_', '.')}' = '{text}'" for name, text in values.items())
    return f"ALTER TABLE {{}} SET TBLPROPERTIES ({pairs})"


UNCHECKED = "SET spark.databricks.delta.retentionDurationCheck.enabled = false"
VECTORS = _properties(enableDeletionVectors="true")
OTHER = "SELECT * EXCEPT (uuid), concat('other-', uuid) AS uuid FROM {} WHERE uuid = 'a-005'"
OPERATIONS = (
    Operation(("OPTIMIZE {}",), TOLERATED),
    Operation(("OPTIMIZE {} ZORDER BY (uuid)",), TOLERATED),
    Operation(("REORG TABLE {} APPLY (PURGE)",), TOLERATED),
    Operation(("OPTIMIZE {} WHERE kind = 'event' ZORDER BY (type, host)",), TOLERATED),
    Operation(("VACUUM {} RETAIN 168 HOURS",), TOLERATED),
    Operation((UNCHECKED, "VACUUM {} RETAIN 0 HOURS"), TOLERATED, shown="VACUUM RETAIN 0 HOURS"),
    Operation((UNCHECKED, "VACUUM {} LITE RETAIN 0 HOURS"), TOLERATED, shown="VACUUM LITE RETAIN 0 HOURS"),
    Operation(
        ("CREATE TABLE delta.`{folder}-clone` SHALLOW CLONE {}",), TOLERATED, shown="SHALLOW CLONE to a new table"
    ),
    Operation(("GENERATE symlink_format_manifest FOR TABLE {}",), TOLERATED),
    Operation(
        ("CONVERT TO DELTA parquet.`{folder}` PARTITIONED BY (kind STRING, date DATE)",),
        TOLERATED,
        shown="CONVERT TO DELTA",
    ),
    Operation(("ALTER TABLE {} ADD COLUMNS (team STRING)",), TOLERATED),
    Operation((_properties(enableChangeDataFeed="true"),), TOLERATED),
    Operation((_properties(checkpoint_writeStatsAsStruct="true", checkpoint_writeStatsAsJson="false"),), TOLERATED),
    Operation((_properties(checkpointInterval="2"),), TOLERATED),
    Operation(("DELETE FROM {} WHERE uuid = 'a-011'",), COUNTED, 1),
    Operation((VECTORS, "DELETE FROM {} WHERE uuid = 'a-011'"), COUNTED, 1, shown="DELETE with a deletion vector"),
    Operation(
        (VECTORS, "DELETE FROM {} WHERE uuid = 'a-011'", "REORG TABLE {} APPLY (PURGE)"),
        COUNTED,
        1,
        shown="DELETE with a deletion vector, then REORG ... APPLY (PURGE)",
    ),
    Operation(("UPDATE {} SET host = 'changed' WHERE uuid = 'a-005'",), TOLERATED),
    Operation(("UPDATE {} SET uuid = 'a-905' WHERE uuid = 'a-005'",), NAMED, 1, "changed the uuid of 1 rows"),
    Operation(
        ("MERGE INTO {} AS t USING (SELECT 'a-003' AS u) AS s ON t.uuid = s.u WHEN MATCHED THEN DELETE",),
        COUNTED,
        1,
        shown="MERGE ... WHEN MATCHED THEN DELETE",
    ),
    Operation(
        (
            "MERGE WITH SCHEMA EVOLUTION INTO {} AS t USING (SELECT 'a-003' AS uuid, 'blue' AS team) AS s "
            "ON t.uuid = s.uuid WHEN MATCHED THEN UPDATE SET team = s.team",
        ),
        TOLERATED,
        shown="MERGE WITH SCHEMA EVOLUTION",
    ),
    Operation((f"INSERT INTO {{}} BY NAME {OTHER}",), NAMED, 1, "inserted 1 rows", "INSERT of another row"),
    Operation(
        ("INSERT INTO {} SELECT * FROM {} VERSION AS OF {before} WHERE uuid = 'a-001'",),
        DELETED_AGAIN,
        1,
        "brought 1 deleted rows back",
        "INSERT of a row that Penstock deleted",
    ),
    Operation(
        ("RESTORE TABLE {} TO VERSION AS OF {before}",),
        DELETED_AGAIN,
        10,
        "brought 1 deleted rows back",
        "RESTORE to a version before Penstock's deletion and 10 later rows",
    ),
    Operation(
        ("INSERT OVERWRITE {} SELECT * FROM {} VERSION AS OF {before}",),
        DELETED_AGAIN,
        10,
        "brought 1 deleted rows back",
        "INSERT OVERWRITE with that version",
    ),
    Operation(("TRUNCATE TABLE {}",), COUNTED, 39),
    Operation((_properties(enableRowTracking="true"),), REFUSED, words="rowTracking"),
    Operation((_properties(columnMapping_mode="name"),), REFUSED, words="columnMapping"),
    Operation((_properties(enableTypeWidening="true"),), REFUSED, words="typeWidening"),
    Operation((_properties(checkpointPolicy="v2"),), REFUSED, words="v2Checkpoint"),
    Operation((_properties(enableInCommitTimestamps="true"),), REFUSED, words="inCommitTimestamp"),
    Operation(("ALTER TABLE {} ADD COLUMNS (v VARIANT)",), REFUSED, words="variantType"),
    Operation(("ALTER TABLE {} ADD CONSTRAINT small CHECK (host < 'm')",), REFUSED, words="small"),
    Operation(("ALTER TABLE {} CLUSTER BY (uuid)",), REFUSED_BY_DELTA),
    Operation(("CREATE TABLE delta.`{folder}-deep` DEEP CLONE {}",), REFUSED_BY_DELTA, shown="DEEP CLONE"),
    Operation(
        (
            "CREATE TABLE delta.`{folder}-clone` SHALLOW CLONE {}",
            "CREATE OR REPLACE TABLE {} SHALLOW CLONE delta.`{folder}-clone`",
        ),
        REFUSED_BY_DELTA,
        shown="SHALLOW CLONE of another table over `landed`",
    ),
    Operation(
        (_properties(enableIcebergCompatV2="true", universalFormat_enabledFormats="iceberg"),),
        REFUSED_BY_DELTA,
        shown="UniForm: `delta.universalFormat.enabledFormats = 'iceberg'`",
    ),
)


def table_lines() -> list[str]:
    """Return the lines of the page's table."""
    lines = ["| operation of another program | result |", "| --- | --- |"]
    for operation in OPERATIONS:
        text = operation.shown or "`" + "; ".join(operation.statements).replace("{}", "landed") + "`"
        rows = f", {operation.rows:,} rows" if operation.result == COUNTED else ""
        lines.append(f"| {text} | {operation.result}{rows} |".replace("1 rows", "1 row"))
    return [*lines, "", *(f"- *{name}*: {text}." for name, text in MEANINGS.items())]


if __name__ == "__main__":
    print("\n".join(table_lines()))
