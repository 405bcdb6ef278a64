"""Rows changed on their way into the table: redacted, and by a function of the user's.

Read ``checked`` (what a function may do with rows, and what becomes of those it fails on), ``json_texts`` and
``redaction`` (patterns and keyed hashes), ``rules`` (what is configured). Imports ``landing``,
``landing.rows``, ``wire`` and ``config``.
"""

__all__ = ["checked", "json_texts", "redaction", "rules"]
