"""The files of both registers of hosts: damaged ones are renamed, unreadable ones are never replaced."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from penstock.files import checked_document
from penstock.files.checked_document import write_document
from penstock.ledger.hosts import host_files
from penstock.ledger.hosts.host_files import HostFiles, Storable
from penstock.ledger.hosts.host_posts import HostPost, ListenerReport
from penstock.ledger.hosts.host_states import HostState
from penstock.ledger.hosts.hosts import HostRegister
from penstock.ledger.hosts.kafka_hosts import KafkaHost, KafkaHostRegister, KafkaPost, KafkaReport
from penstock.ledger.posts import BadPost
from tests.fuzzed import objects

RELAYED = HostPost("web1", "up", "disk 1", "process", 1, 1_000_000, 0, "1", {"udp": ListenerReport(4, 4)})
FORWARDED = KafkaPost("web1", "disk 1", "process", 1, 1_000_000, "1", {"udp": KafkaReport(4, 4)})


STATES: dict[str, tuple[Storable, Callable[[Mapping[str, Any]], Storable]]] = {
    "relay": (HostState({"up": RELAYED}, received={"up": 0}), HostState.from_document),
    "kafka": (KafkaHost(FORWARDED, 1, 0.0), lambda document: KafkaHost.from_document(document, 0.0)),
}


class Registered:
    """A register of either kind, and posts of hosts to it."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.folder, self.path = folder, folder / "web1.json"
        self._posts: dict[str, HostPost | KafkaPost] = {"relay": RELAYED, "kafka": FORWARDED}
        self._post = self._posts[kind]
        self._open: Callable[[], HostRegister | KafkaHostRegister] = {
            "relay": lambda: HostRegister(folder, lambda host: {}, lambda: 1000.0),
            "kafka": lambda: KafkaHostRegister(folder, dict, lambda: 1000.0, lambda: 1000.0),
        }[kind]
        self.restart()

    def restart(self) -> None:
        self.register = self._open()

    def post(self, version: int = 1, host: str = "web1") -> bool:
        return self.register.post(replace(self._post, version=version, host=host).document())

    def hosts(self) -> set[str]:
        register = self.register
        return set(register.states if isinstance(register, HostRegister) else register.settled_states())


@pytest.fixture(params=["relay", "kafka"])
def registered(request: pytest.FixtureRequest, tmp_path: Path) -> Registered:
    registered = Registered(request.param, tmp_path / "hosts")
    registered.post()
    return registered


def of_newer_format(content: bytes) -> bytes:
    text = json.dumps({**json.loads(content[8:]), "format": checked_document.FORMAT + 1}).encode()
    return b"%08x" % crc32c(text) + text


@pytest.mark.survives("hosts", "damaged bytes")
def test_damaged_file_is_set_aside(registered: Registered, caplog: pytest.LogCaptureFixture) -> None:
    registered.path.write_bytes(b"damaged")
    registered.restart()
    assert not registered.hosts()
    assert registered.path.with_suffix(".damaged").read_bytes() == b"damaged"
    assert "the counts of host web1 are set aside as web1.damaged: " in caplog.text
    assert registered.post(2)
    assert registered.hosts() == {"web1"}
    registered.path.write_bytes(b"damaged again")
    registered.restart()
    assert not registered.hosts()
    stored = {path.name: path.read_bytes() for path in registered.folder.iterdir()}
    assert stored == {"web1.damaged": b"damaged", "web1.damaged2": b"damaged again"}


@pytest.mark.survives("hosts", "other format")
def test_file_of_a_newer_format_is_not_replaced(registered: Registered, caplog: pytest.LogCaptureFixture) -> None:
    content = registered.path.read_bytes()
    registered.path.write_bytes(of_newer_format(content))
    registered.restart()
    assert "web1 cannot be read, so its posts are refused: web1.json has format 2" in caplog.text
    with pytest.raises(BadPost, match=r"the stored counts of web1 cannot be read: web1\.json has format 2"):
        registered.post(2)
    assert registered.post(1, "web2")
    assert registered.path.read_bytes() == of_newer_format(content)
    assert sorted(path.name for path in registered.folder.iterdir()) == ["web1.json", "web2.json"]
    # After an upgrade, or once an operator has removed the file, its host is registered again.
    registered.path.write_bytes(content)
    assert not registered.post(1)
    assert registered.post(2)


def test_file_that_cannot_be_read_does_not_stop_the_start(registered: Registered) -> None:
    registered.path.unlink()
    registered.path.mkdir()
    registered.restart()
    with pytest.raises(BadPost, match="the stored counts of web1 cannot be read"):
        registered.post(2)
    registered.path.rmdir()
    assert registered.post(1)


def test_hosts_are_bounded_with_those_that_cannot_be_read(
    registered: Registered, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_files, "MAX_HOSTS", 1)
    for _ in range(2):
        with pytest.raises(BadPost, match="1 hosts are registered already"):
            registered.post(1, "web2")
        registered.path.write_bytes(of_newer_format(registered.path.read_bytes()))
        registered.restart()


@given(st.sampled_from(sorted(STATES)), objects("posts", "post", "received_ms", "closed", "baseline", "former_disks"))
def test_any_stored_document_is_read_or_set_aside(
    tmp_path_factory: pytest.TempPathFactory, kind: str, changes: dict[str, Any]
) -> None:
    state, parse = STATES[kind]
    folder = tmp_path_factory.mktemp("hosts")
    path = folder / "web1.json"
    write_document(path, {**state.document(), **changes})
    states = HostFiles(folder, parse).states
    assert path.exists() == ("web1" in states) != path.with_suffix(".damaged").exists()
    if not changes:
        assert states["web1"].document() == state.document()
