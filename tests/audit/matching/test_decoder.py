"""Values in Protobuf are compared through a user's decoder; one that fails leaves the audit undecided."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from google.protobuf import json_format
from google.protobuf.struct_pb2 import Struct

from penstock.audit.matching.decoder import BadDecoder, decode_values, load_decoder
from tests.audit.audited import run_audit
from tests.audit.reports.test_receipt import verify
from tests.kafka.kafka_helpers import Topics

FRAME = b"\0\0\0\0\7\0"
"""Magic byte, number of the schema, and index of the message, as clients of a schema registry write them."""


def encode_value(number: int) -> bytes:
    return FRAME + json_format.ParseDict({"id": f"o{number}", "total": number / 2}, Struct()).SerializeToString()


def decode_structs(values: pa.BinaryArray) -> list[str | None]:
    return [
        None if value is None else json_format.MessageToJson(Struct.FromString(value.removeprefix(FRAME)))
        for value in values.to_pylist()
    ]


def drop_values(values: pa.BinaryArray) -> pa.Array:
    return pa.nulls(1, pa.string())


def fail_always(values: pa.BinaryArray) -> None:
    raise LookupError("no schema 7\nof the registry")


def test_values_in_protobuf_are_found_by_id_and_compared(topics: Topics, tmp_path: Path) -> None:
    topic = topics.new()
    topics.plain(topic, [*map(encode_value, range(10)), None])
    numbers = [0, *range(2, 10)]
    totals = [number / 2 + (number == 3) for number in numbers]
    table = tmp_path / "t.parquet"
    pq.write_table(pa.table({"id": [f"o{number}" for number in numbers], "total": totals}), table)
    decoder = ("--decoder", f"{__name__}:decode_structs")
    receipt = ("--receipt", str(tmp_path / "receipt.json"))
    status, report, errors = run_audit(topics, topic, table, "--id", "id", "--all", *decoder, *receipt)
    assert (status, report.get("missing"), report.get("differing")) == (1, 1, 1), errors
    (part,) = report["partitions"]
    assert (part["missing"], part["differing"], part["differing_in"]) == ([[1, 2]], [[3, 4]], {"total": 1})
    # A receipt does not choose the code that runs.
    status, text = verify(tmp_path / "receipt.json")
    assert (status, "name your copy by --decoder" in text) == (2, True)
    status, text = verify(tmp_path / "receipt.json", *decoder)
    assert (status, "agrees with the receipt" in text) == (1, True), text
    status, _, errors = run_audit(topics, topic, table, "--id", "id", "--decoder", f"{__name__}:fail_always")
    assert (status, "--decoder failed: LookupError: no schema 7" in errors) == (2, True), errors


@pytest.mark.parametrize("name", ["", "json", "no_such_module:decode", "json:no_such_function", "json:__name__"])
def test_unusable_decoder_is_refused(name: str) -> None:
    with pytest.raises(BadDecoder, match="--decoder"):
        load_decoder(name)


def test_decoder_returns_a_text_per_value() -> None:
    values: pa.BinaryArray = pa.array([b"1", b"2"], pa.binary())
    assert decode_values(lambda values: values, values).to_pylist() == ["1", "2"]
    with pytest.raises(BadDecoder, match="returned 1 texts for 2 values"):
        decode_values(drop_values, values)
