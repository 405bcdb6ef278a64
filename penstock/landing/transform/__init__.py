"""Changes of rows before they land: redaction, then a function of the user's.

Read ``checked`` (what a function may do with rows, and the rows it fails on), ``json_texts`` and ``redaction``
(patterns and keyed hashes), ``rules`` (the configuration). Imports ``landing``, ``landing.rows``, ``wire``,
``config`` and ``process.module_search``.
"""

__all__ = ["checked", "json_texts", "redaction", "rules"]
