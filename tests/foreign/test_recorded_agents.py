"""Recorded bytes of Fluent Bit's, rsyslog's and syslog-ng's outputs for odd records, replayed into a pipe.

The records hold empty texts, line breaks, NUL, invalid UTF-8, half surrogates, numbers of any size, repeated and dotted
names, and nested values. ``messages`` is what each agent sent, compared with its input when it was recorded: the
agents themselves replace some bytes and numbers. Texts are kept in Latin-1.
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
from tests.system.topic_files import entries

AGENTS = json.loads(lzma.decompress((Path(__file__).parent / "agents.json.xz").read_bytes()))


@pytest.fixture(scope="module")
def pipe(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipe]:
    with senders.running_pipe(tmp_path_factory.mktemp("pipe")) as running:
        yield running


def replay(pipe: Pipe, sent: dict[str, Any], count: int) -> list[Any]:
    """Send what an agent sent; return the messages that are stored, ``count`` or more."""
    name, pieces = sent["listener"], [base64.b64decode(piece) for piece in sent["pieces"]]
    before = len(entries(pipe, name))
    if name.endswith("udp"):
        pipe.datagrams(*pieces, listener=name)
    connections = [] if name.endswith("udp") else [socket.create_connection(pipe.address(name)) for _ in pieces]
    for connection, piece in zip(connections, pieces, strict=False):
        connection.sendall(piece)
    wait_until(lambda: len(entries(pipe, name)) >= before + count, what=f"the messages of {sent['kind']}")
    for connection in connections:
        connection.close()
    pipe.settled()
    rows = entries(pipe, name)[before:]
    return sorted(([row["payload"].decode("latin-1"), row["annotations"]] for row in rows), key=json.dumps)


@pytest.mark.parametrize("sent", AGENTS, ids=lambda sent: f"{sent['sender']}, {sent['kind']}")
def test_each_message_of_an_agent_is_stored_once_as_it_was_sent(pipe: Pipe, sent: dict[str, Any]) -> None:
    assert replay(pipe, sent, len(sent["messages"])) == sent["messages"]


def test_each_protocol_of_an_agent_is_recorded() -> None:
    assert len({sent["sender"] for sent in AGENTS}) == 3
    assert {sent["listener"] for sent in AGENTS} == {name.replace(" ", "-") for name in senders.LISTENERS}
