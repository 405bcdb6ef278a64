"""Commands to a listener: PING, STAT, ENVI and KILL, by datagram or by line (seed: plog, "Packet type 00")."""

from __future__ import annotations

import socket
from typing import Literal

from penstock.client.sender import udp_socket
from penstock.errors import PenstockError
from penstock.wire.plog.commands import PREFIX, VERBS

Protocol = Literal["udp", "tcp"]
LARGEST_LINE = 1 << 20
"""Bytes of an answer by line at most."""


class NoAnswer(PenstockError, OSError):
    """Nobody answered; the text says who was asked."""


class Asking:
    """A socket to one listener, for commands. Raises NoAnswer where nobody listens."""

    def __init__(self, host: str, port: int, protocol: Protocol = "udp", timeout: float = 2.0) -> None:
        self._where, self._protocol, self._timeout = f"{protocol} {host}:{port}", protocol, timeout
        try:
            self._sock = (
                udp_socket(host, port) if protocol == "udp" else socket.create_connection((host, port), timeout)
            )
        except OSError as error:
            raise self._nobody(error) from None
        self._sock.settimeout(timeout)

    def tell(self, verb: str, trail: bytes = b"") -> None:
        """Send a command and wait for no answer. Raises ValueError for what is none, NoAnswer."""
        if verb.upper() not in VERBS:
            raise ValueError(f"{verb!r} is no command: known are {', '.join(sorted(VERBS))}")
        if self._protocol == "tcp" and b"\n" in trail:
            raise ValueError("a trail on a line holds no newline")
        end = b"\n" if self._protocol == "tcp" else b""
        try:
            self._sock.sendall(PREFIX + verb.encode() + trail + end)
        except OSError as error:
            raise self._nobody(error) from None

    def ask(self, verb: str, trail: bytes = b"") -> bytes:
        """The answer to a command. Raises ValueError for what is none, NoAnswer.

        There is none from a listener that takes no commands from here, and none to KILL ever.
        """
        self.tell(verb, trail)
        try:
            return self._sock.recv(65_535) if self._protocol == "udp" else self._line()
        except TimeoutError:
            raise NoAnswer(
                f"no answer from {self._where} within {self._timeout:g} s: nobody listens there, "
                "or it takes no commands from here (commands_from)"
            ) from None
        except OSError as error:
            raise self._nobody(error) from None

    def _line(self) -> bytes:
        line = bytearray()
        while not line.endswith(b"\n"):
            got = self._sock.recv(65_535)
            if not got or len(line) > LARGEST_LINE:
                raise NoAnswer(f"{self._where} ended the connection without an answer")
            line += got
        return bytes(line[:-1])

    def _nobody(self, error: OSError) -> NoAnswer:
        return error if isinstance(error, NoAnswer) else NoAnswer(f"{self._where}: {error.strerror or error}")

    def close(self) -> None:
        """Close the socket."""
        self._sock.close()
