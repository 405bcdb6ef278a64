"""Imported by the log daemon before grpc: whoever waits for calls reads and writes the sockets, too.

That is how grpc was before its event engine, whose threads take two hand-offs for each request: a fifth of the time of
an append by one caller.
"""

from __future__ import annotations

import os
from importlib.metadata import version

if version("grpcio").startswith("1.85."):  # another one may complain that it does not know this
    os.environ.setdefault("GRPC_EXPERIMENTS", "-event_engine_listener")
