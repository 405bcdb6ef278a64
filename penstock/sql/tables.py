"""The queryable tables and topics of one user."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from penstock.landing.rows.table_rows import Rules
from penstock.landing.table_paths import Layout
from penstock.landing.topics.topic_store import TopicStore
from penstock.landing.transform.rules import TransformRules
from penstock.landing.typed.columns import TypedTable


@dataclass(frozen=True, slots=True)
class Tables:
    """The queryable tables and topics.

    ``store`` reads topics of the log, None if the pipeline lands none; ``patterns`` selects the landed ones.
    ``window`` is the duplicate window in microseconds. ``readable`` has the topics that the user may read; None is all.
    """

    layout: Layout
    store: TopicStore | None = None
    patterns: Sequence[str] = ("*",)
    rules: Rules = field(default_factory=Rules)
    transform: TransformRules = field(default_factory=TransformRules)
    window: int = 600_000_000
    readable: frozenset[str] | None = None
    typed: tuple[TypedTable, ...] = ()

    def may_read(self, topic: str) -> bool:
        """Return whether the user may read a topic."""
        return self.readable is None or topic in self.readable
