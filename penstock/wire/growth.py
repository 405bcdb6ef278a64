"""Limits on the growth of annotations beyond their message; without numpy and Arrow, for the supervisor."""

from __future__ import annotations

MAX_GROWTH_BYTES = 1024
"""Limit: bytes that the replacement of unreadable bytes may add to a text: a message's size bounds its annotations."""
FIELDS = ("timestamp", "hostname", "app_name", "proc_id", "msg_id", "structured_data")
"""Optional fields of a syslog header, besides facility and severity."""
