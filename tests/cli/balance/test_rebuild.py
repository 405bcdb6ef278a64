"""Where a computed balance differs from the ledger's."""

from __future__ import annotations

from typing import Any

from penstock.cli.balance.rebuild import differences


def told(**uuids: tuple[int, str]) -> dict[str, Any]:
    sums = {fate: {"rows": rows, "sum": total} for fate, (rows, total) in uuids.items()}
    return {"listeners": [], "routes": [], "topics": [{"topic": "t", "logged": 2, "uuids": sums}]}


def test_a_topic_whose_uuids_add_up_to_something_else_differs() -> None:
    assert differences(told(event=(2, "0a")), told(event=(2, "0a"))) == []
    (line,) = differences(told(event=(2, "0a")), told(event=(2, "0b")))
    assert line.startswith("topics t: ")


def test_proofs_of_before_there_were_sums_are_not_compared_in_them() -> None:
    assert differences(told(), told(event=(2, "0a"))) == []
    assert differences(told(event=(1, "0a")), told(event=(2, "0b"))) == []
