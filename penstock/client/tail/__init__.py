"""Following log files into a topic, each line once, through rotations and kills.

Read ``positions`` (what is kept on the disk), ``followed_file`` (one file), then ``tailer`` (all of them, and the order
of its steps). Imports ``files``, ``wire``, ``records``, ``errors`` and ``client.log``.
"""

__all__ = ["positions", "followed_file", "tailer"]  # noqa: RUF022 reading order
