"""The message book of the whole pipe in a few numbers."""

from __future__ import annotations

from typing import Any


def totals(balance: dict[str, Any]) -> dict[str, int]:
    """What was accepted and what became of it, by words for people; what is rare is there only where it is not 0.

    A message is accepted once, however many handlers its listener has.
    """
    accepted: dict[str, int] = {}
    for route in balance["routes"]:
        accepted[route["source"]] = max(accepted.get(route["source"], 0), route["accepted"])
    fates = [(name, count) for topic in balance["topics"] for name, count in topic["fates"].items()]
    rare = {
        "in the log only": sum(topic["logged"] for topic in balance["topics"] if not topic["read_by_pipeline"]),
        "quarantined": sum(count for name, count in fates if name.startswith("quarantined.")),
        "duplicates": sum(count for name, count in fates if name == "duplicate"),
    }
    return {
        "accepted": sum(accepted.values()),
        "landed": sum(count for name, count in fates if name.startswith("landed.")),
        **{word: count for word, count in rare.items() if count},
        "on the way": balance["pending"],
    }
