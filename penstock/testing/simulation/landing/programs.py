"""Programs around the pipeline: senders of messages, a user who deletes rows, and another writer of the table."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

import deltalake
import pyarrow as pa

from penstock.counts import Origin
from penstock.landing.requests.conditions import IN, Condition
from penstock.landing.requests.deletions import REQUESTED, request_deletion
from penstock.landing.table_paths import Layout
from penstock.log import TopicSettings
from penstock.records import body
from penstock.testing.simulation.daemon import Daemon
from penstock.testing.simulation.landing.promises import LandedPromises, Position
from penstock.testing.simulation.machine import Machine

EXPIRING, STALE_AFTER_S = "short", 120.0
TOPICS = ("orders", "bills", EXPIRING)
TYPES = ("click", "order", "login")
DEFAULTS = TopicSettings(segment_size_limit=6_000, rotate_after=600, stale_after=1e9)
OVERRIDES = {EXPIRING: TopicSettings(segment_size_limit=2_000, rotate_after=30, stale_after=STALE_AFTER_S)}
MAX_APPENDED = 8
RECENT_UUIDS, MAX_UNDONE = 40, 4
KEEPING, CHANGING = ("optimize", "update"), ("delete", "optimize", "update", "restore", "insert", "restore proofs")
"""Changes of other programs: with all rows kept, and any."""


class Sender:
    """Appends ``messages`` messages to the log's topics, of which some repeat a uuid or are no events."""

    def __init__(self, machine: Machine, daemon: Daemon, dice: random.Random, messages: int) -> None:
        self._machine, self._daemon, self._dice, self._messages = machine, daemon, dice, messages
        self.uuids: list[str] = []

    def step(self) -> str:
        """Append a few messages to a topic; return a text about them."""
        count = min(self._messages, self._dice.randint(1, MAX_APPENDED))
        if not count or not self._daemon.is_running:
            return ""
        self._messages -= count
        topic = self._dice.choice(TOPICS)
        payloads = [self._make_message() for _ in range(count)]
        now = self._machine.clock.micros()
        counts = dict.fromkeys(("taken", "unboxed", "seen", "accepted"), count)
        origin = Origin("events", now // 60_000_000 * 60, now, now, "plog", counts)
        future = self._daemon.log.topic(topic, create=True).append(body(payloads), origin)
        while not future.done():
            self._daemon.commit()
        return f"{count} messages to {topic}"

    def _make_message(self) -> bytes:
        kind = self._dice.random()
        if kind < 0.1:
            return b"a text %d" % self._dice.randrange(1000)
        if kind < 0.2:
            return json.dumps({"type": "click", "host": "without a uuid"}).encode()
        if kind < 0.4 and self.uuids:
            uuid = self._dice.choice(self.uuids[-RECENT_UUIDS:])
        else:
            uuid = f"u{len(self.uuids)}"
            self.uuids.append(uuid)
        event: dict[str, Any] = {
            "type": self._dice.choice(TYPES),
            "uuid": uuid,
            "host": "web",
            "timestamp": 1_780_000_000_000,
        }
        event["data"] = {"n": self._dice.choice([len(self.uuids), "no number"])}
        return json.dumps(event).encode()


def request_some(layout: Layout, dice: random.Random, sender: Sender, promises: LandedPromises, table: Any) -> str:
    """Request the deletion of some uuids; return a text about it."""
    uuids = tuple(dice.choice(sender.uuids[-RECENT_UUIDS:]) for _ in range(2))
    deletion = request_deletion(layout, REQUESTED, [Condition("uuid", IN, uuids)])
    rows: dict[Position, Any] = table
    promises.request(deletion.number, uuids, rows)
    return f"requests deletion {deletion.number} of {', '.join(uuids)}"


def change_table(layout: Layout, dice: random.Random, sender: Sender, kinds: Sequence[str]) -> str:
    """Change the table as another writer; return a text about it."""
    kind = dice.choice(kinds)
    uuid = dice.choice(sender.uuids[-RECENT_UUIDS:])
    folder = str(layout.proof_table if kind == "restore proofs" else layout.landed)
    if not deltalake.DeltaTable.is_deltatable(folder):
        return f"cannot {kind} yet"
    table = deltalake.DeltaTable(folder)
    if kind == "delete":
        table.delete(f"uuid = '{uuid}'")
    elif kind == "optimize":
        table.optimize.compact()
    elif kind == "update":
        table.update({"host": "'changed'"}, predicate=f"uuid = '{uuid}'")
    else:
        version = max(table.version() - dice.randint(1, MAX_UNDONE), 1)
        if version >= table.version():
            return f"has nothing to {kind}"
        earlier = deltalake.DeltaTable(folder, version=version)
        if kind.startswith("restore"):
            table.restore(version)
        else:
            present = set(_positions(table.to_pyarrow_table(columns=["topic", "offset"])))
            rows = earlier.to_pyarrow_table()
            is_absent = [position not in present for position in _positions(rows)]
            deltalake.write_deltalake(table, rows.filter(pa.array(is_absent, pa.bool_())), mode="append")
        uuid = f"{table.version() - version} versions back"
    return f"{kind} {uuid}"


def _positions(rows: pa.Table) -> list[Position]:
    return [(row["topic"], row["offset"]) for row in rows.select(["topic", "offset"]).to_pylist()]
