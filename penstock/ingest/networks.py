"""Who may send: the networks of a listener's ``allow_from``, asked for one address or for a whole round's.

An address of IPv4 that comes by a socket of IPv6 (``::ffff:10.1.2.3``) is the one of IPv4, and in its networks alone.
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
"""Between the zeros and the address of IPv4."""


class Networks:
    """Some networks; where there are none, all addresses are in them."""

    def __init__(self, networks: Iterable[IPv4Network | IPv6Network]) -> None:
        self._all = list(networks)
        self._four = [(np.uint32(int(n.netmask)), np.uint32(int(n[0]))) for n in self._all if n.version == 4]
        self._six = [(_halves(int(n.netmask)), _halves(int(n[0]))) for n in self._all if n.version == 6]

    def __bool__(self) -> bool:
        return bool(self._all)

    def have(self, address: str) -> bool:
        """Whether an address is in one of them."""
        if not self._all:
            return True
        try:
            known = ip_address(address.partition("%")[0])
        except ValueError:
            return False
        known = getattr(known, "ipv4_mapped", None) or known
        return any(known in network for network in self._all)

    def have_each(self, senders: npt.NDArray[np.void]) -> Flags:
        """Whether each sender's address is, in columns as ``Slots.senders`` gives them: those of one socket."""
        if not len(senders) or senders["family"][0] != socket.AF_INET6:
            return self._have_four(senders["ipv4"].astype(np.uint32))
        halves = np.ascontiguousarray(senders["ipv6"]).view(">u8").astype(np.uint64)
        high, low = halves[:, 0], halves[:, 1]
        mapped = (high == 0) & (low >> np.uint64(32) == _MAPPED)
        return np.where(mapped, self._have_four(low.astype(np.uint32)), self._have_six(high, low))

    def _have_four(self, addresses: npt.NDArray[np.uint32]) -> Flags:
        inside = np.zeros(len(addresses), np.bool_)
        for mask, first in self._four:
            inside |= addresses & mask == first
        return inside

    def _have_six(self, high: npt.NDArray[np.uint64], low: npt.NDArray[np.uint64]) -> Flags:
        inside = np.zeros(len(high), np.bool_)
        for mask, first in self._six:
            inside |= (high & mask[0] == first[0]) & (low & mask[1] == first[1])
        return inside


def networks_of(listener: ListenerConfig) -> Networks:
    """Those whose messages are taken."""
    return Networks(ip_network(network) for network in listener.allow_from)


def _halves(number: int) -> tuple[Any, Any]:
    return np.uint64(number >> 64), np.uint64(number & (1 << 64) - 1)
