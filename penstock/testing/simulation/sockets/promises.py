"""The promises of listeners to their senders, checked at rest against what the simulated network did."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from penstock.counts import Counts, Name
from penstock.handover.paths import LOG, senders_file
from penstock.handover.sender_reading import read_senders
from penstock.handover.sender_table import ACCEPTED
from penstock.log import TopicReader
from penstock.testing.simulation.promises import Broken
from penstock.testing.simulation.sockets.kernel import DatagramSocket
from penstock.testing.simulation.sockets.listeners import Row, SocketListener
from penstock.testing.simulation.sockets.recount import GelfRecount, PlogRecount, by_name, stored_rows
from penstock.testing.simulation.sockets.senders import COMMANDER, FLOOD, syslog_annotations
from penstock.testing.simulation.sockets.stream_senders import MAX_LINE, Sending, Sent, event_of
from penstock.testing.simulation.sockets.streams import ListeningSocket

if TYPE_CHECKING:
    from penstock.testing.simulation.sockets.run import SocketsRun


def check(run: SocketsRun) -> None:
    """Check all listeners. Raises Broken."""
    balance = run.daemon.ledger.balance()
    if balance.unaccounted:
        raise Broken(f"the balance does not close: {balance.document()}")
    counts = {entry.name: Counts(entry.counts) for entry in balance.listeners}
    routes = {route.source: route for route in balance.routes if route.handler == LOG}
    for listener in run.listeners:
        rows = _rows(run, listener)
        of_listener = counts.get(listener.name, Counts())
        route = routes.get(listener.name)
        dropped = route.policy_drop if route else 0
        corrupt = route.corrupt if route else 0
        listener.check_stored_before(rows)
        run.promises.check_listener(listener.published, len(rows), dropped, corrupt)
        if not run.promises.power_cuts:
            if corrupt:
                raise Broken(f"{listener.name}: messages are corrupt without damage: {route}")
            if of_listener[Name.ACCEPTED] != len(rows) + dropped:
                raise Broken(
                    f"{listener.name}: {of_listener[Name.ACCEPTED]} accepted, {len(rows)} stored, {dropped} dropped"
                )
            _check_senders(run, listener, of_listener)
        if isinstance(listener.sock, DatagramSocket):
            _check_kernel(listener, listener.sock, of_listener, bool(run.promises.power_cuts))
        if listener.name == "plog":
            _check_plog(run, listener, of_listener, rows, dropped)
        elif listener.name == "syslog":
            _check_syslog(run, listener, rows, dropped)
        elif listener.name == "gelf":
            _check_gelf(run, listener, of_listener, rows, dropped)
        elif listener.name == "forward":
            _check_forward(run, rows)
        else:
            _check_streams(run, listener, of_listener, rows)
            if listener.name == "lines":
                _check_lines(listener, of_listener)
        run.record(
            listener.name, f"{len(rows)} stored, {dropped} dropped, {dict(sorted(by_name(of_listener).items()))}"
        )


def check_acknowledged(run: SocketsRun, payloads: list[bytes]) -> None:
    """Check that the log has acknowledged messages of the forward protocol. Raises Broken."""
    if run.promises.power_cuts:
        return  # after a power cut they may be visible only once the log has recovered them: checked at rest
    stored = {payload for payload, _ in _rows(run, run.listeners[-1])}
    if missing := {event_of(payload) for payload in payloads} - stored:
        raise Broken(f"forward: acknowledged, and not stored: {sorted(missing)[:2]}")


def _rows(run: SocketsRun, listener: SocketListener) -> list[Row]:
    if not (run.machine.topics / listener.topic).exists():
        return []
    rows: list[Row] = []
    for batch in TopicReader(run.machine.topics / listener.topic).read(0):
        payloads: list[Any] = batch.batch.column("payload").to_pylist()
        annotations: list[Any] = batch.batch.column("annotations").to_pylist()
        rows += zip(payloads, (dict(entry or ()) for entry in annotations), strict=True)
    return rows


def _check_kernel(listener: SocketListener, sock: DatagramSocket, counts: Counts, has_lost_power: bool) -> None:
    """Check the counts of datagrams; a power cut takes counts that are not stored. Raises Broken."""
    for name, number in ((Name.TAKEN, len(sock.entered)), (Name.KERNEL_DROPPED, sock.drops_total)):
        if counts[name] > number or (counts[name] < number and not has_lost_power):
            raise Broken(f"{listener.name}: {counts[name]} datagrams are counted as {name}, of {number}")


def _senders(run: SocketsRun, listener: SocketListener) -> Counter[str]:
    """Return the accepted messages by sender, as the table of senders has them."""
    path = senders_file(run.machine.buffers.folder, listener.name)
    table = read_senders(path) if path.exists() else None
    accepted: Counter[str] = Counter()
    if table is not None:
        for index, row in enumerate(table.counts.tolist()):
            accepted[table.name(index)] += row[ACCEPTED]
    return +accepted


def _check_senders(run: SocketsRun, listener: SocketListener, counts: Counts) -> None:
    accepted = _senders(run, listener)
    if accepted.total() != counts[Name.ACCEPTED]:
        raise Broken(f"{listener.name}: {counts[Name.ACCEPTED]} accepted, {dict(accepted)} by sender")


def _check_statistics(listener: SocketListener, recount: PlogRecount) -> None:
    """Check the answer to STAT, which counts from the start of the last receiver on. Raises Broken."""
    counts, statistics = recount.counts, listener.decoder.statistics.as_dict()
    counted = {
        "udp_simple_messages": counts["unboxed"],
        "udp_invalid_version": counts["invalid.version"],
        "v0_invalid_type": counts["invalid.type"],
        "v0_invalid_multipart_header": counts["invalid.header"],
        "unknown_command": counts["invalid.unknown_command"],
        "v0_commands": counts["command"] + counts["invalid.command_refused"],
        "v0_multipart_messages": counts["accepted"] - counts["unboxed"],
    }
    if differing := {name: (statistics[name], n) for name, n in counted.items() if statistics[name] != n}:
        raise Broken(f"{listener.name}: STAT differs from the recount: {differing}")
    fragments = sum(n for name, n in counts.items() if name.startswith("fragment."))
    if sum(statistics["v0_fragments"]) != fragments:
        raise Broken(f"{listener.name}: STAT has {statistics['v0_fragments']}, not {fragments} fragments")
    if statistics["holes_from_dead_port"] + statistics["holes_from_new_message"] != counts["hole"]:
        raise Broken(f"{listener.name}: STAT has other holes than {counts['hole']}: {statistics}")


def _new_recount(listener: SocketListener) -> PlogRecount:
    defrag = listener.config.defrag
    holes = defrag.detect_holes
    return PlogRecount(defrag.max_size, defrag.expire_time, holes.expire_time, holes.maximum_hole, COMMANDER)


def _check_plog(run: SocketsRun, listener: SocketListener, counts: Counts, rows: list[Row], dropped: int) -> None:
    assert isinstance(listener.sock, DatagramSocket)
    recount, of_last_life = _new_recount(listener), _new_recount(listener)
    recount.count_lives(listener.sock.entered, listener.lives)
    if listener.decoder.open_messages or listener.decoder.held_bytes:
        raise Broken(f"{listener.decoder.open_messages} messages wait for fragments after their time")
    if recount.has_evicted:
        return
    of_last_life.count_lives(listener.sock.entered, listener.lives[-1:])
    _check_statistics(listener, of_last_life)
    most = _new_recount(listener).most_accepted(listener.sock.entered)
    _check_stored(run, listener, stored_rows(rows), recount.accepted, most, dropped)
    if run.promises.power_cuts:
        return
    if (by_host := _senders(run, listener)) != recount.by_host:
        raise Broken(f"{listener.name}: {dict(by_host)} by sender, not {dict(recount.by_host)}")
    has_restarted = len(listener.lives) > 1
    counted, expected = _comparable(counts, has_restarted), _comparable(recount.counts, has_restarted)
    for name in ("hole", "jump"):
        least = expected.pop(name, 0)
        highest = least + recount.counts[f"{name} lost with a receiver"]
        if not least <= (number := counted.pop(name, 0)) <= highest:
            raise Broken(f"{listener.name}: {number} {name}s are counted, not {least} to {highest}")
    _check_equal(listener.name, counted, expected)


def _check_equal(name: str, counted: dict[str, int], expected: dict[str, int]) -> None:
    if differing := sorted(set(counted.items()) ^ set(expected.items())):
        raise Broken(f"{name}: the counts differ from the recount: {differing}, {expected}")


_NOT_RECOUNTED = (Name.KERNEL_DROPPED, Name.UNVERIFIED, Name.OPEN, Name.FRAGMENT_OPEN, "policy_drop.")


def _comparable(counts: Counter[str], has_restarted: bool) -> dict[str, int]:
    """Return the counts that a recount has, too; a killed receiver may have seen a message expire."""
    compared = Counter({name: n for name, n in by_name(counts).items() if not name.startswith(_NOT_RECOUNTED)})
    if has_restarted:
        compared["incomplete"] = compared.pop("incomplete.crash", 0) + compared.pop("incomplete.expired", 0)
    return {name: count for name, count in compared.items() if count}


def _check_stored(
    run: SocketsRun,
    listener: SocketListener,
    stored: Counter[Any],
    expected: Counter[Any],
    most: Counter[Any],
    dropped: int,
) -> None:
    """Check that exactly ``dropped`` of the expected messages are not stored, and no others are.

    After a power cut the messages are expected that entered the socket since then, and earlier ones may be stored:
    ``most`` has all of them.
    """
    has_lost_power = bool(run.promises.power_cuts)
    if surplus := stored - (most if has_lost_power else expected):
        raise Broken(f"{listener.name}: {sum(surplus.values())} rows too many: {sorted(surplus)[:2]}")
    missing = expected - stored
    number = sum(missing.values())
    if number > dropped or (number < dropped and not has_lost_power):
        raise Broken(f"{listener.name}: {number} messages are missing, {dropped} are dropped: {sorted(missing)[:2]}")


def _check_syslog(run: SocketsRun, listener: SocketListener, rows: list[Row], dropped: int) -> None:
    assert isinstance(listener.sock, DatagramSocket)
    entered = [datagram.data for datagram in listener.sock.entered]
    most = Counter(data for data in entered if data)
    expected = Counter(data for data in entered[listener.begin :] if data)
    _check_stored(run, listener, Counter(payload for payload, _ in rows), expected, most, dropped)
    _check_headers(rows)


def _check_gelf(run: SocketsRun, listener: SocketListener, counts: Counts, rows: list[Row], dropped: int) -> None:
    """Check chunked messages against a recount; GELF has neither checksums nor ids in sequence."""
    assert isinstance(listener.sock, DatagramSocket)
    recount = GelfRecount(listener.config.defrag.expire_time)
    recount.count_lives(listener.sock.entered, listener.lives)
    stored = Counter((payload, "") for payload, _ in rows)
    most = GelfRecount(listener.config.defrag.expire_time).most_accepted(listener.sock.entered)
    _check_stored(run, listener, stored, recount.accepted, most, dropped)
    has_restarted = len(listener.lives) > 1
    if not run.promises.power_cuts:
        _check_equal(listener.name, _comparable(counts, has_restarted), _comparable(recount.counts, has_restarted))
    if any(header.get("host") != "gelf1" for _, header in rows):
        raise Broken("gelf: a row has not its host")


def _check_headers(rows: list[Row]) -> None:
    for payload, header in rows:
        if payload.count(b" ") >= 6:
            expected = syslog_annotations(payload)
            if {name: header.get(name) for name in expected} != expected:
                raise Broken(f"{payload!r} has the annotations {header}")


def _check_streams(run: SocketsRun, listener: SocketListener, counts: Counts, rows: list[Row]) -> None:
    """Check each message of connections: read in whole it is stored once, unless its receiver died in that step."""
    stored = Counter(payload for payload, _ in rows if not FLOOD.startswith(payload))
    last_lines: list[set[bytes]] = []
    overlong = [0, 0]
    for sending in (sending for sender in run.stream_senders[listener.name] for sending in sender.sendings):
        # The first messages wait in a receiver until they show the framing of the connection, if it is not plog's.
        is_decided = listener.name == "lines" or any(message.payload in stored for message in sending.messages)
        for message in sending.messages:
            framed = bytes(sending.stream.consumed[message.begin : message.end])
            if len(framed) < message.end - message.begin:
                last_lines.append({framed, framed.partition(b" ")[2]})
                if _is_last_line(sending, framed, message, listener) and not stored[framed]:
                    raise Broken(f"{listener.name}: the last line of a sender that left is not stored: {framed!r}")
                overlong[1] += message.is_overlong
                continue
            least = int(not sending.stream.died or (is_decided and _was_published(sending, message, listener)))
            if message.is_overlong:
                overlong[0] += least
                overlong[1] += 1
            elif not least <= (number := stored.pop(message.payload, 0)) <= 1:
                raise Broken(f"{listener.name}: {message.payload!r} is stored {number} times, not {least} to 1")
    for beginnings in last_lines:
        # The beginning of a last line is a message if the sender has left, and dropped if the connection is evicted.
        stored -= Counter([next((beginning for beginning in sorted(beginnings) if stored[beginning]), b"")])
    if stored:
        raise Broken(f"{listener.name}: rows that nobody sent: {sorted(stored)[:3]}")
    if not overlong[0] <= counts[Name.LINE_OVERLONG] <= overlong[1]:
        raise Broken(f"{listener.name}: {counts[Name.LINE_OVERLONG]} lines are overlong, not {overlong}")
    if listener.name == "octets":
        _check_headers([row for row in rows if row[0].startswith(b"<13>1 2025-05-13T12:29:35.5Z octets")])


def _check_lines(listener: SocketListener, counts: Counts) -> None:
    """Check that each line, also an unfinished one, is counted once under its reason, against a plain recount.

    Not for connections that a killed receiver had: it may have dropped some of its lines.
    """
    assert isinstance(listener.sock, ListeningSocket)
    streams = [stream for stream in listener.sock.streams if stream.is_closed]
    if any(stream.died for stream in listener.sock.streams) or listener.has_given_up:
        return
    lines = [line for stream in listener.sock.streams for line in bytes(stream.consumed).split(b"\n")[:-1]]
    lines += filter(None, (bytes(stream.consumed).rpartition(b"\n")[2] for stream in streams))
    expected = sum(len(line) <= MAX_LINE for line in lines)
    closed = sum(not stream.end_was_read for stream in streams)
    evicted = counts[Name.LINE_EVICTED]
    limit, idle = (counts[f"{Name.CONNECTION_CLOSED}{reason}"] for reason in ("limit", "idle"))
    # A receiver that is stopped in order closes others, and counts none. One may be closed after its end was read.
    least = closed if len(listener.lives) == 1 else 0
    is_closed_as_counted = least <= limit + idle <= len(streams)
    counted = counts[Name.ACCEPTED] + counts[Name.LINE_COMMAND] + evicted
    if counted != expected or evicted > limit or not is_closed_as_counted:
        raise Broken(f"{listener.name}: {expected} lines arrived, {closed} connections are closed: {counts}")


def _is_last_line(sending: Sending, framed: bytes, message: Sent, listener: SocketListener) -> bool:
    """Report whether the beginning of a message is a line, because a receiver has read the end of its connection."""
    stream = sending.stream
    has_ended = stream.has_ended_in_order and stream.end_was_read and not stream.died and not stream.is_reset
    return has_ended and listener.name == "lines" and bool(framed) and not message.is_overlong


def _was_published(sending: Sending, message: Sent, listener: SocketListener) -> bool:
    """Report whether a receiver had read a message in whole before the step in which it died."""
    return message.end <= sending.stream.certain and not listener.has_given_up


def _check_forward(run: SocketsRun, rows: list[Row]) -> None:
    """Check that each acknowledged chunk is stored, and none more often than it was sent."""
    stored = Counter(payload for payload, _ in rows)
    for sender in run.forward_senders:
        for chunk in sender.chunks:
            for payload in chunk.payloads:
                number = stored.pop(event_of(payload), 0)
                if not int(chunk.is_acknowledged) <= number <= chunk.attempts:
                    raise Broken(f"{payload!r} is stored {number} times after {chunk.attempts} attempts")
    if stored:
        raise Broken(f"forward: rows that nobody sent: {sorted(stored)[:3]}")
    if any("uuid" not in annotations or annotations.get("tag") != "tag" for _, annotations in rows):
        raise Broken("forward: a row has no uuid, or not its tag")
