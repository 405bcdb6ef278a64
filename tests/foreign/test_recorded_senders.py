"""Recorded bytes of common libraries in Go, Rust, Node and Java, replayed into a pipe: each message is stored once.

``senders.py`` recorded them. The programs themselves run in soak where their language is installed.
"""

from __future__ import annotations

import base64
import json
import lzma
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.testing.pipe import Pipe, wait_until
from tests.foreign import senders
from tests.foreign.senders import RECORDED, TEXTS
from tests.system.topic_files import entries

ROWS = json.loads(lzma.decompress(RECORDED.read_bytes()))
ANNOTATIONS = {
    "syslog": {"facility": "user", "severity": "info", "app_name": "shop"},
    "gelf": {"level": "6"},
    "forward": {"tag": "shop.orders"},
    "hec": {"source": "shop"},
    "loki": {"labels.app": "shop"},
    "bulk": {"index": "shop"},
    "otlp": {"severity_number": "9", "scope.name": "checkout", "resource.service.name": "shop"},
}
OWN_ANNOTATIONS = {
    ("node", "hec http"): {"host": "web-1"},
    ("java", "hec http"): {"host": "web-1"},
    ("rust", "gelf udp"): {"level": "5"},
}
"""What a program sends apart from its protocol's others; tracing-gelf writes info as GELF's notice."""


@pytest.fixture(scope="module")
def pipe(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipe]:
    with senders.running_pipe(tmp_path_factory.mktemp("pipe")) as running:
        yield running


def hec_text(event: Any) -> str:
    """Return the text of an event: Docker, Camel and splunk-logging put it into a field each."""
    while isinstance(event, dict):
        event = next(event[name] for name in ("line", "body", "message", "text") if name in event)
    return str(event)


def message_of(protocol: str, payload: bytes) -> str:
    """Return the text that the application gave its library."""
    text = payload.decode()
    match protocol:
        case "syslog":
            return next((sent for sent in TEXTS if text.rstrip().endswith(sent)), text)
        case "gelf":
            return str(json.loads(text)["short_message"])
        case "hec":
            return hec_text(json.loads(text) if text.startswith("{") else text)
        case "forward" | "bulk":
            return str(json.loads(text)["message"])
        case "loki" if text.startswith("{"):  # tracing-loki writes a span's fields around the text
            return str(json.loads(text)["message"])
    return text.removesuffix(' {"level":"info"}')  # winston-loki writes its level behind the text


def assert_stored_once(rows: list[dict[str, Any]], language: str, kind: str) -> None:
    protocol = kind.partition(" ")[0]
    expected = ANNOTATIONS[protocol] | OWN_ANNOTATIONS.get((language, kind), {})
    assert sorted(message_of(protocol, row["payload"]) for row in rows) == sorted(TEXTS)
    for row in rows:
        assert row["annotations"].items() >= expected.items()


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['language']}, {row['kind']}")
def test_recorded_messages_are_stored_once_with_their_fields(pipe: Pipe, row: dict[str, Any]) -> None:
    kind = row["kind"]
    name = senders.listener_of(kind).replace(" ", "-")
    before = len(entries(pipe, name))
    pieces = [base64.b64decode(piece) for piece in row["pieces"]]
    if kind.partition(",")[0].endswith("udp"):
        pipe.datagrams(*pieces, listener=name)
        wait_until(lambda: len(entries(pipe, name)) >= before + len(TEXTS), what=f"the messages of {kind}")
    else:
        connections = [socket.create_connection(pipe.address(name)) for _ in pieces]
        for connection, piece in zip(connections, pieces, strict=True):
            connection.sendall(piece)
        wait_until(lambda: len(entries(pipe, name)) >= before + len(TEXTS), what=f"the messages of {kind}")
        for connection in connections:
            connection.close()
    assert_stored_once(entries(pipe, name)[before:], row["language"], kind)


def test_five_languages_have_recorded_senders() -> None:
    """The fifth is Python: its senders run in tests/system."""
    assert {row["language"] for row in ROWS} == set(senders.SENDERS)
    assert {(row["language"], row["kind"]) for row in ROWS} == {
        (language, kind) for language, kinds in senders.SENDERS.items() for kind in kinds
    }


@pytest.mark.soak
@pytest.mark.parametrize("language", senders.SENDERS)
def test_programs_of_other_languages_send_and_read_every_protocol(tmp_path: Path, language: str) -> None:
    command = senders.built(language, tmp_path)
    if command is None:
        pytest.skip(f"{senders.BUILDS[language][0]} is not installed")
    with senders.running_pipe(tmp_path) as pipe:
        for kind in senders.SENDERS[language]:
            name = senders.listener_of(kind).replace(" ", "-")
            before = len(entries(pipe, name))
            senders.recorded_run(pipe, command, language, kind)
            assert_stored_once(entries(pipe, name)[before:], language, kind)
        senders.run(command, "kafka", senders.kafka_address(pipe), language)
        for protocol in senders.READERS:
            assert senders.read_by(pipe, command, language, protocol) == list(TEXTS)
