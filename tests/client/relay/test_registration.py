"""Posts of a host's counts to a real daemon with its ledger."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.client import Log
from penstock.client.relay import tally
from penstock.client.relay.clients import remote_client
from penstock.client.relay.registration import Registration
from penstock.config import RelayConfig, SecurityConfig, Settings, TokenConfig
from penstock.handover.paths import RELAYS_FOLDER
from penstock.ledger.balance import HostListener
from penstock.ledger.hosts.host_posts import FURTHER, ListenerReport
from penstock.ledger.hosts.kafka_hosts import FOLDER as KAFKA_FOLDER
from penstock.ledger.hosts.kafka_hosts import KafkaHostRegister
from penstock.ledger.ledger import Ledger
from penstock.testing.pipe import free_ports
from tests.server import certificates
from tests.server.running import Running

TOKENS = {
    "host": TokenConfig(token="a secret of the hosts", host=("web*",)),
    "relay": TokenConfig(token="the secret of the relay", write=("*",), relay=True),
}


class Topic:
    """A relayed topic with counts."""

    def __init__(self) -> None:
        self.is_failing = False
        self.report = ListenerReport(accepted=5, forwarded=0, pending=5)

    def count(self) -> tuple[dict[str, ListenerReport], int]:
        return {"udp": self.report}, 0


class Central:
    """A daemon whose ledger takes posts, and a host's registration with it."""

    def __init__(self, folder: Path) -> None:
        certificate = certificates.make(folder, "server")
        security = SecurityConfig(tokens=TOKENS, tls_cert=certificate.cert, tls_key=certificate.key)
        self.running = Running(folder / "topics", security, post=lambda document: {"new": self.ledger.post(document)})
        self.ledger = Ledger(self.running.log, folder / "buffers", [])
        self.folder, self.topic = folder, Topic()
        self.config = RelayConfig(
            name="up",
            topic=("t",),
            host="web1",
            to=self.running.bound.grpc,
            token_file=self._token_file("relay"),
            host_token_file=self._token_file("host"),
            tls_ca=certificate.cert,
        )
        self.clients: list[Log] = []

    def _token_file(self, name: str) -> Path:
        path = self.folder / f"{name}.token"
        path.write_text(TOKENS[name].token)
        path.chmod(0o600)
        return path

    def registration(self, config: RelayConfig, folder: str = "host") -> Registration:
        """Return the registration of a host whose data directory is ``folder``."""
        (self.folder / folder / RELAYS_FOLDER).mkdir(parents=True, exist_ok=True)
        registered = Registration(config, Settings(data_dir=self.folder / folder, log={"http": "127.0.0.1:1"}))
        self.clients.append(remote_client(config))
        registered.connect(self.clients[-1])
        return registered

    def hosts(self) -> list[HostListener]:
        return self.ledger.balance().hosts

    def close(self) -> None:
        for client in self.clients:
            client.close()
        self.running.stop()


@pytest.fixture
def central(tmp_path: Path) -> Iterator[Central]:
    central = Central(tmp_path)
    yield central
    central.close()


def test_counts_are_posted_with_a_token_that_can_do_nothing_else(central: Central) -> None:
    central.registration(central.config).post_if_due([central.topic])
    (entry,) = central.hosts()
    assert (entry.host, entry.listener, entry.accepted) == ("web1", "udp", 0)
    assert entry.on_host is not None
    assert (entry.on_host.accepted, entry.on_host.pending) == (5, 5)
    with remote_client(central.config, central.config.host_token_file) as client:
        with pytest.raises(Exception, match="Topic may not be written"):
            client.append("t", [b"x"])
        with pytest.raises(Exception, match="requires the right ledger"):
            client.post_ledger('{"tier": "client"}')


def test_counts_of_kafka_are_posted_with_the_same_token_and_only_for_its_hosts(
    central: Central, caplog: pytest.LogCaptureFixture
) -> None:
    config = central.config.model_copy(update={"kafka": True, "topic": ()})
    central.registration(config).post_if_due([])
    assert (stored := central.folder / KAFKA_FOLDER / "web1.json").exists()
    central.registration(config.model_copy(update={"host": "db1"})).post_if_due([])
    assert [path.name for path in stored.parent.iterdir()] == ["web1.json"]
    assert "the token is for others" in caplog.text
    refused = pytest.raises(Exception, match="requires the right ledger")
    with remote_client(central.config, central.config.host_token_file) as client, refused:
        client.post_ledger('{"tier": "kafka_ends", "ends": {}, "age_ms": 0}')


def test_refused_post_of_the_host_does_not_keep_back_its_counts_of_kafka(
    central: Central, caplog: pytest.LogCaptureFixture
) -> None:
    config = central.config.model_copy(update={"kafka": True})
    former = central.registration(config)
    former.post_if_due([central.topic])
    central.registration(config, "new disk").post_if_due([central.topic])
    (central.folder / KAFKA_FOLDER / "web1.json").unlink()
    central.ledger.kafka_hosts = KafkaHostRegister(central.folder / KAFKA_FOLDER, dict, time.time)
    central.topic.is_failing = True
    former.post_if_due([central.topic])
    assert "another machine has registered as web1 since" in caplog.text
    assert (central.folder / KAFKA_FOLDER / "web1.json").exists()
    assert former.is_connected


def test_post_is_due_after_the_interval_or_when_a_topic_fails(central: Central) -> None:
    registered, topic = central.registration(central.config), central.topic
    registered.post_if_due([topic])
    topic.report = replace(topic.report, accepted=6, pending=6)
    registered.post_if_due([topic])
    assert [entry.on_host.accepted for entry in central.hosts() if entry.on_host] == [5]
    topic.is_failing = True
    registered.post_if_due([topic])
    assert [entry.on_host.accepted for entry in central.hosts() if entry.on_host] == [6]


def test_missing_token_file_is_named_once_and_read_by_a_later_post(
    central: Central, caplog: pytest.LogCaptureFixture
) -> None:
    token = central.config.host_token_file
    assert token is not None
    hidden = token.rename(central.folder / "hidden")
    registered, topic = central.registration(central.config), central.topic
    for topic.is_failing in (False, True):
        registered.post_if_due([topic])
    (line,) = [line for line in caplog.messages if "the counts of this host are not posted" in line]
    assert str(token) in line
    assert not central.hosts()
    hidden.rename(token)
    topic.is_failing = False
    registered.post_if_due([topic])
    assert [entry.host for entry in central.hosts()] == ["web1"]


def test_listeners_of_a_post_are_limited_and_losses_of_a_cut_name_are_summed(
    central: Central, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tally, "MAX_LISTENERS", 3)
    registered, first, second = central.registration(central.config), Topic(), Topic()
    second.count = lambda: ({"a": first.report, "b": first.report}, 0)  # type: ignore[method-assign]
    registered._losses = [("b", 1, None), ("b", 2, 5), ("c", 4, 1), ("d", 8, 1)]
    listeners = registered._next_post([first, second]).listeners
    assert list(listeners) == ["udp", "a", FURTHER]
    assert (listeners[FURTHER].accepted, listeners[FURTHER].lost, listeners[FURTHER].sent) == (5, 15, 7)
    registered._losses = [("a", 1, None), ("a", 2, 5)]
    # A listener that was counted apart before stays so, whichever topic comes first.
    listeners = registered._next_post([second, first]).listeners
    assert sorted(listeners) == ["a", FURTHER, "udp"]
    assert (listeners["a"].lost, listeners["a"].sent) == (3, 5)


def test_registration_is_connected_while_the_other_side_answers(central: Central) -> None:
    registered = central.registration(central.config.model_copy(update={"host_token_file": None}))
    registered.post_if_due([central.topic])
    assert registered.is_connected
    (port,) = free_ports(1)
    with remote_client(central.config.model_copy(update={"to": f"127.0.0.1:{port}"})) as away:
        registered.connect(away)
        central.topic.is_failing = True
        registered.post_if_due([central.topic])
    assert not registered.is_connected


def test_refused_host_is_named_once_and_still_relays(central: Central, caplog: pytest.LogCaptureFixture) -> None:
    registered, topic = central.registration(central.config.model_copy(update={"host": "db1"})), central.topic
    assert not registered.is_connected
    for topic.is_failing in (False, True, False):
        registered.post_if_due([topic])
    lines = [line for line in caplog.messages if "the counts of this host are not posted" in line]
    assert lines == [
        "the counts of this host are not posted: Counts of this host may not be posted: the token is for others; "
        "entries are still relayed"
    ]
    assert not central.hosts()
    # A refusal is an answer.
    assert registered.is_connected


def test_new_disk_of_a_host_closes_the_former_one(central: Central) -> None:
    central.registration(central.config).post_if_due([central.topic])
    central.registration(central.config, "new disk").post_if_due([central.topic])
    (entry,) = central.hosts()
    assert entry.on_host is not None
    assert (entry.on_host.accepted, entry.on_host.pending, entry.on_host.lost_with_disk) == (10, 5, 5)
