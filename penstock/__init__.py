"""Penstock: event and log messages from sockets to Spark tables, and what became of every one of them.

Each folder is a room, which says what is in it and in which order to read it; the rooms themselves are in the order of
the pipe in ARCHITECTURE.md.
"""

__version__ = "0.1.0"

__all__ = ["__version__"]
