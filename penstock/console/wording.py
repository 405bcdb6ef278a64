"""Numbers, counts and times in words for people."""

from __future__ import annotations

import time

from penstock.counts import EXPIRED_READ, lost

UNITS = ((1e9, "G"), (1e6, "M"), (1e3, "k"))

FATES = {
    "landed.event": "events",
    "landed.syslog": "syslog",
    "landed.message": "messages",
    "quarantined": "quarantined",
    "duplicate": "duplicates",
    "transformed.dropped": "dropped by the transformation",
    "logged": "in the log only",
    "expired": "expired in the log",
    "lost": "lost",
    "pending": "on the way",
}
"""Names of the fates of a message, in stacking order of the charts."""
COLOURS = {
    "landed.event": "#0e9aa7",
    "landed.syslog": "#4c7dd8",
    "landed.message": "#8b6fd8",
    "quarantined": "#e0a030",
    "duplicate": "#6f7b8c",
    "transformed.dropped": "#9a8c78",
    "logged": "#7fb7be",
    "expired": "#b9c4a6",
    "lost": "#d64545",
    "pending": "#aab7c6",
}
PART_COLOURS = {
    "landed": COLOURS["landed.event"],
    "quarantined": COLOURS["quarantined"],
    "duplicate": COLOURS["duplicate"],
    "deleted": "#9a8f86",
    "dropped": COLOURS["transformed.dropped"],
    "kept": COLOURS["logged"],
    "sent_back": COLOURS["duplicate"],
    "handed_on": "#5f9e6e",
    "expired": COLOURS["expired"],
    "lost": COLOURS["lost"],
    "unaccounted": "#c2189b",
    "on_the_way": COLOURS["pending"],
}
"""Colors of the parts of a receipt, equal to the colors of the fates."""
MEANING = {
    "taken": "datagrams received from the kernel",
    "unboxed": "datagrams that were one whole message",
    "command": "commands",
    "empty": "empty datagrams",
    "kernel_dropped": "datagrams that the kernel dropped: the receive buffer was full",
    "fragment.used": "fragments used in a message",
    "fragment.duplicate": "duplicate fragments",
    "disk_full": "messages that the log could not store because the disk was full",
    "log_full": "messages that the log could not store because it was full",
    "fragment.invalid": "fragments that contradict their header or their message",
    "fragment.discarded": "fragments discarded with their message",
    "fragment.open": "fragments of incomplete messages",
    "invalid.version": "datagrams of an unknown protocol version",
    "invalid.type": "datagrams of an unknown packet type",
    "invalid.header": "fragments with an invalid header",
    "invalid.unknown_command": "unknown commands",
    "invalid.command_refused": "commands from addresses that may not send commands",
    "invalid.network": "datagrams from networks that may not send",
    "invalid.overlong": "messages of local senders longer than 65,535 bytes",
    "invalid.slot": "unreadable datagrams in slots of a killed receiver",
    "lines": "lines read from TCP connections",
    "line.message": "lines that were one whole message",
    "line.command": "lines that were commands",
    "line.joined": "lines joined to an earlier line's message",
    "line.empty": "empty lines",
    "line.overlong": "lines longer than max_line",
    "skipped_bytes": "bytes of lines longer than max_line",
    "line.evicted": "unfinished lines evicted to make room",
    "connection_closed.limit": "connections closed to make room for others",
    "connection_closed.idle": "idle connections closed",
    "connection_closed.network": "connections closed because their network may not send",
    "connection_closed.tls": "connections closed without a TLS handshake",
    "connection_closed.name": "connections closed because of their certificate's name",
    "connection_closed.left": "connections whose sender left before its request was read, and will repeat it",
    "request_refused.busy": "requests refused because the log was full; their senders were told to retry",
    "request_refused.late": "requests that the log did not store in time; their senders were told to retry",
    "request_refused.disk_full": "requests refused because the disk was full; their senders were told to retry",
    "request_refused.log_full": "requests refused because the log was full; their senders were told to retry",
    "request_refused.oversize": "requests larger than max_body, or with too many values",
    "request_refused.messages": "requests with more than max_messages messages, or groups of them",
    "request_refused.incomplete": "gRPC requests whose message is incomplete or larger than max_body",
    "request_refused.left": "large requests whose sender left before they were read",
    "request_refused.chunks": "requests whose body had too many tiny chunks",
    "request_refused.encoding": "requests that could not be decompressed",
    "request_refused.syntax": "requests in another format than their path's",
    "request_refused.token": "requests without a known token",
    "request_refused.network": "connections from refused networks",
    "request_refused.name": "connections refused because of their certificate's name",
    "request_refused.tls": "connections without a TLS handshake (no TLS, or an untrusted certificate)",
    "request_refused.path": "requests to paths without an endpoint",
    "seen": "messages seen, complete or not",
    "accepted": "messages accepted",
    "bad_checksum": "messages with a wrong checksum",
    "open": "incomplete messages that wait for fragments",
    "hole": "message ids missing between a sender's messages",
    "jump": "jumps in a sender's ids, too long to be holes",
    "unverified": "messages recovered from a killed receiver's slots, without a checksum",
    "incomplete.expired": "messages whose fragments did not all arrive in time",
    "incomplete.evicted": "incomplete messages evicted to make room",
    "incomplete.replaced": "incomplete messages replaced by another one with their id",
    "incomplete.crash": "incomplete messages of a killed receiver",
    "refused.oversize": "messages that are too large",
    "refused.damaged": "messages that cannot be parsed or decompressed",
    "refused.compressed": "messages that their sender compressed",
    "refused.syntax": "messages that are not JSON",
    "refused.kind": "requests other than adding a message, such as deletions",
    "corrupt": "messages in unreadable frames",
    "gap.corrupt": "messages of the log that became unreadable",
    "gap.expired_read": "messages that retention dropped after all readers, if there were any, had read them",
    "gap.expired_unread": "messages that retention dropped before they were read",
    "gap.deleted": "messages of a topic that was deleted before they were read",
    "gap.expired_before": "records that Kafka had dropped before the pipeline's first batch",
    "gap.absent": "offsets of Kafka without a message, whose batches cannot be read",
    "not_a_message.control": "control records of Kafka, such as the end of a transaction",
    "not_a_message.aborted": "records of aborted transactions in Kafka",
    "compacted": "records that Kafka's compaction removed",
}


def fate_of(name: str) -> str | None:
    """Return the fate in FATES that a count of the balance over time belongs to; None for other counts."""
    if name in FATES:
        return name
    if name == EXPIRED_READ:
        return "expired"
    if name.partition(".")[0] == "quarantined":
        return "quarantined"
    return "lost" if lost({name: 1}) else None


def meaning(name: str) -> str:
    """Return the meaning of a count, as a plural noun phrase."""
    if name in MEANING:
        return MEANING[name]
    stem, _, reason = name.partition(".")
    if stem == "policy_drop":
        return f"messages that handler {reason} was too slow for"
    if stem == "handler_failed":
        return f"messages that handler {reason} could not take"
    return f"{stem.replace('_', ' ')}: {reason.replace('_', ' ')}" if reason else stem.replace("_", " ")


def short(number: float) -> str:
    """Return ``12.3k``."""
    for unit, letter in UNITS:
        if abs(number) >= unit:
            return f"{number / unit:.3g}{letter}"
    return f"{number:.3g}" if number != int(number) else str(int(number))


def rate(number: float | None) -> str:
    """Return ``12.3k/s``; ``?`` if it is unknown."""
    return "?" if number is None else f"{short(number)}/s"


def exact(number: float) -> str:
    """Return ``12,345``."""
    return f"{int(number):,}"


def counted(number: int, noun: str) -> str:
    """Return ``1 message`` or ``12,345 messages``."""
    return f"{exact(number)} {noun if number == 1 else f'{noun}s'}"


def size(number: float) -> str:
    """Return ``1.5 MiB``."""
    for unit, letters in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if number >= unit:
            return f"{number / unit:.3g} {letters}"
    return f"{int(number)} B"


def clock(seconds: float) -> str:
    """Return the local time of day, with the date if it is not today."""
    time_then, time_now = time.localtime(seconds), time.localtime()
    return time.strftime("%H:%M" if time_then[:3] == time_now[:3] else "%b %d %H:%M", time_then)


def lasted(seconds: float) -> str:
    """Return ``3 min``."""
    for unit, word in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= unit:
            return f"{seconds / unit:.3g} {word}"
    return f"{seconds:.0f} s"
