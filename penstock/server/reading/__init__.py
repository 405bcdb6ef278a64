"""Queries over a topic, and pages of bounded size that answer them.

Read ``query`` (where to start, and how many entries), ``entry_pages`` (a page of entries in order), then ``search``
(pages of matching entries in either direction). Imports ``log`` and ``slogd``.
"""

__all__ = ["entry_pages", "query", "search"]
