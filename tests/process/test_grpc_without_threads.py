"""Whoever waits for calls reads the sockets: grpc is told so before it begins, and knows the word."""

from __future__ import annotations

import os
import subprocess
import sys

SERVED = """
import os
import threading
from concurrent.futures import ThreadPoolExecutor
import penstock.process.grpc_without_threads
import grpc

server = grpc.server(ThreadPoolExecutor(1))
port = server.add_insecure_port("127.0.0.1:0")
server.start()
with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
    try:
        channel.unary_unary("/a/b")(b"", timeout=20)
    except grpc.RpcError as error:
        print(error.code().name, os.environ["GRPC_EXPERIMENTS"])
server.stop(0)
"""


def served(**environment: str) -> tuple[str, str]:
    environment = {**os.environ, "GRPC_EXPERIMENTS": "", **environment}
    if not environment["GRPC_EXPERIMENTS"]:
        del environment["GRPC_EXPERIMENTS"]
    done = subprocess.run(
        [sys.executable, "-c", SERVED], env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout.strip(), done.stderr


def test_it_serves_and_grpc_knows_what_it_is_told() -> None:
    told, complaints = served()
    assert told == "UNIMPLEMENTED -event_engine_listener"
    assert "experiment" not in complaints.lower()


def test_what_the_environment_says_already_stays() -> None:
    assert served(GRPC_EXPERIMENTS="-event_engine_dns")[0] == "UNIMPLEMENTED -event_engine_dns"
