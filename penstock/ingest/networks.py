"""Source networks of a listener (``allow_from``): tests of one address, or of all senders of a round at once.

An IPv4 address received on an IPv6 socket (``::ffff:10.1.2.3``) counts as IPv4 only.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.config import ListenerConfig

Flags = npt.NDArray[np.bool_]
_MAPPED = 0xFFFF
"""Bits between the zeros and the IPv4 address of a mapped address."""


class Networks:
    """Set of networks; an empty set admits all addresses."""

    def __init__(self, networks: Iterable[IPv4Network | IPv6Network]) -> None:
        self._all = list(networks)
        self._ipv4 = [(np.uint32(int(n.netmask)), np.uint32(int(n[0]))) for n in self._all if n.version == 4]
        self._ipv6 = [(_halves(int(n.netmask)), _halves(int(n[0]))) for n in self._all if n.version == 6]

    def __bool__(self) -> bool:
        return bool(self._all)

    def contain(self, address: str) -> bool:
        """Report whether an address is in one of the networks."""
        if not self._all:
            return True
        try:
            parsed = ip_address(address.partition("%")[0])
        except ValueError:
            return False
        # A dual-stack socket reports IPv4 senders as mapped IPv6 addresses.
        parsed = getattr(parsed, "ipv4_mapped", None) or parsed
        return any(parsed in network for network in self._all)

    def contain_each(self, senders: npt.NDArray[np.void]) -> Flags:
        """Report for each sender whether it is in a network; ``senders`` as from ``Slots.senders`` of one socket."""
        # Fast path: the senders of a round are tested as columns; one socket has one address family.
        if not len(senders) or senders["family"][0] != socket.AF_INET6:
            return self._contain_ipv4(senders["ipv4"].astype(np.uint32))
        halves = np.ascontiguousarray(senders["ipv6"]).view(">u8").astype(np.uint64)
        high, low = halves[:, 0], halves[:, 1]
        mapped = (high == 0) & (low >> np.uint64(32) == _MAPPED)
        return np.where(mapped, self._contain_ipv4(low.astype(np.uint32)), self._contain_ipv6(high, low))

    def _contain_ipv4(self, addresses: npt.NDArray[np.uint32]) -> Flags:
        inside = np.zeros(len(addresses), np.bool_)
        for mask, first in self._ipv4:
            inside |= addresses & mask == first
        return inside

    def _contain_ipv6(self, high: npt.NDArray[np.uint64], low: npt.NDArray[np.uint64]) -> Flags:
        inside = np.zeros(len(high), np.bool_)
        for mask, first in self._ipv6:
            inside |= (high & mask[0] == first[0]) & (low & mask[1] == first[1])
        return inside


def networks_of(listener: ListenerConfig) -> Networks:
    """Return the networks whose messages a listener accepts."""
    return Networks(ip_network(network) for network in listener.allow_from)


def _halves(number: int) -> tuple[Any, Any]:
    return np.uint64(number >> 64), np.uint64(number & (1 << 64) - 1)
