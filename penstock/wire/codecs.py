"""The codecs by their names: what makes their decoders, and what is to be known of them besides.

A codec of Penstock is a file, or a folder, of this room, and an entry here; others are entry points
(``own_codec``). Without numpy and Arrow, which decoders bring: the supervisor asks.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from penstock.wire.growth import FIELDS, MOST_GROWTH

if TYPE_CHECKING:
    from penstock.wire.forward.splitter import ForwardSplitter
    from penstock.wire.lines import Framing

NONCE_SIZE = 16
ENTRY_POINTS = "penstock.codecs"
"""The group of entry points that others' codecs are in."""


@dataclass(frozen=True, slots=True)
class CodecEntry:
    """``decoder``: makes one of a listener's settings. ``growth``: bytes by which a message's annotations may be longer
    than what they were taken from. ``framing``: what ends its messages on TCP, where nobody says it; ``reserves``:
    whether lines that begin with a NUL are commands; ``keeps_empty``: whether an empty line is a message, as plog has
    it. ``splitter``: makes what finds its messages in a connection, where
    these are no lines and senders are answered (``forward.splitter``).
    """

    decoder: Callable[[Any], Any]
    growth: int = 0
    framing: Framing = "lf"
    reserves: bool = False
    keeps_empty: bool = False
    splitter: Callable[[Any], ForwardSplitter] | None = None


def _plog(listener: Any) -> Any:
    from penstock.wire.plog.codec import PlogDecoder, PlogSettings
    from penstock.wire.plog.holes import HoleSettings

    defrag = listener.defrag
    holes = HoleSettings(**dict(defrag.detect_holes))
    return PlogDecoder(PlogSettings(max_size=defrag.max_size, expire_time=defrag.expire_time, holes=holes))


def _syslog(listener: Any) -> Any:
    return _class("penstock.wire.syslog.codec", "SyslogDecoder")(listener.zone)


def _gelf(listener: Any) -> Any:
    return _class("penstock.wire.gelf.codec", "GelfDecoder")(listener.defrag.max_size, listener.defrag.expire_time)


def _forward(listener: Any) -> Any:
    return _class("penstock.wire.forward.codec", "ForwardDecoder")()


def _forward_splitter(listener: Any) -> ForwardSplitter:
    from penstock.wire.forward.handshake import Handshake
    from penstock.wire.forward.splitter import ForwardSplitter

    key = listener.shared_key
    # Fluentd takes a server with its own host name for itself, and refuses it.
    handshake = Handshake(key, f"penstock-{socket.gethostname()}", os.urandom(NONCE_SIZE)) if key else None
    most = min(listener.max_body, listener.max_unfinished)
    return ForwardSplitter(listener.max_line, most, handshake, listener.max_messages)


def _raw(listener: Any) -> Any:
    return _class("penstock.wire.raw", "RawDecoder")()


CODECS = {
    "plog": CodecEntry(_plog, MOST_GROWTH, reserves=True, keeps_empty=True),
    "syslog": CodecEntry(_syslog, len(FIELDS) * MOST_GROWTH, "auto", reserves=True),
    "gelf": CodecEntry(_gelf, framing="nul"),
    "forward": CodecEntry(_forward, splitter=_forward_splitter),
    "raw": CodecEntry(_raw),
}


@cache
def codec_of(name: str) -> CodecEntry:
    """The codec of a name that the configuration allows."""
    if name in CODECS:
        return CODECS[name]
    from importlib.metadata import entry_points  # some megabytes that most processes do without

    (entry, *_) = entry_points(group=ENTRY_POINTS, name=name)
    own = entry.load()
    return CodecEntry(
        lambda _: _class("penstock.wire.own_codec", "OwnDecoder")(own()), framing=getattr(own, "framing", "lf")
    )


def _class(module: str, name: str) -> Any:
    return getattr(import_module(module), name)
