"""The same calls to the real Aeron and to Penstock, step by step; both describe each outcome in one line."""

from __future__ import annotations

import subprocess
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from penstock.logbuffer import Frame, MessageTooLarge, Parameters, Refused, Subscription
from penstock.logbuffer.aeron import Claim, Cleaning, ExclusivePublication, FragmentAssembler, Image
from penstock.logbuffer.descriptor import HEADER_DTYPE, Kind, int32
from tests.logbuffer.logbuffer_aeron import FLAGS, class_path, java, stop


@dataclass(frozen=True)
class Setting:
    """A stream: the parameters of its channel and of its log buffer's metadata."""

    term_length: int
    mtu: int
    session_id: int
    stream_id: int
    initial_term_id: int
    position: int
    kind: Kind
    window: int
    sparse: bool
    endpoint: str = ""
    """Endpoint of a UDP stream."""

    @property
    def subscribed(self) -> str:
        return f"aeron:udp?endpoint={self.endpoint}" if self.endpoint else "aeron:ipc"

    @property
    def channel(self) -> str:
        count, offset = divmod(self.position, self.term_length)
        words = [f"term-length={self.term_length}", f"mtu={self.mtu}", f"session-id={self.session_id}"]
        words += [f"init-term-id={self.initial_term_id}", f"term-id={int32(self.initial_term_id + count)}"]
        words += [f"term-offset={offset}", f"sparse={str(self.sparse).lower()}"]
        words += [f"pub-wnd={self.window}"] if self.window else []
        return self.subscribed + "?|"[bool(self.endpoint)] + "|".join(words)


class Real:
    """A media driver and a client that execute the words of AeronScript.java."""

    def __init__(self, folder: Path) -> None:
        command = [java(), *FLAGS, "-cp", class_path(), "AeronScript", str(folder)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._answer() == "ready"

    def __call__(self, *words: object) -> str:
        assert self._process.stdin is not None
        print(*words, file=self._process.stdin, flush=True)
        return self._answer()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line.endswith("\n"), "the real Aeron is gone"
        return line[:-1]

    def stop(self) -> None:
        stop(self._process)


class Ours:
    """A publication of Penstock with subscribers that execute the same words."""

    def __init__(self, path: Path, setting: Setting, correlation_id: int) -> None:
        self.path = path
        self.setting = setting
        parameters = Parameters(
            term_length=setting.term_length,
            mtu=setting.mtu,
            session_id=setting.session_id,
            stream_id=setting.stream_id,
            initial_term_id=setting.initial_term_id,
            kind=setting.kind,
            window=setting.window,
            sparse=setting.sparse,
            correlation_id=correlation_id,
        )
        self.publication = ExclusivePublication.create(
            path,
            parameters,
            position=setting.position,
            cleaning=Cleaning.LAGGING if setting.endpoint else Cleaning.CONSUMED,
            connected=False,
        )
        self.joining = setting.position
        self.subscriptions: list[Image] = []
        self.assemblers: dict[int, FragmentAssembler] = {}
        self.claimed: Claim | None = None

    def __call__(self, verb: str, *words: Any) -> str:
        try:
            return str(getattr(self, verb)(*words))
        except Refused as refused:
            return str(refused.code)
        except MessageTooLarge as error:
            return f"refused {error}"
        except ValueError as error:
            return f"refused {error}"

    # Readers

    def positions(self) -> list[int]:
        return [subscription.position for subscription in self.subscriptions]

    def subscribe(self, *_: object) -> str:
        joining = min([self.joining, *self.positions()])
        self.subscriptions.append(Image(self.path, joining))
        self.publication.connected = True
        self.turn()
        return str(joining)

    def unsubscribe(self, number: int) -> str:
        self.assemblers.clear()
        self.subscriptions.pop(number).close()
        return self.turn()

    def turn(self) -> str:
        self.joining = max([self.joining, *self.positions()])
        if self.subscriptions:
            self.publication.consumed(min(self.positions()))
        else:
            self.publication.disconnect(self.joining)
        return "turned"

    def poll(self, number: int, limit: int) -> str:
        subscription = self.subscriptions[number]
        return describe_frames(subscription, subscription.poll(limit_frames=limit))

    def assemble(self, number: int, limit: int) -> str:
        subscription = self.subscriptions[number]
        assembler = self.assemblers.setdefault(number, FragmentAssembler())
        return describe_frames(subscription, assembler.push(subscription.poll(limit_frames=limit)))

    def block_poll(self, number: int, limit: int) -> str:
        subscription = self.subscriptions[number]
        block = subscription.block_poll(limit)
        data = block.data if block else b""
        return f"{subscription.position} {len(data)} {zlib.crc32(data)}"

    # The writer

    def offer(self, number: int, length: int, reserved: int) -> int:
        return self.publication.offer(message(number, length), reserved)

    def vector(self, number: int, reserved: int, *lengths: int) -> int:
        payload, ends = memoryview(message(number, sum(lengths))), np.cumsum(lengths)
        parts = [payload[end - length : end] for end, length in zip(ends, lengths, strict=True)]
        return self.publication.offer(parts, reserved)

    def claim(self, length: int) -> int:
        self.claimed = self.publication.try_claim(length)
        return self.claimed.position

    def commit(self, number: int, reserved: int) -> str:
        self._filled(number, reserved).commit()
        return "ended"

    def abort(self, number: int, reserved: int) -> str:
        self._filled(number, reserved).abort()
        return "ended"

    def _filled(self, number: int, reserved: int) -> Claim:
        claim, self.claimed = self.claimed, None
        assert claim is not None
        claim.data[:] = message(number, len(claim.data))
        if reserved:
            claim.set_reserved_value(reserved)
        return claim

    def pad(self, length: int) -> int:
        return self.publication.append_padding(length)

    def block(self, data: str) -> int:
        return self.publication.offer_block(bytes.fromhex(data))

    def state(self) -> str:
        return f"{self.publication.position} {self.publication.position_limit}"

    def end(self) -> str:
        self.publication.end_of_stream()
        return "ended"

    def close(self) -> None:
        for subscription in self.subscriptions:
            subscription.close()
        self.publication.close()


def describe_frames(subscription: Subscription, frames: Sequence[Frame]) -> str:
    words = [f"{len(f.data)},{f.flags},{f.end},{f.reserved_value},{zlib.crc32(f.data)}" for f in frames]
    return " ".join([str(subscription.position), *words])


def message(number: int, length: int) -> bytes:
    return (number * 131 + np.arange(length) * (1 + number % 7)).astype(np.uint8).tobytes()


def block_for(ours: Ours, lengths: Sequence[int], number: int) -> str:
    """Return hexadecimal frames that fit at the tail, the third of them sometimes padding."""
    s = ours.setting
    count, offset = divmod(ours.publication.position, s.term_length)
    frames = b""
    for index, length in enumerate(lengths):
        header = np.zeros(1, HEADER_DTYPE)
        kind = int(index != 2 or number % 2)
        fields = (s.session_id, s.stream_id, int32(s.initial_term_id + count), number)
        header[0] = (length + 32, 0, 0xC0, kind, offset + len(frames), *fields)
        frames += header.tobytes() + message(number + index, length) + bytes(-length % 32)
    return frames.hex()
