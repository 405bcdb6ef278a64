"""Log files of containers: the entries of their lines, joined partial entries, and what a file's path says.

Formats: Docker's ``json-file`` (``{"log":"text\\n","stream":"stdout","time":"..."}``), and that of Kubernetes'
container runtimes and Podman (CRI: ``TIME STREAM TAGS TEXT``). A runtime cuts long lines: Docker's pieces lack the
newline, CRI's have the tag ``P``; the last piece has the newline, or ``F``. Pieces of stdout and stderr may alternate.

Invariant: a line in neither format is an unchanged message; nothing is left out. Which bytes are read together depends
on the bytes alone, so that an append that is made again after a kill has the same messages.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from penstock.client.tail.file_content import split_lines
from penstock.records import from_numpy, values_of
from penstock.wire.datagrams import Ints, joined_runs
from penstock.wire.syslog.codec import build_maps

PATTERNS = ("/var/log/pods/*/*/*.log*", "/var/lib/docker/containers/*/*-json.log*")
"""Files of Kubernetes and Docker, with their rotated ones."""
STREAM, TIME = "stream", "time"
MAX_CONFIG_BYTES = 1 << 20
"""Limit of a container's ``config.v2.json`` that is read for its name."""
STREAMS = ("stdout", "stderr")
_CRI = (
    r"(?s)\A(?P<time>[0-9]+-[0-9]+-[0-9]+T[!-~]+) (?P<stream>stdout|stderr) "
    r"(?P<tag>[PF])(?P<tags>(?::[^ ]*)?)(?: (?P<text>.*))?\z"
)
"""Any other word there is the text of a line without tags, as containerd wrote them until 2018: it must not be lost."""
_DOCKER = pa.struct([("log", pa.string()), ("stream", pa.string()), ("time", pa.string())])
_NEXT_OBJECT = re.compile(rb"\}[ \t\r]*,[ \t\r]*\{")
_POD = re.compile(r"/pods/(?P<namespace>[^/_]+)_(?P<pod>[^/_]+)_(?P<pod_uid>[^/_]+)/(?P<container_name>[^/]+)/[^/]+\Z")
_DOCKER_FILE = re.compile(r"/containers/(?P<container_id>[0-9a-f]{64})/(?P=container_id)-json\.log")
_PODMAN_FILE = re.compile(r"/overlay-containers/(?P<container_id>[0-9a-f]{64})/userdata/ctr\.log")


@dataclass(frozen=True, slots=True)
class ContainerEntries:
    """Entries of a container: their texts (binary), streams and times (string; null if a line has no format).

    ``is_partial``: whether an entry continues with the next one of its stream.
    """

    texts: pa.Array[Any]
    streams: pa.Array[Any]
    times: pa.Array[Any]
    is_partial: np.ndarray[Any, np.dtype[np.bool_]]

    def with_annotations(self, constants: Mapping[str, str]) -> pa.Array[Any]:
        """Return the annotations of each entry: ``constants``, stream and time."""
        rows, width = len(self.texts), len(constants)
        texts = pa.concat_arrays([pa.array(constants.values(), pa.string()), self.streams, self.times])
        indices = np.empty((rows, width + 2), np.int64)
        indices[:, :width] = np.arange(width)
        indices[:, width] = width + np.arange(rows)
        indices[:, width + 1] = width + rows + np.arange(rows)
        present = np.ones(indices.shape, np.bool_)
        present[:, width:] = self.streams.is_valid().to_numpy(zero_copy_only=False)[:, None]
        return build_maps((*constants, STREAM, TIME), texts, indices, present, None)


def read_entries(lines: pa.Array[Any]) -> ContainerEntries:
    """Return the entries of ``lines`` (binary), partial ones joined; the last ones of a stream may be incomplete."""
    return _join_partial_entries(parse_entries(lines))


def parse_entries(lines: pa.Array[Any]) -> ContainerEntries:
    """Return an entry for each of ``lines`` (binary), which may be of both formats."""
    is_docker = pc.starts_with(lines, "{").to_numpy(zero_copy_only=False)
    if is_docker.all():
        return _parse_docker(lines)
    if not is_docker.any():
        return _parse_cri(lines)
    parts = _parse_docker(lines.filter(from_numpy(is_docker))), _parse_cri(lines.filter(from_numpy(~is_docker)))
    order = np.empty(len(lines), np.int64)
    order[np.flatnonzero(is_docker)] = np.arange(is_docker.sum())
    order[np.flatnonzero(~is_docker)] = is_docker.sum() + np.arange((~is_docker).sum())
    columns = [pa.concat_arrays([getattr(part, name) for part in parts]) for name in ("texts", "streams", "times")]
    is_partial = np.concatenate([part.is_partial for part in parts])[order]
    texts, streams, times = (column.take(from_numpy(order)) for column in columns)
    return ContainerEntries(texts, streams, times, is_partial)


def _parse_cri(lines: pa.Array[Any]) -> ContainerEntries:
    groups = pc.extract_regex(lines, _CRI)
    is_valid = groups.is_valid()
    is_partial = pc.is_in(pc.struct_field(groups, "tag"), pa.array([b"P"])).to_numpy(zero_copy_only=False)
    texts = pc.if_else(is_valid, pc.struct_field(groups, "text"), lines)
    streams, times = (pc.cast(pc.struct_field(groups, name), pa.string()) for name in ("stream", "time"))
    return ContainerEntries(texts, streams, times, is_partial)


def _parse_docker(lines: pa.Array[Any]) -> ContainerEntries:
    documents = _read_documents(lines)
    logs, streams, times = (pc.struct_field(documents, name) for name in ("log", "stream", "time"))
    is_valid = pc.and_(pc.and_(logs.is_valid(), times.is_valid()), pc.is_in(streams, pa.array(STREAMS)))
    is_complete = pc.ends_with(logs, "\n")
    texts = pc.if_else(is_valid, pc.cast(pc.replace_substring_regex(logs, r"\r?\n\z", ""), pa.binary()), lines)
    is_partial = pc.and_(is_valid, pc.invert(is_complete.fill_null(True))).to_numpy(zero_copy_only=False)
    nothing = pa.scalar(None, pa.string())
    streams, times = (pc.if_else(is_valid, column, nothing) for column in (streams, times))
    return ContainerEntries(texts, streams, times, is_partial)


def _read_documents(lines: pa.Array[Any]) -> pa.Array[Any]:
    """Return the documents of ``lines`` as structs; null for any other line."""
    texts = values_of(lines)
    # Fast path: one array for the parser, one conversion; lines that are not documents are rare.
    try:
        # No string of JSON goes over a line end, so that pieces of two lines cannot become one text.
        documents = orjson.loads(b"[" + b",\n".join(texts) + b"]")
        # A line of two documents could make up for two lines that are one document together.
        for text in filter(_NEXT_OBJECT.search, texts):
            orjson.loads(text)
        if len(documents) == len(lines) and None not in documents:
            return pa.array(documents, _DOCKER)
    except (ValueError, TypeError, pa.ArrowException):
        pass
    return pa.array([_read_document(text) for text in texts], _DOCKER)


def _read_document(line: bytes) -> dict[str, Any] | None:
    try:
        document = orjson.loads(line)
        pa.scalar(document, _DOCKER)
    except (ValueError, TypeError, pa.ArrowException):
        return None
    return document if isinstance(document, dict) else None


def _stream_numbers(entries: ContainerEntries) -> Ints:
    """Return the index of each entry's stream; -1 for a line without a format."""
    numbers: Ints = pc.index_in(entries.streams, pa.array(STREAMS)).fill_null(-1).to_numpy().astype(np.int64)
    return numbers


def _join_partial_entries(entries: ContainerEntries) -> ContainerEntries:
    if not entries.is_partial.any():
        return entries
    # The entries of each stream are sorted together; a run ends with its complete entry.
    streams = _stream_numbers(entries)
    order = np.argsort(streams, kind="stable")
    streams, is_partial = streams[order], entries.is_partial[order]
    is_first = np.ones(len(order), np.bool_)
    is_first[1:] = ~is_partial[:-1] | (streams[1:] != streams[:-1])
    starts = np.flatnonzero(is_first)
    lasts = np.append(starts[1:], len(order)) - 1
    texts = joined_runs(entries.texts.take(from_numpy(order)), starts, b"")
    # A joined entry comes where its last piece was, and has the time of its first one.
    by_end = np.argsort(order[lasts], kind="stable")
    first = from_numpy(order[starts][by_end])
    return ContainerEntries(
        texts.take(from_numpy(by_end)),
        entries.streams.take(first),
        entries.times.take(first),
        is_partial[lasts][by_end],
    )


def complete_bytes(content: bytes) -> int:
    """Return how many bytes of ``content``, whole lines, end where no entry waits for its next piece."""
    # Fast path: without the sign of a piece nothing needs to be parsed.
    line_ends = np.flatnonzero(np.frombuffer(content, np.uint8) == ord("\n")) + 1
    docker_ends = content.count(b'\\n","stream":')
    has_docker_piece = docker_ends < content.count(b'","stream":') or b'\\\\n","stream":' in content
    is_usual = docker_ends == len(line_ends) or not content.startswith(b"{")
    if b" P" not in content and not has_docker_piece and is_usual:
        return len(content)
    entries = parse_entries(split_lines(content).lines)
    if not entries.is_partial.any():
        return len(content)
    streams, indices = _stream_numbers(entries), np.arange(len(entries.is_partial))
    is_open = np.zeros(len(indices), np.bool_)
    for stream in range(len(STREAMS)):
        latest = np.maximum.accumulate(np.where(streams == stream, indices, -1))
        is_open |= (latest >= 0) & entries.is_partial[latest]
    closed = np.flatnonzero(~is_open)
    return int(line_ends[closed[-1]]) if len(closed) else 0


def describe_path(path: str) -> dict[str, str]:
    """Return the annotations of a container that the path of its log names: pod, namespace, names and ids.

    A character that UTF-8 does not have becomes a question mark.
    """
    for pattern in (_POD, _DOCKER_FILE, _PODMAN_FILE):
        if match := pattern.search(path):
            name = _docker_name(Path(path)) if pattern is _DOCKER_FILE else ""
            texts = match.groupdict() | ({"container_name": name} if name else {})
            return {key: text.encode(errors="replace").decode() for key, text in texts.items()}
    return {}


def _docker_name(path: Path) -> str:
    """Return the name of a container, which Docker keeps next to its log; "" if it cannot be read."""
    try:
        with (path.parent / "config.v2.json").open("rb") as file:
            document = json.loads(file.read(MAX_CONFIG_BYTES))
        return str(document["Name"]).removeprefix("/")
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return ""
