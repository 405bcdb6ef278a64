"""Requests whose bytes no serializer writes, in the order and form that protobuf allows: protobuf's parser decides.

Each request is read twice: in the sent form, and in the form that protobuf writes after it parsed the request. Fields
come in any order, singular fields more than once, unknown fields between them, and numbers with more bytes than needed.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from penstock.records import as_batch
from penstock.wire.otlp.protocol import logs_of

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
TEXTS = (b"", b"a", b"k", "ö".encode(), b"b\0c", b"x" * 130)


class Encoder:
    """Encodes random messages of OTLP. ``random``: decides about everything."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def varint(self, number: int) -> bytes:
        number &= (1 << 64) - 1
        encoded = bytearray()
        while number > 127:
            encoded.append(number & 127 | 128)
            number >>= 7
        encoded.append(number)
        if len(encoded) < 9 and self._random.random() < 0.1:
            encoded[-1] |= 128
            encoded.append(0)
        return bytes(encoded)

    def field(self, number: int, kind: int, content: bytes) -> bytes:
        return self.varint(number << 3 | kind) + (self.varint(len(content)) if kind == BYTES else b"") + content

    def message(self, *fields: bytes) -> bytes:
        """Return the fields in a random order, sometimes with an unknown one."""
        unknown = [self.field(100, BYTES, b"?"), self.field(15, FIXED32, b"1234"), self.field(2000, VARINT, b"\1")]
        shuffled = [*fields, *self._random.choices(unknown, k=self._random.random() < 0.15)]
        self._random.shuffle(shuffled)
        return b"".join(shuffled)

    def repeat_field(self, number: int, content: Any, kind: int = BYTES, most: int = 2) -> bytes:
        """Return up to ``most`` fields of one number, each with new content."""
        return b"".join(self.field(number, kind, content()) for _ in range(self._random.randint(0, most)))

    def text(self) -> bytes:
        return self._random.choice(TEXTS)

    def integer(self) -> bytes:
        return self.varint(self._random.choice([0, 1, -1, 24, 300, -(1 << 63), (1 << 63) - 1]))

    def severity(self) -> bytes:
        return self.varint(self._random.choice([0, 9, 24, 300, -1]))

    def fixed64(self) -> bytes:
        return self._random.choice([bytes(8), bytes(7) + b"\x80", bytes(6) + b"\xf8\x7f", self._random.randbytes(8)])

    def any_value(self, depth: int = 0) -> bytes:
        members = [
            self.repeat_field(1, self.text),
            self.repeat_field(2, self.integer, VARINT),
            self.repeat_field(3, self.integer, VARINT),
            self.repeat_field(4, self.fixed64, FIXED64),
            self.repeat_field(7, self.text),
        ]
        if depth < 3:
            members.append(
                self.repeat_field(5, lambda: self.message(self.repeat_field(1, lambda: self.any_value(depth + 1))))
            )
            members.append(
                self.repeat_field(6, lambda: self.message(self.repeat_field(1, lambda: self.key_value(depth + 1))))
            )
        return self.message(*self._random.choices(members, k=self._random.randint(0, 3)))

    def key_value(self, depth: int = 0) -> bytes:
        return self.message(self.repeat_field(1, self.text), self.repeat_field(2, lambda: self.any_value(depth)))

    def record(self) -> bytes:
        return self.message(
            *(self.repeat_field(number, self.fixed64, FIXED64) for number in (1, 11)),
            *(self.repeat_field(number, self.text) for number in (3, 9, 10, 12)),
            self.repeat_field(2, self.severity, VARINT),
            self.repeat_field(5, self.any_value),
            self.repeat_field(6, self.key_value),
        )

    def scope_logs(self) -> bytes:
        def scope() -> bytes:
            return self.message(
                self.repeat_field(1, self.text), self.repeat_field(2, self.text), self.repeat_field(3, self.key_value)
            )

        return self.message(
            self.repeat_field(1, scope), self.repeat_field(2, self.record, most=3), self.repeat_field(3, self.text)
        )

    def resource_logs(self) -> bytes:
        return self.message(
            self.repeat_field(1, lambda: self.message(self.repeat_field(1, self.key_value))),
            self.repeat_field(2, self.scope_logs),
        )


def rows_of(data: bytes) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = as_batch(logs_of(data, 1 << 20).body).to_pylist()
    return rows


# Thousands of draws an example: by a seed alone they take a tenth of the CPU.
@given(st.randoms(use_true_random=True))
def test_request_is_read_as_protobuf_reads_it(random: Random) -> None:
    encoder = Encoder(random)
    sent = encoder.message(encoder.repeat_field(1, encoder.resource_logs))
    request = ExportLogsServiceRequest.FromString(sent)
    request.DiscardUnknownFields()
    assert rows_of(sent) == rows_of(request.SerializeToString())


def nested(number: int, content: bytes) -> bytes:
    return bytes((number << 3 | BYTES, len(content))) + content


NAMED, LIST = nested(1, b"a"), nested(5, nested(1, nested(1, b"b")))


@pytest.mark.parametrize(
    ("record", "payload", "annotations"),
    [
        (nested(5, NAMED) + nested(5, b""), b"a", []),
        (nested(5, LIST) + nested(5, LIST), b'["b","b"]', []),
        (nested(6, nested(2, NAMED) + nested(1, b"k") + nested(2, b"")), b"", [("attributes.k", "a")]),
    ],
)
def test_singular_message_that_occurs_twice_is_merged(
    record: bytes, payload: bytes, annotations: list[tuple[str, str]]
) -> None:
    scope = nested(1, nested(1, b"old")) + nested(1, nested(1, b"new")) + nested(2, record)
    (row,) = rows_of(nested(1, nested(2, scope)))
    assert row["payload"] == payload
    assert row["annotations"] == [*annotations, ("scope.name", "new")]
