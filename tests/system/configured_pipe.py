"""A pipe with configured listeners."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.testing.pipe import Pipe

SMALL = """
[buffer]
term_length = "2MiB"
slots = 64
[defaults.tcp]
max_line = "32KiB"
"""
"""Log buffers as small as those of other tests."""


def listener(name: str, protocol: str, *keys: str, topic: str = "") -> str:
    """Return a listener on a free port with these keys (TOML), whose messages go to the topic of its name by
    default.
    """
    handlers = f'handlers = [{{ type = "log", topic = "{topic or name}" }}]'
    head = ["[[listener]]", f'name = "{name}"', f'protocol = "{protocol}"', "port = 0"]
    return "\n".join([*head, *keys, handlers, ""])


@contextmanager
def configured_pipe(folder: Path, listeners: str) -> Iterator[Pipe]:
    """Run a pipe with these listeners (TOML), and stop it in the end."""
    pipe = Pipe(folder)
    pipe.configure(listeners)
    try:
        pipe.start()
        yield pipe
    finally:
        pipe.stop()
