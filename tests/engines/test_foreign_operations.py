"""Each operation of docs/tables.md, run by Delta's own Spark between Penstock's commits, has the result of the page."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.landing.requests.deletions import FOREIGN, DeletionRecord
from penstock.landing.table.features import FeatureNotWritten
from penstock.proof.commit_notes import noted_complaints
from penstock.upkeep.deletion.foreign import note_foreign_changes
from penstock.upkeep.deletion.removal import execute_deletions
from tests.engines.foreign_operations import (
    COUNTED,
    DELETED_AGAIN,
    NAMED,
    OPERATIONS,
    REFUSED,
    REFUSED_BY_DELTA,
    Operation,
    table_lines,
)
from tests.engines.foreign_spark import ForeignSpark
from tests.engines.test_foreign_writers import Shared
from tests.landing.typed.typed_life import WINDOW

PAGE = Path(__file__).parents[2] / "docs" / "tables.md"


def test_page_has_the_table_of_these_operations() -> None:
    assert "\n".join(table_lines()) in PAGE.read_text(), "run `python -m tests.engines.foreign_operations`"


@pytest.mark.spark
@pytest.mark.parametrize(
    "operation", OPERATIONS, ids=lambda operation: (operation.shown or operation.statements[0])[:50]
)
def test_operation_has_the_result_of_the_page(
    tmp_path: Path, foreign_spark: ForeignSpark, operation: Operation
) -> None:
    table = Shared(tmp_path / "tables", foreign_spark)
    table.land(3)
    before = table.life.table.version()
    table.delete("a-001")
    table.compact()
    table.land(1)
    note_foreign_changes(table.layout)
    statements = [text.replace("{before}", str(before)) for text in operation.statements]
    statements = [text.replace("{folder}", str(table.landed)) for text in statements]
    if operation.result == REFUSED_BY_DELTA:
        for statement in statements[:-1]:
            table.spark(statement)
        with pytest.raises(AssertionError):
            table.spark(statements[-1])
    else:
        for statement in statements:
            table.spark(statement)
    if operation.result == REFUSED:
        for attempt in (table.life.table.begin, table.land, table.compact):
            with pytest.raises(FeatureNotWritten, match=operation.words):
                attempt()
        return
    note_foreign_changes(table.layout)
    execute_deletions(table.layout, WINDOW)
    texts = [complaint.text for complaint in noted_complaints(table.layout)]
    record = DeletionRecord(table.layout)
    counted = sum(record.rows(deletion.number) for deletion in record.deletions if deletion.why == FOREIGN)
    if operation.result in (NAMED, DELETED_AGAIN):
        assert [operation.words in text for text in texts] == [True]
        assert all("Apache-Spark" in text for text in texts)
    else:
        assert texts == []
    is_counted = operation.result == COUNTED or operation.words.startswith("brought")
    removed = operation.rows if is_counted and "INSERT INTO" not in statements[-1] else 0
    assert counted == removed
    rows = [str(row["uuid"]) for row in table.spark("SELECT uuid FROM {}")]
    assert len(rows) == len({*rows}) == 39 - removed + ("inserted" in operation.words)
    assert "a-001" not in rows
    table.uuids = {*rows}
    if not any("-" in uuid.removeprefix("a-") for uuid in rows) and "a-905" not in rows:
        table.land()
        table.delete("a-002")
        table.compact()
        table.check()
