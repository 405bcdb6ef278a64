"""``penstock topics``, and the formats of sizes, ages and topics for other commands.

The listing asks the daemon over HTTP, as gRPC is slow to import; over gRPC if options name a gRPC server.
"""

from __future__ import annotations

import contextlib
import json
import math
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import typer

from penstock.cli.common import TOKEN_HINT, aligned_lines, parse_answer, request_daemon, terminal_width
from penstock.cli.options import AsJson, Ca, Config, OptionsOf, Override, Rpc, TokenFile, load_daemon_keys

if TYPE_CHECKING:
    from penstock.client import Log, Topic
    from penstock.config.daemon_keys import DaemonKeys

Document = dict[str, Any]
NO_SUCH_CALL = (404, 405, 501)
"""Statuses of slogd, which lists names but describes no topics."""
BYTE_SETTINGS = ("message_size_limit", "segment_size_limit", "retain_bytes")
"""Settings of a topic that are bytes."""


MIN_NAME_WIDTH, LAG_WIDTH = 12, 80
"""Columns of a topic's name in a narrow terminal, and of a line with the lag of cursors."""


@dataclass(frozen=True, slots=True)
class TopicSource:
    """The requests of the listing, over HTTP or gRPC: ``documents`` returns None if the server is slogd.

    ``refusal`` returns why a topic cannot be described; empty for a topic that can, or was deleted in between.
    """

    names: Callable[[], list[str]]
    documents: Callable[[], list[Document] | None]
    refusal: Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Server:
    """The server that the options of the command name."""

    open: Callable[[], contextlib.AbstractContextManager[TopicSource]]

    @classmethod
    def from_options(
        cls,
        config: Config = None,
        override: Override = None,
        rpc: Rpc = None,
        token_file: TokenFile = None,
        ca: Ca = None,
    ) -> Server:
        """Return the server for a command's options, or end the command with the reason in one line."""
        # Fast path: the HTTP API needs neither gRPC nor Arrow, which are slow to import.
        if not (rpc or token_file or ca):
            keys = load_daemon_keys(config, override)
            return cls(lambda: contextlib.nullcontext(_http_source(keys)))
        from penstock.cli.log.connect import DaemonOptions

        options = DaemonOptions.from_options(config, override, rpc, token_file, ca)

        @contextlib.contextmanager
        def open_grpc() -> Iterator[TopicSource]:
            with options.connect() as log:
                yield _grpc_source(log)

        return cls(open_grpc)


def topics(
    server: Annotated[Server, OptionsOf(Server.from_options)],
    rate: Annotated[
        float | None, typer.Option(help="Measure appended entries per second over this many seconds.", min=0.1)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List topics with their size and the lag of their readers.

    On a terminal, long names are cut to its width; --json prints them whole.
    """
    with server.open() as source:
        documents = source.documents()
        if documents is None:
            names = source.names()
            print(json.dumps([{"name": name} for name in names]) if as_json else "\n".join(names))
            return
        _report_unopened(source, documents)
        if rate:
            _measure_rate(source, documents, rate)
    if as_json:
        print(json.dumps(documents, indent=2))
    else:
        # Only a terminal gets cut names: a program that reads a pipe or file needs them whole.
        print("\n".join(topic_lines(documents, terminal_width() if sys.stdout.isatty() else 0)))


def _http_source(keys: DaemonKeys) -> TopicSource:
    def documents() -> list[Document] | None:
        status, body = request_daemon(keys, "/describe")
        return (
            None
            if status in NO_SUCH_CALL
            else [_from_protobuf_json(topic) for topic in parse_answer(status, body, TOKEN_HINT)["topic"]]
        )

    def names() -> list[str]:
        return [topic["name"] for topic in parse_answer(*request_daemon(keys, "/topics"), TOKEN_HINT).get("topic", ())]

    def refusal(name: str) -> str:
        status, body = request_daemon(keys, f"/topics/{quote(name, safe='')}")
        # 404: deleted since the list.
        return "" if status in (200, *NO_SUCH_CALL) else str(json.loads(body)["error"])

    return TopicSource(names, documents, refusal)


def _from_protobuf_json(topic: Document) -> Document:
    """Return a topic as ``topic_document`` does, from protobuf's JSON, which has numbers of 64 bits as texts."""
    numbers = {name: int(topic[name]) for name in ("start", "end", "bytes")}
    times = {
        name: format_time(datetime.fromisoformat(topic[name])) if topic.get(name) else None
        for name in ("oldest", "newest")
    }
    gaps = [gap | {name: int(gap[name]) for name in ("begin", "end")} for gap in topic["gaps"]]
    cursor_numbers = ("offset", "lag_entries", "lag_bytes")
    cursors = [cursor | {name: int(cursor[name]) for name in cursor_numbers} for cursor in topic["cursors"]]
    settings = {name: int(value) if name in BYTE_SETTINGS else value for name, value in topic["settings"].items()}
    further = {"gaps": gaps, "cursors": cursors, "settings": settings, "entries": numbers["end"] - numbers["start"]}
    return {"name": topic["name"], **numbers, "segments": topic["segments"], **times, **further}


def _grpc_source(log: Log) -> TopicSource:
    from penstock.client import ClientError, NoSuchTopic, Unsupported

    def documents() -> list[Document] | None:
        try:
            return [topic_document(topic) for topic in log.describe()]
        except Unsupported:
            return None

    def refusal(name: str) -> str:
        try:
            log.describe(name)
        except NoSuchTopic:
            # Deleted since the list.
            return ""
        except ClientError as error:
            return str(error)
        return ""

    return TopicSource(log.topics, documents, refusal)


def _report_unopened(source: TopicSource, documents: Sequence[Document]) -> None:
    # The list of documents leaves out topics that cannot be opened: a damaged topic must not hide the others.
    for name in sorted(set(source.names()) - {topic["name"] for topic in documents}):
        if reason := source.refusal(name):
            print(f"penstock: {reason}", file=sys.stderr)


def _measure_rate(source: TopicSource, documents: Sequence[Document], seconds: float) -> None:
    """Add the entries per second that are appended to each topic."""
    from penstock.cli.progress import Progress  # here, because it imports rich

    started = time.monotonic()
    with Progress("measuring"):
        time.sleep(seconds)
    later_ends = {topic["name"]: topic["end"] for topic in source.documents() or ()}
    elapsed_s = time.monotonic() - started
    for topic in documents:
        appended = later_ends.get(topic["name"], topic["end"]) - topic["end"]
        topic["entries_per_second"] = round(appended / elapsed_s, 1)


def topic_lines(topics: Sequence[Document], width: int = 0) -> list[str]:
    """Return a line of headings, one for each topic, and below it lines with the lag of its cursors.

    Names of topics are cut so that the lines fit ``width`` columns; 0 keeps them whole.
    """
    rate_heading = ["per second"] if any("entries_per_second" in topic for topic in topics) else []
    headings = ["entries", "first", "next", "size", "oldest", "newest", *rate_heading]
    heading, *figures = aligned_lines([headings, *map(_figures, topics)], texts=())
    names = ["topic", *(topic["name"] for topic in topics)]
    name_width = max(map(len, names))
    if width:
        name_width = max(min(name_width, width - len(heading) - 2), MIN_NAME_WIDTH)
    rows = [
        f"{_shorten(name, name_width):<{name_width}}  {row}"
        for name, row in zip(names, [heading, *figures], strict=True)
    ]
    lags = ([], *map(_lag_lines, topics))
    return [line for row, lag_lines in zip(rows, lags, strict=True) for line in (row, *lag_lines)]


def _figures(topic: Document) -> list[str]:
    numbers = [f"{topic[name]:,}" for name in ("entries", "start", "end")]
    times = [datetime.fromisoformat(topic[name]) if topic[name] else None for name in ("oldest", "newest")]
    rate = [f"{topic['entries_per_second']:,.1f}"] if "entries_per_second" in topic else []
    return [*numbers, format_size(topic["bytes"]), *map(format_age, times), *rate]


def _lag_lines(topic: Document) -> list[str]:
    lags = ", ".join(f"{cursor['name']} {cursor['lag_entries']:,}" for cursor in topic["cursors"])
    return textwrap.wrap(
        f"lag: {lags}" if lags else "",
        LAG_WIDTH,
        initial_indent="  ",
        subsequent_indent="    ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def _shorten(name: str, width: int) -> str:
    return name if len(name) <= width else f"{name[: width - 1]}…"


def topic_document(topic: Topic) -> Document:
    """Return a topic as a JSON-ready mapping."""
    fields = asdict(topic)
    times = {name: format_time(fields[name]) for name in ("oldest", "newest")}
    return fields | times | {"entries": topic.end - topic.start}


def format_time(moment: datetime | None) -> str | None:
    """Return a time as ISO 8601 in UTC."""
    return None if moment is None else moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


def format_size(count: int) -> str:
    """Return a number of bytes in the largest unit that fits, such as 1.5 MiB."""
    if count < 1024:
        return f"{count} B"
    power = min(int(math.log(count, 1024)), 4)
    return f"{count / 1024**power:.1f} {('KiB', 'MiB', 'GiB', 'TiB')[power - 1]}"


def format_age(moment: datetime | None) -> str:
    """Return the time since ``moment``, such as "5m ago"; empty without one."""
    return "" if moment is None else f"{format_duration((datetime.now(UTC) - moment).total_seconds())} ago"


def format_duration(seconds: float) -> str:
    """Return seconds in the largest unit that fits twice, such as 90s or 3h."""
    for unit, length in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f}{unit}"
    return f"{max(seconds, 0):.0f}s"
