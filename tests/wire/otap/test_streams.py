"""The IPC streams of one gRPC stream: dictionaries grow, schemas change, damage is Malformed."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.wire.otap import streams
from penstock.wire.otap.batches import logs_of
from penstock.wire.otap.streams import LOG_ATTRIBUTES, LOGS, BatchArrowRecords, OtapStream, Tables, parse_batch
from penstock.wire.protobuf import Malformed
from penstock.wire.requests import Refused
from tests.wire.otap.otap_batches import ArrowSender, tables_of
from tests.wire.otlp.otlp_requests import request

LIMIT = 1 << 20


def payloads(data: bytes) -> Any:
    return BatchArrowRecords.FromString(data).arrow_payloads


def texts(name: str) -> dict[int, pa.RecordBatch]:
    column = pa.array([name], pa.dictionary(pa.uint8(), pa.string()))
    return {LOGS: pa.RecordBatch.from_arrays([column], ["severity_text"])}


def severity(tables: Tables) -> Any:
    return tables.by_type[LOGS].column("severity_text").to_pylist()


@pytest.mark.parametrize("compression", [None, "zstd", "lz4"])
def test_dictionaries_go_on_from_batch_to_batch(compression: str | None) -> None:
    sender, stream = ArrowSender(compression), OtapStream(LIMIT)
    for count in (2, 5, 1):
        tables = tables_of(request(count))
        decoded = stream.read(payloads(sender.batch(tables)))
        assert {kind: table.to_pylist() for kind, table in decoded.by_type.items()} == {
            kind: table.to_pylist() for kind, table in tables.items()
        }


def test_dictionary_is_extended_and_replaced() -> None:
    sender, stream = ArrowSender(), OtapStream(LIMIT)
    both = pa.DictionaryArray.from_arrays(pa.array([1], pa.uint8()), pa.array(["INFO", "WARN"]))
    extended = {LOGS: pa.RecordBatch.from_arrays([both], ["severity_text"])}
    batches = [texts("INFO"), extended, texts("ERROR")]
    assert [severity(stream.read(payloads(sender.batch(batch)))) for batch in batches] == [
        ["INFO"],
        ["WARN"],
        ["ERROR"],
    ]


def test_other_schema_begins_a_new_ipc_stream() -> None:
    sender, stream = ArrowSender(), OtapStream(LIMIT)
    stream.read(payloads(sender.batch(texts("INFO"), "a")))
    sender.reset()
    plain = {LOGS: pa.RecordBatch.from_arrays([pa.array(["x", "y"])], ["severity_text"])}
    assert severity(stream.read(payloads(sender.batch(plain, "b")))) == ["x", "y"]
    sender.reset()
    assert severity(stream.read(payloads(sender.batch(texts("WARN"), "a")))) == ["WARN"]


def test_new_stream_without_schema_is_malformed() -> None:
    sender = ArrowSender()
    sender.batch(texts("INFO"))
    with pytest.raises(Malformed, match="a schema for a new stream"):
        OtapStream(LIMIT).read(payloads(sender.batch(texts("WARN"))))


def test_schema_in_the_middle_of_a_stream_is_malformed() -> None:
    sender, stream = ArrowSender(), OtapStream(LIMIT)
    stream.read(payloads(sender.batch(texts("INFO"))))
    sender.reset()
    with pytest.raises(Malformed, match="a schema for a new stream"):
        stream.read(payloads(sender.batch(texts("INFO"))))


@pytest.mark.parametrize("types", [(40,), (0,), (LOGS, LOGS)])
def test_other_payload_types_are_malformed(types: tuple[int, ...]) -> None:
    message = BatchArrowRecords.FromString(ArrowSender().batch(texts("INFO")))
    record = message.arrow_payloads[0].record
    del message.arrow_payloads[:]
    for kind in types:
        message.arrow_payloads.add(schema_id=b"a", type=kind, record=record)
    with pytest.raises(Malformed, match=r"not one of logs|twice"):
        OtapStream(LIMIT).read(message.arrow_payloads)


def test_dictionaries_of_a_stream_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "MAX_DICTIONARY_BYTES", 10_000)
    sender, stream = ArrowSender(), OtapStream(LIMIT)
    for number in range(20):  # each replaces the one before, so nothing grows
        stream.read(payloads(sender.batch(texts(str(number) * 1000))))
    with pytest.raises(Malformed, match="10000 bytes"):
        stream.read(payloads(sender.batch(texts("x" * 10_001))))


def test_index_outside_of_its_dictionary_is_malformed() -> None:
    indices = pa.array([200], pa.uint8())
    column = pa.DictionaryArray.from_arrays(indices, pa.array(["INFO"]), safe=False)
    with pytest.raises(Malformed, match="out of bounds"):
        OtapStream(LIMIT).read(payloads(ArrowSender().batch({LOGS: pa.RecordBatch.from_arrays([column], ["x"])})))


RECORDED = ArrowSender("zstd").batch({kind: tables_of(request(2))[kind] for kind in (LOGS, LOG_ATTRIBUTES)})


@given(st.integers(0, len(RECORDED) - 1), st.binary(min_size=1, max_size=8))
def test_any_damage_is_messages_or_malformed(position: int, damage: bytes) -> None:
    data = RECORDED[:position] + damage + RECORDED[position + len(damage) :]
    try:
        tables = OtapStream(LIMIT).read(parse_batch(data).arrow_payloads)
        logs_of(tables, LIMIT, 1000)
    except (Malformed, Refused):
        return
