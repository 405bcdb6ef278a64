"""Columns with the provenance of rows."""

import pyarrow as pa

from penstock.counts import Origin
from penstock.log.store.provenance import PROVENANCE, with_provenance
from penstock.records import BODY, body


def test_each_row_has_the_provenance_of_its_batch():
    schema = pa.schema([*PROVENANCE, BODY.field("payload")])
    batch = with_provenance(body([b"a", b"b"]), Origin("tcp", 60, 5, 9, "raw"), schema)
    assert batch.schema.equals(schema)
    assert batch.select(["source", "codec", "payload"]).to_pylist() == [
        {"source": "tcp", "codec": "raw", "payload": b"a"},
        {"source": "tcp", "codec": "raw", "payload": b"b"},
    ]
    assert [batch.column(name).cast(pa.int64()).to_pylist() for name in ("bucket", "received")] == [
        [60_000_000] * 2,
        [5] * 2,
    ]
