"""Load in fragments: exact messages, exact counts."""

from __future__ import annotations

import socket
import time
from collections import Counter
from typing import Any

import pytest

from penstock.cli.listener import load
from penstock.cli.listener.load import BURST_S, Stress, StressSettings
from penstock.client.sender import udp_socket
from penstock.wire.datagrams import Datagrams
from penstock.wire.plog.codec import PlogDecoder


def stressed(**settings: Any) -> tuple[list[tuple[bytes, int]], Counter[str]]:
    """Return all received datagrams with their port, and the counts of the load."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        sock.bind(("127.0.0.1", 0))
        stress = Stress(sock.getsockname(), StressSettings(**settings))
        stress.start()
        assert stress.wait(60)
        assert stress.error is None
        sock.setblocking(False)
        arrived = []
        while len(arrived) < stress.counts["datagrams"]:
            data, (_, port) = sock.recvfrom(65_535)
            arrived.append((data, port))
        return arrived, Counter(stress.counts)


def decoded(arrived: list[tuple[bytes, int]]) -> tuple[Counter[int], PlogDecoder]:
    """Messages by size, and the decoder."""
    decoder = PlogDecoder()
    datagrams = Datagrams.from_bytes([data for data, _ in arrived], ports=[port for _, port in arrived])
    body = decoder.decode(datagrams, 0.0).body
    return Counter(len(payload) for payload in body["payload"].to_pylist()), decoder


def test_load_sends_whole_messages_of_the_configured_sizes() -> None:
    arrived, counts = stressed(
        rate=0, stop_after=120, min_size=10, max_size=3000, size_increments=500, size_exponent=1.0, packet_size=524
    )
    sizes, decoder = decoded(arrived)
    assert set(sizes) == {10, 510, 1010, 1510, 2010, 2510}
    assert sizes.total() == counts["messages"] == 120
    assert counts["bytes"] == sum(size * times for size, times in sizes.items())
    assert max(len(data) for data, _ in arrived) <= 524
    assert decoder.open_messages == 0
    assert decoder.statistics.holes_from_new_message == 0


def test_load_is_deterministic_for_a_seed() -> None:
    first, second = (stressed(rate=0, stop_after=50, seed=7)[0] for _ in range(2))
    assert [data for data, _ in first] == [data for data, _ in second]
    assert [data for data, _ in first] != [data for data, _ in stressed(rate=0, stop_after=50, seed=8)[0]]


def test_withheld_datagrams_are_counted() -> None:
    arrived, counts = stressed(rate=0, stop_after=200, min_size=1000, max_size=3000, loss=0.2, packet_size=524)
    assert 0.1 < counts["lost"] / (counts["lost"] + counts["datagrams"]) < 0.3
    assert decoded(arrived)[0].total() < 200


@pytest.mark.survives("datagrams", "flood")
def test_full_loss_is_counted() -> None:
    arrived, counts = stressed(rate=0, stop_after=20, loss=1.0, max_size=200)
    assert (arrived, counts["datagrams"], counts["lost"], counts["messages"]) == ([], 0, 20, 20)


def test_each_thread_renews_its_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[socket.socket] = []

    def open_and_keep(*address: Any) -> socket.socket:
        sock = udp_socket(*address)
        opened.append(sock.dup())  # keeps the port, which the kernel could give to the next socket
        return sock

    monkeypatch.setattr(load, "udp_socket", open_and_keep)
    arrived, counts = stressed(rate=0, threads=2, stop_after=30, renew_rate=10, max_size=200)
    for sock in opened:
        sock.close()
    assert counts["sockets"] == 6
    assert counts["messages"] == 60
    assert len({port for _, port in arrived}) == 6


def test_load_keeps_the_rate() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        stress = Stress(sock.getsockname(), StressSettings(rate=1000, stop_after=1_000_000))
        began = time.monotonic()
        stress.start()
        assert not stress.wait(0.5)
        stress.stop()
        assert stress.wait(60)
        seconds = time.monotonic() - began
        assert 0 < stress.counts["messages"] < 1000 * (seconds + 2 * BURST_S)


@pytest.mark.parametrize(
    "wrong",
    [{"threads": 0}, {"loss": 1.5}, {"packet_size": 24}, {"min_size": 9000}, {"max_size": 1 << 30, "packet_size": 100}],
)
def test_settings_without_load_are_rejected(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"at least|from|fragments"):
        StressSettings(**wrong)


def test_load_without_a_listener_succeeds() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        address = free.getsockname()
    stress = Stress(address, StressSettings(rate=0, stop_after=100))
    stress.start()
    assert stress.wait(30)
    assert (stress.error, stress.counts["messages"]) == (None, 100)
