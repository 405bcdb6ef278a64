"""What can be asked."""

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
    """What can be asked. ``store`` and ``patterns``: where topics are read, and which of them the pipeline lands; None
    where it lands no topics of the log. ``window``: that of duplicates, in microseconds. ``readable``: the topics that
    who asks may read, None for all. ``typed``: the typed tables.
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
        """Whether who asks may read a topic."""
        return self.readable is None or topic in self.readable
