"""Answers to plog's commands, and the networks that may send them."""

from __future__ import annotations

import ipaddress
import json
import os
import signal
import time
from collections.abc import Callable, Mapping
from typing import Any

from penstock import __version__
from penstock.config import ListenerConfig, masked
from penstock.ingest.handler_statistics import StatisticsReader, with_handlers


class Commands:
    """Handler of PING, STAT, ENVI and KILL of one listener (plog's README, "Packet type 00: commands").

    ``statistics`` returns the listener's statistics under plog's keys, ``handlers`` the statistics of its handlers.
    """

    def __init__(
        self, listener: ListenerConfig, statistics: Callable[[], Mapping[str, Any]], handlers: StatisticsReader
    ) -> None:
        self._listener = listener
        self._statistics, self._handlers = statistics, handlers
        self._networks = [ipaddress.ip_network(network) for network in listener.commands_from]
        self._started = time.monotonic()

    def is_allowed(self, address: str) -> bool:
        """Report whether the sender at ``address`` may send commands; local senders, without an address, may not."""
        if not address:
            return False
        sender = ipaddress.ip_address(address.partition("%")[0])
        # A dual-stack socket reports IPv4 senders as mapped IPv6 addresses.
        mapped = getattr(sender, "ipv4_mapped", None) or sender
        return any(mapped in network for network in self._networks if network.version == mapped.version)

    def answer(self, verb: str, trail: bytes, unanswered: int = 0) -> bytes | None:
        """Return the reply, or None for no reply. KILL, if enabled, does not return.

        ``unanswered``: counted commands without an answer yet, including this one: as in plog, STAT does not count
        itself.
        """
        if verb == "PING":
            return b"PONG" + trail
        if verb == "STAT":
            return json.dumps(self.stat(unanswered)).encode()
        if verb == "ENVI":
            return json.dumps(masked(self._listener)).encode()
        if verb == "KILL" and self._listener.kill:
            # Crash: like any kill; the slots and the log buffer keep what was received.
            os.kill(os.getpid(), signal.SIGKILL)
        return None

    def stat(self, unanswered: int = 0) -> dict[str, Any]:
        """Return the statistics of this listener, with plog's keys."""
        uptime = int((time.monotonic() - self._started) * 1000)
        statistics = with_handlers(self._statistics(), self._handlers())
        statistics["v0_commands"] -= unanswered
        return {"version": __version__, "uptime": uptime, **statistics}
