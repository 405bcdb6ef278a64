"""The values of many entries at once: protobuf itself gathers them, no Python object stands for an entry.

To protobuf a message field that is given again is merged into what was given before. So where the schema says that
``logs`` is one message whose fields are repeated, the same bytes are read as columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessages

_FILE = FileDescriptorProto(name="columns.proto", package="columns", syntax="proto2")
_ONE, _MANY, _NEEDED = Field.LABEL_OPTIONAL, Field.LABEL_REPEATED, Field.LABEL_REQUIRED


def _message(name: str, **fields: tuple[int, Field.Label.ValueType, str]) -> None:
    """Add a message to the file: fields of bytes, or of another message of it."""
    message = _FILE.message_type.add(name=name)
    for field, (number, label, kind) in fields.items():
        type_ = Field.TYPE_MESSAGE if kind else Field.TYPE_BYTES
        message.field.add(name=field, number=number, label=label, type=type_, type_name=kind or None)


_message("Pairs", key=(1, _MANY, ""), value=(2, _MANY, ""))
_message(
    "Columns",
    protobuf=(3, _MANY, ""),
    raw_bytes=(4, _MANY, ""),
    annotations=(5, _ONE, ".columns.Pairs"),
    key=(6, _MANY, ""),
)
_message("Merged", logs=(2, _ONE, ".columns.Columns"))
_message("Pair", key=(1, _NEEDED, ""), value=(2, _NEEDED, ""))
_message("Entry", raw_bytes=(4, _NEEDED, ""), annotations=(5, _MANY, ".columns.Pair"))
_message("Checked", logs=(2, _MANY, ".columns.Entry"))
_KINDS: dict[str, Any] = GetMessages([_FILE], pool=DescriptorPool())
_MERGED, _CHECKED = _KINDS["columns.Merged"], _KINDS["columns.Checked"]


@dataclass(frozen=True, slots=True)
class Gathered:
    """The payload of each entry, and names and values of all annotations (UTF-8), in the order of the entries."""

    payloads: list[bytes]
    names: list[bytes]
    texts: list[bytes]


def gathered(data: bytes, entries: int) -> Gathered | None:
    """The values in an AppendRequest or GetLogsResponse of so many ``entries``.

    None where an entry has anything else that is kept, no raw bytes, or has them twice; or where an annotation has no
    name or no value. One that has two of either is there twice: so ``names`` are as many as there are annotations
    (of which each entry has different ones), or more than that.
    """
    columns = _MERGED.FromString(data).logs
    if columns.key or columns.protobuf or len(columns.raw_bytes) != entries:
        return None
    # As many payloads as entries, and none of them without one: each has its own.
    if not _CHECKED.FromString(data).IsInitialized():
        return None
    pairs = columns.annotations
    return Gathered(list(columns.raw_bytes), list(pairs.key), list(pairs.value))
