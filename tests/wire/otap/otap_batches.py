"""Batches of OTAP for tests: the tables of an OTLP request as a sender of Arrow encodes them."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from penstock.wire.otap.streams import LOG_ATTRIBUTES, LOGS, RESOURCE_ATTRIBUTES, SCOPE_ATTRIBUTES, BatchArrowRecords

TEXT = pa.dictionary(pa.uint8(), pa.string())
VALUE = [("type", pa.uint8()), ("str", pa.dictionary(pa.uint16(), pa.string())), ("int", pa.int64())]
VALUE += [("double", pa.float64()), ("bool", pa.bool_()), ("bytes", pa.binary()), ("ser", pa.binary())]
VALUE_FIELDS = [pa.field(name, kind) for name, kind in VALUE]
BODY_FIELDS = [pa.field("str", pa.string()) if field.name == "str" else field for field in VALUE_FIELDS]
"""pyarrow makes indices of a dictionary invalid where the struct is null."""
CODES = {"string_value": (1, "str"), "int_value": (2, "int"), "double_value": (3, "double"), "bool_value": (4, "bool")}
CODES["bytes_value"] = (7, "bytes")
Row = dict[str, Any]


def tables_of(request: ExportLogsServiceRequest, *, plain: bool = False) -> dict[int, pa.RecordBatch]:
    """Return the tables of a request; ids are differences unless ``plain``."""
    rows, attributes = list[Row](), {RESOURCE_ATTRIBUTES: list[Row](), SCOPE_ATTRIBUTES: [], LOG_ATTRIBUTES: []}
    scope_id = -1
    for resource_id, resource_logs in enumerate(request.resource_logs):
        attributes[RESOURCE_ATTRIBUTES] += [attribute(resource_id, each) for each in resource_logs.resource.attributes]
        for scope_logs in resource_logs.scope_logs:
            scope_id += 1
            scope = scope_logs.scope
            attributes[SCOPE_ATTRIBUTES] += [attribute(scope_id, each) for each in scope.attributes]
            for log in scope_logs.log_records:
                attributes[LOG_ATTRIBUTES] += [attribute(len(rows), each) for each in log.attributes]
                rows.append(
                    {
                        "id": len(rows),
                        "resource": {"id": resource_id},
                        "scope": {"id": scope_id, "name": scope.name or None, "version": scope.version or None},
                        "time_unix_nano": log.time_unix_nano,
                        "observed_time_unix_nano": log.observed_time_unix_nano,
                        "trace_id": log.trace_id or None,
                        "span_id": log.span_id or None,
                        "severity_number": log.severity_number or None,
                        "severity_text": log.severity_text or None,
                        "event_name": log.event_name or None,
                        "body": value(log.body) if log.HasField("body") else None,
                        "dropped_attributes_count": log.dropped_attributes_count,
                        "flags": log.flags,
                    }
                )
    if not plain:
        differences(rows, "id")
        differences([row["resource"] for row in rows], "id")
        differences([row["scope"] for row in rows], "id")
    tables = {LOGS: pa.RecordBatch.from_pylist(rows, logs_schema(plain))}
    for kind, of_kind in attributes.items():
        # As senders sort: equal keys and values are neighbours, and their ids ascend.
        of_kind.sort(key=lambda row: (row["type"], row["key"], repr({**row, "parent_id": 0}), row["parent_id"]))
        if not plain:
            quasi_differences(of_kind)
        if of_kind:
            tables[kind] = pa.RecordBatch.from_pylist(of_kind, attributes_schema(plain))
    return tables


def attribute(parent_id: int, pair: Any) -> Row:
    """Return an attribute's row."""
    return {"parent_id": parent_id, "key": pair.key, **value(pair.value)}


def value(any_value: Any) -> Row:
    """Return the columns of an AnyValue."""
    kind = any_value.WhichOneof("value")
    if kind is None:
        return {"type": 0}
    code, column = CODES[kind]
    return {"type": code, column: getattr(any_value, kind)}


def differences(rows: Iterable[Row], name: str) -> None:
    """Replace ids by the differences from the row before."""
    before = 0
    for row in rows:
        row[name], before = (row[name] - before) % (1 << 16), row[name]


def quasi_differences(rows: Sequence[Row]) -> None:
    """Replace parent ids by differences where key, type and value equal the row before."""
    before: Row = {}
    for row in rows:
        encoded = {**row, "parent_id": 0}
        parent_id = row["parent_id"]
        is_value = any(row.get(column) is not None for _, column in CODES.values())
        is_nan = row.get("double") != row.get("double")
        if before and is_value and not is_nan and {**before, "parent_id": 0} == encoded:
            row["parent_id"] = parent_id - before["parent_id"]
        before = {**encoded, "parent_id": parent_id}


def id_field(name: str, plain: bool) -> pa.Field[Any]:
    """Return a field of ids."""
    return pa.field(name, pa.uint16(), metadata={"encoding": "plain"} if plain else None)


def logs_schema(plain: bool = False) -> pa.Schema:
    """Return the schema of LOGS."""
    scope = [id_field("id", plain), pa.field("name", TEXT), pa.field("version", TEXT)]
    return pa.schema(
        [
            id_field("id", plain),
            pa.field("resource", pa.struct([id_field("id", plain)])),
            pa.field("scope", pa.struct(scope)),
            pa.field("time_unix_nano", pa.timestamp("ns")),
            pa.field("observed_time_unix_nano", pa.timestamp("ns")),
            pa.field("trace_id", pa.binary(16)),
            pa.field("span_id", pa.dictionary(pa.uint8(), pa.binary(8))),
            pa.field("severity_number", pa.int32()),
            pa.field("severity_text", TEXT),
            pa.field("event_name", TEXT),
            pa.field("body", pa.struct(BODY_FIELDS)),
            pa.field("dropped_attributes_count", pa.uint32()),
            pa.field("flags", pa.uint32()),
        ]
    )


def attributes_schema(plain: bool = False) -> pa.Schema:
    """Return the schema of a table of attributes."""
    return pa.schema([id_field("parent_id", plain), pa.field("key", TEXT), *VALUE_FIELDS])


class ArrowSender:
    """Encodes the batches of one gRPC stream; dictionaries are sent once and extended."""

    def __init__(self, compression: str | None = None) -> None:
        self._compression = compression
        self._sinks: dict[int, io.BytesIO] = {}
        self._writers: dict[int, Any] = {}
        self._batches = 0

    def batch(self, tables: dict[int, pa.RecordBatch], schema_id: str = "a") -> bytes:
        """Return a BatchArrowRecords; its number is the number of those before."""
        message = BatchArrowRecords(batch_id=self._batches)
        self._batches += 1
        for kind, table in tables.items():
            sink = self._sinks.setdefault(kind, io.BytesIO())
            begin = sink.tell()
            if kind not in self._writers:
                options = pa.ipc.IpcWriteOptions(emit_dictionary_deltas=True, compression=self._compression)
                self._writers[kind] = pa.ipc.new_stream(sink, table.schema, options=options)
            self._writers[kind].write_batch(table)
            message.arrow_payloads.add(schema_id=schema_id.encode(), type=kind, record=sink.getvalue()[begin:])
        return bytes(message.SerializeToString())

    def reset(self) -> None:
        """Begin new IPC streams, as after a change of schemas."""
        self._sinks.clear()
        self._writers.clear()
