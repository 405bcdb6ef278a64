"""The balance of other hosts: what each listener accepted there, and what arrived here."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from penstock.process.terminal import visible

if TYPE_CHECKING:
    pass


def by_host_listener(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Return one row per listener of the hosts that relay to this one, with its last minute in UTC."""
    return [_host_row(entry) for entry in document.get("hosts", [])]


def _host_row(entry: dict[str, Any]) -> dict[str, Any]:
    """Return the row of one listener: the host's counts first, then what arrived, and what became of it here."""
    names = {"host": visible(entry["host"]), "listener": visible(entry["listener"])}
    if entry.get("way") == "kafka":
        return _kafka_row(names, entry)
    here = {**entry["fates"], "pending": entry["pending"]}
    seen = {"last seen": _moment(entry["last_seen"])}
    if (reported := entry.get("on_host")) is None:
        # The host has not registered: only what arrived is known.
        return {**names, "accepted": entry["accepted"], **here, **seen}
    counts = {
        "sent": "" if reported["sent"] is None else reported["sent"],
        "accepted": reported["accepted"],
        "lost": reported["lost"],
        "forwarded": entry["accepted"],
        "expired there": reported["expired"],
        "lost with disk": reported["lost_with_disk"],
        "pending there": reported["pending"],
    }
    state = {
        "lag": f"{reported['lag_s']:.0f} s",
        "reported": _moment(reported["reported_at"]),
        "clock offset": f"{reported['clock_offset_s']:+.1f} s",
        "version": visible(reported["version"]),
        "unaccounted": reported["unaccounted"],
        "differs since": _moment(reported["differs_since"]),
    }
    return {**names, **counts, **here, **seen, **state}


def _kafka_row(names: dict[str, Any], entry: dict[str, Any]) -> dict[str, Any]:
    """Return the row of a listener that forwards to Kafka: the host's counts, the fates here, and the differences."""
    names = {**names, "way": "kafka"}
    seen = {"last seen": _moment(entry["last_seen"])}
    if (compared := entry.get("over_kafka")) is None:
        return {**names, "forwarded": entry["accepted"], **entry["fates"], **seen}
    return {
        **names,
        "accepted": compared["accepted"],
        "forwarded": compared["forwarded"],
        "failed there": compared["failed"],
        "dropped there": compared["dropped"],
        "pending there": compared["pending"],
        "lost with disk": compared["lost_with_disk"],
        **entry["fates"],
        "in kafka": compared["in_kafka"],
        "missing": compared["missing"],
        "doubled": compared["doubled"],
        "failed, landed": compared["failed_landed"],
        **seen,
        "reported": _moment(compared["reported_at"]),
        "clock offset": f"{compared['clock_offset_s']:+.1f} s",
        "version": visible(compared["version"]),
    }


def _moment(time_s: float) -> str:
    return datetime.fromtimestamp(time_s, UTC).isoformat(timespec="seconds") if time_s else ""


def differing_hosts(document: dict[str, Any]) -> list[str]:
    """Return a line for each listener whose host counts other entries than arrived, with the minute (UTC)."""
    return [
        f"host {visible(entry['host'])}: {abs(reported['unaccounted'])} entries of {visible(entry['listener'])} "
        f"{'did not arrive' if reported['unaccounted'] > 0 else 'arrived that it did not send'}"
        + (f", since {_moment(reported['differs_since'])}" if reported["differs_since"] else "")
        for entry in document.get("hosts", [])
        if (reported := entry.get("on_host")) and reported["unaccounted"]
    ]


def differing_over_kafka(document: dict[str, Any]) -> list[str]:
    """Return a line for each listener of a host whose messages are missing from Kafka, or landed more often."""
    lines = []
    for entry in document.get("hosts", []):
        compared = entry.get("over_kafka") or {}
        for name, text in (("missing", "forwarded to Kafka did not land"), ("doubled", "landed more often than sent")):
            if count := compared.get(name, 0):
                span = " to ".join(_moment(minute) for minute in sorted({*compared[f"{name}_minutes"]}))
                what = f"{count} messages of {visible(entry['listener'])} {text}"
                lines.append(f"host {visible(entry['host'])}: {what}, {span or 'before the minutes that it posts'}")
    return lines


def has_missing(document: dict[str, Any]) -> bool:
    """Report whether messages that a host forwarded to Kafka did not land."""
    return any((entry.get("over_kafka") or {}).get("missing") for entry in document.get("hosts", []))
