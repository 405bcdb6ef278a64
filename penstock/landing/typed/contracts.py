"""Contracts of columns in typed tables: rules on values that fit the column's type, for whole columns.

Invariant: a value that violates a rule is treated like one that does not fit the type, so it is not lost.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from penstock.config.keys.typed import ColumnConfig, decimal_digits
from penstock.landing.rows.engine import Mask, as_mask, pc
from penstock.landing.typed.column_types import Rule
from penstock.landing.typed.conversion import convert


def meets(rule: Rule, kind: str, values: pa.Array[Any]) -> Mask:
    """Return a mask of the values (of a column of type ``kind``) that meet a rule; null meets it."""
    if rule.name == "pattern":
        met: Any = pc.match_substring_regex(values, json.loads(rule.bounds[0]))
    else:
        bounds = convert(kind, pa.array(rule.bounds))
        if rule.name == "enum":
            met = pc.is_in(values, bounds)
        else:
            met = (pc.greater_equal if rule.name == "min" else pc.less_equal)(values, bounds[0])
    mask: Mask = as_mask(met) | as_mask(pc.is_null(values))
    return mask


def rules_of(config: ColumnConfig) -> tuple[Rule, ...]:
    """Return the rules of a column's configuration; none without a contract."""
    bounds: dict[str, Sequence[object]] = {
        "min": [] if config.min is None else [config.min],
        "max": [] if config.max is None else [config.max],
        "pattern": [config.pattern] if config.pattern else [],
        "enum": config.enum,
    }
    return tuple(
        Rule(name, tuple(json_of(config.type, bound) for bound in written))
        for name, written in bounds.items()
        if written
    )


def json_of(kind: str, configured: object) -> str:
    """Return a configured value of a column of type ``kind`` as JSON."""
    # As a text a decimal has all of its digits; JSON's numbers beyond 64 bits have not.
    is_decimal = decimal_digits(kind) is not None
    return json.dumps(str(configured) if is_decimal else configured, ensure_ascii=False)
