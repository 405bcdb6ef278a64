"""What a message is: event, syslog, message, or quarantined and why; as Spark columns.

Which parser is strict enough was found by trying: ``from_json`` lets nearly everything pass;
``try_parse_json`` refuses duplicate keys, NaN, single quotes, lone surrogates and leading zeros, but reads
only the first JSON value of a text and replaces bytes that are not UTF-8. So the text is checked for UTF-8
first, and parsed as the first element of an array whose second is a mark that no sender can know: where the
mark is not found, the text was not JSON to its last byte. ``penstock.landing.event_rules`` has the same in Python.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  (what everybody calls it)
from pyspark.sql.types import StructType

from penstock.landing.event_rules import (
    MAX_TIMESTAMP,
    MAX_TYPE_BYTES,
    MAX_UUID_BYTES,
    MIN_TIMESTAMP,
    UNSAFE_IN_TYPE,
    MessageKind,
    Reason,
)
from penstock.spark.query.type_schemas import not_met

RFC3339 = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-][0-9]{2}:[0-9]{2})$"
FIELDS = "struct<type:variant,uuid:variant,host:variant,timestamp:variant,data:variant>"


@dataclass(frozen=True, slots=True)
class Rules:
    """Which events are let in, and in which form.

    ``event_types``: the types let in; empty: any (as far as there is room, see
    ``penstock.spark.source.type_admission``).
    ``data_format``: ``variant`` or ``json``. ``keep_payload``: whether valid events keep their raw payload.
    ``schemas``: what the data of some types has to be.
    """

    event_types: tuple[str, ...] = ()
    data_format: str = "variant"
    keep_payload: bool = True
    schemas: Mapping[str, StructType] = field(default_factory=dict)
    mark: str = field(default_factory=lambda: "m" + secrets.token_hex(8))


def classified(rows: DataFrame, rules: Rules) -> DataFrame:
    """``rows`` of the source with kind, type, uuid, host, event_time, data and reason added.

    Where they have a column ``admitted`` (the event's type, if it may have a folder), it is obeyed.
    """
    parsed = _parsed(rows, rules)
    parts = _parts(parsed)
    return _finished(parts.withColumn("reason", _reason(rules, "admitted" in rows.columns)), rules)


def _parsed(rows: DataFrame, rules: Rules) -> DataFrame:
    """Adds is_json, fields (the event's own) and whole (whether the text was JSON to its last byte)."""
    is_syslog = F.coalesce(F.col("codec"), F.lit("")) == "syslog"
    is_json = ~is_syslog & F.coalesce(F.startswith(F.col("payload"), F.lit(b"{")), F.lit(False))
    text = F.col("payload").cast("string")
    wrapped = F.concat(F.lit("["), text, F.lit(f',{{"{rules.mark}":0}}]'))
    parsed = F.when(F.col("is_json") & F.is_valid_utf8(text), F.try_parse_json(wrapped))
    return (
        rows.withColumn("is_syslog", is_syslog)
        .withColumn("is_json", is_json)
        .withColumn("parsed", parsed)
        .withColumn("whole", F.try_variant_get("parsed", f"$[1].{rules.mark}", "variant").isNotNull())
        .withColumn("fields", F.try_variant_get("parsed", "$[0]", FIELDS))
        .drop("parsed")
    )


def _parts(parsed: DataFrame) -> DataFrame:
    """Adds the fields as JSON texts (which show their type) and as values."""
    for name in ("type", "uuid", "host", "timestamp"):
        parsed = parsed.withColumn(f"{name}_json", F.to_json(F.col(f"fields.{name}")))
    for name in ("type", "uuid", "host"):
        parsed = parsed.withColumn(name, _string(name))
    number = F.when(F.col("timestamp_json").rlike("^[-0-9]"), F.col("timestamp_json").try_cast("double"))
    return parsed.withColumn("millis", F.when(number.between(MIN_TIMESTAMP, MAX_TIMESTAMP), number))


def _string(name: str) -> Column:
    """The value of a field that is a JSON string, else null. Only escaped ones need a parser again."""
    text = F.col(f"{name}_json")
    plain = F.substring(text, F.lit(2), F.length(text) - 2)
    escaped = F.try_variant_get(f"fields.{name}", "$", "string")
    return F.when(F.startswith(text, F.lit('"')), F.when(F.contains(text, F.lit("\\")), escaped).otherwise(plain))


def _reason(rules: Rules, limited: bool) -> Column:
    """Why the row is not an event; null where it is one, or is no JSON at all. ``limited``: by column admitted."""

    def missing(name: str) -> Column:
        return F.col(f"{name}_json").isNull() | (F.col(f"{name}_json") == "null")

    size = F.octet_length(F.col("type"))
    bad_type = F.col("type").isNull() | (size == 0) | (size > MAX_TYPE_BYTES) | F.col("type").rlike(UNSAFE_IN_TYPE)
    size = F.octet_length(F.col("uuid"))
    bad_uuid = F.col("uuid").isNull() | (size == 0) | (size > MAX_UUID_BYTES)
    reason = (
        F.when(~F.col("is_json"), F.lit(None))
        .when(~F.col("whole"), Reason.BAD_JSON.value)
        .when(missing("type"), Reason.MISSING_TYPE.value)
        .when(bad_type, Reason.BAD_TYPE.value)
        .when(missing("uuid"), Reason.MISSING_UUID.value)
        .when(bad_uuid, Reason.BAD_UUID.value)
        .when(F.col("millis").isNull(), Reason.BAD_TIMESTAMP.value)
    )
    if rules.event_types:
        reason = reason.when(~F.col("type").isin(*rules.event_types), Reason.TYPE_NOT_ALLOWED.value)
    elif limited:
        reason = reason.when(~F.col("type").eqNullSafe(F.col("admitted")), Reason.TOO_MANY_TYPES.value)
    return reason.when(not_met(rules.schemas), Reason.SCHEMA_NOT_MET.value) if rules.schemas else reason


def _finished(judged: DataFrame, rules: Rules) -> DataFrame:
    """The columns of the table; an event's fields only where it is a valid one."""
    is_event = F.col("is_json") & F.col("reason").isNull()
    kind = (
        F.when(F.col("is_syslog"), MessageKind.SYSLOG.value)
        .when(~F.col("is_json"), MessageKind.MESSAGE.value)
        .when(F.col("reason").isNull(), MessageKind.EVENT.value)
        .otherwise(MessageKind.QUARANTINE.value)
    )
    data = F.col("fields.data") if rules.data_format == "variant" else F.to_json(F.col("fields.data"))
    payload = F.col("payload") if rules.keep_payload else F.when(~is_event, F.col("payload"))
    partition = F.col("partition") if "partition" in judged.columns else F.lit(None).cast("int").alias("partition")
    return judged.select(
        "topic",
        partition,
        "offset",
        "timestamp",
        "received",
        "source",
        "bucket",
        F.when(is_event, F.col("type")).alias("type"),
        F.when(is_event, F.col("uuid")).alias("uuid"),
        F.when(is_event, F.col("host")).when(F.col("is_syslog"), _annotation("hostname")).alias("host"),
        F.when(is_event, _event_time()).when(F.col("is_syslog"), _syslog_time()).alias("event_time"),
        F.when(is_event, data).alias("data"),
        payload.alias("payload"),
        "key",
        "type_url",
        "annotations",
        F.col("reason"),
        kind.alias("kind"),
        F.to_date("timestamp").alias("date"),
        *([F.col("refill")] if "refill" in judged.columns else []),
    )


def _event_time() -> Column:
    return F.timestamp_micros(F.round(F.col("millis") * 1000).cast("bigint"))


def _syslog_time() -> Column:
    """The time of a syslog message where it says its year and zone (RFC 5424)."""
    text = _annotation("timestamp")
    time = F.when(text.rlike(RFC3339), text.try_cast("timestamp"))
    return F.when(
        time.between(F.timestamp_millis(F.lit(MIN_TIMESTAMP)), F.timestamp_millis(F.lit(MAX_TIMESTAMP))), time
    )


def _annotation(name: str) -> Column:
    return F.try_element_at("annotations", F.lit(name))
