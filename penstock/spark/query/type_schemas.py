"""Schemas of event types, written as Spark's column definitions (DDL)."""

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
    """A schema that is not a list of columns in DDL; the text names the key."""


def parse_schemas(spark: SparkSession, schemas: Mapping[str, str]) -> tuple[TypeSchema, ...]:
    """Parse the schemas of ``pipeline.schemas``. Raises BadSchema.

    A list must be a JSON list, a struct or map a JSON object; their contents are not checked.
    """
    return tuple(_parse(spark, name, ddl) for name, ddl in schemas.items())


def _parse(spark: SparkSession, name: str, ddl: str) -> TypeSchema:
    try:
        # Spark parses the DDL itself, so every type that it knows is accepted.
        columns = spark.createDataFrame([], ddl).schema
    except PySparkException as error:
        raise BadSchema(f"pipeline.schemas.{name}: {ddl!r}: {str(error).strip().splitlines()[0]}") from None
    return TypeSchema(name, tuple(_field(column) for column in columns.fields))


def _field(column: StructField) -> Field:
    kind = next((kind for types, kind in _KINDS if isinstance(column.dataType, types)), "")
    return Field(column.name, kind, _cast(column.dataType), not column.nullable)


def _cast(column_type: DataType) -> str:
    if isinstance(column_type, DecimalType):
        return f"DECIMAL({column_type.precision}, {column_type.scale})"
    if isinstance(column_type, DateType):
        return "DATE"
    if isinstance(column_type, TimestampType | TimestampNTZType):
        return "TIMESTAMP"
    return _CASTS.get(column_type.simpleString(), "")
