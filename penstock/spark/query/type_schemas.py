"""Schemas of event types, written as Spark writes columns (DDL)."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from penstock.errors import PenstockError
from penstock.landing.rows.type_schemas import BOOLEAN, LIST, NUMBER, OBJECT, TEXT, WHOLE, Field, TypeSchema

_KINDS: list[tuple[type[DataType] | tuple[type[DataType], ...], str]] = [
    (StringType, TEXT),
    (IntegralType, WHOLE),
    ((DoubleType, FloatType), NUMBER),
    (BooleanType, BOOLEAN),
    (ArrayType, LIST),
    ((StructType, MapType), OBJECT),
]
_CASTS = {
    "tinyint": "TINYINT",
    "smallint": "SMALLINT",
    "int": "INTEGER",
    "bigint": "BIGINT",
}


class BadSchema(PenstockError, ValueError):
    """A type's schema is no DDL of columns; the text names the key."""


def parse_schemas(spark: SparkSession, schemas: Mapping[str, str]) -> tuple[TypeSchema, ...]:
    """The schemas of ``pipeline.schemas``. Raises BadSchema.

    Lists, structs and maps must be lists and objects of JSON; what is in them is not looked at.
    """
    return tuple(_parse(spark, name, ddl) for name, ddl in schemas.items())


def _parse(spark: SparkSession, name: str, ddl: str) -> TypeSchema:
    try:
        columns = spark.createDataFrame([], ddl).schema
    except PySparkException as error:
        raise BadSchema(f"pipeline.schemas.{name}: {ddl!r}: {str(error).strip().splitlines()[0]}") from None
    return TypeSchema(name, tuple(_field(column) for column in columns.fields))


def _field(column: StructField) -> Field:
    kind = next((kind for types, kind in _KINDS if isinstance(column.dataType, types)), "")
    return Field(column.name, kind, _cast(column.dataType), not column.nullable)


def _cast(wanted: DataType) -> str:
    if isinstance(wanted, DecimalType):
        return f"DECIMAL({wanted.precision}, {wanted.scale})"
    if isinstance(wanted, DateType):
        return "DATE"
    if isinstance(wanted, TimestampType | TimestampNTZType):
        return "TIMESTAMP"
    return _CASTS.get(wanted.simpleString(), "")
