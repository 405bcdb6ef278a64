"""Listeners by name, and plog's commands to them: PING, STAT, ENVI and KILL (plog's README, "Packet type 00").

Start at ``find_listener``; ``CommandConnection`` sends a command as a datagram or as a line.
"""

from __future__ import annotations

import socket
from typing import Literal

from penstock.cli.common import fail
from penstock.client.sender import udp_socket
from penstock.config import ListenerConfig, Settings
from penstock.errors import PenstockError
from penstock.supervise.endpoints import endpoints
from penstock.wire.plog.commands import PREFIX, VERBS

LOOPBACK_OF = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}
"""Address to connect to for a listener on all interfaces."""
Protocol = Literal["udp", "tcp"]
MAX_ANSWER_BYTES = 1 << 20
"""Limit: an answer by TCP, which has no length; the largest STAT is a few kilobytes."""
MAX_DATAGRAM_BYTES = 65_535


def find_listener(settings: Settings, name: str | None) -> ListenerConfig:
    """Return the listener called ``name``, or the first one that takes datagrams or lines; or end the command."""
    matches = [each for each in settings.listener if each.name == name or (name is None and _takes_from_networks(each))]
    if not matches:
        names = ", ".join(listener.name for listener in settings.listener)
        if not names:
            fail("no listener is configured; add a [[listener]] to the configuration", 2)
        if name is None:
            fail(f"no listener takes datagrams or lines; the configured ones take requests: {names}", 2)
        fail(f"no listener is named {name!r}; configured are {names}", 2)
    if matches[0].has_responses:
        protocol = matches[0].protocol
        fail(f"listener {name!r} takes requests ({protocol}), no commands and no lines: see docs/requests.md", 2)
    if matches[0].is_local:
        fail(f"listener {name!r} is a local socket: send to it with `logger -u {matches[0].path} TEXT`", 2)
    return matches[0]


def _takes_from_networks(listener: ListenerConfig) -> bool:
    return not listener.has_responses and not listener.is_local


def send_address(settings: Settings, listener: ListenerConfig) -> tuple[str, int]:
    """Return the host and port to send to, or end the command if they are unknown.

    The running receiver's address comes first: a listener with port 0 has a free port that only the receiver knows.
    """
    host, port = listener.host, listener.port
    try:
        host, port = endpoints(settings.data_dir)["listeners"][listener.name]
    except (ValueError, KeyError, TypeError):
        if not port:
            fail(f"listener {listener.name!r} has port 0 and no penstock is running in {settings.data_dir}", 2)
    return LOOPBACK_OF.get(host, host), int(port)


class NoAnswer(PenstockError, OSError):
    """A listener did not answer; the text has its address."""


class CommandConnection:
    """A socket to one listener, for plog's commands. Raises NoAnswer if the listener is unreachable."""

    def __init__(self, host: str, port: int, protocol: Protocol = "udp", timeout: float = 2.0) -> None:
        self._address, self._protocol, self._timeout = f"{protocol} {host}:{port}", protocol, timeout
        try:
            self._sock = (
                udp_socket(host, port) if protocol == "udp" else socket.create_connection((host, port), timeout)
            )
        except OSError as error:
            raise self._unreachable(error) from None
        self._sock.settimeout(timeout)

    def send(self, verb: str, trail: bytes = b"") -> None:
        """Send a command without waiting for an answer. Raises ValueError for an invalid command, NoAnswer."""
        if verb.upper() not in VERBS:
            raise ValueError(f"{verb!r} is not a command; commands are {', '.join(sorted(VERBS))}")
        if self._protocol == "tcp" and b"\n" in trail:
            raise ValueError("a command sent as a line cannot contain a newline")
        end = b"\n" if self._protocol == "tcp" else b""
        try:
            self._sock.sendall(PREFIX + verb.encode() + trail + end)
        except OSError as error:
            raise self._unreachable(error) from None

    def request(self, verb: str, trail: bytes = b"") -> bytes:
        """Send a command and return its answer. Raises ValueError for an invalid command, NoAnswer.

        A listener does not answer if ``commands_from`` excludes this host, and never to KILL.
        """
        self.send(verb, trail)
        try:
            return self._sock.recv(MAX_DATAGRAM_BYTES) if self._protocol == "udp" else self._read_line()
        except TimeoutError:
            raise NoAnswer(
                f"no answer from {self._address} within {self._timeout:g} s: the listener is not running, "
                "or commands_from excludes this host"
            ) from None
        except OSError as error:
            raise self._unreachable(error) from None

    def _read_line(self) -> bytes:
        line = bytearray()
        while not line.endswith(b"\n"):
            chunk = self._sock.recv(MAX_DATAGRAM_BYTES)
            if not chunk or len(line) > MAX_ANSWER_BYTES:
                raise NoAnswer(f"{self._address} closed the connection without an answer")
            line += chunk
        return bytes(line[:-1])

    def _unreachable(self, error: OSError) -> NoAnswer:
        return error if isinstance(error, NoAnswer) else NoAnswer(f"{self._address}: {error.strerror or error}")

    def close(self) -> None:
        """Close the socket."""
        self._sock.close()
