"""The promises of the landing, and the checks that it keeps them.

Each row of the log has one fate: it is in ``landed`` once, or it is a duplicate, deleted, or expired. A reader sees the
rows of the log before they can expire.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import pyarrow as pa

import penstock
from penstock.landing.table_paths import Layout
from penstock.ledger.rebuild import rebuild_balance
from penstock.log import Gap, TopicReader
from penstock.proof.posts.tables import posts_of
from penstock.testing.simulation.daemon import Daemon
from penstock.testing.simulation.machine import Machine
from penstock.testing.simulation.promises import Broken, offsets_in

PROOF_SQL = Path(penstock.__file__).parents[1] / "docs" / "proof-sql.md"
"""A page of the repository, which an installed package does not have."""
Position = tuple[str, int]
"""Topic and offset."""


@dataclass(frozen=True, slots=True)
class LogRow:
    """A row of the log: its time in microseconds, payload, and uuid if it is a valid event."""

    micros: int
    payload: bytes
    uuid: str


@dataclass(slots=True)
class LandedPromises:
    """The model of a run. ``window`` of duplicates is in microseconds."""

    window: int
    rows: dict[str, dict[int, LogRow]] = field(default_factory=lambda: defaultdict(dict))
    ends: dict[str, int] = field(default_factory=dict)
    seen: set[Position] = field(default_factory=set)
    """Rows that were in the table once."""
    gone: set[Position] = field(default_factory=set)
    """Rows that left the table: none comes back, unless another program brings it."""
    brought: set[Position] = field(default_factory=set)
    """Rows that another program brought back."""
    to_delete: dict[int, set[str]] = field(default_factory=dict)
    """The uuids of each requested deletion."""
    must_go: dict[int, set[Position]] = field(default_factory=dict)
    """Rows that the table had when the deletion was requested."""
    foreign: set[Position] = field(default_factory=set)
    """Rows that another program deleted."""
    retained_type: str = ""
    has_jumped: bool = False

    def observe(self, topics: Path, topic: str) -> None:
        """Read the new rows of a topic's log."""
        if not (topics / topic).exists():
            return
        reader = TopicReader(topics / topic)
        begin = self.ends.get(topic, 0)
        for stored in reader.read(begin):
            batch = stored.batch
            columns = [batch.column(name).to_pylist() for name in ("offset", "payload")]
            micros = batch.column("timestamp").cast(pa.int64()).to_pylist()
            for offset, payload, time in zip(*columns, micros, strict=True):
                self.rows[topic][offset] = LogRow(time, payload, _uuid(payload))
        self.ends[topic] = max(begin, reader.end)

    def see_table(self, layout: Layout) -> dict[Position, dict[str, Any]]:
        """Read the table and return its rows; check that each is of the log, once, and did not leave the table before.

        Raises Broken.
        """
        table = read_table(layout)
        for position, row in table.items():
            if (logged := self.rows[position[0]].get(position[1])) is None:
                raise Broken(f"{position} is in the table, and was never in the log")
            if row["uuid"] != (logged.uuid or None):
                raise Broken(f"{position} has the uuid {row['uuid']}, and its message {logged.uuid}")
        if returned := (self.gone & table.keys()) - self.brought:
            raise Broken(f"{min(returned)} left the table and is back")
        self.gone = (self.gone | self.seen) - table.keys()
        self.seen |= table.keys()
        self._check_gone()
        return table

    def _check_gone(self) -> None:
        for topic, offset in self.gone:
            if not self._may_be_deleted((topic, offset)):
                raise Broken(f"{topic, offset} left the table, and nobody deleted {self.rows[topic][offset]}")

    def see_foreign_change(self, before: Mapping[Position, Any], after: Iterable[Position], executed: int) -> None:
        """Remember which rows another program deleted and brought; deletions up to ``executed`` were before it."""
        after = set(after)
        deleted, brought = before.keys() - after, after - before.keys()
        self.foreign |= deleted
        self.brought |= brought
        for number, positions in self.must_go.items():
            if number > executed:
                positions -= deleted

    def _may_be_deleted(self, position: Position) -> bool:
        row = self.rows[position[0]][position[1]]
        is_requested = bool(row.uuid) and any(row.uuid in uuids for uuids in self.to_delete.values())
        return position in self.foreign or is_requested or self._is_retained_type(row)

    def _is_retained_type(self, row: LogRow) -> bool:
        return bool(row.uuid) and bool(self.retained_type) and f'"type": "{self.retained_type}"'.encode() in row.payload

    def request(self, number: int, uuids: Iterable[str], table: Mapping[Position, Any]) -> None:
        """Remember a deletion and the rows that it must delete."""
        self.to_delete[number] = set(uuids)
        self.must_go[number] = {position for position, row in table.items() if row["uuid"] in self.to_delete[number]}

    def check_deleted(self, table: Mapping[Position, Any], executed: int) -> None:
        """Check that the rows of executed deletions are gone. Raises Broken."""
        for number, positions in self.must_go.items():
            if number <= executed and (remaining := positions & table.keys()):
                raise Broken(f"{min(remaining)} is in the table after deletion {number} of it")

    def check_fates(self, table: Mapping[Position, Any], gaps: Mapping[str, list[Gap]]) -> dict[str, Counter[str]]:
        """Check that each row of the log has a fate that is explained; return the numbers of fates by topic.

        Raises Broken.
        """
        lasting: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
        for topic, offset in self.seen:
            row = self.rows[topic][offset]
            if row.uuid:
                lasting[topic, row.uuid].append((row.micros, offset))
        self._check_survivors(lasting)
        # A row may land and be deleted between two looks at the table.
        for topic, rows in self.rows.items():
            for offset, row in rows.items():
                if row.uuid and (topic, offset) not in self.seen and self._may_be_deleted((topic, offset)):
                    lasting[topic, row.uuid].append((row.micros, offset))
        fates: dict[str, Counter[str]] = {}
        for topic, rows in self.rows.items():
            counts = fates[topic] = Counter[str]()
            lost = offsets_in(gaps[topic])
            for offset in range(self.ends[topic]):
                counts["brought"] += (topic, offset) in self.brought & self.foreign & table.keys()
                counts[self._fate(topic, offset, rows.get(offset), table, lost, lasting)] += 1
        return fates

    def _fate(
        self,
        topic: str,
        offset: int,
        row: LogRow | None,
        table: Mapping[Position, Any],
        lost: set[int],
        lasting: Mapping[tuple[str, str], list[tuple[int, int]]],
    ) -> str:
        if (topic, offset) in table:
            return "landed"
        if (topic, offset) in self.gone:
            return "deleted"
        if row is not None and any(
            abs(row.micros - time) <= self.window for time, _ in lasting.get((topic, row.uuid), ())
        ):
            return "gap or duplicate" if offset in lost else "duplicate"
        if offset in lost:
            return "gap"
        # Deleted, by a program or by retention, since the last look at the table.
        if row is not None and self._may_be_deleted((topic, offset)):
            return "deleted unseen"
        raise Broken(f"{topic, offset} is lost: neither in the table nor counted: {row}")

    def _check_survivors(self, lasting: Mapping[tuple[str, str], list[tuple[int, int]]]) -> None:
        for (topic, uuid), times in lasting.items():
            ordered = sorted(times)
            for (earlier, first), (later, second) in pairwise(ordered):
                if later - earlier <= self.window and not self.has_jumped:
                    raise Broken(f"{topic}: {uuid} landed at {first} and at {second}, within the window")


def _uuid(payload: bytes) -> str:
    """Return the uuid of a valid event; "" for other messages, as the run writes them."""
    if not payload.startswith(b'{"type": "'):
        return ""
    try:
        return str(json.loads(payload).get("uuid", ""))
    except ValueError:
        return ""


def check_books(
    machine: Machine,
    daemon: Daemon,
    layout: Layout,
    fates: Mapping[str, Counter[str]],
    window_s: float,
    *,
    rebuilds: bool,
) -> None:
    """Check that the balance closes, agrees with the fates of the log's rows, and can be rebuilt. Raises Broken."""
    balance = daemon.ledger.balance()
    if balance.unaccounted:
        raise Broken(f"the balance does not close: {balance.document()}")
    for topic, landed in daemon.ledger.landed().items():
        totals = Counter[str]()
        for counts in landed.counts.values():
            for name, count in counts.items():
                fate = name.partition(".")[0]
                totals["landed" if fate == "quarantined" else fate] += count
        expected = fates[topic]
        in_table = expected["landed"] - expected["brought"]
        if totals["landed"] != in_table:
            raise Broken(f"{topic}: the ledger has {totals['landed']} landed rows, and the table {in_table}: {totals}")
        if totals.total() != expected.total() - expected["brought"]:
            raise Broken(f"{topic}: the ledger has {totals}, and the log's rows have {expected}")
    if not rebuilds:
        return
    rebuilt = rebuild_balance(
        machine.topics,
        machine.buffers.folder,
        [],
        posts_of(machine.topics, layout, window=window_s),
        lambda: daemon.ledger.balance().document(),
    )
    if rebuilt["differs"]:
        raise Broken(f"the rebuilt balance differs: {rebuilt['differs']}")


def check_sql(layout: Layout) -> None:
    """Check by the documented SQL that the table has the proved rows. Raises Broken."""
    if not PROOF_SQL.exists() or not deltalake.DeltaTable.is_deltatable(str(layout.proof_table)):
        return
    page = PROOF_SQL.read_text()
    with duckdb.connect() as connection:
        for name in ("landed", "proofs"):
            table = deltalake.DeltaTable(str(layout.table(name)))
            connection.register(name, table.to_pyarrow_table())
        for heading in ("DuckDB", "Offsets without a row"):
            match = re.search(rf"^## {heading}\n.*?```sql\n(.*?)```", page, re.MULTILINE | re.DOTALL)
            assert match is not None
            if rows := connection.sql(match[1]).fetchall():
                raise Broken(f"the proof in SQL differs ({heading}): {rows[:3]}")


def check_typed(layout: Layout, name: str, type_name: str, table: Mapping[Position, Any], kept: set[Position]) -> None:
    """Check that a typed table has the events of its type; rows in ``kept`` may be in one of both. Raises Broken."""
    folder = str(layout.typed(name))
    events = {position for position, row in table.items() if (row["kind"], row["type"]) == ("event", type_name)}
    rows = deltalake.DeltaTable(folder).to_pyarrow_table(columns=["topic", "offset"]).to_pylist()
    typed = Counter((row["topic"], row["offset"]) for row in rows)
    if repeated := [position for position, count in typed.items() if count > 1]:
        raise Broken(f"{min(repeated)} is in {name} twice")
    if differing := (events ^ typed.keys()) - kept:
        raise Broken(f"{min(differing)} is not both in the table and in {name}")


def read_table(layout: Layout) -> dict[Position, dict[str, Any]]:
    """Return the rows of the table. Raises Broken if one is there twice."""
    if not deltalake.DeltaTable.is_deltatable(str(layout.landed)):
        return {}
    names = ["topic", "offset", "uuid", "payload", "kind", "type"]
    rows = deltalake.DeltaTable(str(layout.landed)).to_pyarrow_table(columns=names).to_pylist()
    table: dict[Position, dict[str, Any]] = {}
    for row in rows:
        position = row["topic"], row["offset"]
        if position in table:
            raise Broken(f"{position} is in the table twice")
        table[position] = row
    return table
