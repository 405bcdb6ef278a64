"""Counts as Prometheus text (exposition format 0.0.4)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Labels = Mapping[str, str]


@dataclass(slots=True)
class Family:
    """One metric: its name (letters, digits, ``_``), kind, help, and samples of labels and value."""

    name: str
    kind: Literal["counter", "gauge"]
    help: str
    samples: Sequence[tuple[Labels, float]] = ()

    def of_topics(self, wanted: Callable[[str], bool]) -> Family:
        """The samples of topics that are ``wanted`` alone."""
        samples = [one for one in self.samples if "topic" in one[0] and wanted(one[0]["topic"])]
        return replace(self, samples=samples)


def render(families: Iterable[Family]) -> str:
    """The text of a scrape. Families of one name must be one."""
    return "".join(_family(family) for family in families)


def _family(family: Family) -> str:
    text = family.help.replace("\\", "\\\\").replace("\n", "\\n")
    lines = [f"# HELP {family.name} {text}", f"# TYPE {family.name} {family.kind}"]
    lines += [f"{family.name}{_labels(labels)} {_value(value)}" for labels, value in family.samples]
    return "\n".join(lines) + "\n"


def _labels(labels: Labels) -> str:
    pairs = ",".join(f'{name}="{_escape(value)}"' for name, value in labels.items())
    return f"{{{pairs}}}" if pairs else ""


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _value(value: float) -> str:
    if isinstance(value, int) or (math.isfinite(value) and value == int(value)):
        return str(int(value))
    return {math.inf: "+Inf", -math.inf: "-Inf"}.get(value, "NaN" if math.isnan(value) else repr(value))


STATISTICS_HELP: Mapping[str, str] = {
    "version": "Version of the receiver",
    "uptime": "Milliseconds since the receiver started",
    "receive_buffer": "Bytes of receive buffer that the kernel granted",
    "kernel_dropped": "Datagrams that the kernel dropped",
    "total": "Messages accepted into the log buffer since it was made",
    "udp_simple_messages": "Datagrams that were a message each",
    "udp_invalid_version": "Datagrams of a version of the protocol that is not known",
    "v0_invalid_type": "Datagrams of a type that is not known",
    "v0_invalid_multipart_header": "Fragments whose header could not be read",
    "unknown_command": "Commands that are not known",
    "v0_commands": "Commands received",
    "v0_multipart_messages": "Messages put together from fragments",
    "exceptions": "Errors of the receiver",
    "unhandled_objects": "Datagrams that nothing was done with",
    "holes_from_dead_port": "Holes found in the message numbers of senders that fell silent",
    "holes_from_new_message": "Holes found in the message numbers of senders as a message came",
    "v0_fragments": "Fragments, by the class of their index",
    "v0_invalid_checksum": "Messages whose checksum did not hold, by the class of their number of fragments",
    "v0_invalid_fragments": "Invalid fragments, by the classes of their message's number of fragments and their index",
    "dropped_fragments": "Fragments missing from messages given up, by the same classes",
    "defragmenter": "Table of unfinished messages: found, not found, given up",
    "cache": "As of the defragmenter",
    "failed_to_send": "Messages that handlers could not send",
    "kafka": "Messages to Kafka, by plog's meters",
    "handlers": "What a handler tells of itself",
}
"""What STAT's keys mean."""
_GAUGES = frozenset({"uptime", "receive_buffer"})
_NO_METRICS = frozenset({"pid", "incarnation"})


def of_statistics(listeners: Mapping[str, Mapping[str, Any]]) -> list[Family]:
    """Families of what STAT answers, by listener: ``penstock_plog_`` and plog's key.

    Places of arrays become the labels ``fragments`` (class of the message's number of fragments, by log2)
    and ``index`` (class of the fragment's); zeros in arrays of arrays are left out.
    """
    families: dict[str, list[tuple[Labels, float]]] = {}
    helps: dict[str, str] = {}
    for listener, statistics in listeners.items():
        for key, value in statistics.items():
            if key not in _NO_METRICS:
                for suffix, labels, number in _samples(key, value):
                    name = _metric(f"penstock_plog_{key}{suffix}")
                    families.setdefault(name, []).append(({"listener": listener, **labels}, number))
                    helps[name] = STATISTICS_HELP.get(key, f"{key} of STAT")
    return [
        Family(name, "counter" if name.endswith("_total") else "gauge", helps[name], families[name])
        for name in sorted(families)
    ]


def _samples(key: str, value: Any) -> Iterator[tuple[str, Labels, float]]:
    """Of one key of STAT: what to put behind the metric's name, labels and number of each sample."""
    if isinstance(value, str):
        yield "_info", {key: value}, 1
    elif key in _GAUGES:
        yield "", {}, value
    elif key == "handlers":
        yield from _of_handlers(value)
    elif key == "kafka":
        yield from _of_meters(value)
    elif isinstance(value, dict):
        yield from (("_total", {"event": event}, number) for event, number in value.items())
    elif isinstance(value, list):
        yield from _of_array("fragments" if key == "v0_invalid_checksum" else "index", value)
    else:
        yield "_total", {}, value


def _of_array(label: str, array: list[Any]) -> Iterator[tuple[str, Labels, float]]:
    for place, value in enumerate(array):
        if isinstance(value, list):
            cells = ((index, number) for index, number in enumerate(value) if number)
            yield from (("_total", {"fragments": str(place), "index": str(index)}, number) for index, number in cells)
        else:
            yield "_total", {label: str(place)}, value


def _of_meters(meters: Mapping[str, Any]) -> Iterator[tuple[str, Labels, float]]:
    for meter, told in meters.items():
        yield "_total", {"meter": meter}, told["count"]
        for minutes, rate in zip(("1", "5", "15"), told["rate"], strict=True):
            yield "_rate", {"meter": meter, "minutes": minutes}, rate


def _of_handlers(handlers: list[Mapping[str, Any]]) -> Iterator[tuple[str, Labels, float]]:
    """The numbers that handlers tell of themselves."""
    for handler in handlers:
        for key, value in handler.items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                yield f"_{key}", {"handler": handler["name"]}, value


def _metric(name: str) -> str:
    return "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in name)
