"""Numbers and counts in words for people."""

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
    "expired": "read and expired",
    "lost": "lost",
    "pending": "on the way",
}
"""The ends of a message, in the order in which they are stacked."""
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
    "handed_on": "#5f9e6e",
    "expired": COLOURS["expired"],
    "lost": COLOURS["lost"],
    "unaccounted": "#c2189b",
    "on_the_way": COLOURS["pending"],
}
"""Of the parts of a receipt: the same ones for the same thing."""
MEANING = {
    "taken": "datagrams that the kernel handed over",
    "unboxed": "datagrams that were a message each",
    "command": "commands",
    "empty": "empty datagrams",
    "kernel_dropped": "datagrams that the kernel dropped: the receive buffer was full",
    "fragment.used": "fragments that became part of a message",
    "fragment.duplicate": "fragments that came again",
    "fragment.invalid": "fragments that contradict their header or their message",
    "fragment.discarded": "fragments given up with their message",
    "fragment.open": "fragments of messages that wait for their rest",
    "invalid.version": "datagrams of a protocol version that is not known",
    "invalid.type": "datagrams of a packet type that is not known",
    "invalid.header": "fragments with an invalid header",
    "invalid.unknown_command": "commands that are not known",
    "invalid.command_refused": "commands from where none may come",
    "invalid.network": "datagrams from networks that may not send",
    "invalid.slot": "datagrams in slots of a killed receiver that could not be read",
    "lines": "lines read from TCP connections",
    "line.message": "lines that were a message each",
    "line.command": "lines that were commands",
    "line.joined": "lines that belong to a message that another one began",
    "line.empty": "empty lines",
    "line.overlong": "lines longer than max_line",
    "skipped_bytes": "bytes of lines longer than max_line",
    "line.evicted": "unfinished lines that had to make room",
    "connection_closed.limit": "connections closed to make room for others",
    "connection_closed.idle": "connections closed for their silence",
    "connection_closed.network": "connections closed as they come from networks that may not send",
    "connection_closed.tls": "connections closed without a TLS handshake",
    "connection_closed.name": "connections closed for the name of their certificate",
    "request_refused.busy": "requests that the log had no room for; their senders were asked to come again",
    "request_refused.late": "requests that the log did not take in time; their senders were asked to come again",
    "request_refused.oversize": "requests larger than max_body",
    "request_refused.messages": "requests with more than max_messages messages",
    "request_refused.incomplete": "requests over gRPC whose message did not come, or is larger than max_body",
    "request_refused.chunks": "requests whose body came in very many tiny chunks",
    "request_refused.encoding": "requests that could not be unpacked",
    "request_refused.syntax": "requests that were not what their path takes",
    "request_refused.token": "requests without a known token",
    "request_refused.network": "connections from where none are taken",
    "request_refused.name": "connections refused for the name of their certificate",
    "request_refused.path": "requests to paths that take nothing",
    "seen": "messages seen, whole or not",
    "accepted": "messages accepted",
    "bad_checksum": "messages whose checksum did not hold",
    "open": "messages that wait for their rest",
    "hole": "ids missing between a sender's messages",
    "jump": "leaps in a sender's ids, too long to be holes",
    "unverified": "messages taken over from a killed receiver's slots, which no checksum vouches for",
    "incomplete.expired": "messages whose fragments did not all come in time",
    "incomplete.evicted": "unfinished messages given up for lack of room",
    "incomplete.crash": "unfinished messages of a receiver that was killed",
    "refused.oversize": "messages that are too large",
    "refused.damaged": "messages that cannot be read or unpacked",
    "refused.compressed": "messages that their sender compressed",
    "refused.syntax": "messages that are no JSON",
    "refused.kind": "what is no message, such as a deletion",
    "corrupt": "messages in frames that could not be read",
    "gap.corrupt": "messages of the log that could not be read any more",
    "gap.expired_read": "messages that retention dropped, read by all",
    "gap.expired_unread": "messages that retention dropped before they were read",
    "gap.deleted": "messages of a topic that was deleted before they were read",
    "gap.absent": "records that Kafka dropped before they were read",
}


def fate_of(name: str) -> str | None:
    """The end, as in FATES, that a count of the balance over time belongs to; None for one that is no end."""
    if name in FATES:
        return name
    if name == EXPIRED_READ:
        return "expired"
    if name.partition(".")[0] == "quarantined":
        return "quarantined"
    return "lost" if lost({name: 1}) else None


def meaning(name: str) -> str:
    """What a count means."""
    if name in MEANING:
        return MEANING[name]
    stem, _, reason = name.partition(".")
    if stem == "policy_drop":
        return f"messages that handler {reason} was too slow for"
    if stem == "handler_failed":
        return f"messages that handler {reason} could not take"
    return f"{stem.replace('_', ' ')}: {reason.replace('_', ' ')}" if reason else stem.replace("_", " ")


def short(number: float) -> str:
    """``12.3k``."""
    for unit, letter in UNITS:
        if abs(number) >= unit:
            return f"{number / unit:.3g}{letter}"
    return f"{number:.3g}" if number != int(number) else str(int(number))


def rate(number: float | None) -> str:
    """``12.3k/s``; ``?`` where it is unknown."""
    return "?" if number is None else f"{short(number)}/s"


def exact(number: float) -> str:
    """``12,345``."""
    return f"{int(number):,}"


def size(number: float) -> str:
    """``1.5 MiB``."""
    for unit, letters in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if number >= unit:
            return f"{number / unit:.3g} {letters}"
    return f"{int(number)} B"


def clock(seconds: float) -> str:
    """The local time of day of a moment, with the day where it is not today's."""
    then, now = time.localtime(seconds), time.localtime()
    return time.strftime("%H:%M" if then[:3] == now[:3] else "%b %d %H:%M", then)


def lasted(seconds: float) -> str:
    """``3 min``."""
    for unit, word in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= unit:
            return f"{seconds / unit:.3g} {word}"
    return f"{seconds:.0f} s"
