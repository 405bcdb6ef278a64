"""Whoever waits for calls reads the sockets: grpc is told so when it is imported, and knows the word."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

SERVED = """
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
TOLD
import grpc

def switches():
    found = 0
    for thread in Path("/proc/self/task").iterdir():
        if (thread / "comm").read_text().startswith("event_eng"):
            found += int((thread / "status").read_text().split("voluntary_ctxt_switches:")[1].split()[0])
    return found

def caller(port):
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        for _ in range(200):
            try:
                channel.unary_unary("/a/b")(b"", timeout=20)
            except grpc.RpcError as error:
                assert error.code() is grpc.StatusCode.UNIMPLEMENTED

if len(sys.argv) > 1:
    caller(sys.argv[1])
else:
    import subprocess
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    before = switches()
    subprocess.run([sys.executable, __file__, str(port)], check=True)
    print(switches() - before, os.environ.get("GRPC_EXPERIMENTS"))
    server.stop(0)
"""


def served(folder: Path, told: str, **environment: str) -> tuple[int, str, str]:
    """How often grpc's own threads were woken by 200 calls, what the environment says then, and the complaints."""
    path = folder / "served.py"
    path.write_text(SERVED.replace("TOLD", told))
    clean = {name: value for name, value in os.environ.items() if name != "GRPC_EXPERIMENTS"}
    done = subprocess.run(
        [sys.executable, path], env=clean | environment, capture_output=True, text=True, timeout=120, check=True
    )
    count, variable = done.stdout.split()
    return int(count), variable, done.stderr


def test_grpcs_own_threads_sleep_while_calls_are_served(tmp_path: Path) -> None:
    assert version("grpcio").startswith("1.85."), "try the next one, and say so in the module"
    count, variable, complaints = served(tmp_path, "import penstock.process.grpc_without_threads")
    assert count < 100 < served(tmp_path, "")[0]
    assert variable == "None"
    assert "experiment" not in complaints.lower()


def test_what_the_environment_says_already_stays(tmp_path: Path) -> None:
    told = {"GRPC_EXPERIMENTS": "-event_engine_dns"}
    count, variable, _ = served(tmp_path, "import penstock.process.grpc_without_threads", **told)
    assert (count > 100, variable) == (True, "-event_engine_dns")
