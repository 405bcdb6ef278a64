"""Imported by the log daemon before grpc: whoever waits for calls reads and writes the sockets, too.

That is how grpc was before its event engine, whose threads take two hand-offs for each request: a fifth of the time of
an append by one caller. It asks the environment once, when it is imported; others (Arrow Flight has a grpc of its own,
and commands that the daemon starts) are not told.
"""

from __future__ import annotations

import os
from importlib.metadata import version

NAME = "GRPC_EXPERIMENTS"

if version("grpcio").startswith("1.85.") and NAME not in os.environ:  # another one may not know it, and complain
    os.environ[NAME] = "-event_engine_listener"
    import grpc  # noqa: F401

    del os.environ[NAME]
