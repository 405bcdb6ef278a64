"""Following log files and systemd's journal into a topic, each line once, through rotations and kills.

Read ``positions`` (what is stored durably), ``file_content`` (encodings and lines), ``container_logs`` (what
containers' runtimes write), ``followed_file`` (one file),
``discovery`` (which files match), then ``tailer`` (all of them, and the order of its steps); ``journal_export`` (what
journalctl writes), ``journal_position``, then ``journal``. Imports ``files``, ``process``, ``wire``, ``records``,
``errors`` and ``client.log``.
"""

__all__ = [  # noqa: RUF022 reading order
    "positions",
    "file_content",
    "container_logs",
    "followed_file",
    "discovery",
    "tailer",
    "journal_export",
    "journal_position",
    "journal",
]
