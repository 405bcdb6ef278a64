"""The balance: what arrived, its fates, what is on the way, and what is unaccounted for (docs/accounting.md).

A listener closes as a route (accepted = delivered + policy_drop + handler_failed + corrupt + in_buffer), a topic as a
range of offsets (logged = landed + quarantined + duplicate + dropped + deleted + gaps + pending). A topic that no
pipeline reads ends with ``logged``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeVar

from penstock.counts import Counts, Name, OpenBook, SourceBucket, bucket_of, open_books, summed
from penstock.handover.paths import LOG
from penstock.ledger.book.book_pages import BookPages, TopicFates
from penstock.ledger.book.daily_rollup import roll_counts, roll_rows, rolled_key, widened
from penstock.ledger.book.source_totals import SourceTotals
from penstock.ledger.hosts.host_states import HostState, OnHost, on_host
from penstock.ledger.hosts.over_kafka import OverKafka
from penstock.ledger.posts import ROWS, SUM
from penstock.qualified_names import is_partition, is_relayed, split_relayed

Value = TypeVar("Value")

API_SOURCES = ("grpc", "http", "flight", "kafka")

RELAY, KAFKA = "relay", "kafka"
"""Ways of entries from another host."""
Within = int | range | None
"""Selected buckets (seconds since the epoch): one bucket, a range of seconds, or all."""


LAST = 1 << 60
"""Upper bound of all buckets."""


def minutes(since: float, until: float = LAST) -> range:
    """Return the buckets that begin before ``until``, starting with the bucket of ``since`` (seconds since the
    epoch).
    """
    return range(bucket_of(since), math.ceil(until))


def inside(bucket: int, within: Within) -> bool:
    """Return whether a bucket is selected."""
    return within is None or (bucket in within if isinstance(within, range) else bucket == within)


def as_range(within: Within) -> range | None:
    """Return selected buckets as a range of seconds; None selects all."""
    return range(within, within + 1) if isinstance(within, int) else within


@dataclass(frozen=True, slots=True)
class UnlandedTail:
    """The offsets of a topic after its last landed one, by source and bucket: pending rows, and gaps."""

    pending: Mapping[SourceBucket, int] = field(default_factory=dict)
    gaps: Mapping[SourceBucket, Mapping[str, int]] = field(default_factory=dict)

    def rolled(self, before: int) -> UnlandedTail:
        """Return the tail with buckets older than ``before`` summed by day."""
        return UnlandedTail(roll_rows(self.pending, before), roll_counts(self.gaps, before))


@dataclass(frozen=True, slots=True)
class Route:
    """The route from a listener to one handler: accepted = sum of the other terms + unaccounted."""

    source: str
    handler: str
    accepted: int
    delivered: int
    policy_drop: int
    handler_failed: int
    corrupt: int
    in_buffer: int

    @property
    def unaccounted(self) -> int:
        """Accepted messages without a known fate; 0 if the route closes."""
        fates = self.delivered + self.policy_drop + self.handler_failed + self.corrupt
        return self.accepted - fates - self.in_buffer


@dataclass(frozen=True, slots=True)
class Uuids:
    """The number of known uuids of a fate, and the sum of their 64-bit hashes (modulo 2^64, hexadecimal)."""

    rows: int
    sum: str


@dataclass(frozen=True, slots=True)
class TopicBalance:
    """The offsets of a topic.

    logged = landed + quarantined + duplicate + transformed.dropped + deleted + gaps + pending + unaccounted.
    """

    topic: str
    end: int
    logged: int
    fates: dict[str, int]
    pending: int
    read_by_pipeline: bool
    uuids: dict[str, Uuids] = field(default_factory=dict)

    @property
    def unaccounted(self) -> int:
        """Offsets without a known fate; 0 if the topic closes."""
        accounted = Counts(self.fates).rows() + self.pending if self.read_by_pipeline else self.logged
        return self.end - accounted


@dataclass(frozen=True, slots=True)
class Listener:
    """The books of a listener."""

    name: str
    counts: dict[str, int]
    sent: dict[str, int] | None
    network_lost: int | None
    books: list[OpenBook]


@dataclass(frozen=True, slots=True)
class HostListener:
    """Entries that another host's listener received and relayed, or forwarded to Kafka, and their fates here.

    ``last_seen`` is the start of the last minute with an entry, in seconds since the epoch, or of its day or month
    once it is rolled up. Entries of topics that no pipeline reads have no fates and are not pending. ``on_host``: what
    the host itself counts, if it has registered. ``way`` is ``relay`` or ``kafka``, with ``over_kafka`` instead of
    ``on_host``.
    """

    host: str
    listener: str
    accepted: int
    fates: dict[str, int]
    pending: int
    last_seen: int
    on_host: OnHost | None = None
    way: str = RELAY
    over_kafka: OverKafka | None = None

    def plus(self, addend: HostListener) -> HostListener:
        """Return the sum of both, as the row of this one."""
        fates = Counts(self.fates)
        fates.absorb(addend.fates)
        return replace(
            self,
            accepted=self.accepted + addend.accepted,
            fates=fates.pruned(),
            pending=self.pending + addend.pending,
            last_seen=max(self.last_seen, addend.last_seen),
        )


@dataclass(frozen=True, slots=True)
class Balance:
    """The whole balance as of one moment.

    Before ``by_day_before`` (seconds since the epoch) only days or months are known.
    """

    listeners: list[Listener]
    routes: list[Route]
    topics: list[TopicBalance]
    by_day_before: int = 0
    hosts: list[HostListener] = field(default_factory=list)

    @property
    def unaccounted(self) -> int:
        """Sum of the absolute differences of all routes, topics and books: a surplus is as wrong as a loss."""
        terms = [route.unaccounted for route in self.routes] + [topic.unaccounted for topic in self.topics]
        books = [book.left - book.right for listener in self.listeners for book in listener.books]
        return sum(abs(term) for term in terms + books)

    @property
    def pending(self) -> int:
        """Messages on the way."""
        return sum(route.in_buffer for route in self.routes) + sum(topic.pending for topic in self.topics)

    def document(self) -> dict[str, Any]:
        """Return the balance as a JSON-ready mapping."""
        return {
            "unaccounted": self.unaccounted,
            "pending": self.pending,
            "by_day_before": self.by_day_before,
            "listeners": [_fields(entry) | {"books": list(map(asdict, entry.books))} for entry in self.listeners],
            "routes": [_fields(r) | {"unaccounted": r.unaccounted} for r in self.routes],
            "topics": [asdict(t) | {"unaccounted": t.unaccounted} for t in self.topics],
            **({"hosts": list(map(_host_document, self.hosts))} if self.hosts else {}),
        }


def _fields(row: Any) -> dict[str, Any]:
    """Return the fields of a row, of which there may be thousands: `asdict` takes ten times as long."""
    return {name: getattr(row, name) for name in row.__slots__}


def _host_document(entry: HostListener) -> dict[str, Any]:
    on_host, over_kafka = entry.on_host, entry.over_kafka
    return _fields(entry) | {
        "on_host": _fields(on_host) if on_host else None,
        "over_kafka": asdict(over_kafka) if over_kafka else None,
    }


def balance(
    pages: BookPages,
    beyond: Mapping[str, UnlandedTail],
    in_buffer: Mapping[SourceBucket, Counts],
    within: Within = None,
) -> Balance:
    """Return the balance of ``pages``, limited to the buckets ``within`` if given.

    ``in_buffer`` has the counts of frames that wait in log buffers, by source and bucket; ``beyond`` the part of each
    topic between its last landed offset and the end that ``pages`` covers. A selection that begins within a rolled-up
    day or month has the whole of it.
    """
    before = pages.rolled
    view = _View(widened(within, before))
    totals = pages.totals or pages.add_up(as_range(view.within))
    buffered = view.by_source(roll_counts(in_buffer, before))
    sources = sorted({*totals.received, *buffered, *totals.delivered})
    counts = {source: summed((totals.received.get(source, {}), buffered.get(source, {}))) for source in sources}
    delivered = totals.delivered
    waiting = {source: _waiting(of_source) for source, of_source in buffered.items()}
    tails = {topic: beyond.get(topic, UnlandedTail()).rolled(before) for topic in {*pages.logged, *pages.landed}}
    # A sender reports totals without minutes, so a selection of buckets has no sent counts.
    sent = pages.sent() if within is None else {}
    return Balance(
        [_listener(s, counts[s], sent.get(s), within) for s in sources if s not in API_SOURCES],
        [_route(s, counts[s], delivered.get(s, 0), waiting.get(s, 0)) for s in sources if _is_logged(counts[s])],
        [_topic(pages, totals, t, tails[t], view) for t in sorted(pages.logged)],
        before,
        _host_listeners(totals, {t: tails[t] for t in pages.landed}, counts, view, before),
    )


def _host_listeners(
    totals: SourceTotals, tails: Mapping[str, UnlandedTail], received: Mapping[str, Counts], view: _View, rolled: int
) -> list[HostListener]:
    """Return one entry for each source of a host and its way here; a listener of this host has no slash in its name.

    ``tails`` has the landed topics, ``received`` the counts by source, buffered ones included.
    """
    sources = {source for source in received if is_relayed(source)}
    # Fast path: most instances have no other hosts.
    if not sources:
        return []
    fates: dict[tuple[str, str], Counts] = {}
    pending = Counts()
    for topic, tail in tails.items():
        pending.absorb(view.rows_by_source(tail.pending))
        way = KAFKA if is_partition(topic) else RELAY
        for by_source in (totals.fates.get(topic, {}), view.by_source(tail.gaps)):
            for source, counts in by_source.items():
                if source in sources:
                    fates.setdefault((source, way), Counts()).absorb(counts)
    entries = []
    for source in sorted(sources):
        host, listener = split_relayed(source)
        _, seen = rolled_key((source, totals.last_seen.get(source, 0)), rolled)
        of_kafka = fates.get((source, KAFKA), Counts())
        # Records of Kafka are accepted here once they have a fate.
        relayed, landed = received[source][Name.ACCEPTED] - of_kafka.rows(), fates.get((source, RELAY), Counts())
        if relayed or not of_kafka:
            entries.append(HostListener(host, listener, relayed, landed.pruned(), pending[source], seen))
        if of_kafka:
            entries.append(HostListener(host, listener, messages(of_kafka), of_kafka.pruned(), 0, seen, way=KAFKA))
    return entries


def messages(counts: Counts) -> int:
    """Return the messages that records of Kafka were: a part of a large one is none."""
    return counts.rows() - counts.get(Name.SEGMENT, 0)


def landed_by_minute(landed: Mapping[str, TopicFates], since: Mapping[str, int]) -> dict[str, dict[int, int]]:
    """Return the messages that landed from Kafka by HOST/LISTENER and minute.

    ``since`` has the selected HOST/LISTENER with the minute before which all messages are summed as minute 0.
    """
    # Invariant: as in messages and Counts.rows; redacted messages have another count, too.
    return _by_minute(landed, is_partition, lambda name: name not in (Name.REDACTED, Name.SEGMENT), since)


def duplicates_by_minute(landed: Mapping[str, TopicFates], since: Mapping[str, int]) -> dict[str, dict[int, int]]:
    """Return the messages in ``landed_by_minute`` whose uuid had landed before."""
    return _by_minute(landed, is_partition, lambda name: name == Name.DUPLICATE, since)


def promoted_by_minute(landed: Mapping[str, TopicFates], sources: Iterable[str]) -> dict[str, dict[int, int]]:
    """Return the relayed messages that were copied from the log to Kafka, by HOST/LISTENER and minute."""
    since = dict.fromkeys(sources, 0)
    return _by_minute(landed, lambda topic: not is_partition(topic), lambda name: name == Name.PROMOTED, since)


def _by_minute(
    landed: Mapping[str, TopicFates],
    is_counted: Callable[[str], bool],
    is_summed: Callable[[str], bool],
    since: Mapping[str, int],
) -> dict[str, dict[int, int]]:
    """Return the sums over the selected names in the selected topics by source and minute."""
    sums: dict[str, dict[int, int]] = {}
    for topic, fates in landed.items():
        for source, columns in fates.counts.sources() if is_counted(topic) else ():
            if source in since and (minutes_of_topic := columns.by_bucket(is_summed, since[source])):
                minutes_of_source = sums.setdefault(source, minutes_of_topic)
                for minute, count in minutes_of_topic.items() if minutes_of_source is not minutes_of_topic else ():
                    minutes_of_source[minute] = minutes_of_source.get(minute, 0) + count
    return sums


def with_kafka_hosts(balance: Balance, compared: Mapping[tuple[str, str], OverKafka]) -> Balance:
    """Return a balance of all minutes with the hosts that forward to Kafka."""
    rows = {(entry.host, entry.listener, entry.way): entry for entry in balance.hosts}
    for (host, listener), over_kafka in compared.items():
        key = (host, listener, KAFKA)
        entry = rows.get(key, HostListener(host, listener, 0, {}, 0, 0, way=KAFKA))
        rows[key] = replace(entry, over_kafka=over_kafka)
    return replace(balance, hosts=[rows[key] for key in sorted(rows)])


def with_hosts(balance: Balance, states: Mapping[str, HostState]) -> Balance:
    """Return a balance of all minutes with what registered hosts count."""
    rows: dict[tuple[str, str], HostListener] = {}
    relayed = [entry for entry in balance.hosts if entry.way == RELAY]
    for entry in relayed:
        state = states.get(entry.host)
        row = state.row(entry.listener) if state else entry.listener
        key = (entry.host, row)
        rows[key] = rows[key].plus(entry) if key in rows else replace(entry, listener=row)
    for host, state in states.items():
        for row in state.rows:
            rows.setdefault((host, row), HostListener(host, row, 0, {}, 0, 0))
    entries = []
    for (host, row), entry in sorted(rows.items()):
        state = states.get(host)
        entries.append(replace(entry, on_host=on_host(state, row, entry.accepted)) if state else entry)
    return replace(balance, hosts=[*entries, *(entry for entry in balance.hosts if entry.way != RELAY)])


def _waiting(in_buffer: Counts) -> int:
    """Return the messages in a log buffer. Counts of dropped frames travel there too, and have their own fate."""
    return in_buffer[Name.ACCEPTED] - in_buffer[f"{Name.POLICY_DROP}{LOG}"] - in_buffer[f"{Name.NOT_ROUTED}{LOG}"]


def _is_logged(counts: Counts) -> bool:
    """Return whether any of a source's messages are for the log."""
    return not counts[Name.ACCEPTED] or counts[Name.ACCEPTED] > counts[f"{Name.NOT_ROUTED}{LOG}"]


@dataclass(frozen=True, slots=True)
class _View:
    """A selection of buckets."""

    within: Within

    def select(self, keyed: Mapping[SourceBucket, Value]) -> Iterator[tuple[str, Value]]:
        # Fast path: no list, because hundreds of thousands of new tuples make the garbage collector search the book.
        if self.within is None:
            return ((source, entry) for (source, _), entry in keyed.items())
        return ((source, entry) for (source, bucket), entry in keyed.items() if inside(bucket, self.within))

    def by_source(self, keyed: Mapping[SourceBucket, Mapping[str, int]]) -> dict[str, Counts]:
        totals: dict[str, dict[str, int]] = {}
        for source, counts in self.select(keyed):
            # Fast path: a plain dictionary takes a third of the time of `Counts.absorb`.
            if (total := totals.get(source)) is None:
                total = totals[source] = {}
            for name, count in counts.items():
                total[name] = total.get(name, 0) + count
        return {source: Counts(total) for source, total in totals.items()}

    def rows_by_source(self, keyed: Mapping[SourceBucket, int]) -> Counts:
        total: dict[str, int] = {}
        for source, rows in self.select(keyed):
            total[source] = total.get(source, 0) + rows
        return Counts(total)


def _listener(name: str, counts: Counts, sent: Counts | None, within: Within) -> Listener:
    network_lost = None
    if sent is not None and sent["datagrams"]:
        missing = sent["datagrams"] - counts[Name.KERNEL_DROPPED] - counts[Name.TAKEN]
        # More datagrams arrived than were reported: not every sender reports, so the loss is unknown.
        network_lost = missing if missing >= 0 else None
    books = open_books(counts) if within is None else []
    return Listener(name, counts.pruned(), sent.pruned() if sent is not None else None, network_lost, books)


def _route(source: str, counts: Counts, delivered: int, in_buffer: int) -> Route:
    return Route(
        source,
        LOG,
        counts[Name.ACCEPTED] - counts[f"{Name.NOT_ROUTED}{LOG}"],
        delivered,
        counts[f"{Name.POLICY_DROP}{LOG}"],
        counts[f"{Name.HANDLER_FAILED}{LOG}"],
        counts[Name.CORRUPT],
        in_buffer,
    )


def _topic(pages: BookPages, totals: SourceTotals, name: str, beyond: UnlandedTail, view: _View) -> TopicBalance:
    landed = pages.landed.get(name)
    logged = totals.logged.get(name, 0)
    return TopicBalance(
        topic=name,
        end=pages.ends[name] if view.within is None else logged,
        logged=logged,
        fates=summed([*totals.fates.get(name, {}).values(), *view.by_source(beyond.gaps).values()]).pruned(),
        pending=sum(rows for _, rows in view.select(beyond.pending)) if landed else 0,
        read_by_pipeline=landed is not None,
        uuids=_uuids(Counts(totals.uuids.get(name, {}))) if landed else {},
    )


def _uuids(counts: Counts) -> dict[str, Uuids]:
    fates = sorted(name.removeprefix(ROWS) for name in counts if name.startswith(ROWS))
    return {fate: Uuids(counts[ROWS + fate], f"{counts[SUM + fate] % (1 << 64):016x}") for fate in fates}
