"""Real senders of syslog, each over each of its transports, into a real pipe.

Each message is there once, with the bytes that its sender was given, and the fields of its header; the balance closes.
"""

from __future__ import annotations

import json
import logging
import logging.handlers
import re
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from penstock.testing.pipe import Pipe, wait_until
from tests import syslog_daemons as daemons
from tests.server import certificates
from tests.server.certificates import Pair
from tests.syslog_daemons import HOST
from tests.system.configured_pipe import SMALL, configured_pipe, listener
from tests.system.topic_files import entries

RECORDED = json.loads((Path(__file__).parents[1] / "wire" / "vectors" / "syslog_senders.json").read_text())
TEXTS = ("first message", "second: with a colon", "third one, grüße")
TRACE = "failed\nTraceback (most recent call last):\n  File x\nValueError: no"
FIELDS = {"facility": "user", "severity": "info", "app_name": "shop", "proc_id": "77"}
OCTETS = 'protocol="tcp" TCP_Framing="octet-counted"'
OSSL = 'StreamDriver="ossl" StreamDriverMode="1" StreamDriverAuthMode="x509/name" StreamDriverPermittedPeers="server"'
RFC_5424 = 'template="RSYSLOG_SyslogProtocol23Format"'
KEYS = 'codec = "syslog"', 'timezone = "UTC"'


def listeners(server: Pair, ca: Pair) -> str:
    """Return a listener for each transport; the one with TLS accepts some clients only."""
    files = f'tls_cert = "{server.cert}"', f'tls_key = "{server.key}"', f'client_ca = "{ca.cert}"'
    tls = listener("syslog-tls", "tcp", *KEYS, *files, 'client_names = ["*.example.com"]')
    return SMALL + listener("syslog-udp", "udp", *KEYS) + listener("syslog-tcp", "tcp", *KEYS) + tls


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Pair]:
    """An authority ``ca``, and its certificates: ``server``, ``a.example.com`` and ``b.other.org``."""
    folder = tmp_path_factory.mktemp("certificates")
    ca = certificates.make(folder, "ca")
    names = ("server", "a.example.com", "b.other.org")
    return {"ca": ca} | {name: certificates.make(folder, name, issuer=ca) for name in names}


@contextmanager
def in_utc() -> Iterator[None]:
    """Set the time zone of this process and its children to UTC."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory, pairs: dict[str, Pair]) -> Iterator[Pipe]:
    """A pipe for all tests; each test counts from its start."""
    with in_utc(), configured_pipe(tmp_path_factory.mktemp("pipe"), listeners(pairs["server"], pairs["ca"])) as pipe:
        yield pipe


class Landed:
    """The messages that arrive at each listener from now on."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe
        self._before = {name: len(entries(pipe, name)) for name in pipe.endpoints()["listeners"]}

    def rows(self, listener: str, count: int) -> list[dict[str, Any]]:
        """Return ``count`` messages; the balance of the last test excludes further ones."""
        wait_until(
            lambda: len(self._new(listener)) >= count, what=f"{count} messages at {listener}: {self._new(listener)}"
        )
        rows = self._new(listener)
        assert len(rows) == count, rows
        return rows

    def _new(self, listener: str) -> list[dict[str, Any]]:
        return entries(self._pipe, listener)[self._before[listener] :]


TIME = re.compile(rb"[A-Z][a-z]{2} [ 0-9]\d \d\d:\d\d:\d\d|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[.\d]*\+00:00")
"""What stands for the time of a message, as RFC 3164 and RFC 3339 write it."""
OLD = [f"<14>TIME {HOST} shop[77]: {text}".encode() for text in TEXTS]
RSYSLOG_NEW = [f"<14>1 TIME {HOST} shop 77 - -  {text}".encode() for text in TEXTS]
SYSLOG_NG_NEW = [f'<14>1 TIME {HOST} shop 77 - [meta sequenceId="{n}"] {t}'.encode() for n, t in enumerate(TEXTS, 1)]


def check(rows: list[dict[str, Any]], payloads: list[bytes], times: list[float]) -> None:
    """Check that the rows have these payloads, the right number of times, with the right header fields and times."""
    assert Counter(TIME.sub(b"TIME", row["payload"]) for row in rows) == Counter(payloads)
    for row in rows:
        annotations = row["annotations"]
        assert {name: annotations[name] for name in (*FIELDS, "hostname")} == FIELDS | {"hostname": HOST}
        written = datetime.fromisoformat(annotations["timestamp"]).timestamp()
        assert times[0] - 1 <= written <= times[-1] + 2


def action(address: tuple[str, int], options: str) -> str:
    return f'action(type="omfwd" target="{address[0]}" port="{address[1]}" {options})'


def test_rsyslog_over_each_of_its_transports(here: Pipe, pairs: dict[str, Pair], tmp_path: Path) -> None:
    udp, tcp, tls = (here.address(f"syslog-{kind}") for kind in ("udp", "tcp", "tls"))
    traditional = 'template="RSYSLOG_TraditionalForwardFormat"'
    by_udp = ["", traditional, RFC_5424, 'template="withlf"']
    by_tcp = [
        'protocol="tcp"',
        OCTETS,
        f'{OCTETS} template="withlf"',
        f"{OCTETS} {RFC_5424}",
        f"{OCTETS} {traditional}",
    ]
    by_tls = [f"{OCTETS} {OSSL} {RFC_5424}", f'protocol="tcp" {OSSL} {RFC_5424}']
    actions = [action(udp, f'protocol="udp" {each}') for each in by_udp]
    actions += [action(tcp, each) for each in by_tcp] + [action(tls, each) for each in by_tls]
    landed, client_pair = Landed(here), pairs["a.example.com"]
    with daemons.rsyslog(tmp_path, actions, pairs["ca"].cert, (client_pair.cert, client_pair.key)) as log:
        times = daemons.log_texts(log, TEXTS)
        rows = {name: landed.rows(f"syslog-{name}", 3 * n) for name, n in (("udp", 4), ("tcp", 5), ("tls", 2))}
    check(rows["udp"], OLD * 3 + RSYSLOG_NEW, times)
    check(rows["tcp"], OLD * 4 + RSYSLOG_NEW, times)
    check(rows["tls"], RSYSLOG_NEW * 2, times)
    assert {row["annotations"]["certificate_name"] for row in rows["tls"]} == {"a.example.com"}


def test_compressed_rsyslog_messages_are_refused_by_name(here: Pipe, tmp_path: Path) -> None:
    before = here.counts("syslog-udp")["refused.compressed"]
    long = tuple(f"{text} {'x' * 200}" for text in TEXTS)
    with daemons.rsyslog(tmp_path, [action(here.address("syslog-udp"), 'protocol="udp" ziplevel="9"')]) as log:
        daemons.log_texts(log, long)
        wait_until(lambda: here.counts("syslog-udp")["refused.compressed"] == before + 3)
        assert wait_until(lambda: "compressed" in here.output.read_text(), what="it is said in words")


def test_syslog_ng_over_each_of_its_transports(here: Pipe, pairs: dict[str, Pair], tmp_path: Path) -> None:
    ports = {kind: here.address(f"syslog-{kind}")[1] for kind in ("udp", "tcp", "tls")}
    client_pair = pairs["a.example.com"]
    files = f'ca-file("{pairs["ca"].cert}") cert-file("{client_pair.cert}") key-file("{client_pair.key}")'
    drivers = [
        f'{kind}("127.0.0.1" port({port}) transport("{by}") persist-name("{kind}-{by}")'
        f"{f' tls({files})' if by == 'tls' else ''});"
        for kind in ("network", "syslog")
        for by, port in ports.items()
    ]
    landed = Landed(here)
    with daemons.syslog_ng(tmp_path, drivers) as log:
        times = daemons.log_texts(log, TEXTS)
        rows = {name: landed.rows(f"syslog-{name}", 6) for name in ports}
    for name in ports:
        check(rows[name], OLD + SYSLOG_NG_NEW, times)
    assert [row["annotations"].get("meta.sequenceId") for row in rows["tls"]].count("3") == 1


@pytest.mark.parametrize(
    ("listener", "options", "is_3164"),
    [
        ("syslog-udp", ["--udp"], False),
        ("syslog-udp", ["--udp", "--rfc3164"], True),
        ("syslog-tcp", ["--tcp"], False),
        ("syslog-tcp", ["--tcp", "--rfc3164"], True),
        ("syslog-tcp", ["--tcp", "--octet-count"], False),
    ],
)
def test_logger(here: Pipe, listener: str, options: list[str], is_3164: bool) -> None:
    landed, (host, port) = Landed(here), here.address(listener)
    for text in TEXTS:
        command = ["logger", "--server", host, "--port", str(port), *options, "--tag", "shop", "--id=77"]
        subprocess.run([*command, "--priority", "user.info", text], check=True)
    rows = landed.rows(listener, 3)
    name = socket.gethostname().partition(".")[0]
    for row, text in zip(rows, TEXTS, strict=True):
        annotations = row["annotations"]
        assert FIELDS | {"hostname": name} == {key: annotations[key] for key in (*FIELDS, "hostname")}
        assert (annotations.get("timeQuality.tzKnown") is None) is is_3164
        begin, end = (b"<14>", f" {name} shop[77]: {text}") if is_3164 else (b"<14>1 ", f"] {text}")
        assert row["payload"].startswith(begin)
        assert row["payload"].endswith(end.encode())


@pytest.mark.parametrize(("listener", "kind"), [("syslog-udp", socket.SOCK_DGRAM), ("syslog-tcp", socket.SOCK_STREAM)])
def test_handler_of_pythons_logging(here: Pipe, listener: str, kind: int) -> None:
    landed = Landed(here)
    handler = logging.handlers.SysLogHandler(here.address(listener), socktype=kind)
    for text in ("one", TRACE, "", "four"):
        handler.handle(logging.LogRecord("a", logging.INFO, "", 0, text, (), None))
    rows = landed.rows(listener, 4)  # on TCP the last is known to be whole after half a second of silence
    handler.close()
    assert [row["payload"] for row in rows] == [b"<14>one", f"<14>{TRACE}".encode(), b"<14>", b"<14>four"]
    assert {row["annotations"]["severity"] for row in rows} == {"info"}


@pytest.mark.parametrize("sender", [each for each in RECORDED if each["sender"].startswith(("logback", "winston"))])
def test_recordings_of_logback_and_winston(here: Pipe, sender: dict[str, Any]) -> None:
    landed, listener = Landed(here), f"syslog-{sender['protocol']}"
    pieces = [str(piece).encode("latin-1") for piece in sender["pieces"]]
    if sender["protocol"] == "udp":
        here.datagrams(*pieces, listener=listener)
    else:
        here.lines(b"".join(pieces), listener=listener)
    rows = landed.rows(listener, 3)
    assert b"\n".join(row["payload"] for row in rows) == b"\n".join(pieces).strip(b"\n")
    for row in rows:
        assert {key: row["annotations"][key] for key in (*FIELDS, "hostname")} == FIELDS | {"hostname": "vm"}


def test_client_with_another_name_is_refused(here: Pipe, pairs: dict[str, Pair], tmp_path: Path) -> None:
    landed, before, other_pair = Landed(here), here.counts("syslog-tls"), pairs["b.other.org"]
    driver = f"{OCTETS} {OSSL}"
    with daemons.rsyslog(
        tmp_path, [action(here.address("syslog-tls"), driver)], pairs["ca"].cert, (other_pair.cert, other_pair.key)
    ) as log:
        daemons.log_texts(log, TEXTS)
        closed = "connection_closed.name"
        wait_until(lambda: here.counts("syslog-tls")[closed] > before[closed])
    assert landed.rows("syslog-tls", 0) == []


def test_balance_of_all_tests_closes(here: Pipe) -> None:
    assert here.settled()["unaccounted"] == 0
    for name in here.endpoints()["listeners"]:
        assert here.counts(name)["accepted"] == len(entries(here, name))
