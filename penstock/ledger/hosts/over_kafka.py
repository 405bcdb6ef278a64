"""The comparison of the hosts that forward to Kafka with what landed from there, by listener and minute.

Invariant: for each minute of a listener, ``landed = forwarded - in Kafka - missing + surplus``. A shortfall is missing
only if it is certain: the host posted its counts, and the post is settled. A surplus is doubled only if the host has
sent all of that minute, and beyond messages whose delivery failed, which may still be in Kafka.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.ledger.hosts.kafka_hosts import MINUTE_OVER_S, Closed, KafkaHost, KafkaReport
from penstock.qualified_names import relayed_name

Arrived = Mapping[int, int]


@dataclass(frozen=True, slots=True)
class OverKafka:
    """A listener of a host that forwards to Kafka, compared with its landed rows.

    ``accepted = forwarded + failed + dropped + pending + lost_with_disk + unposted``, and ``landed + in_kafka + missing
    = forwarded + doubled + failed_landed + unposted``. ``failed_landed`` are landed messages whose delivery was
    reported as failed, ``unposted`` were sent after the newest post of their disk. ``missing_minutes`` and
    ``doubled_minutes`` are the first and the last minute with such a difference (seconds since the epoch); empty if
    there is none, or if it is older than the minutes of a post.
    """

    accepted: int
    forwarded: int
    failed: int
    dropped: int
    pending: int
    lost_with_disk: int
    landed: int
    in_kafka: int
    missing: int
    doubled: int
    failed_landed: int
    unposted: int
    missing_minutes: tuple[int, ...]
    doubled_minutes: tuple[int, ...]
    reported_at: float
    clock_offset_s: float
    version: str


def separate_since(hosts: Mapping[str, KafkaHost], rolled: int = 0) -> dict[str, int]:
    """Return by HOST/LISTENER the first minute that ``compare`` distinguishes from those before it, from ``rolled`` on.

    Limit: not of a listener with promoted messages, each minute of which is compared.
    """
    since = {}
    for name, host in hosts.items():
        for listener in {*host.post.listeners, *host.closed}:
            reports = [host.post.listeners.get(listener, KafkaReport())]
            reports += [host.settled.listeners[listener]] if host.settled and listener in host.settled.listeners else []
            reports += [host.closed[listener].report] if listener in host.closed else []
            since[relayed_name(name, listener)] = min(_oldest(report, rolled) for report in reports)
    return since


def _oldest(report: KafkaReport, rolled: int) -> int:
    return min((minute for minute in report.minutes if minute >= rolled), default=rolled)


def compare(
    hosts: Mapping[str, KafkaHost],
    arrived: Mapping[str, Arrived],
    rolled: int = 0,
    promoted: Mapping[str, Arrived] | None = None,
    duplicates: Mapping[str, Arrived] | None = None,
) -> dict[tuple[str, str], OverKafka]:
    """Return the listeners of all hosts; ``arrived`` has by HOST/LISTENER the landed messages of each minute.

    ``promoted`` has the relayed messages that were copied from the log to Kafka, ``duplicates`` the part of ``arrived``
    with this fate. Minutes before ``rolled`` are summed by day. Order: ``arrived`` is read after the hosts: the
    messages of their settled posts must be in it.
    """
    compared = {}
    for name, host in hosts.items():
        for listener in sorted({*host.post.listeners, *host.closed}):
            source = relayed_name(name, listener)
            landed, copies = arrived.get(source, {}), (promoted or {}).get(source, {})
            duplicates_of_source = (duplicates or {}).get(source, {})
            compared[name, listener] = _compare(host, listener, landed, copies, duplicates_of_source, rolled)
    return compared


def _compare(
    host: KafkaHost, listener: str, arrived: Arrived, promoted: Arrived, duplicates: Arrived, rolled: int
) -> OverKafka:
    closed = host.closed.get(listener)
    report = host.post.listeners.get(listener, KafkaReport())
    total = closed.report.plus(report) if closed else report
    if promoted:
        arrived = _without_promoted(total, arrived, promoted, rolled)
    settled = host.settled.listeners.get(listener) if host.settled else None
    certain = (closed.report.plus(settled) if closed else settled) if settled else KafkaReport()
    spans = _spans(total, arrived, rolled)
    # Messages of a minute may still be sent while the host drops newer ones.
    newest = max((minute for minute, counts in total.minutes.items() if any(counts)), default=-1)
    oldest = min((minute for minute in spans if minute >= 0), default=rolled)
    is_idle = not report.pending and host.post.time_ms // 1000 >= newest + MINUTE_OVER_S
    shortfall = doubled = failed_landed = unposted = credited = 0
    doubled_minutes = []
    for minute, (forwarded, failed, landed) in spans.items():
        shortfall += max(forwarded - landed, 0)
        surplus = max(landed - forwarded, 0)
        of_failed = min(surplus, failed)
        failed_landed, surplus = failed_landed + of_failed, surplus - of_failed
        if closed and _may_be_of_former_disk(closed, minute, oldest):
            # A handler that was killed before the disk was lost has sent its last batch twice. As messages that had
            # waited there, its duplicates would hide as many lost ones.
            of_disk = max(surplus - _of_minute(duplicates, minute, oldest), 0)
            credited, surplus = credited + of_disk, surplus - of_disk
        if surplus and (minute < newest or (minute == newest and is_idle)):
            doubled += surplus
            doubled_minutes += [minute] if minute >= 0 else []
        else:
            unposted += surplus
    # Fast path: no message is certain to have landed.
    certain_spans = _spans(certain, arrived, rolled) if certain.forwarded else {}
    missing_by_minute = {
        minute: forwarded - landed for minute, (forwarded, _, landed) in certain_spans.items() if forwarded > landed
    }
    missing = min(sum(missing_by_minute.values()), shortfall)
    missing_minutes = sorted(minute for minute in missing_by_minute if minute >= 0)
    pending_there = closed.report.pending if closed else 0
    return OverKafka(
        accepted=total.accepted + max(unposted - report.pending, 0) + max(credited - pending_there, 0),
        forwarded=total.forwarded,
        failed=total.failed,
        dropped=total.dropped,
        # What landed after the newest post was pending in it, as far as it had pending messages.
        pending=max(report.pending - unposted, 0),
        lost_with_disk=max(pending_there - credited, 0),
        landed=sum(arrived.values()),
        in_kafka=shortfall - missing,
        missing=missing,
        doubled=doubled,
        failed_landed=failed_landed,
        unposted=unposted + credited,
        missing_minutes=_first_and_last(missing_minutes),
        doubled_minutes=_first_and_last(sorted(doubled_minutes)),
        reported_at=host.received_ms / 1000,
        clock_offset_s=round((host.post.time_ms - host.received_ms) / 1000, 1),
        version=host.post.software,
    )


def _may_be_of_former_disk(closed: Closed, minute: int, oldest: int) -> bool:
    """Report whether messages that landed in a minute, -1 for all before ``oldest``, may be pending ones of a former
    disk.
    """
    return closed.since < oldest if minute < 0 else closed.since <= minute <= closed.until


def _of_minute(counts: Arrived, minute: int, oldest: int) -> int:
    """Return the count of a minute, -1 for all before ``oldest``."""
    return counts.get(minute, 0) if minute >= 0 else sum(n for each, n in counts.items() if each < oldest)


def _without_promoted(report: KafkaReport, arrived: Arrived, promoted: Arrived, rolled: int) -> dict[int, int]:
    """Return the landed messages of each minute without the promoted ones, which the host did not forward.

    Limit: of a minute in which a host both relayed and forwarded, as many forwarded messages as promoted ones may be
    missing without being named. Which of them landed cannot be told, and a shortfall must be certain.
    """
    remaining = dict(arrived)
    oldest = _oldest(report, rolled)
    for minute, (forwarded, _, landed) in _spans(report, arrived, rolled).items():
        surplus = max(landed - forwarded, 0)
        for landed_minute in [m for m in arrived if m < oldest] if minute < 0 else [minute]:
            copies = min(surplus, promoted.get(landed_minute, 0), arrived.get(landed_minute, 0))
            remaining[landed_minute] = arrived.get(landed_minute, 0) - copies
            surplus -= copies
    return remaining


def _spans(report: KafkaReport, arrived: Arrived, rolled: int) -> dict[int, tuple[int, int, int]]:
    """Return forwarded, failed and landed messages by minute; -1 is the time before the minutes of the report."""
    minutes = {minute: counts for minute, counts in report.minutes.items() if minute >= rolled}
    oldest = _oldest(report, rolled)
    newer = {minute: landed for minute, landed in arrived.items() if minute >= oldest}
    forwarded, failed = (sum(counts[place] for counts in minutes.values()) for place in (0, 1))
    older = sum(arrived.values()) - sum(newer.values())
    spans = {-1: (report.forwarded - forwarded, report.failed - failed, older)}
    for minute in {*minutes, *newer}:
        spans[minute] = (*minutes.get(minute, (0, 0)), newer.get(minute, 0))
    return spans


def _first_and_last(minutes: list[int]) -> tuple[int, ...]:
    return (minutes[0], minutes[-1]) if minutes else ()
