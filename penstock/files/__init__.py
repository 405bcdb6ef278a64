"""Durable files: replaced as a whole, checked when they are read, and replaceable by a crashing file system in tests.

Read ``file_system`` (the protocol, the real one, ``replace_durably``), then ``checked_document`` (a JSON object with a
checksum and a format version), ``checked_lines`` (a journal of such objects), ``checked_word`` (a number in a mapped
file), ``memory_order`` (barriers between processes), ``json_values`` (strict JSON), ``change_log``, ``regular_files``,
``secret_files``, ``disk_space``. Imports ``errors`` only.
"""

__all__ = [  # noqa: RUF022 reading order
    "file_system",
    "checked_document",
    "checked_lines",
    "checked_word",
    "memory_order",
    "json_values",
    "change_log",
    "regular_files",
    "secret_files",
    "disk_space",
    "errors",
]
