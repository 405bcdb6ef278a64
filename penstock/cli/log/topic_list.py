"""``penstock topics``: what each topic holds, and how far its readers are.

The daemon is asked over HTTP, because gRPC is slow to import; over gRPC where a server is named by its address there.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import typer

from penstock.cli.common import answer_of, ask_daemon, console, document_of
from penstock.cli.log.figures import SIZES, age, document, size, stamp
from penstock.cli.options import AsJson, Ca, Config, MadeOf, Override, Rpc, TokenFile, reach_of
from penstock.cli.progress import Progress

if TYPE_CHECKING:
    from penstock.client import Log
    from penstock.config.daemon_keys import DaemonKeys

Document = dict[str, Any]
NO_SUCH_CALL = (404, 405, 501)
"""What slogd itself answers, which only knows names."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A server's answers: the ``names`` of all topics; what it says of each, None from slogd; why one is not told."""

    names: Callable[[], list[str]]
    documents: Callable[[], list[Document] | None]
    refusal: Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Server:
    """The server that the command was told to use."""

    opened: Callable[[], contextlib.AbstractContextManager[Asked]]

    @classmethod
    def of(
        cls,
        config: Config = None,
        override: Override = None,
        rpc: Rpc = None,
        token_file: TokenFile = None,
        ca: Ca = None,
    ) -> Server:
        """From the options of the command; ends it with one line when they are of no use."""
        if not (rpc or token_file or ca):
            keys = reach_of(config, override)
            return cls(lambda: contextlib.nullcontext(_over_http(keys)))
        from penstock.cli.log.connect import Where

        where = Where.of(config, override, rpc, token_file, ca)

        @contextlib.contextmanager
        def opened() -> Iterator[Asked]:
            with where.opened() as log:
                yield _over_grpc(log)

        return cls(opened)


def topics(
    server: Annotated[Server, MadeOf(Server.of)],
    rate: Annotated[float | None, typer.Option(help="Measure what is appended for so many seconds.", min=0.1)] = None,
    as_json: AsJson = False,
) -> None:
    """List the topics: what they hold, and how far their readers are."""
    with server.opened() as asked:
        found = asked.documents()
        if found is None:
            names = asked.names()
            print(json.dumps([{"name": name} for name in names]) if as_json else "\n".join(names))
            return
        _tell_unopened(asked, found)
        if rate:
            _measure(asked, found, rate)
    if as_json:
        print(json.dumps(found, indent=2))
    else:
        print("\n".join(map(_cut, topic_lines(found))))


def _over_http(keys: DaemonKeys) -> Asked:
    def documents() -> list[Document] | None:
        status, body = answer_of(keys, "/describe")
        return None if status in NO_SUCH_CALL else [_document(one) for one in document_of(status, body)["topic"]]

    def names() -> list[str]:
        return [one["name"] for one in ask_daemon(keys, "/topics").get("topic", ())]

    def refusal(name: str) -> str:
        status, body = answer_of(keys, f"/topics/{quote(name, safe='')}")
        return "" if status in (200, *NO_SUCH_CALL) else str(json.loads(body)["error"])  # 404: deleted just now

    return Asked(names, documents, refusal)


def _document(one: Document) -> Document:
    """A topic as ``figures.document`` has it, of protobuf's JSON, where numbers of 64 bits are texts."""
    numbers = {name: int(one[name]) for name in ("start", "end", "bytes")}
    times = {name: stamp(datetime.fromisoformat(one[name])) if one.get(name) else None for name in ("oldest", "newest")}
    gaps = [gap | {name: int(gap[name]) for name in ("begin", "end")} for gap in one["gaps"]]
    lags = ("offset", "lag_entries", "lag_bytes")
    cursors = [cursor | {name: int(cursor[name]) for name in lags} for cursor in one["cursors"]]
    settings = {name: int(value) if name in SIZES else value for name, value in one["settings"].items()}
    further = {"gaps": gaps, "cursors": cursors, "settings": settings, "entries": numbers["end"] - numbers["start"]}
    return {"name": one["name"], **numbers, "segments": one["segments"], **times, **further}


def _over_grpc(log: Log) -> Asked:
    from penstock.client import ClientError, NoSuchTopic, Unsupported

    def documents() -> list[Document] | None:
        try:
            return [document(one) for one in log.describe()]
        except Unsupported:
            return None

    def refusal(name: str) -> str:
        try:
            log.describe(name)
        except NoSuchTopic:
            return ""  # deleted just now
        except ClientError as error:
            return str(error)
        return ""

    return Asked(log.topics, documents, refusal)


def _tell_unopened(asked: Asked, found: Sequence[Document]) -> None:
    """Say of topics that cannot be opened why."""
    for name in sorted(set(asked.names()) - {one["name"] for one in found}):
        if why := asked.refusal(name):
            print(f"penstock: {why}", file=sys.stderr)


def _measure(asked: Asked, found: Sequence[Document], seconds: float) -> None:
    """Add the entries a second that are appended to each topic, over ``seconds`` from now."""
    began = time.monotonic()
    with Progress("measuring"):
        time.sleep(seconds)
    later = {one["name"]: one["end"] for one in asked.documents() or ()}
    took = time.monotonic() - began
    for one in found:
        one["entries_per_second"] = round((later.get(one["name"], one["end"]) - one["end"]) / took, 1)


def topic_lines(found: Sequence[Document]) -> list[str]:
    """A line of heads, and one for each topic: numbers are set right, what is of any length stands last."""
    rated = ["per second"] if any("entries_per_second" in one for one in found) else []
    heads = ["topic", "entries", "first", "next", "size", "segments", "oldest", "newest", *rated]
    rows = [heads, *([one["name"], *_figures(one)] for one in found)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lags = ["cursors, with their lag", *map(_lags, found)]
    return [_line(row, widths, last) for row, last in zip(rows, lags, strict=True)]


def _line(row: Sequence[str], widths: Sequence[int], last: str) -> str:
    name, *figures = (text.rjust(width) for text, width in zip(row, widths, strict=True))
    return "  ".join([row[0].ljust(len(name)), *figures, last]).rstrip()


def _figures(one: Document) -> list[str]:
    numbers = [f"{one[name]:,}" for name in ("entries", "start", "end")]
    ages = [age(datetime.fromisoformat(one[name]) if one[name] else None) for name in ("oldest", "newest")]
    rate = [f"{one['entries_per_second']:,.1f}"] if "entries_per_second" in one else []
    return [*numbers, size(one["bytes"]), str(one["segments"]), *ages, *rate]


def _lags(one: Document) -> str:
    return ", ".join(f"{cursor['name']} {cursor['lag_entries']:,}" for cursor in one["cursors"])


def _cut(line: str) -> str:
    """To the width of a terminal; lines for another program are whole."""
    return line[: console.width] if console.is_terminal else line
