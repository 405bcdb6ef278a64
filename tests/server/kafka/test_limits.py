from __future__ import annotations

import socket
import struct
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kio.index import load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader

from penstock.process.servers import in_flight_bytes
from penstock.records import body
from penstock.server.http.body_limits import HttpLimits
from penstock.server.kafka.endpoint import MIN_IDLE_S
from penstock.server.kafka.groups import groups
from penstock.server.kafka.groups.groups import MAX_GROUPS
from penstock.server.kafka.limits import MAX_REQUEST_BYTES
from penstock.server.kafka.metadata.cluster import CREATIONS_AT_ONCE, CREATIONS_PER_S, CreationQuota
from penstock.server.kafka.schema.messages import Api
from tests.server.kafka.schema.test_messages import request
from tests.server.running import Running


@pytest.fixture
def narrow(tmp_path: Path) -> Iterator[Running]:
    """A server with low limits and short timeouts."""
    server = Running(tmp_path / "topics", limits=HttpLimits(max_bytes=1 << 20, timeout=0.3, connections=3), kafka=True)
    yield server
    server.stop()


def connected(server: Running) -> socket.socket:
    host, _, port = server.bound.kafka.rpartition(":")
    return socket.create_connection((host, int(port)), 20)


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def is_served(sock: socket.socket) -> bool:
    sock.sendall(framed(request(Api.API_VERSIONS, 0)))
    return len(sock.recv(4)) == 4


def is_closed(sock: socket.socket) -> bool:
    """Return whether the server ends the connection, after its answers."""
    try:
        while sock.recv(65536):
            pass
    except ConnectionResetError:
        pass
    except TimeoutError:
        return False
    return True


@pytest.mark.parametrize("size", [0, -1, MAX_REQUEST_BYTES + 1, 2**31 - 1])
def test_invalid_request_size_ends_the_connection(endpoint: Running, size: int) -> None:
    with connected(endpoint) as sock:
        sock.sendall(struct.pack(">i", size))
        assert is_closed(sock)


def test_incomplete_request_ends_its_connection(narrow: Running) -> None:
    with connected(narrow) as sock, connected(narrow) as idle_sock:
        sock.sendall(struct.pack(">i", 100) + b"x")
        assert is_closed(sock)
        assert is_served(idle_sock)


def test_longest_idle_connection_makes_room_for_a_new_one(narrow: Running) -> None:
    oldest, silent, newest = (connected(narrow) for _ in range(3))
    assert is_served(oldest)
    time.sleep(0.2)
    assert is_served(newest)
    time.sleep(MIN_IDLE_S)
    with connected(narrow) as first_newcomer, connected(narrow) as second_newcomer:
        assert is_served(first_newcomer)
        assert is_closed(silent), "it never sent a request, so it goes first"
        assert is_served(second_newcomer)
        assert is_closed(oldest)
        assert is_served(newest)
    for sock in (oldest, silent, newest):
        sock.close()


def test_new_connection_is_closed_while_every_other_one_is_at_work(narrow: Running) -> None:
    narrow.log.topic("t", create=True)
    part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
    waits = {"max_wait": 20_000, "min_bytes": 1}
    fetch = framed(request(Api.FETCH, 12, **waits, topics=[{"topic": "t", "partitions": [part]}], replica_id=-1))
    socks = [connected(narrow) for _ in range(3)]
    for sock in socks:
        sock.sendall(fetch)
    time.sleep(MIN_IDLE_S + 0.2)
    with connected(narrow) as newcomer:
        assert is_closed(newcomer)
    narrow.api.topics.append(narrow.log.topic("t"), body([b"x"]), "http").result(20)
    for sock in socks:
        assert len(sock.recv(4)) == 4, "it is answered"
        sock.close()


def test_connections_without_a_request_do_not_displace_clients_at_work(narrow: Running) -> None:
    with connected(narrow) as client:
        assert is_served(client)
        time.sleep(MIN_IDLE_S)
        socks = []
        for _ in range(8):
            socks.append(connected(narrow))
            time.sleep(MIN_IDLE_S / 2)
        assert is_served(client)
        for sock in socks:
            sock.close()


def test_requests_are_answered_in_order(endpoint: Running) -> None:
    with connected(endpoint) as sock:
        sock.sendall(b"".join(framed(request(Api.API_VERSIONS, 0)) for _ in range(50)))
        stream = sock.makefile("rb")
        for _ in range(50):
            (size,) = struct.unpack(">i", stream.read(4))
            assert struct.unpack(">i", stream.read(size)[:4]) == (7,)


def test_client_that_does_not_receive_is_disconnected(narrow: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_flight_bytes, "MIN_BYTES_PER_S", 100 << 20)
    rows = body([b"x" * 4_000_000])
    narrow.api.topics.append(narrow.log.topic("t", create=True), rows, "http").result(20)
    part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 8_000_000}
    fetch = framed(
        request(Api.FETCH, 12, max_bytes=8_000_000, topics=[{"topic": "t", "partitions": [part]}], replica_id=-1)
    )
    with connected(narrow) as sock:
        sock.sendall(fetch * 8)
        time.sleep(1)
        with pytest.raises(ConnectionError):  # noqa: PT012
            while True:
                sock.sendall(fetch)
                time.sleep(0.01)
    with connected(narrow) as sock:
        assert is_served(sock)


def answer_of(sock: socket.socket, api: Api, version: int) -> Any:
    stream = sock.makefile("rb")
    (size,) = struct.unpack(">i", stream.read(4))
    message, _ = entity_reader(load_response_schema(api, version))(stream.read(size), 4)
    return message


def metadata(names: Iterable[str], *, create: bool = True) -> bytes:
    topics = tuple({"name": name} for name in names)
    return framed(request(Api.METADATA, 4, topics=topics, allow_auto_topic_creation=create))


def test_metadata_requests_create_a_limited_number_of_topics(endpoint: Running) -> None:
    with connected(endpoint) as sock:
        sock.settimeout(60)
        sock.sendall(metadata(f"t{number}" for number in range(300)))
        codes = Counter(topic.error_code for topic in answer_of(sock, Api.METADATA, 4).topics)
        assert codes[ErrorCode.none] == len(endpoint.log.names())
        assert CREATIONS_AT_ONCE <= codes[ErrorCode.none] < 200
        assert codes[ErrorCode.throttling_quota_exceeded] == 300 - codes[ErrorCode.none]
        sock.sendall(metadata(["t0", "t1"]))
        assert [topic.error_code for topic in answer_of(sock, Api.METADATA, 4).topics] == [ErrorCode.none] * 2


def test_creation_quota_refills_per_client() -> None:
    now = [100.0]
    quota = CreationQuota(lambda: now[0])
    assert [quota.use_one("a") for _ in range(CREATIONS_AT_ONCE + 1)] == [True] * CREATIONS_AT_ONCE + [False]
    assert quota.use_one("b")
    now[0] += 1 / CREATIONS_PER_S
    assert [quota.use_one("a"), quota.use_one("a")] == [True, False]


def test_metadata_of_60000_names_ends_its_connection_while_others_are_served(endpoint: Running) -> None:
    names = [f"topic-number-{number}" for number in range(60_000)]
    with connected(endpoint) as sock, connected(endpoint) as other_sock:
        sock.settimeout(30)
        sock.sendall(metadata(names))
        began = time.monotonic()
        assert is_served(other_sock)
        assert time.monotonic() - began < 10
        assert is_closed(sock)
    assert not endpoint.log.names()


def joined(sock: socket.socket, group: str, session_ms: int = 1000, metadata: bytes = b"") -> Any:
    protocol = {
        "group_id": group,
        "session_timeout": session_ms,
        "rebalance_timeout": 0,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": ({"name": "r", "metadata": metadata},),
    }
    sock.sendall(framed(request(Api.JOIN_GROUP, 1, **protocol)))
    return answer_of(sock, Api.JOIN_GROUP, 1)


@pytest.mark.parametrize("session_ms", [1000, 1_800_000])
def test_new_group_is_accepted_after_1000_groups(endpoint: Running, session_ms: int) -> None:
    with connected(endpoint) as sock:
        sock.settimeout(60)
        codes = {joined(sock, f"g{number}", session_ms).error_code for number in range(MAX_GROUPS + 3)}
        assert codes == {ErrorCode.none}
        assert joined(sock, "brand-new").error_code is ErrorCode.none


def test_large_groups_make_room_for_the_memory_of_a_new_one(endpoint: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "MAX_BYTES", 35_000)
    with connected(endpoint) as sock:
        assert joined(sock, "small", 60_000, bytes(100)).error_code is ErrorCode.none
        for number in range(5):
            assert joined(sock, f"g{number}", 60_000, bytes(10_000 - number)).error_code is ErrorCode.none
        sock.sendall(framed(request(Api.LIST_GROUPS, 0)))
        listed = {group.group_id for group in answer_of(sock, Api.LIST_GROUPS, 0).groups}
        assert listed == {"small", "g2", "g3", "g4"}, "the small group stays, although it was silent longest"


def test_refused_join_evicts_no_group(endpoint: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "MAX_GROUPS", 1)
    with connected(endpoint) as sock:
        assert joined(sock, "first", 60_000).error_code is ErrorCode.none
        assert joined(sock, "second", 1).error_code is ErrorCode.invalid_session_timeout
        assert joined(sock, "second", 60_000, bytes(1 << 20)).error_code is ErrorCode.invalid_request
        sock.sendall(framed(request(Api.LIST_GROUPS, 0)))
        assert [group.group_id for group in answer_of(sock, Api.LIST_GROUPS, 0).groups] == ["first"]


def test_members_that_are_gone_take_no_memory(endpoint: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "MAX_BYTES", 35_000)
    with connected(endpoint) as sock:
        for _ in range(2):  # the second one begins a rebalance, in which the first one does not join again
            assert joined(sock, "old", 60_000, bytes(15_000)).error_code is ErrorCode.none
        assert joined(sock, "new", 60_000, bytes(15_000)).error_code is ErrorCode.none
        sock.sendall(framed(request(Api.LIST_GROUPS, 0)))
        assert {group.group_id for group in answer_of(sock, Api.LIST_GROUPS, 0).groups} == {"old", "new"}


@pytest.mark.parametrize(
    ("name", "create", "code"),
    [
        ("UPPER-Store-0003-changelog", False, ErrorCode.unknown_topic_or_partition),
        ("UPPER-Store-0003-changelog", True, ErrorCode.invalid_topic_exception),
        ("no/name", False, ErrorCode.invalid_topic_exception),
        ("", False, ErrorCode.invalid_topic_exception),
        ("missing", False, ErrorCode.unknown_topic_or_partition),
    ],
)
def test_metadata_of_an_invalid_name_has_a_reason(endpoint: Running, name: str, create: bool, code: ErrorCode) -> None:
    with connected(endpoint) as sock:
        sock.sendall(metadata([name], create=create))
        assert [topic.error_code for topic in answer_of(sock, Api.METADATA, 4).topics] == [code]


def test_broker_settings_are_described(endpoint: Running) -> None:
    resource = {"resource_type": 4, "resource_name": "0", "configuration_keys": ("num.partitions", "no.such")}
    with connected(endpoint) as sock:
        sock.sendall(framed(request(Api.DESCRIBE_CONFIGS, 1, resources=(resource,))))
        (described,) = answer_of(sock, Api.DESCRIBE_CONFIGS, 1).results
    assert [(config.name, config.value) for config in described.configs] == [("num.partitions", "1")]
