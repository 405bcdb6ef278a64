"""A client's SQL: read, and written as DuckDB reads it.

Start with ``tokens``, then ``statement`` (a client's text as statements) and ``translation`` (a statement as DuckDB's
text), which uses ``parentheses``, ``arrays``, ``casts``, ``patterns`` (of LIKE), ``row_values`` (comparisons of rows)
and ``query_functions`` (functions that clients call). Imports ``sql``.
"""

__all__ = [  # noqa: RUF022 reading order
    "tokens",
    "statement",
    "parentheses",
    "arrays",
    "casts",
    "patterns",
    "row_values",
    "query_functions",
    "translation",
]
