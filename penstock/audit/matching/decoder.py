"""A user's function that turns the values of records into JSON texts, for Avro, Protobuf or other formats.

The function takes an Arrow array of bytes and returns as many texts or nulls. It holds the client of a schema registry
itself, if it needs any.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from penstock.errors import PenstockError
from penstock.landing.transform.rules import import_function

Decoder = Callable[[Any], Any]


class BadDecoder(PenstockError, ValueError):
    """The decoder cannot be imported, or it failed on values: records cannot be compared."""


def load_decoder(name: str) -> Decoder:
    """Import the function ``module:function``, also from the working folder. Raises BadDecoder."""
    decoder: Decoder = import_function(name, f"--decoder {name}", BadDecoder)
    return decoder


def decode_values(decoder: Decoder, values: pa.Array[Any]) -> pa.Array[Any]:
    """Return the JSON text of each value; null for values without one. Raises BadDecoder."""
    try:
        decoded = decoder(values)
        texts = decoded.cast(pa.string()) if isinstance(decoded, pa.Array) else pa.array(decoded, pa.string())
    except Exception as error:  # noqa: BLE001 - a user's function may raise anything
        raise BadDecoder(f"--decoder failed: {_first_line(error)}") from None
    if len(texts) != len(values):
        raise BadDecoder(f"--decoder returned {len(texts):,} texts for {len(values):,} values")
    return texts


def _first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".partition("\n")[0]
