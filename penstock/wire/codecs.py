"""Codecs by name: factory of the decoder, and properties that others need without loading it.

A codec of Penstock is a file or a folder of this room and an entry in ``CODECS``; users' codecs are entry points (see
``own_codec``). This module imports neither numpy nor Arrow: the supervisor uses it, and decoders load them later.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from penstock.wire.growth import FIELDS, MAX_GROWTH_BYTES

if TYPE_CHECKING:
    from penstock.wire.forward.splitter import ForwardSplitter
    from penstock.wire.framing.lines import Framing

NONCE_SIZE = 16
ENTRY_POINTS = "penstock.codecs"
"""Group of entry points for users' codecs."""


@dataclass(frozen=True, slots=True)
class CodecEntry:
    """A codec's factory and properties.

    ``decoder``: makes the decoder from a listener's settings. ``growth``: bytes by which a message's annotations may
    exceed the text they came from. ``framing``: default framing on TCP. ``reserves``: lines that begin with a NUL are
    commands. ``keeps_empty``: an empty line is a message, as in plog. ``splitters``: makes the factory of a
    listener's parsers of connections whose messages are not lines and whose senders are answered
    (``forward.splitter``).
    """

    decoder: Callable[[Any], Any]
    growth: int = 0
    framing: Framing = "lf"
    reserves: bool = False
    keeps_empty: bool = False
    splitters: Callable[[Any], Callable[[], ForwardSplitter]] | None = None


def _plog(listener: Any) -> Any:
    from penstock.wire.plog.codec import PlogDecoder, PlogSettings
    from penstock.wire.plog.holes import HoleSettings

    defrag = listener.defrag
    holes = HoleSettings(**dict(defrag.detect_holes))
    return PlogDecoder(PlogSettings(max_size=defrag.max_size, expire_time=defrag.expire_time, holes=holes))


def _syslog(listener: Any) -> Any:
    return _class("penstock.wire.syslog.codec", "SyslogDecoder")(listener.zone, is_local=listener.is_local)


def _gelf(listener: Any) -> Any:
    return _class("penstock.wire.gelf.codec", "GelfDecoder")(listener.defrag.max_size, listener.defrag.expire_time)


def _forward(listener: Any) -> Any:
    return _class("penstock.wire.forward.codec", "ForwardDecoder")()


def _forward_splitters(listener: Any) -> Callable[[], ForwardSplitter]:
    from penstock.wire.forward.handshake import Handshake
    from penstock.wire.forward.splitter import ForwardSplitter, RequestMemory

    key = listener.shared_key
    max_request_bytes = min(listener.max_body, listener.max_unfinished)
    memory = RequestMemory(max_request_bytes)

    def make_splitter() -> ForwardSplitter:
        # Workaround: Fluentd refuses a server that presents Fluentd's own host name, hence the prefix.
        handshake = Handshake(key, f"penstock-{socket.gethostname()}", os.urandom(NONCE_SIZE)) if key else None
        return ForwardSplitter(listener.max_line, max_request_bytes, handshake, listener.max_messages, memory)

    return make_splitter


def _raw(listener: Any) -> Any:
    return _class("penstock.wire.raw", "RawDecoder")()


CODECS = {
    "plog": CodecEntry(_plog, MAX_GROWTH_BYTES, reserves=True, keeps_empty=True),
    "syslog": CodecEntry(_syslog, len(FIELDS) * MAX_GROWTH_BYTES, "auto"),
    "gelf": CodecEntry(_gelf, framing="auto"),
    "forward": CodecEntry(_forward, splitters=_forward_splitters),
    "raw": CodecEntry(_raw),
}


@cache
def codec_of(name: str) -> CodecEntry:
    """Return the codec of a name that the configuration allows."""
    if name in CODECS:
        return CODECS[name]
    from importlib.metadata import entry_points  # some megabytes that most processes never need

    (entry, *_) = entry_points(group=ENTRY_POINTS, name=name)
    codec_class = entry.load()
    return CodecEntry(
        lambda _: _class("penstock.wire.own_codec", "OwnDecoder")(codec_class()),
        framing=getattr(codec_class, "framing", "lf"),
    )


def _class(module: str, name: str) -> Any:
    return getattr(import_module(module), name)
