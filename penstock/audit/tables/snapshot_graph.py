"""The snapshots of an Iceberg table: which ones led to the audited one, and which ones were abandoned."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cached_property

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot


class SnapshotGraph:
    """The snapshots that have not expired, seen from ``snapshot_id``, the audited one; None for an empty table."""

    def __init__(self, metadata: TableMetadata, snapshot_id: int | None) -> None:
        self._metadata = metadata
        self.snapshots: dict[int, Snapshot] = {each.snapshot_id: each for each in metadata.snapshots}
        self.history = self._ancestors(snapshot_id)
        """The audited snapshot and those before it, the newest first."""

    def abandoned(self) -> list[Snapshot]:
        """Return the snapshots that lead neither to the audited nor to the current one, the newest first."""
        history = {*self.history, *self._ancestors(self._metadata.current_snapshot_id)}
        snapshots = [snapshot for number, snapshot in self.snapshots.items() if number not in history]
        return sorted(snapshots, key=lambda snapshot: snapshot.timestamp_ms, reverse=True)

    def describe(self, number: int) -> str:
        """Return a snapshot with its operation, engine and time, and why the audited one does not follow it."""
        if number in self.history:
            return _describe(self.snapshots[number])
        if any(entry.snapshot_id == number for entry in self._metadata.snapshot_log):
            return f"the rollback of {_describe(self.snapshots[number])}"
        branches = "".join(f", of {name}" for name, snapshots in self._branches.items() if number in snapshots)
        return f"the missing publication of {_describe(self.snapshots[number])}{branches}"

    @cached_property
    def _branches(self) -> dict[str, set[int]]:
        """The snapshots that lead to each branch or tag."""
        return {name: {*self._ancestors(ref.snapshot_id)} for name, ref in self._metadata.refs.items()}

    def _ancestors(self, snapshot_id: int | None) -> list[int]:
        """Return a snapshot and those before it; empty if it has expired."""
        ancestors: dict[int, None] = {}
        # Limit: a snapshot is visited once, also if damaged metadata name it as its own ancestor.
        while snapshot_id is not None and snapshot_id in self.snapshots and snapshot_id not in ancestors:
            ancestors[snapshot_id] = None
            snapshot_id = self.snapshots[snapshot_id].parent_snapshot_id
        return list(ancestors)


def _describe(snapshot: Snapshot) -> str:
    properties = snapshot.summary.additional_properties if snapshot.summary else {}
    operation = snapshot.summary.operation.value if snapshot.summary else "an unknown operation"
    engine = " ".join(filter(None, (properties.get("engine-name"), properties.get("engine-version"))))
    engine = engine or properties.get("iceberg-version") or "an unknown engine"
    moment = datetime.fromtimestamp(snapshot.timestamp_ms / 1000, UTC)
    return f"snapshot {snapshot.snapshot_id}, {operation} by {engine} at {moment:%Y-%m-%d %H:%M:%S} UTC"
