"""Penstock: event and log messages from sockets to Spark tables, and what became of every one of them."""

__version__ = "0.1.0"
