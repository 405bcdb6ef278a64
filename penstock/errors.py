"""The base of all errors."""

from __future__ import annotations


class PenstockError(Exception):
    """Base of every error that Penstock raises on purpose."""
