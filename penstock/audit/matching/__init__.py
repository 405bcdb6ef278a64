"""Comparison of records with rows by their fields, for tables without offsets and for the content of rows.

Start with ``staging`` (fields of records in DuckDB) and ``decoder`` (values that are not JSON), then ``by_ids``,
``by_counts`` and ``content``. Imports ``audit``, ``landing`` and ``kafka``.
"""

__all__ = ["decoder", "staging", "by_ids", "by_counts", "content"]  # noqa: RUF022 reading order
