"""Log records as events."""

from __future__ import annotations

import json
import logging
import os
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.client import PenstockHandler
from penstock.wire.datagrams import Datagrams
from penstock.wire.plog.codec import PlogDecoder


@pytest.fixture
def receiver() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        sock.settimeout(10)
        yield sock


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    logger = logging.getLogger(f"test.{uuid.uuid4()}")
    logger.propagate = False
    logger.setLevel(logging.DEBUG)
    yield logger
    for handler in list(logger.handlers):
        logger.removeHandler(handler)
        handler.close()


def received(sock: socket.socket) -> dict[str, Any]:
    decoder = PlogDecoder()
    while not len(payloads := decoder.decode(Datagrams.from_bytes([sock.recv(65_535)]), 0.0).body["payload"]):
        continue
    event: dict[str, Any] = json.loads(payloads[0].as_py())
    return event


def test_record_becomes_an_event(receiver: socket.socket, logger: logging.Logger) -> None:
    handler = PenstockHandler(*receiver.getsockname(), event_type="service")
    logger.addHandler(handler)
    before = time.time() * 1000
    logger.warning("%d of %s", 3, "four", extra={"order": 7, "what": {1}, "rate": float("nan")})
    event = received(receiver)
    assert set(event) == {"type", "uuid", "host", "timestamp", "data"}
    assert (event["type"], event["host"]) == ("service", socket.gethostname())
    assert str(uuid.UUID(event["uuid"])) == event["uuid"]
    assert before - 1 <= event["timestamp"] <= time.time() * 1000
    data = event["data"]
    assert (data["message"], data["level"], data["logger"]) == ("3 of four", "WARNING", logger.name)
    assert (data["order"], data["what"], data["rate"]) == (7, "{1}", "nan")
    assert data["function"] == "test_record_becomes_an_event"


def test_exceptions_and_stacks_are_included(receiver: socket.socket, logger: logging.Logger) -> None:
    logger.addHandler(PenstockHandler(*receiver.getsockname()))
    try:
        raise KeyError("lost")
    except KeyError:
        logger.exception("it broke", stack_info=True)
    data = received(receiver)["data"]
    assert (data["exception"]["type"], data["exception"]["message"]) == ("KeyError", "'lost'")
    assert 'raise KeyError("lost")' in data["exception"]["traceback"]
    assert "test_exceptions_and_stacks_are_included" in data["stack"]


def test_full_queue_drops_and_counts_without_blocking(logger: logging.Logger) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        handler = PenstockHandler(*unused.getsockname(), protocol="tcp", capacity=10, patience=0.2)
        logger.addHandler(handler)
        began = time.monotonic()
        for number in range(1000):
            logger.info("%d", number)
        assert time.monotonic() - began < 5
        logger.removeHandler(handler)
        handler.close()
    assert handler.counts["dropped"] >= 480
    assert handler.counts["queued"] + handler.counts["dropped"] == 1000
    assert handler.counts["failed"] == handler.counts["queued"]
    assert handler.counts["sent"] == 0


def test_lines_wait_until_a_receiver_listens_again(logger: logging.Logger) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        handler = PenstockHandler(*server.getsockname(), protocol="tcp", patience=20)
        logger.addHandler(handler)
        logger.info("first")
        time.sleep(0.3)
        server.listen()
        handler.flush()
        assert handler.counts["sent"] == 1
        connection, _ = server.accept()
        with connection:
            assert json.loads(connection.recv(65_535))["data"]["message"] == "first"


def test_last_record_is_sent_before_the_program_ends(receiver: socket.socket) -> None:
    program = (
        "import logging; from penstock.client import PenstockHandler;"
        f"logging.basicConfig(level=20, handlers=[PenstockHandler({receiver.getsockname()!r}[0],"
        f" {receiver.getsockname()[1]})]); [logging.info('%d', n) for n in range(100)]"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
    assert [received(receiver)["data"]["message"] for _ in range(100)] == [str(number) for number in range(100)]


def test_child_process_has_its_own_queue_and_thread(receiver: socket.socket, logger: logging.Logger) -> None:
    handler = PenstockHandler(*receiver.getsockname())
    logger.addHandler(handler)
    logger.info("parent")
    handler.flush()
    child = os.fork()
    if child == 0:
        logger.info("child")
        handler.flush()
        os._exit(0 if handler.counts["sent"] == 1 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert {received(receiver)["data"]["message"] for _ in range(2)} == {"parent", "child"}


def test_record_that_cannot_be_formatted_is_counted(
    receiver: socket.socket, capsys: pytest.CaptureFixture[str]
) -> None:
    handler = PenstockHandler(*receiver.getsockname())
    for fields in ({"args": ("no number",)}, {"args": (1,), "extra": 10**5000}, {"args": (1,)}):
        handler.handle(logging.makeLogRecord({"msg": "%d", **fields}))
    assert received(receiver)["data"]["message"] == "1"
    assert "Logging error" in capsys.readouterr().err
    handler.close()
    assert handler.counts == {"failed": 2, "queued": 1, "sent": 1}


class Unwritable:
    """An object without a text."""

    def __str__(self) -> str:
        raise RuntimeError


def test_event_that_cannot_be_encoded_is_counted_and_ends_no_thread(receiver: socket.socket) -> None:
    handler = PenstockHandler(*receiver.getsockname())
    handler.handle(logging.makeLogRecord({"msg": "a", "lineno": Unwritable()}))
    handler.flush()
    handler.handle(logging.makeLogRecord({"msg": "b", ("a key", 1): 2}))
    data = received(receiver)["data"]
    assert (data["message"], data["('a key', 1)"]) == ("b", 2)
    handler.close()
    assert handler.counts == {"queued": 2, "failed": 1, "sent": 1}


def test_long_number_is_written_at_the_lowest_limit_of_digits(receiver: socket.socket) -> None:
    handler, digits = PenstockHandler(*receiver.getsockname()), sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(640)
    try:
        for number in (10**616, 10**1000, 1):
            handler.handle(logging.makeLogRecord({"msg": "a", "number": number}))
        handler.flush()
    finally:
        sys.set_int_max_str_digits(digits)
    assert [received(receiver)["data"]["number"] for _ in range(2)] == [10**616, 1]
    handler.close()
    assert handler.counts == {"queued": 2, "failed": 1, "sent": 2}


def test_extra_fields_replace_none_of_the_record(receiver: socket.socket, logger: logging.Logger) -> None:
    """geoadmin/lib-py-logging-utilities#45, betcode-org/flumine#667: fields of the program have names of the record."""
    logger.addHandler(PenstockHandler(*receiver.getsockname()))
    logger.error("upload", extra={"level": "gold", "file": "a.txt", "order": 1})
    data = received(receiver)["data"]
    assert (data["level"], data["extra_level"], data["extra_file"], data["order"]) == ("ERROR", "gold", "a.txt", 1)
    assert data["file"] == __file__


def test_text_that_is_not_unicode_is_valid_json(receiver: socket.socket, logger: logging.Logger) -> None:
    """fox-it/flow.record#143, log2timeline/plaso#3717: names of files have half a surrogate pair for a byte."""
    extra = {"half \ud83d": "\ud83d", "whole": "😀"}
    text = "opened " + os.fsdecode(b"caf\xe9 \xc3\xa9")
    handler = PenstockHandler(*receiver.getsockname())
    # Not through the logger: pytest-xdist ends at a captured record that is not Unicode.
    handler.handle(logger.makeRecord(logger.name, logging.WARNING, __file__, 1, text, (), None, extra=extra))
    handler.close()
    data = received(receiver)["data"]
    assert (data["message"], data["whole"]) == (r"opened caf\udce9 é", "😀")
    assert data[r"half \ud83d"] == r"\ud83d"
