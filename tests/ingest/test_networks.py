"""Permitted senders: a single address, and all senders of a round at once."""

from __future__ import annotations

import socket
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.config import ListenerConfig
from penstock.ingest.networks import Networks, networks_of
from penstock.ingest.slots import SENDER, Slots

V4 = st.ip_addresses(v=4)
MAPPED = V4.map(lambda address: IPv6Address(f"::ffff:{address}"))
NETWORKS = st.lists(
    st.sampled_from(["10.0.0.0/8", "192.168.1.7/32", "0.0.0.0/0", "::/0", "fe80::/10", "::1", "2001:db8::/33"]),
    min_size=1,
    max_size=3,
)
ADDRESSES = [
    "10.1.2.3",
    "192.168.1.7",
    "192.168.1.8",
    "::1",
    "fe80::1",
    "2001:db8::1",
    "2001:db8:8000::1",
    "::ffff:10.1.2.3",
]


def make_networks(networks: list[str]) -> Networks:
    return networks_of(ListenerConfig.model_validate({"name": "some", "protocol": "udp", "allow_from": networks}))


def columns(addresses: list[IPv4Address] | list[IPv6Address], family: int) -> np.ndarray:
    """Return addresses as the columns of a round."""
    names = np.zeros(len(addresses), SENDER)
    names["family"] = family
    for name, address in zip(names, addresses, strict=True):
        if family == socket.AF_INET:
            name["ipv4"] = int(address)
        else:
            name["ipv6"] = np.frombuffer(address.packed, np.uint8)
    return names


@pytest.mark.parametrize(
    ("address", "inside"),
    [
        ("10.1.2.3", True),
        ("11.1.2.3", False),
        ("::ffff:10.1.2.3", True),
        ("::1", False),
        ("", False),
        ("fe80::1%eth0", False),
    ],
)
def test_networks(address: str, inside: bool) -> None:
    assert make_networks(["10.0.0.0/8"]).contain(address) is inside
    assert make_networks([]).contain(address)


@given(st.lists(V4 | st.sampled_from(ADDRESSES[:3]).map(IPv4Address), max_size=8), NETWORKS)
def test_round_of_ipv4_equals_single_tests(addresses: list[IPv4Address], networks: list[str]) -> None:
    permitted = make_networks(networks)
    assert permitted.contain_each(columns(addresses, socket.AF_INET)).tolist() == [
        permitted.contain(str(a)) for a in addresses
    ]


@given(st.lists(st.ip_addresses(v=6) | MAPPED | st.sampled_from(ADDRESSES[3:]).map(IPv6Address), max_size=8), NETWORKS)
def test_round_of_ipv6_equals_single_tests(addresses: list[IPv6Address], networks: list[str]) -> None:
    permitted = make_networks(networks)
    assert permitted.contain_each(columns(addresses, socket.AF_INET6)).tolist() == [
        permitted.contain(str(a)) for a in addresses
    ]


def test_dual_stack_socket_judges_the_sender_address(tmp_path: Path) -> None:
    slots = Slots(tmp_path / "slots", 4)
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as sock, socket.socket(type=socket.SOCK_DGRAM) as sender:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        sock.bind(("::", 0))
        sender.sendto(b"by IPv4", ("127.0.0.1", sock.getsockname()[1]))
        assert slots.receive(sock, 0) == 1
    assert ip_address(slots.sender(0)[0]) == IPv6Address("::ffff:127.0.0.1")
    assert make_networks(["127.0.0.0/8"]).contain_each(slots.senders(0, 1)).tolist() == [True]
    assert make_networks(["::/0"]).contain_each(slots.senders(0, 1)).tolist() == [False]
