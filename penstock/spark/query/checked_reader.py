"""The reading of a batch between checks that its topics are the ones that landed before.

Order: before reading, reading, after reading, then the commit. What is read in between is of the topics that landed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from penstock.errors import PenstockError
from penstock.kafka.errors import KafkaAway
from penstock.landing.spark_checkpoint import Planned, find_plan, planned_ranges
from penstock.landing.table.landed_table import table_of
from penstock.landing.table_paths import Layout
from penstock.landing.topics.continuity import Continuity, OffsetsRestarted
from penstock.qualified_names import is_partition
from penstock.upkeep.repair.checkpoint_repair import drop_unfinished_plan

T = TypeVar("T")


class PositionForgotten(PenstockError, RuntimeError):
    """A plan of Spark does not continue at the landed offsets; the next start plans it again."""


class CheckedReader:
    """Reads batches, or refuses them; ``refusal`` is the error, which Spark would hide in one of its own.

    ``landed``: the landed offsets of Kafka's partitions. Used by the thread in which Spark calls the batches.
    """

    def __init__(self, layout: Layout, continuity: Continuity, landed: Mapping[str, int]) -> None:
        self._layout, self._continuity, self._landed = layout, continuity, dict(landed)
        self.refusal: PenstockError | None = None

    def check(self) -> None:
        """Check all topics, while no query runs. Raises OffsetsRestarted."""
        try:
            self._continuity.check()
        except OffsetsRestarted:
            # A plan of the restarted offsets would be repeated once the topic is no longer landed.
            drop_unfinished_plan(self._layout, table_of(self._layout))
            raise

    def read(self, batch: int, run: Callable[[], T]) -> T:
        """Run the tasks of a batch. Raises OffsetsRestarted, PositionForgotten, KafkaAway."""
        checkpoint = self._layout.checkpoint
        plan = find_plan(checkpoint, batch) or Planned({}, 0, 0)
        forgotten = self._forgotten_partitions(plan.end, find_plan(checkpoint, batch - 1))
        try:
            ends = {name: end for name, (_, end) in planned_ranges(checkpoint, batch).items()}
            # Order: first, because Spark also forgets the position of a topic that is created again, if it plans a
            # batch in between. Without messages yet, the topic has no planned range.
            self._continuity.before_reading({name: plan.end[name] for name in forgotten} | ends)
            self._check_partitions(plan.end, forgotten)
            answer = run()
            self._continuity.after_reading(ends)
        except (OffsetsRestarted, PositionForgotten, KafkaAway) as error:
            self.refusal = error
            raise
        self._landed |= {name: end for name, end in plan.end.items() if is_partition(name)}
        return answer

    def _forgotten_partitions(self, ends: Mapping[str, int], previous: Planned | None) -> list[str]:
        begins = previous.end if previous else {}
        return sorted(name for name in ends if name in self._landed and name not in begins)

    def _check_partitions(self, ends: Mapping[str, int], forgotten: Sequence[str]) -> None:
        if forgotten:
            raise PositionForgotten(
                f"Spark began partition {forgotten[0]} of Kafka at its first offset again: it is planned again from "
                f"{self._landed[forgotten[0]]}"
            )
        self._continuity.check_ends(self._landed, ends)
