"""Real GELF senders into a real pipe: each message is logged once, as before compression and chunking."""

from __future__ import annotations

import base64
import json
import logging
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import graypy
import pytest

from penstock.testing.pipe import Pipe, wait_until
from tests.system.configured_pipe import SMALL, configured_pipe, listener
from tests.system.topic_files import entries

DOCKER = json.loads((Path(__file__).parents[1] / "wire" / "vectors" / "docker_gelf.json").read_text())
"""What the library of Docker's driver (go-gelf) sends: a short message, a longer one, and one in chunks."""
CODEC = 'codec = "gelf"'
LISTENERS = (
    SMALL
    + listener("gelf-udp", "udp", CODEC, 'defrag = { max_size = "16KiB", expire_time = "1s" }')
    + listener("gelf-tcp", "tcp", CODEC, 'max_line = "32KiB"')
)


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipe]:
    """A pipe for all tests; each test counts from its start."""
    with configured_pipe(tmp_path_factory.mktemp("pipe"), LISTENERS) as pipe:
        yield pipe


def landed(pipe: Pipe, listener: str, before: int, count: int) -> list[dict[str, Any]]:
    wait_until(lambda: len(entries(pipe, listener)) >= before + count, what=f"{count} messages at {listener}")
    rows = entries(pipe, listener)[before:]
    assert len(rows) == count
    return rows


def log(handler: logging.Handler, text: str, **more: Any) -> None:
    record = logging.LogRecord("shop", logging.ERROR, "/srv/shop.py", 7, text, (), None)
    record.__dict__.update(more)
    handler.handle(record)


@pytest.mark.parametrize(
    ("listener", "handler", "options"),
    [
        ("gelf-udp", graypy.GELFUDPHandler, {}),
        ("gelf-udp", graypy.GELFUDPHandler, {"compress": False}),
        (
            "gelf-udp",
            graypy.GELFUDPHandler,
            {"compress": False, "gelf_chunker": graypy.handler.GELFWarningChunker(200)},
        ),
        ("gelf-tcp", graypy.GELFTCPHandler, {}),
    ],
    ids=["udp, zlib", "udp, plain", "udp, in chunks", "tcp"],
)
def test_graypy(here: Pipe, listener: str, handler: Any, options: dict[str, Any]) -> None:
    before = len(entries(here, listener))
    sender = handler(*here.address(listener), localname="web-1", **options)
    texts = ["first message", 'second: "quoted"\nand more', "third, grüße", "a text that is long " * 60]
    for number, text in enumerate(texts):
        log(sender, text, user=number, comment='a "b" c')
    sender.close()
    rows = landed(here, listener, before, len(texts))
    for row in rows:
        annotations, message = row["annotations"], json.loads(row["payload"])
        assert (annotations["host"], annotations["level"], annotations["_comment"]) == ("web-1", "3", 'a "b" c')
        assert annotations["_user"] == str(message["_user"])
        assert float(annotations["timestamp"]) == message["timestamp"]
    by_user = {json.loads(row["payload"])["_user"]: json.loads(row["payload"]) for row in rows}
    assert [by_user[n].get("full_message", by_user[n]["short_message"]) for n in range(len(texts))] == texts


@pytest.mark.parametrize("kind", DOCKER)
def test_recording_of_dockers_driver(here: Pipe, kind: str) -> None:
    before = len(entries(here, "gelf-udp"))
    here.datagrams(*map(base64.b64decode, DOCKER[kind]), listener="gelf-udp")
    rows = landed(here, "gelf-udp", before, 3)
    assert [json.loads(row["payload"])["short_message"][:6] for row in rows] == ["first ", "second", "third "]
    assert {row["annotations"]["_container_id"] for row in rows} == {"0123456789ab"}
    assert {row["annotations"]["_command"] for row in rows} == {"python -m shop"}


def test_losses_are_named_and_the_balance_closes(here: Pipe) -> None:
    """The first of several chunks, a truncated message, and a message that would unpack to more than the limit."""
    before = here.counts("gelf-udp")
    chunk, short = base64.b64decode(DOCKER["none"][2]), base64.b64decode(DOCKER["gzip"][0])[:-9]
    alone = chunk[:2] + b"another1" + chunk[10:]
    here.datagrams(alone, short, zlib.compress(bytes(20 << 20), 9), listener="gelf-udp")
    expected = {"incomplete.expired": 1, "refused.damaged": 1, "refused.oversize": 1, "seen": 3, "accepted": 0}
    wait_until(lambda: all(here.counts("gelf-udp")[name] == before[name] + n for name, n in expected.items()))
    assert here.settled()["unaccounted"] == 0
    for name in here.endpoints()["listeners"]:
        assert here.counts(name)["accepted"] == len(entries(here, name))
