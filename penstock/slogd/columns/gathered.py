"""Gathers the values of many entries: protobuf collects them itself, without a Python object per entry.

Protobuf merges a message field that occurs again into its earlier occurrence. A schema that declares ``logs`` as a
single message with repeated fields therefore reads the same bytes as columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessages

# proto2, because only it has required fields, whose presence IsInitialized verifies in C++.
_FILE = FileDescriptorProto(name="columns.proto", package="columns", syntax="proto2")
_OPTIONAL, _REPEATED, _REQUIRED = Field.LABEL_OPTIONAL, Field.LABEL_REPEATED, Field.LABEL_REQUIRED


def _add_message(name: str, **fields: tuple[int, Field.Label.ValueType, str]) -> None:
    """Add a message to the file: its fields are bytes, or another message of the file."""
    message = _FILE.message_type.add(name=name)
    for field, (number, label, kind) in fields.items():
        type_ = Field.TYPE_MESSAGE if kind else Field.TYPE_BYTES
        message.field.add(name=field, number=number, label=label, type=type_, type_name=kind or None)


_add_message("Pairs", key=(1, _REPEATED, ""), value=(2, _REPEATED, ""))
_add_message(
    "Columns",
    protobuf=(3, _REPEATED, ""),
    raw_bytes=(4, _REPEATED, ""),
    annotations=(5, _OPTIONAL, ".columns.Pairs"),
    key=(6, _REPEATED, ""),
)
_add_message("Merged", logs=(2, _OPTIONAL, ".columns.Columns"))
_add_message("Pair", key=(1, _REQUIRED, ""), value=(2, _REQUIRED, ""))
_add_message("Entry", raw_bytes=(4, _REQUIRED, ""), annotations=(5, _REPEATED, ".columns.Pair"))
_add_message("Checked", logs=(2, _REPEATED, ".columns.Entry"))
_MESSAGE_CLASSES: dict[str, Any] = GetMessages([_FILE], pool=DescriptorPool())
_MERGED, _CHECKED = _MESSAGE_CLASSES["columns.Merged"], _MESSAGE_CLASSES["columns.Checked"]


@dataclass(frozen=True, slots=True)
class GatheredValues:
    """The payload of each entry, and names and values of all annotations (UTF-8), in the order of the entries."""

    payloads: list[bytes]
    names: list[bytes]
    texts: list[bytes]


def gather_values(data: bytes, entries: int) -> GatheredValues | None:
    """Gather the values of an AppendRequest or GetLogsResponse with ``entries`` entries.

    Return None if an entry has another stored field, no raw bytes, or several; or if an annotation has no name or no
    value. A name or value that occurs twice in an annotation is gathered twice: there are as many ``names`` as
    annotations (each entry has different ones), or more.
    """
    columns = _MERGED.FromString(data).logs
    if columns.key or columns.protobuf or len(columns.raw_bytes) != entries:
        return None
    # Invariant: as many payloads as entries, and no entry without a payload, so each entry has exactly one.
    if not _CHECKED.FromString(data).IsInitialized():
        return None
    pairs = columns.annotations
    return GatheredValues(list(columns.raw_bytes), list(pairs.key), list(pairs.value))
