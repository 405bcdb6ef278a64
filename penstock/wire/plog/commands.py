"""Commands of plog's protocol: packets of type 00 with four ASCII letters in any case, then a trail."""

from __future__ import annotations

from dataclasses import dataclass

VERBS = frozenset({"PING", "STAT", "ENVI", "KILL"})
PREFIX = b"\0\0"
_VERB_LENGTH = 4


@dataclass(frozen=True, slots=True)
class Command:
    """A known command: ``index`` of its datagram or line, ``verb`` in capitals, ``trail`` as received."""

    index: int
    verb: str
    trail: bytes


def parse_command(index: int, packet: bytes) -> Command | None:
    """Return the command in ``packet`` (version and type included), or None if the verb is unknown."""
    end = len(PREFIX) + _VERB_LENGTH
    verb = packet[len(PREFIX) : end].decode("latin-1").upper()
    return Command(index, verb, packet[end:]) if packet.startswith(PREFIX) and verb in VERBS else None
