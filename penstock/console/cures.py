"""What to do about a loss, by the name of its count."""

from __future__ import annotations

CURES = {
    "kernel_dropped": "penstock doctor says how to make the receive buffer larger; or spread senders over listeners",
    "invalid": "something else sends to this port, or the listener's codec is not what its senders speak",
    "incomplete.expired": "fragments are lost on the network, or come later than defrag.expire_time",
    "incomplete.evicted": "raise listener.{place}.defrag.max_size, or see who sends so many unfinished messages",
    "incomplete.crash": "fragments that a killed receiver held; see the timeline for what killed it",
    "refused.oversize": "raise listener.{place}.defrag.max_size (udp), or its max_line",
    "refused.damaged": "look at what sends them: its messages are cut short, spoiled, or of another protocol",
    "refused.syntax": "look at what sends them: they are no JSON, or not what their path takes",
    "refused.kind": "their sender asks for updates or deletions; messages are only added",
    "refused.compressed": "turn the compression of their sender off (rsyslog: ZipLevel)",
    "bad_checksum": "a sender's fragments are damaged or mixed up",
    "line.overlong": "raise listener.{place}.max_line",
    "line.evicted": "raise listener.{place}.max_unfinished or .max_connections, or see who connects",
    "policy_drop": "make buffer.term_length larger, or the handler faster",
    "handler_failed": "the handler's own log says why; for the log: raise the topic's message_size_limit",
    "corrupt": "see the machine's disk and memory; penstock balance --rebuild compares the books with the files",
    "gap.expired_unread": "the pipeline was further behind than the topic is kept: raise stale_after or retain_bytes",
    "gap.deleted": "the topic was deleted before all of it had landed",
    "gap.corrupt": "see the machine's disk; what could not be read lies in the topic's folder quarantine",
    "gap.absent": "Kafka dropped records before they were read: raise the topic's retention",
}


def cure(name: str, place: str) -> str:
    """What to do about losses called ``name`` in ``place``; empty where nothing is known."""
    stem = name.partition(".")[0]
    return CURES.get(name, CURES.get(stem, "")).format(place=place)
