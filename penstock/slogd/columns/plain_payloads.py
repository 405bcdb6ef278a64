"""The payloads of many plain entries at once: protobuf itself gathers them, no Python object stands for an entry.

To protobuf a message field that is given again is merged into what was given before. So where the schema says that
``logs`` is one message whose fields are repeated, the same bytes are read as columns.
"""

from __future__ import annotations

from typing import Any

from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessages

_FILE = FileDescriptorProto(name="columns.proto", package="columns", syntax="proto2")


def _message(name: str, label: Field.Label.ValueType, kind: str = "", **numbers: int) -> None:
    """Add a message to the file: fields of bytes, or of the message ``kind``."""
    message = _FILE.message_type.add(name=name)
    for field, number in numbers.items():
        type_ = Field.TYPE_MESSAGE if kind else Field.TYPE_BYTES
        message.field.add(name=field, number=number, label=label, type=type_, type_name=kind or None)


_message("Columns", Field.LABEL_REPEATED, protobuf=3, raw_bytes=4, annotations=5, key=6)
_message("Merged", Field.LABEL_OPTIONAL, ".columns.Columns", logs=2)
_message("Raw", Field.LABEL_REQUIRED, raw_bytes=4)
_message("Checked", Field.LABEL_REPEATED, ".columns.Raw", logs=2)
_KINDS: dict[str, Any] = GetMessages([_FILE], pool=DescriptorPool())
_MERGED, _CHECKED = _KINDS["columns.Merged"], _KINDS["columns.Checked"]


def plain_payloads(data: bytes, entries: int) -> list[bytes] | None:
    """The payloads of an AppendRequest or GetLogsResponse of so many ``entries``, one each.

    None where an entry has anything else that is kept, no raw bytes, or has them twice.
    """
    columns = _MERGED.FromString(data).logs
    if columns.annotations or columns.key or columns.protobuf or len(columns.raw_bytes) != entries:
        return None
    # As many payloads as entries, and none of them without one: each has its own.
    return list(columns.raw_bytes) if _CHECKED.FromString(data).IsInitialized() else None
