"""Make a golden data directory: ``python tests/golden/make.py 0.2.0`` writes ``0.2.0.tar.xz`` here.

Run the real pipe of the imported penstock (PYTHONPATH selects the version): senders, receivers, the log, Spark.
``expected.json`` in the archive lists the input, which every later version must read from the directory.
"""

from __future__ import annotations

import argparse
import base64
import inspect
import json
import multiprocessing
import os
import shutil
import socket
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

from penstock.client import UdpSender
from penstock.counts import Origin
from penstock.log import Log
from penstock.records import body
from penstock.testing.pipe import Pipe, wait_until

HERE = Path(__file__).parent
EXPECTED = "expected.json"
CONFIG = """
[log.topic_defaults]
stale_after = "36500d"
rotate_after = "36500d"
[transactions]
producer_memory = "36500d"
[buffer]
term_length = "2MiB"
slots = 16
[[listener]]
name = "datagrams"
protocol = "udp"
port = 0
defrag = {max_size = "16KiB", expire_time = "1s"}
handlers = [{type = "log", topic = "events"}, {type = "discard"}]
[[listener]]
name = "lines"
protocol = "tcp"
codec = "raw"
port = 0
max_line = "8KiB"
handlers = [{type = "log", topic = "lines"}]
[pipeline]
topics = ["events"]
target_lag = "200ms"
spark = {"driver.memory" = "1g"}
"""
"""What the directory is made with, and opened with later; nothing in it gets too old."""
UNREAD = 5
"""Messages that stay in each log buffer."""
TRANSIENT = ("endpoints.json", "lock", "tables/_checkpoints/scratch")


def event(number: int) -> bytes:
    document = {"type": f"t{number % 2}", "uuid": f"uuid-{number}", "timestamp": 1_767_225_600_000 + number, "data": {}}
    return json.dumps({**document, "data": {"number": number}}).encode()


def texts(name: str, count: int, first: int = 0) -> list[str]:
    """Return different payloads of forty bytes."""
    return [f"{name} {number} ".ljust(40, ".") for number in range(first, first + count)]


class Maker:
    """A writer that fills the data directory of ``pipe``; ``expected`` has the input by topic."""

    def __init__(self, pipe: Pipe) -> None:
        self.pipe = pipe
        self.expected: dict[str, Any] = {"config": CONFIG, "rows": {}, "gaps": {}, "cursors": {}, "settings": {}}

    def request(self, method: str, path: str, document: Any = None) -> Any:
        answer = httpx.request(method, f"http://{self.pipe.http}{path}", json=document, timeout=30)
        assert answer.is_success, f"{method} {path}: {answer.text}"
        return answer.json() if answer.content else None

    def append(self, topic: str, payloads: list[str], **more: Any) -> None:
        """Append one request, which is one batch. Rows staged for a transaction are not expected yet."""
        entry = more.pop("entry", {})
        logs = [{"raw_bytes": base64.b64encode(payload.encode()).decode(), **entry} for payload in payloads]
        self.request("POST", f"/topic/{topic}/logs", {"logs": logs, **more})
        if "transaction_id" not in more:
            self.expect(topic, payloads)

    def expect(self, topic: str, payloads: list[str]) -> None:
        rows = self.expected["rows"].setdefault(topic, [])
        rows += [[self.end(topic) + index, payload] for index, payload in enumerate(payloads)]
        self.expected.setdefault("ends", {})[topic] = self.end(topic) + len(payloads)

    def end(self, topic: str) -> int:
        return int(self.expected.get("ends", {}).get(topic, 0))

    # Topics

    def topics(self) -> None:
        self.segments()
        self.corrupt()
        self.deleted()
        self.transactions()
        self.append("retried", texts("retried", 3), producer_id="golden", sequence="0")

    def segments(self) -> None:
        for topic, settings in {"segments": {}, "packed": {"compression": "zstd"}}.items():
            changed = {"segment_size_limit": "4KiB", **settings}
            self.request("PUT", f"/topics/{topic}", changed)
            for batch in range(8):
                entry = {"annotations": {"batch": str(batch)}, "key": base64.b64encode(b"k%d" % batch).decode()}
                self.append(topic, texts(topic, 20, 20 * batch), entry=entry)
        self.request("POST", "/topic/packed/compact")
        self.request("PUT", "/topic/segments/cursors/reader", {"offset": "42"})
        self.expected["cursors"]["segments"] = {"reader": 42}
        self.expected["settings"]["packed"] = {"segment_size_limit": 4096, "compression": "zstd"}

    def corrupt(self) -> None:
        """Damage a batch of 20 in the middle, so that it is detected and becomes a gap."""
        self.request("PUT", "/topics/corrupt", {"segment_size_limit": "4KiB"})
        for batch in range(4):
            self.append("corrupt", texts("corrupt", 20, 20 * batch))
        file = next(f for f in self.files("corrupt") if b"corrupt 25 " in f.read_bytes())
        data = file.read_bytes()
        file.write_bytes(data.replace(b"corrupt 25 ", b"corrupt ?? "))
        self.request("POST", "/topic/corrupt/verify?begin=0&end=80")
        rows = self.expected["rows"]["corrupt"]
        self.expected["rows"]["corrupt"] = [row for row in rows if not 20 <= row[0] < 40]
        self.expected["gaps"]["corrupt"] = [[20, 40, "corrupt"]]

    def files(self, topic: str) -> list[Path]:
        return sorted((self.pipe.data_dir / "topics" / topic).glob("*.arrows"))

    def deleted(self) -> None:
        """Delete two topics and create one of them again: its offsets continue."""
        for topic in ("gone", "back"):
            self.append(topic, texts(topic, 3))
            self.request("DELETE", f"/topics/{topic}")
            self.expected["rows"][topic] = []
            self.expected["gaps"][topic] = [[0, 3, "deleted"]]
        self.append("back", texts("back", 2, 3))

    def transactions(self) -> None:
        committed, aborted = self.begin(), self.begin()
        for topic in ("one", "two"):
            self.append(topic, texts(topic, 2), transaction_id=committed)
            self.append(topic, texts("never", 1), transaction_id=aborted)
        self.request("POST", f"/transactions/{committed}/commit")
        self.request("POST", f"/transactions/{aborted}/abort")
        for topic in ("one", "two"):
            self.expect(topic, texts(topic, 2))

    def begin(self) -> str:
        return str(self.request("POST", "/transactions", {"timeout": "3600s"})["transaction_id"])

    # Listeners

    def send(self, first: int, count: int) -> None:
        """Send events by UDP (the first twice, one invalid, one in fragments) and lines by TCP."""
        with UdpSender(*self.pipe.address("datagrams")) as sender:
            for payload in self.datagrams(first, count):
                sender.send(payload)
        with socket.create_connection(self.pipe.address("lines")) as sock:
            sock.sendall(b"".join(b"line %d\n" % number for number in range(first, first + count)))

    def datagrams(self, first: int, count: int) -> Iterator[bytes]:
        yield from (event(number) for number in range(first, first + count))
        if not first:
            yield event(first)
            yield b"{broken"
            yield b"large " * 500

    def sent(self) -> None:
        """Wait until all messages have landed and are proved, and the ledger has a checkpoint."""
        self.send(0, 20)
        wait_until(lambda: self.logged("events") == 23, what="all is logged")
        wait_until(lambda: self.logged("lines") == 20, what="all lines are logged")
        command = [sys.executable, "-m", "penstock.spark.pipeline", "--once", *self.pipe.options]
        subprocess.run(command, check=True, cwd=self.pipe.output.parent)
        backfill = ["backfill", "--topic", "lines", "--from", "5", "--to", "10", *self.pipe.options]
        self.pipe.run(sys.executable, "-m", "penstock.cli.main", "pipeline", *backfill)
        wait_until(lambda: self.pipe.fates("lines"), what="the ledger knows of the lines that landed out of turn")
        self.expected["fates"] = {topic: dict(self.pipe.fates(topic)) for topic in ("events", "lines")}
        self.expect("events", [payload.decode() for payload in self.datagrams(0, 20)])
        self.expect("lines", [f"line {number}" for number in range(20)])
        balance = self.pipe.balance()
        assert balance["unaccounted"] == 0, balance
        self.expected["accepted"] = {route["source"]: route["accepted"] for route in balance["routes"]}

    def logged(self, topic: str) -> int:
        counts = [
            topic_balance["logged"]
            for topic_balance in self.pipe.balance()["topics"]
            if topic_balance["topic"] == topic
        ]
        return int(counts[0]) if counts else 0

    def unread(self) -> None:
        """Kill the machine while frames wait in the log buffers."""
        with self.pipe.paused("log daemon"):
            self.send(20, UNREAD)
            last = {"datagrams": b'"number": 24', "lines": b"line 24"}
            for listener, payload in last.items():
                buffer = self.pipe.data_dir / "buffers" / f"{listener}.logbuffer"
                wait_until(
                    lambda buffer=buffer, payload=payload: payload in buffer.read_bytes(), what=f"{listener} has them"
                )
            self.pipe.kill_all()
        self.expected["unread"] = {
            "events": [event(number).decode() for number in range(20, 20 + UNREAD)],
            "lines": [f"line {number}" for number in range(20, 20 + UNREAD)],
        }


def die_undecided(topics: Path) -> None:
    """Write one transaction to its topics without a decision, and leave another one open."""
    system = inspect.signature(Log).parameters["fs"].default

    class Dying(type(system)):  # type: ignore[misc]
        def remove(self, path: Path) -> None:
            if path.suffix == ".intent":
                os._exit(0)
            super().remove(path)

    log = Log(topics, fs=Dying())
    undecided, still_open = log.transactions.begin(), log.transactions.begin()
    for topic in ("one", "two"):
        for transaction in (undecided, still_open):
            log.transactions.append(transaction, topic, body([b"never"]), Origin("http", 0, 0, 0))
    log.transactions.commit(undecided)
    raise AssertionError("it was decided")


def make(name: str, folder: Path) -> None:
    """Make the archive with a pipe in ``folder``."""
    pipe = Pipe(folder)
    pipe.configure(CONFIG)
    maker = Maker(pipe)
    try:
        pipe.start()
        maker.topics()
        pipe.stop()  # what was entered before it was spoilt keeps the ledger from a checkpoint, until it reads anew
        pipe.start()
        maker.sent()
        pipe.stop()
        assert (pipe.data_dir / "topics" / "LEDGER").exists()
        pipe.start()
        maker.unread()
    finally:
        pipe.stop()
    dying = multiprocessing.get_context("spawn").Process(target=die_undecided, args=[pipe.data_dir / "topics"])
    dying.start()
    dying.join()
    assert dying.exitcode == 0
    assert list((pipe.data_dir / "topics").glob("TRANSACTION-*.intent"))
    for transient in TRANSIENT:
        path = pipe.data_dir / transient
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    (folder / EXPECTED).write_text(json.dumps(maker.expected))
    with tarfile.open(HERE / f"{name}.tar.xz", "w:xz", preset=9) as archive:
        archive.add(pipe.data_dir, "data")
        archive.add(folder / EXPECTED, EXPECTED)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", help="of the version that writes, such as 0.2.0")
    with tempfile.TemporaryDirectory() as folder:
        make(parser.parse_args().name, Path(folder))


if __name__ == "__main__":
    main()
