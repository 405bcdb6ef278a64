"""By how much annotations may be longer than their message. Without numpy and Arrow: the supervisor asks."""

from __future__ import annotations

MOST_GROWTH = 1024
"""Bytes that a text may grow by for what cannot be read in it, so that a message's size bounds its annotations'."""
FIELDS = ("timestamp", "hostname", "app_name", "proc_id", "msg_id", "structured_data")
"""What a header of syslog may say besides facility and severity."""
