"""Schemas of event types: whether an event's ``data`` has what its type promises, as Spark columns."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.errors import PySparkException
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (what everybody calls it)
from pyspark.sql.types import (
    BooleanType,
    DataType,
    DoubleType,
    FloatType,
    IntegralType,
    StringType,
    StructType,
)

from penstock.errors import PenstockError

WHOLE_NUMBER = r"^-?[0-9]+$"
NUMBER = r"^-?[0-9]"
DATA = "fields.data"


class BadSchema(PenstockError, ValueError):
    """A type's schema is no DDL of columns; the text names the key."""


def parse_schemas(spark: SparkSession, schemas: Mapping[str, str]) -> dict[str, StructType]:
    """The schemas of ``pipeline.schemas`` by type. Raises BadSchema."""
    return {name: _parse(spark, name, ddl) for name, ddl in schemas.items()}


def _parse(spark: SparkSession, name: str, ddl: str) -> StructType:
    try:
        return spark.createDataFrame([], ddl).schema
    except PySparkException as error:
        raise BadSchema(f"pipeline.schemas.{name}: {ddl!r}: {str(error).strip().splitlines()[0]}") from None


def not_met(schemas: Mapping[str, StructType]) -> Column:
    """Whether ``data`` is not what the schema of the row's ``type`` says; never for types without one.

    Each field of the schema may be missing or null, unless it says NOT NULL; where it is there it must be of the
    JSON type that fits. Fields that the schema does not name are let through.
    """
    found = F.lit(False)
    for name, schema in schemas.items():
        found = found | ((F.col("type") == name) & F.coalesce(_differs(schema), F.lit(True)))
    return found


def _differs(schema: StructType) -> Column:
    """Null (which counts as a difference) where there is no data at all."""
    wrong = ~F.startswith(F.to_json(F.col(DATA)), F.lit("{"))
    for field in schema.fields:
        path = f"$['{field.name}']"
        text = F.to_json(F.try_variant_get(DATA, path, "variant"))
        absent = text.isNull() | (text == "null")
        wrong = wrong | (~absent & ~_fits(text, path, field.dataType))
        if not field.nullable:
            wrong = wrong | absent
    return wrong


def _fits(text: Column, path: str, wanted: DataType) -> Column:
    value = F.try_variant_get(DATA, path, wanted.simpleString())
    if isinstance(wanted, StringType):
        return F.startswith(text, F.lit('"'))
    if isinstance(wanted, IntegralType):
        return text.rlike(WHOLE_NUMBER) & value.isNotNull()
    if isinstance(wanted, DoubleType | FloatType):
        return text.rlike(NUMBER)
    if isinstance(wanted, BooleanType):
        return text.isin("true", "false")
    return value.isNotNull()
