"""Metrics as Prometheus text (exposition format 0.0.4)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Labels = Mapping[str, str]


@dataclass(slots=True)
class Family:
    """A metric: name (letters, digits, ``_``), kind, help, and samples of labels and number."""

    name: str
    kind: Literal["counter", "gauge"]
    help: str
    samples: Sequence[tuple[Labels, float]] = ()

    def of_topics(self, is_readable: Callable[[str], bool]) -> Family:
        """Return the family with only the samples of readable topics."""
        # Samples without a topic sum over all topics, so they are for those who may read all.
        samples = [sample for sample in self.samples if "topic" in sample[0] and is_readable(sample[0]["topic"])]
        return replace(self, samples=samples)


def render(families: Iterable[Family]) -> str:
    """Return the text of a scrape. Names of families must be unique."""
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
    # Counters are integers; Python would print large floats of them with an exponent.
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
"""Meaning of STAT's keys."""
_GAUGES = frozenset({"uptime", "receive_buffer"})
_NO_METRICS = frozenset({"pid", "incarnation", "silent_s"})


def statistics_families(listeners: Mapping[str, Mapping[str, Any]]) -> list[Family]:
    """Return families of STAT's answers by listener: ``penstock_plog_`` and plog's key.

    Indices of arrays become the labels ``fragments`` (class of the message's number of fragments, by log2) and
    ``index`` (class of the fragment's index); zeros in arrays of arrays are left out.
    """
    families: dict[str, list[tuple[Labels, float]]] = {}
    helps: dict[str, str] = {}
    for listener, statistics in listeners.items():
        for key, entry in statistics.items():
            if key not in _NO_METRICS:
                for suffix, labels, number in _samples(key, entry):
                    name = _metric(f"penstock_plog_{key}{suffix}")
                    families.setdefault(name, []).append(({"listener": listener, **labels}, number))
                    helps[name] = STATISTICS_HELP.get(key, f"{key} of STAT")
    return [
        Family(name, "counter" if name.endswith("_total") else "gauge", helps[name], families[name])
        for name in sorted(families)
    ]


def _samples(key: str, entry: Any) -> Iterator[tuple[str, Labels, float]]:
    """Yield suffix of the metric's name, labels and number of each sample of one key of STAT."""
    if isinstance(entry, str):
        yield "_info", {key: entry}, 1
    elif key in _GAUGES:
        yield "", {}, entry
    elif key == "handlers":
        yield from _handler_samples(entry)
    elif key == "kafka":
        yield from _meter_samples(entry)
    elif isinstance(entry, dict):
        yield from (("_total", {"event": event}, number) for event, number in entry.items())
    elif isinstance(entry, list):
        yield from _array_samples("fragments" if key == "v0_invalid_checksum" else "index", entry)
    else:
        yield "_total", {}, entry


def _array_samples(label: str, array: list[Any]) -> Iterator[tuple[str, Labels, float]]:
    for position, cell in enumerate(array):
        if isinstance(cell, list):
            # Limit: zeros are left out, because arrays of arrays have hundreds of cells that are never used.
            cells = ((index, number) for index, number in enumerate(cell) if number)
            yield from (
                ("_total", {"fragments": str(position), "index": str(index)}, number) for index, number in cells
            )
        else:
            yield "_total", {label: str(position)}, cell


def _meter_samples(meters: Mapping[str, Any]) -> Iterator[tuple[str, Labels, float]]:
    for meter, readings in meters.items():
        yield "_total", {"meter": meter}, readings["count"]
        for minutes, rate in zip(("1", "5", "15"), readings["rate"], strict=True):
            yield "_rate", {"meter": meter, "minutes": minutes}, rate


def _handler_samples(handlers: list[Mapping[str, Any]]) -> Iterator[tuple[str, Labels, float]]:
    for handler in handlers:
        for key, number in handler.items():
            if isinstance(number, int | float) and not isinstance(number, bool):
                yield f"_{key}", {"handler": handler["name"]}, number


def _metric(name: str) -> str:
    return "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in name)
