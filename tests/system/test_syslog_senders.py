"""Real senders of syslog against a real pipe: each message is there once, and the balance closes."""

from __future__ import annotations

import json
import logging
import logging.handlers
import socket
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.testing.pipe import Pipe, until

RECORDED = json.loads((Path(__file__).parents[1] / "wire" / "vectors" / "syslog_senders.json").read_text())
TRACE = "failed\nTraceback (most recent call last):\n  File x\nValueError: no"


def send(pipe: Pipe, sender: dict[str, Any]) -> int:
    """Send what a sender was recorded with; how many messages that is."""
    pieces = [str(piece).encode("latin-1") for piece in sender["pieces"]]
    if sender["protocol"] == "udp":
        pipe.datagrams(*pieces, listener="syslog-udp")
    else:
        pipe.lines(b"".join(pieces), listener="syslog-tcp")
    return 3


def test_what_real_senders_send_is_there_once_and_the_balance_closes(pipe: Pipe) -> None:
    wanted = {"syslog-udp": 0, "syslog-tcp": 0}
    for sender in RECORDED:
        if "compressed" not in sender["sender"]:
            wanted[f"syslog-{sender['protocol']}"] += send(pipe, sender)
    for listener, kind in (("syslog-udp", socket.SOCK_DGRAM), ("syslog-tcp", socket.SOCK_STREAM)):
        handler = logging.handlers.SysLogHandler(pipe.address(listener), socktype=kind)
        for text in ("one", TRACE, "three", "four"):
            handler.handle(logging.LogRecord("a", logging.INFO, "", 0, text, (), None))
            wanted[listener] += 1
        handler.close()
    send(pipe, next(each for each in RECORDED if "compressed" in each["sender"]))
    until(lambda: all(pipe.counts(name)["accepted"] == count for name, count in wanted.items()))
    assert pipe.counts("syslog-udp")["refused.compressed"] == 3
    assert pipe.settled()["unaccounted"] == 0
    rows = entries(pipe, sum(wanted.values()))
    assert [row["annotations"].get("app_name") for row in rows].count("shop") == len(rows) - 8
    assert [row["payload"] for row in rows].count(b"<14>" + TRACE.encode()) == 2


def entries(pipe: Pipe, count: int) -> list[dict[str, Any]]:
    """All entries of the topic, as its segment files have them."""
    found: list[dict[str, Any]] = []
    for file in sorted((pipe.data_dir / "topics" / "syslog").glob("*.arrows")):
        with pa.ipc.open_stream(file.read_bytes()) as stream:
            found += [row | {"annotations": dict(row["annotations"])} for batch in stream for row in batch.to_pylist()]
    assert len(found) == count
    return found
