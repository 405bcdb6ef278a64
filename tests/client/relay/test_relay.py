"""The relay of one topic between two real daemons, with TLS and a token."""

from __future__ import annotations

import contextlib
import copy
import json
import logging
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from itertools import count
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from penstock.client import Log
from penstock.client.log import calls
from penstock.client.log.calls import Call
from penstock.client.log.retrying_caller import RetryingCaller
from penstock.client.log.types import StoredAlready
from penstock.client.relay import relay as relay_module
from penstock.client.relay.clients import Credentials, remote_client
from penstock.client.relay.positions import RelayPosition, RelayPositionFile
from penstock.client.relay.relay import (
    MAX_REPORTED_TOPICS,
    PRODUCER_MEMORY_S,
    Outage,
    StatisticsPage,
    TopicRelay,
    TopicStatistics,
)
from penstock.client.relay.tally import TopicTally, relayed_origin
from penstock.config import RelayConfig, SecurityConfig, Settings, TokenConfig
from penstock.counts import Name, Origin
from penstock.files.file_system import OS
from penstock.handover.disk_id import load_disk_id
from penstock.handover.paths import RELAYS_FOLDER
from penstock.handover.state_page import RELAY_TEXTS, STATISTICS, StatePage
from penstock.ledger.hosts.host_posts import ListenerReport
from penstock.log import TopicExists
from penstock.log.store import producers
from penstock.records import BODY, body
from penstock.testing import FakeClock
from penstock.testing.pipe import free_ports, wait_until
from tests.server import certificates
from tests.server.running import Running
from tests.system.host_network import Link

DECODE_RELAYED = calls.decode_relayed
TOKENS = {
    "relay": TokenConfig(token="the secret of the relay", write=("central-*",), relay=True),
    "writer": TokenConfig(token="the secret of the writer", write=("*",)),
}
ORIGIN = Origin("events-udp", 120, 121_000_000, 122_000_000, "plog")


class Pair:
    """A host and a central daemon; ``relay`` returns the relay of topic ``t``, as a start of its process makes it."""

    def __init__(self, folder: Path) -> None:
        pair = certificates.make(folder, "server")
        self.host = Running(folder / "host" / "topics")
        self.central = Running(folder / "topics", SecurityConfig(tokens=TOKENS, tls_cert=pair.cert, tls_key=pair.key))
        self.local = Log(self.host.bound.grpc)
        self.token = folder / "token"
        self.token.write_text(TOKENS["relay"].token)
        self.token.chmod(0o600)
        self._settings = Settings(data_dir=folder / "host")
        self._keys: dict[str, Any] = {
            "name": "up", "topic": "t", "to_topic": "central-t", "host": "web1", "to": self.central.bound.grpc,
            "token_file": self.token, "tls_ca": pair.cert,
        }  # fmt: skip
        self.remotes: list[Log] = []
        self.file = RelayPositionFile(folder / "host" / RELAYS_FOLDER / "up" / "t.json")

    def relay(self, **changes: Any) -> TopicRelay:
        config = RelayConfig(**{**self._keys, **changes})
        self.remotes.append(remote_client(config))
        return TopicRelay(config, "t", self._settings, self.local, self.remotes[-1])

    def store(self, *payloads: bytes, rows: pa.RecordBatch | None = None, origin: Origin = ORIGIN) -> None:
        """Append entries on the host as a listener does."""
        topic = self.host.log.topic("t", create=True)
        topic.append(body(list(payloads)) if rows is None else rows, origin).result(30)

    @property
    def hop(self) -> str:
        """The hop of entries that leave the host's topic."""
        return f"{load_disk_id(self._settings.data_dir / RELAYS_FOLDER)}/t"

    @property
    def arrived(self) -> list[bytes]:
        """Payloads of the central topic."""
        return [row for stored in self.batches() for row in stored.batch.column("payload").to_pylist()]

    def batches(self) -> list[Any]:
        return list(self.central.log.topic("central-t").reader().read(0))

    def cursor(self) -> int | None:
        return {cursor.name: cursor.offset for cursor in self.local.cursors("t")}.get("relay-up")

    def close(self) -> None:
        for client in (self.local, *self.remotes):
            client.close()
        self.host.stop()
        self.central.stop()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    both = Pair(tmp_path)
    yield both
    both.close()


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return what the relay logged, without the warning that each start of a relay gives for this topic."""
    # The servers of this process log, too.
    messages = [record.getMessage() for record in caplog.records if record.name.startswith("penstock.client.relay")]
    return [line for line in messages if "retention_policy" not in line]


def relay_all(relay: TopicRelay) -> None:
    while relay.relay_once():
        pass


def test_entries_arrive_once_with_their_source_and_minute(pair: Pair) -> None:
    relay = pair.relay()
    assert not relay.relay_once()  # the topic does not exist yet
    annotations = pa.array([[("a", "1")], None], BODY.field("annotations").type)
    rows = body([b"x", None], keys=pa.array([None, b"k"], pa.binary()), annotations=annotations)
    pair.store(rows=rows)
    pair.store(b"y", origin=replace(ORIGIN, bucket=180))
    relay_all(relay)
    relay_all(pair.relay())
    first, second = pair.batches()
    assert first.batch.select(BODY.names).to_pylist() == rows.to_pylist()
    counts = {Name.SEEN: 2, Name.ACCEPTED: 2}
    assert first.origin == replace(ORIGIN, source="web1/events-udp", counts=counts, hops=(pair.hop,))
    assert (second.origin.source, second.origin.bucket) == ("web1/events-udp", 180)
    assert (pair.arrived, pair.cursor()) == ([b"x", None, b"y"], 3)


@pytest.mark.survives("relay", "peer away")
def test_append_that_was_not_acknowledged_is_repeated_once(pair: Pair) -> None:
    pair.store(b"a", b"b")
    relay_all(pair.relay())
    # As after a kill between the acknowledgement and the cursor.
    pair.local.commit_cursor("t", "relay-up", 0)
    relay_all(pair.relay())
    pair.store(b"c")
    relay_all(pair.relay())
    assert (pair.arrived, pair.cursor()) == ([b"a", b"b", b"c"], 3)


def test_append_that_was_entered_and_not_made_is_made(pair: Pair) -> None:
    pair.store(b"a", b"b")
    relay_all(pair.relay())
    pair.store(b"c")
    entered = pair.file.read()
    assert entered is not None
    pair.file.write(replace(entered, sequence=entered.sequence + 1, begin=2, end=3, stored_us=0))
    relay_all(pair.relay())
    assert (pair.arrived, pair.cursor()) == ([b"a", b"b", b"c"], 3)


def test_moved_cursor_is_the_new_start(pair: Pair) -> None:
    pair.store(b"a", b"b")
    relay_all(pair.relay())
    pair.store(b"c", b"d")
    pair.local.commit_cursor("t", "relay-up", 3)
    relay_all(pair.relay())
    assert pair.arrived == [b"a", b"b", b"d"]


def test_token_without_the_right_is_refused_in_one_line(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    pair.token.write_text(TOKENS["writer"].token)
    pair.store(b"a")
    relay = pair.relay()
    assert not relay.relay_once()
    assert not relay.relay_once()
    (line,) = lines(caplog)
    assert line == ("topic t is not relayed: Appending what another host received requires the right relay; retrying")
    assert pair.cursor() == 0  # retention waits for what was not relayed


@pytest.mark.survives("relay", "peer away")
def test_entries_wait_while_the_other_side_is_away(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    (port,) = free_ports(1)
    pair.store(b"a", b"b")
    away = pair.relay(to=f"127.0.0.1:{port}")
    assert not away.relay_once()
    assert len(lines(caplog)) == 1
    assert [(cursor.name, cursor.offset, cursor.lag_entries) for cursor in pair.local.cursors("t")] == [
        ("relay-up", 0, 2)
    ]
    relay_all(pair.relay())
    assert (pair.arrived, pair.cursor()) == ([b"a", b"b"], 2)


def published_statistics(path: Path) -> dict[str, Any]:
    page = StatePage(path, RELAY_TEXTS)
    try:
        return dict(page.read(STATISTICS))
    finally:
        page.close()


def test_entries_bytes_retries_and_refusals_are_published(pair: Pair, tmp_path: Path) -> None:
    page = StatisticsPage(tmp_path / "state")
    (port,) = free_ports(1)
    pair.store(rows=body([b"abc", None, b"de"]))
    away, relay = pair.relay(to=f"127.0.0.1:{port}"), pair.relay()
    assert not away.relay_once()
    page.publish_if_due([away], is_connected=True)
    statistics = published_statistics(tmp_path / "state")
    assert not statistics["connected"]
    assert statistics["topics"] == {"t": {"entries": 0, "bytes": 0, "retries": 1, "refusals": 0}}
    relay_all(relay)
    assert asdict(relay.statistics) == {"entries": 3, "bytes": 5, "retries": 0, "refusals": 0}
    pair.token.write_text(TOKENS["writer"].token)
    pair.store(b"f")
    refused = pair.relay()
    assert not refused.relay_once()
    assert asdict(refused.statistics) == {"entries": 0, "bytes": 0, "retries": 1, "refusals": 1}
    page = StatisticsPage(tmp_path / "state")
    page.publish_if_due([refused], is_connected=True)
    assert published_statistics(tmp_path / "state")["connected"]
    assert "heartbeat" in published_statistics(tmp_path / "state")


@pytest.mark.survives("relay", "slow peer")
def test_entries_pass_a_link_on_which_a_request_takes_longer_than_a_call_may(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A call of 4 MiB took longer than its 30 s on a link of less than 1.1 Mbit/s, and was repeated forever."""
    link = Link("127.0.0.1", int(pair.central.bound.grpc.rpartition(":")[2]), bytes_per_s=60_000)
    payloads = [b"%03d" % number * 333 for number in range(200)]
    pair.store(*payloads)
    relay = pair.relay(to=link.address)
    monkeypatch.setattr(pair.remotes[-1]._caller, "_timeout", 0.5)
    relay_all(relay)
    link.close()
    assert (pair.arrived, lines(caplog)) == (payloads, [])
    assert len(pair.batches()) > 1


def test_statistics_of_many_topics_fit_into_the_page(pair: Pair, tmp_path: Path) -> None:
    relay = pair.relay()
    relay.statistics = TopicStatistics(*[1 << 62] * 4)
    names = [f"{number:0249}" for number in range(MAX_REPORTED_TOPICS + 1)]
    topics = [copy.copy(relay) for _ in names]
    for topic, name in zip(topics, names, strict=True):
        topic._topic = name
    StatisticsPage(tmp_path / "state").publish_if_due(topics, is_connected=True)
    assert list(published_statistics(tmp_path / "state")["topics"]) == names[:-1]


def test_topic_that_was_deleted_on_the_other_side_is_filled_again(pair: Pair) -> None:
    relay = pair.relay()
    pair.store(b"a")
    relay_all(relay)
    pair.central.log.delete("central-t")
    pair.central.api.topics.forget("central-t")
    pair.store(b"b")
    wait_until(relay.relay_once)
    assert pair.arrived == [b"b"]


def recreate(pair: Pair, *payloads: bytes) -> None:
    """Delete the topic of the host, and store entries in another one of its name."""
    pair.host.log.delete("t")
    pair.host.api.topics.forget("t")
    if payloads:
        pair.store(*payloads)


@pytest.mark.survives("relay", "SIGKILL")
@pytest.mark.parametrize("starts", [1, 2])
def test_entries_that_arrived_before_their_topic_was_deleted_count_as_forwarded(pair: Pair, starts: int) -> None:
    pair.store(b"a", b"b")
    relay_all(pair.relay())
    recreate(pair, b"c")
    for _ in range(starts):
        relay = pair.relay()
        relay.prepare()
        assert relay.count()[0] == {"events-udp": ListenerReport(accepted=3, pending=3, in_doubt=2)}
    relay_all(relay)
    assert (pair.arrived, pair.cursor()) == ([b"a", b"b", b"c"], 3)
    assert relay.count()[0] == {"events-udp": ListenerReport(accepted=3, forwarded=3)}


@pytest.mark.survives("relay", "SIGKILL")
def test_entries_that_were_deleted_before_they_arrived_count_as_expired(pair: Pair) -> None:
    pair.store(b"a", b"b")
    pair.file.write(RelayPosition("p", 1, 0, 2, 0, "events-udp", 2, {}))
    recreate(pair)
    pair.local.create_topic("t")
    for _ in range(2):  # a start before the first entry asks again
        relay = pair.relay()
        relay_all(relay)
        assert relay.count()[0] == {"events-udp": ListenerReport(accepted=2, expired=2)}
    pair.store(b"c")
    relay_all(relay)
    # The append of the deleted entries that comes late is refused: its number is used.
    number, origin = ("p", 1), relayed_origin("web1", ORIGIN, pair.hop)
    with pytest.raises(StoredAlready):
        relay._remote.append_batch("central-t", body([b"a", b"b"]), number, origin)
    for again in (relay, pair.relay()):
        relay_all(again)
        assert again.count()[0] == {"events-udp": ListenerReport(accepted=3, forwarded=1, expired=2)}
    assert pair.arrived == [b"c"]


def interrupt(pair: Pair) -> None:
    """Enter a range of three entries, of which the topic has the last one."""
    pair.store(b"a", b"b")
    recreate(pair, b"c")
    pair.file.write(RelayPosition("p", 1, 0, 3, 0, "events-udp", 3, {}))


def test_part_of_an_interrupted_range_is_counted_by_a_start_as_before(pair: Pair) -> None:
    interrupt(pair)
    for _ in range(2):
        relay = pair.relay()
        relay_all(relay)
        assert relay.count()[0] == {"events-udp": ListenerReport(accepted=3, forwarded=1, expired=2)}
    assert pair.arrived == [b"c"]


@pytest.mark.parametrize("sent", [[b"c"], [b"b", b"c"]])
def test_entries_of_a_part_that_arrived_before_they_were_gone_count_as_forwarded(pair: Pair, sent: list[bytes]) -> None:
    interrupt(pair)
    relay, origin = pair.relay(), relayed_origin("web1", ORIGIN, pair.hop)
    # A part is sent, and the relay is killed before it has noted this.
    relay._remote.append_batch("central-t", body(sent), ("p", 1), origin)
    recreate(pair, b"d")
    relay_all(relay)
    assert pair.arrived == [*sent, b"d"]
    forwarded = len(sent) + 1
    assert relay.count()[0] == {"events-udp": ListenerReport(accepted=4, forwarded=forwarded, expired=4 - forwarded)}


def test_interrupted_range_of_an_earlier_version_counts_before_the_ranges_behind_it(pair: Pair) -> None:
    pair.store(b"a", b"b")
    pair.store(b"c")
    pair.file.write(RelayPosition("p", 1, 0, 2, 0))
    relay = pair.relay()
    relay_all(relay)
    assert pair.arrived == [b"a", b"b", b"c"]
    assert relay.count()[0] == {"events-udp": ListenerReport(accepted=3, forwarded=3)}


def test_part_that_became_smaller_after_it_arrived_counts_as_it_arrived(pair: Pair) -> None:
    interrupt(pair)
    relay, origin = pair.relay(), relayed_origin("web1", ORIGIN, pair.hop)
    relay._remote.append_batch("central-t", body([b"b", b"c"]), ("p", 1), origin)
    relay_all(relay)
    assert pair.arrived == [b"b", b"c"]
    assert relay.count()[0] == {"events-udp": ListenerReport(accepted=3, forwarded=2, expired=1)}


def test_number_before_the_remembered_ones_had_arrived(pair: Pair) -> None:
    pair.store(b"a", b"b")
    pair.file.write(RelayPosition("p", 1, 0, 2, 0, "events-udp", 2, {}))
    relay, origin = pair.relay(), relayed_origin("web1", ORIGIN, pair.hop)
    for number in range(1, 40):
        relay._remote.append_batch("central-t", body([b"a", b"b"]), ("p", number), origin)
    recreate(pair, b"c")
    relay_all(relay)
    assert relay.count()[0] == {"events-udp": ListenerReport(accepted=3, forwarded=3)}


class Killed(BaseException):
    """The process ends here."""


def relay_until_killed(relay: TopicRelay, step: int) -> None:
    """Relay until the end before or after one of the writes of file, append and cursor: two steps each."""
    steps = count()

    def ending(write: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            if next(steps) == step:
                raise Killed
            outcome = write(*arguments)
            if next(steps) == step:
                raise Killed
            return outcome

        return call

    remote, local = relay._remote, relay._local
    appends = ((remote, "append_batch"), (remote, "append_batches"))
    with pytest.MonkeyPatch.context() as context:
        for owner, name in ((relay._file, "write"), *appends, (local, "commit_cursor")):
            context.setattr(owner, name, ending(getattr(owner, name)))
        with contextlib.suppress(Killed):
            relay_all(relay)


def delete_before_arrival(pair: Pair) -> list[bytes]:
    pair.store(b"a", b"b")
    pair.file.write(RelayPosition("p", 1, 0, 2, 0, "events-udp", 2, {}))
    recreate(pair, b"c")
    return [b"c"]


def refuse_a_part(pair: Pair) -> list[bytes]:
    interrupt(pair)
    # The number of the range is not the next one of its producer.
    origin = relayed_origin("web1", ORIGIN, "d/t")
    pair.relay()._remote.append_batch("central-t", body([b"x"]), ("p", 7), origin)
    pair.file.write(RelayPosition("p", 9, 0, 3, 0, "events-udp", 3, {}))
    return [b"x", b"c"]


def expire_behind_the_cursor(pair: Pair) -> list[bytes]:
    pair.store(b"0")
    relay_all(pair.relay())
    pair.store(b"a", b"b")
    recreate(pair, b"c")
    pair.local.commit_cursor("t", "relay-up", 1)  # retention leaves the cursor
    return [b"0", b"c"]


@pytest.mark.survives("relay", "SIGKILL")
@pytest.mark.parametrize("step", range(12))
@pytest.mark.parametrize("lose", [delete_before_arrival, refuse_a_part, expire_behind_the_cursor])
def test_entries_behind_gone_ones_arrive_and_count_once_after_a_kill(
    pair: Pair, lose: Callable[[Pair], list[bytes]], step: int
) -> None:
    arriving = lose(pair)
    accepted = 3 + (lose is expire_behind_the_cursor)
    relay_until_killed(pair.relay(), step)
    relay = pair.relay()
    relay_all(relay)
    assert pair.arrived == arriving
    report = ListenerReport(accepted=accepted, forwarded=accepted - 2, expired=2)
    assert relay.count()[0] == {"events-udp": report}


def store_by_listener(pair: Pair, listeners: str) -> list[bytes]:
    """Append an entry of each listener, a batch of its own; return them."""
    names = [f"{number}-{listener}".encode() for number, listener in enumerate(listeners)]
    for name, listener in zip(names, listeners, strict=True):
        pair.store(name, origin=replace(ORIGIN, source=listener))
    return names


def listener_counts(relay: TopicRelay) -> dict[str, tuple[int, int, int]]:
    return {name: (each.accepted, each.forwarded, each.expired) for name, each in relay.count()[0].items()}


def test_entries_of_several_listeners_travel_together(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    names = store_by_listener(pair, "a" + "ab" * 40)
    relay, writes = pair.relay(), list[RelayPosition]()
    write = relay._file.write
    monkeypatch.setattr(relay._file, "write", lambda position: (writes.append(position), write(position)))
    relay_all(relay)
    assert (pair.arrived, pair.cursor()) == (names, len(names))
    sources = [stored.origin.source for stored in pair.batches()]
    assert sources == ["web1/a", *["web1/b", "web1/a"] * 39, "web1/b"]
    assert listener_counts(relay) == {"a": (41, 41, 0), "b": (40, 40, 0)}
    assert relay.statistics.entries == len(names)
    assert [len(position.split()) for position in writes] == [64, 16]


def test_entries_of_several_listeners_that_expire_in_one_gap_count_for_each(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gap has the number of rows of each listener, but not their order: the position of a relay is inside it."""
    monkeypatch.setattr(relay_module, "MAX_RANGES", 1)
    names = store_by_listener(pair, "ababab")
    relay = pair.relay()
    for _ in range(3):
        relay.relay_once()
    assert listener_counts(relay) == {"a": (3, 2, 0), "b": (3, 1, 0)}
    pair.local.commit_cursor("t", "other", 0)
    recreate(pair, b"last")
    relay_all(relay)
    assert pair.arrived == [*names[:3], b"last"]
    assert listener_counts(relay) == {"a": (3, 2, 1), "b": (3, 1, 2), "events-udp": (1, 1, 0)}


@pytest.mark.survives("relay", "SIGKILL")
@pytest.mark.parametrize("step", range(13))
def test_entries_of_several_listeners_arrive_and_count_once_after_a_kill(pair: Pair, step: int) -> None:
    names = store_by_listener(pair, "aabca")
    relay_until_killed(pair.relay(), step)
    relay = pair.relay()
    relay_all(relay)
    assert (pair.arrived, pair.cursor()) == (names, len(names))
    assert listener_counts(relay) == {"a": (3, 3, 0), "b": (1, 1, 0), "c": (1, 1, 0)}


@pytest.mark.survives("relay", "wrong clock")
def test_entries_arrive_and_count_once_after_kills_and_jumps_of_the_clock(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, names, year_s = FakeClock(time.time()), list[bytes](), 365 * 86_400
    # gRPC's deadlines need the machine's time.
    monkeypatch.setattr(relay_module, "time", SimpleNamespace(time=clock.time, monotonic=time.monotonic))
    monkeypatch.setattr(pair.host.log.clock, "_clock", clock)
    for step, jump_s in enumerate((year_s, -year_s, -year_s, year_s, 50 * year_s, -100 * year_s, 50 * year_s)):
        clock.jump(jump_s)
        # Of several listeners: a range each.
        names += store_by_listener(pair, "aabca")
        relay_until_killed(pair.relay(), step)
    relay = pair.relay()
    relay_all(relay)
    assert (pair.arrived, pair.cursor()) == (names, len(names))
    assert listener_counts(relay) == {"a": (21, 21, 0), "b": (7, 7, 0), "c": (7, 7, 0)}


@pytest.mark.survives("relay", "SIGKILL")
@pytest.mark.survives("relay", "peer away")
@pytest.mark.parametrize("seed", range(4))
def test_entries_of_several_listeners_arrive_once_whatever_is_interrupted(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Kills, connections that break within a stream, and topics that are deleted, in any order."""
    chance, numbers, topics = Random(seed), count(), 0
    pair.host.log.create("t")

    def breaking(append: Callable[..., list[list[int]]]) -> Callable[..., list[list[int]]]:
        def call(target: str, appends: list[Any]) -> list[list[int]]:
            sent = chance.choice([len(appends), chance.randrange(len(appends) + 1)])
            answers = append(target, appends[:sent]) if sent else []
            return answers[: chance.choice([len(answers), chance.randrange(len(answers) + 1)])]

        return call

    for _ in range(25):
        for _ in range(chance.randrange(8)):
            payloads = [b"%d" % next(numbers) for _ in range(chance.randrange(1, 3))]
            pair.store(*payloads, origin=replace(ORIGIN, source=chance.choice("abc")))
        relay = pair.relay()
        monkeypatch.setattr(relay._remote, "append_batches", breaking(relay._remote.append_batches))
        relay_until_killed(relay, chance.randrange(30))
        if chance.random() < 0.2:
            recreate(pair, b"%d" % next(numbers))
            topics += 1
    relay = pair.relay()
    relay_all(relay)
    arrived, counts = [int(payload) for payload in pair.arrived], listener_counts(relay)
    assert arrived == sorted(set(arrived)), "once, and in order"
    assert pair.cursor() == next(numbers)
    accepted, forwarded, expired = (sum(numbers) for numbers in zip(*counts.values(), strict=True))
    assert (accepted, forwarded, expired) == (pair.cursor(), len(arrived), accepted - len(arrived))
    assert topics or not expired


def test_refused_range_of_several_waits_and_the_ones_before_it_arrive(pair: Pair) -> None:
    pair.central.log.create("central-t", {"message_size_limit": 1000})
    names = store_by_listener(pair, "aab")
    pair.store(b"x" * 2000, origin=replace(ORIGIN, source="a"))
    pair.store(b"last", origin=replace(ORIGIN, source="b"))
    relay = pair.relay()
    wait_until(lambda: not relay.relay_once() and relay.is_failing)
    assert (pair.arrived, pair.cursor()) == (names, len(names))
    assert relay.count()[0]["a"].in_doubt == 1
    pair.central.log.configure("central-t", {"message_size_limit": 10_000})
    wait_until(lambda: not relay.relay_once() and not relay.is_failing)
    assert (pair.arrived, pair.cursor()) == ([*names, b"x" * 2000, b"last"], 5)


@pytest.fixture
def distant(monkeypatch: pytest.MonkeyPatch) -> None:
    """A round trip of 50 ms: on loopback a stream ends before the server has read behind a refused request."""
    answered = Call.answered

    def answered_later(call: Call[Any], response: bytes) -> Any:
        time.sleep(0.05)
        return answered(call, response)

    monkeypatch.setattr(Call, "answered", answered_later)


def forget_topic(pair: Pair) -> None:
    pair.central.log.delete("central-t")
    pair.central.api.topics.forget("central-t")


def forget_producer(pair: Pair) -> None:
    pair.central.log._shared.producer_memory = 1.0
    time.sleep(1.5)
    pair.central.log.topic("central-t").sweep()


@pytest.mark.usefixtures("distant")
@pytest.mark.parametrize("forget", [forget_topic, forget_producer])
def test_order_is_kept_if_the_other_side_forgot_the_producer_and_refuses_the_first_range(
    pair: Pair, forget: Callable[[Pair], None]
) -> None:
    small = {"message_size_limit": 1000}
    pair.central.log.create("central-t", small)
    store_by_listener(pair, "ab")
    relay = pair.relay()
    relay_all(relay)
    forget(pair)
    before = pair.arrived if forget is forget_producer else []
    with contextlib.suppress(TopicExists):
        pair.central.log.create("central-t", small)
    pair.store(b"x" * 2000, origin=replace(ORIGIN, source="a"))
    names = store_by_listener(pair, "ba")
    wait_until(lambda: not relay.relay_once() and relay.is_failing)
    assert pair.arrived == before
    pair.central.log.configure("central-t", {"message_size_limit": 10_000})
    wait_until(lambda: not relay.relay_once() and not relay.is_failing)
    assert pair.arrived == [*before, b"x" * 2000, *names]


@pytest.mark.usefixtures("distant")
@pytest.mark.parametrize("restarts", [True, False], ids=["backup", "snapshot of a running host"])
@pytest.mark.parametrize("row", [b"lost", b"0-a"], ids=["other row", "same row"])
def test_order_is_kept_if_the_other_side_knows_later_numbers(pair: Pair, restarts: bool, row: bytes) -> None:
    """The host was restored: its next numbers are used, and the one behind them is the next there."""
    pair.store(b"0")
    relay = pair.relay()
    relay_all(relay)
    origin = relayed_origin("web1", ORIGIN, pair.hop)
    for number, payload in ((2, row), (3, b"lost")):
        relay._remote.append_batch("central-t", body([payload]), (relay._producer, number), origin)
    names = store_by_listener(pair, "abcab")
    relay_all(pair.relay() if restarts else relay)
    # A row that is the same as the one under its number there is taken for it.
    assert pair.arrived == [b"0", row, b"lost", *names[row == names[0] :]]


def test_central_side_of_an_earlier_version_gets_one_range_at_a_time(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An earlier version would reorder ranges of a stream, and its answers lack the field by which a stream begins."""
    monkeypatch.setattr(calls, "decode_relayed", lambda response: (DECODE_RELAYED(response)[0], False))
    monkeypatch.setattr(RetryingCaller, "pipeline", None)
    names = store_by_listener(pair, "ab" * 5)
    relay = pair.relay()
    relay_all(relay)
    assert (pair.arrived, pair.cursor()) == (names, len(names))
    assert listener_counts(relay) == {"a": (5, 5, 0), "b": (5, 5, 0)}


def test_stream_without_answers_is_repeated_once_while_the_other_side_keeps_few_answers(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = store_by_listener(pair, "ab" * 32)
    relay = pair.relay()
    relay_until_killed(relay, 5)
    assert pair.arrived == names
    monkeypatch.setattr(producers, "MAX_ANSWERS", 150)
    origin = relayed_origin("web2", ORIGIN, "d/t")
    for number in range(100):
        relay._remote.append_batch("central-t", body([b"other"]), ("q", number), origin)
    relay_all(pair.relay())
    assert [payload for payload in pair.arrived if payload != b"other"] == names


def test_counts_close_if_the_topic_cannot_be_read_behind_an_acknowledgement(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = store_by_listener(pair, "abab")
    relay = pair.relay()
    relay.prepare()
    with monkeypatch.context() as context:
        context.setattr(TopicTally, "count_to", failing)
        assert not relay.relay_once()
    names += [b"last"]
    pair.store(b"last", origin=replace(ORIGIN, source="b"))
    wait_until(lambda: not relay.relay_once() and not relay.is_failing)
    assert (pair.arrived, listener_counts(relay)) == (names, {"a": (2, 2, 0), "b": (3, 3, 0)})
    again = pair.relay()
    relay_all(again)
    assert listener_counts(again) == {"a": (2, 2, 0), "b": (3, 3, 0)}


def failing(*_: object) -> None:
    raise OSError("a moment's failure")


def test_part_of_a_range_that_had_arrived_whole_counts_as_forwarded(pair: Pair) -> None:
    interrupt(pair)
    relay, origin = pair.relay(), relayed_origin("web1", ORIGIN, pair.hop)
    relay._remote.append_batch("central-t", body([b"a", b"b", b"c"]), ("p", 1), origin)
    for again in (relay, pair.relay()):
        relay_all(again)
        assert again.count()[0] == {"events-udp": ListenerReport(accepted=3, forwarded=3)}
    assert pair.arrived == [b"a", b"b", b"c"]


def test_unknown_number_is_sent_as_another_producer(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    pair.store(b"a")
    relay_all(pair.relay())
    pair.store(b"b")
    entered = pair.file.read()
    assert entered is not None
    pair.file.write(replace(entered, sequence=9, begin=1, end=2, stored_us=0))
    relay_all(pair.relay())
    assert (pair.arrived, pair.cursor()) == ([b"a", b"b"], 2)
    assert [line for line in caplog.messages if "another producer, and may be stored twice" in line]


def test_interrupted_entries_that_are_gone_are_named(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    pair.store(b"a", b"b", b"c")
    pair.file.write(RelayPosition("p", 1, 0, 3, 0))
    recreate(pair, b"d")
    relay_all(pair.relay())
    assert (pair.arrived, pair.cursor()) == ([b"d"], 4)
    assert "topic t: the entries [0, 3) were gone before they were relayed" in caplog.messages


def test_part_of_an_interrupted_range_is_sent_under_its_number(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    pair.store(b"a", b"b")
    recreate(pair, b"c")
    pair.file.write(RelayPosition("p", 1, 0, 3, 0))
    relay_all(pair.relay())
    pair.local.commit_cursor("t", "relay-up", 0)
    relay_all(pair.relay())  # the number is stored already
    assert (pair.arrived, pair.cursor()) == ([b"c"], 3)
    assert "topic t: 2 of the interrupted entries [0, 3) were gone before they could be sent again" in caplog.messages


def test_repetition_after_the_memory_of_producers_is_named(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    pair.store(b"a")
    pair.file.write(RelayPosition("p", 1, 0, 1, 1_700_000_000 - PRODUCER_MEMORY_S))
    relay_all(pair.relay())
    assert pair.arrived == [b"a"]
    assert [line for line in caplog.messages if "transactions.producer_memory" in line]


@pytest.mark.survives("relay", "damaged bytes")
def test_damaged_position_continues_at_the_cursor(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    pair.store(b"a", b"b")
    relay_all(pair.relay())
    path = pair.token.parent / "host" / RELAYS_FOLDER / "up" / "t.json"
    path.write_bytes(b"damaged")
    pair.store(b"c")
    relay_all(pair.relay())
    assert pair.arrived == [b"a", b"b", b"c"]
    assert [line for line in caplog.messages if "entries from offset 2 on may be stored twice" in line]
    assert path.with_suffix(".damaged").exists()


def test_outage_is_two_lines(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    outage = Outage("t")
    outage.end()
    for _ in range(3):
        outage.fail("away")
        assert outage.is_waiting
    outage.end()
    outage.end()
    assert caplog.messages == ["topic t is not relayed: away; retrying", "topic t is relayed again after 0 s"]


@pytest.mark.survives("relay", "damaged bytes")
def test_damaged_entries_become_a_gap_and_the_others_arrive(pair: Pair) -> None:
    for payload in (b"first entry", b"second entry", b"third entry"):
        pair.store(payload)
    for path in (pair.token.parent / "host" / "topics" / "t").rglob("*"):
        if path.is_file() and b"second entry" in (content := path.read_bytes()):
            path.write_bytes(content.replace(b"second entry", b"sEcond entry"))
    relay = pair.relay()
    wait_until(lambda: not relay.relay_once() and pair.cursor() == 3)
    assert pair.arrived == [b"first entry", b"third entry"]
    (gap,) = pair.local.describe("t")[0].gaps
    assert (gap.begin, gap.end) == (1, 2)


def test_part_of_a_range_is_sent_as_another_producer_if_its_number_is_unknown(pair: Pair) -> None:
    pair.store(b"a", b"b")
    recreate(pair, b"c")
    pair.file.write(RelayPosition("p", 7, 0, 3, 0))  # the other side was restored: it knows only number 1
    pair.relay()._remote.append_batch("central-t", body([b"x"]), ("p", 1), relayed_origin("web1", ORIGIN, "d/t"))
    relay_all(pair.relay())
    assert (pair.arrived, pair.cursor()) == ([b"x", b"c"], 3)


def fail_writes(pair: Pair, relay: TopicRelay) -> None:
    """Let several attempts to enter a range fail."""
    folder = pair.token.parent / "host" / RELAYS_FOLDER / "up"
    hidden = folder.rename(folder.with_name("hidden"))
    wait_until(lambda: not relay.relay_once() and relay.statistics.retries >= 2)
    hidden.rename(folder)


@pytest.mark.survives("relay", "full disk")
def test_expired_entries_are_counted_once_if_the_position_cannot_be_written(pair: Pair) -> None:
    pair.store(b"a")
    relay = pair.relay()
    relay_all(relay)
    pair.store(b"b", b"c")
    recreate(pair, b"d")
    fail_writes(pair, relay)
    wait_until(lambda: relay.relay_once() or pair.cursor() == 4)
    report = relay.count()[0]["events-udp"]
    assert (pair.arrived, report.accepted, report.forwarded, report.expired) == ([b"a", b"d"], 4, 2, 2)


def test_expired_part_of_a_range_is_counted_once_if_the_position_cannot_be_written(pair: Pair) -> None:
    pair.store(b"a", b"b")
    recreate(pair, b"c")
    pair.file.write(RelayPosition("p", 7, 0, 3, 0, "events-udp", 3, {}))
    relay = pair.relay()
    relay._remote.append_batch("central-t", body([b"x"]), ("p", 1), relayed_origin("web1", ORIGIN, "d/t"))
    fail_writes(pair, relay)
    wait_until(lambda: relay.relay_once() or pair.cursor() == 3)
    report = relay.count()[0]["events-udp"]
    assert (pair.arrived, report.accepted, report.forwarded, report.expired) == ([b"x", b"c"], 3, 1, 2)


@pytest.mark.parametrize("change", ["host", "to"])
def test_counts_begin_again_for_another_host_or_daemon(pair: Pair, change: str) -> None:
    pair.store(b"a", b"b")
    relay_all(pair.relay())
    pair.store(b"c")
    port = pair.central.bound.grpc.rpartition(":")[2]
    changed = pair.relay(
        **{"host": {"host": "web2"}, "to": {"to": f"localhost:{port}", "tls_name": "127.0.0.1"}}[change]
    )
    changed.prepare()
    report = changed.count()[0]["events-udp"]
    assert (report.accepted, report.forwarded, report.pending) == (1, 0, 1)
    relay_all(changed)
    report = changed.count()[0]["events-udp"]
    assert (report.accepted, report.forwarded, report.pending) == (1, 1, 0)


def test_topic_whose_entries_may_expire_is_named(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    pair.store(b"a")
    relay_all(pair.relay())
    assert sum('retention_policy = "keep" prevents that' in line for line in caplog.messages) == 1
    pair.local.configure_topic("t", retention_policy="keep")
    caplog.clear()
    relay_all(pair.relay())
    assert not caplog.messages


def test_topic_that_takes_entries_too_large_for_a_relay_is_named(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    pair.store(b"a")
    for megabytes, warnings in ((63, 0), (64, 1)):
        pair.local.configure_topic("t", message_size_limit=megabytes << 20, retention_policy="keep")
        caplog.clear()
        relay_all(pair.relay())
        assert len([line for line in caplog.messages if "more than 63 MiB cannot be relayed" in line]) == warnings


def test_relay_does_not_start_while_its_predecessor_runs(tmp_path: Path) -> None:
    config = RelayConfig(name="up", topic=("t",), to="127.0.0.1:1")
    settings = Settings(data_dir=tmp_path, relay=[config])
    lock = tmp_path / RELAYS_FOLDER / "up" / "lock"
    lock.parent.mkdir(parents=True)
    task = json.dumps({"settings": settings.model_dump(mode="json"), "relay": "up"})
    command = [sys.executable, "-m", "penstock.client.relay.relay", str(os.getpid())]
    unlock = OS.lock(lock)
    try:
        ended = subprocess.run(command, input=task, capture_output=True, text=True, timeout=60, check=False)
    finally:
        unlock()
    assert ended.returncode == 1
    assert "cannot start the relay to 127.0.0.1:1: " in ended.stderr
    assert f"{lock.parent} is open in another process" in ended.stderr


def test_renewed_token_is_noticed_once(pair: Pair) -> None:
    config = RelayConfig(name="up", topic="t", to="127.0.0.1:1", token_file=pair.token)
    credentials = Credentials(config, Settings())
    assert not credentials.have_changed()
    os.utime(pair.token, ns=(1, 1))
    assert (credentials.have_changed(), credentials.have_changed()) == (True, False)


PLAIN = {"token_file": None, "tls_ca": None, "to_topic": None}


def test_relay_to_its_own_instance_is_refused(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    pair.store(b"a")
    relay = pair.relay(**PLAIN, to=pair.host.bound.grpc)
    relay_all(relay)
    assert [row.batch.num_rows for row in pair.host.log.topic("t").reader().read(0)] == [1]
    (line,) = lines(caplog)
    assert "relay.to is the Penstock that relays, and topic t would be copied into itself" in line
    assert "remove relays/disk.json in the data directory of the copy" in line
    assert (pair.cursor(), relay.statistics.refusals) == (0, 1)
    # Into another topic it is a copy that ends.
    relay_all(pair.relay(**PLAIN | {"to_topic": "copy"}, to=pair.host.bound.grpc))
    assert [row.batch.num_rows for row in pair.host.log.topic("copy").reader().read(0)] == [1]


def test_entries_do_not_circulate_between_two_instances(
    pair: Pair, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    other = Running(tmp_path / "other" / "topics")
    try:
        pair.store(b"a")
        relay_all(pair.relay(**PLAIN, to=other.bound.grpc))
        config = RelayConfig(name="back", topic=("t",), host="web2", to=pair.host.bound.grpc)
        with Log(other.bound.grpc) as local, remote_client(config) as remote:
            back = TopicRelay(config, "t", Settings(data_dir=tmp_path / "other"), local, remote)
            relay_all(back)
            (line,) = lines(caplog)
            assert "come from topic t of this Penstock, through 1 other: the relays form a circle" in line
            assert "remove relays/disk.json in the data directory of the copy" in line
            assert [row.batch.num_rows for row in pair.host.log.topic("t").reader().read(0)] == [1]
            assert {cursor.name: cursor.offset for cursor in local.cursors("t")} == {"relay-back": 0}
    finally:
        other.stop()


def test_batches_with_other_paths_are_not_joined(pair: Pair) -> None:
    for hop in ("a/t", "b/t"):
        pair.store(b"x", origin=replace(ORIGIN, source="web0/udp", hops=(hop,)))
    relay_all(pair.relay())
    assert [stored.origin.hops for stored in pair.batches()] == [("a/t", pair.hop), ("b/t", pair.hop)]


def replace_folder(pair: Pair, replace_topic: Callable[[Path], object]) -> None:
    """Replace the folder of the host's topic while its daemon is stopped."""
    pair.local.close()
    pair.host.stop()
    replace_topic(pair.host.log.directory / "t")
    pair.host = Running(pair.host.log.directory)
    pair.local = Log(pair.host.bound.grpc)


@pytest.mark.parametrize("runs_on", [False, True], ids=["started again", "running"])
def test_topic_whose_folder_was_removed_is_relayed_again(
    pair: Pair, caplog: pytest.LogCaptureFixture, runs_on: bool
) -> None:
    pair.store(b"a", b"b", b"c")
    relay = pair.relay()
    relay_all(relay)
    replace_folder(pair, shutil.rmtree)
    pair.store(b"d")
    if runs_on:
        relay._local = pair.local
    again = relay if runs_on else pair.relay()
    relay_all(again)
    assert (pair.arrived, pair.cursor()) == ([b"a", b"b", b"c", b"d"], 1)
    pair.store(b"e")
    for each in (again, pair.relay()):
        relay_all(each)
        assert pair.arrived == [b"a", b"b", b"c", b"d", b"e"]
        assert each.count()[0] == {"events-udp": ListenerReport(accepted=2, forwarded=2)}
    text = (
        "topic t ends at 1, and 3 were relayed: its folder was removed, or comes from an older copy; it is relayed "
        "from offset 0 on, as another producer: entries may be stored twice"
    )
    assert lines(caplog) == [text]


@pytest.mark.parametrize("starts", ["again", "without the folder", "after an interrupted append"])
def test_topic_whose_folder_was_removed_and_that_has_grown_since_is_relayed_from_its_begin(
    pair: Pair, caplog: pytest.LogCaptureFixture, starts: str
) -> None:
    pair.store(b"a", b"b")
    relay = pair.relay()
    relay_all(relay)
    if starts == "after an interrupted append":
        pair.store(b"c")
        relay._remote.close()
        assert not relay.relay_once()
        caplog.clear()

    def remove(folder: Path) -> None:
        shutil.rmtree(folder)
        if starts == "without the folder":
            assert not relay.relay_once()

    replace_folder(pair, remove)
    pair.store(b"d", b"e", b"f", b"g")
    relay._local = pair.local
    relay_all(relay if starts == "without the folder" else pair.relay())
    assert (pair.arrived, pair.cursor()) == ([b"a", b"b", b"d", b"e", b"f", b"g"], 4)
    pair.store(b"h")
    relay_all(pair.relay())
    assert pair.arrived == [b"a", b"b", b"d", b"e", b"f", b"g", b"h"]
    text = (
        "topic t is not the one that was relayed: its folder was removed, or comes from an older copy; it is relayed "
        "from offset 0 on, as another producer: entries may be stored twice"
    )
    assert lines(caplog) == [text]


@pytest.mark.parametrize(("is_interrupted", "counted"), [(False, 2), (True, 4)])
def test_topic_from_an_older_copy_is_relayed_from_its_cursor(
    pair: Pair, tmp_path: Path, is_interrupted: bool, counted: int
) -> None:
    pair.store(b"a", b"b")
    relay = pair.relay()
    relay_all(relay)
    pair.host.log.topic("t").wait_until_idle()
    older = tmp_path / "older"
    shutil.copytree(pair.host.log.directory / "t", older)
    pair.store(b"c", b"d")
    relay_all(relay)
    if is_interrupted:
        pair.store(b"e")
        relay._remote.close()
        assert not relay.relay_once()

    def restore(folder: Path) -> None:
        shutil.rmtree(folder)
        older.rename(folder)

    replace_folder(pair, restore)
    relay = pair.relay()
    relay_all(relay)
    # Fewer than have arrived: the other side counts these as accepted.
    assert relay.count()[0] == {"events-udp": ListenerReport(accepted=counted, forwarded=counted)}
    pair.store(b"f")
    relay_all(relay)
    assert (pair.arrived, pair.cursor()) == ([b"a", b"b", b"c", b"d", b"f"], 3)
    assert relay.count()[0] == {"events-udp": ListenerReport(accepted=counted + 1, forwarded=counted + 1)}


def test_damaged_length_of_a_topic_lets_no_relay_begin_again(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    pair.store(b"a", b"b")
    relay_all(pair.relay())
    pair.host.log.topic("t").wait_until_idle()
    for file in (pair.host.log.directory / "t").glob("*.synced"):
        file.write_bytes(bytes(24))
    relay = pair.relay()
    relay_all(relay)
    assert lines(caplog) == []
    assert (pair.arrived, pair.cursor(), relay._next) == ([b"a", b"b"], 2, 2)
