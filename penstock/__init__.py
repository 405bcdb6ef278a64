"""Penstock: event and log messages from sockets to Spark tables, and what became of every one of them.

Each folder is a room, which says what is in it and in which order to read it; ARCHITECTURE.md
lists the rooms in the order in which they may import each other.
``errors``, ``counts`` and ``records`` are free to all.
"""

__version__ = "0.2.0"

__all__ = ["__version__"]
