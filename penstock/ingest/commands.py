"""Answers to plog's commands, and who may send them."""

from __future__ import annotations

import ipaddress
import json
import os
import signal
import time
from collections.abc import Callable, Mapping
from typing import Any

from penstock import __version__
from penstock.config import ListenerConfig


class Commands:
    """PING, STAT, ENVI and KILL for one listener (seed: plog, "Packet type 00: commands")."""

    def __init__(self, listener: ListenerConfig, statistics: Callable[[], Mapping[str, Any]]) -> None:
        self._listener = listener
        self._statistics = statistics
        self._networks = [ipaddress.ip_network(network) for network in listener.commands_from]
        self._started = time.monotonic()

    def allowed(self, address: str) -> bool:
        """Whether the sender at ``address`` may send commands."""
        sender = ipaddress.ip_address(address.partition("%")[0])
        mapped = getattr(sender, "ipv4_mapped", None) or sender
        return any(mapped in network for network in self._networks if network.version == mapped.version)

    def answer(self, verb: str, trail: bytes) -> bytes | None:
        """What to send back; None for nothing. KILL, where obeyed, does not return."""
        if verb == "PING":
            return b"PONG" + trail
        if verb == "STAT":
            return json.dumps(self.stat()).encode()
        if verb == "ENVI":
            return self._listener.model_dump_json(indent=1).encode()
        if verb == "KILL" and self._listener.kill:
            os.kill(os.getpid(), signal.SIGKILL)
        return None

    def stat(self) -> dict[str, Any]:
        """The statistics of this listener, with plog's keys."""
        uptime = int((time.monotonic() - self._started) * 1000)
        handlers = [{"name": handler.type} for handler in self._listener.handlers]
        return {"version": __version__, "uptime": uptime, **self._statistics(), "handlers": handlers}
