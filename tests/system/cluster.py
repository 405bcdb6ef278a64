"""A standalone Spark cluster of two executors on loopback, started from the pyspark installation like by a user."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
from pathlib import Path

import pyspark

from penstock.java.runtime import find_java
from penstock.process.kernel import descendants
from penstock.testing.pipe import free_ports, wait_until
from penstock.testing.processes import alive
from tests.system.landing import command_of

HOME = Path(pyspark.__file__).parent
SMALL_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
NO_REST = "-Dspark.master.rest.enabled=false"
"""Its port is a fixed one."""
_libc = ctypes.CDLL(None)
_PDEATHSIG = 1
POISON = "raise ImportError('the package of this machine, not the one that was sent')"


class Cluster:
    """A master, and a worker with two cores. Its Python cannot import penstock from its folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (port,) = free_ports(1)
        self.master = f"spark://127.0.0.1:{port}"
        elsewhere = folder / "elsewhere" / "penstock"
        elsewhere.mkdir(parents=True)
        (elsewhere / "__init__.py").write_text(POISON)
        self._processes: list[subprocess.Popen[bytes]] = []
        self._port = port

    def start(self) -> None:
        self._processes.append(self._start("master.Master", "--host", "127.0.0.1", "--port", str(self._port)))
        wait_until(lambda: _listens(self._port), 240, "the master listens")
        folder = str(self.folder / "worker")
        options = ["--host", "127.0.0.1", "--cores", "2", "--memory", "2G", "--work-dir", folder, self.master]
        self._processes.append(self._start("worker.Worker", *options))

    def _start(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        environment = {
            **os.environ,
            "SPARK_HOME": str(HOME),
            "JAVA_HOME": str(find_java().home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "192m",
            "SPARK_DAEMON_JAVA_OPTS": f"{SMALL_JVM} {NO_REST}",
            "PYTHONPATH": str(self.folder / "elsewhere"),
        }
        command = [
            str(HOME / "bin" / "spark-class"),
            f"org.apache.spark.deploy.{name}",
            "--webui-port",
            "0",
            *arguments,
        ]
        with (self.folder / f"{name}.log").open("ab") as output:
            return subprocess.Popen(command, stdout=output, stderr=output, env=environment, preexec_fn=_end_with_us)

    def executors(self) -> list[int]:
        """Return the processes of the running executors."""
        below = [pid for process in self._processes for pid in descendants(process.pid)]
        return [pid for pid in below if "CoarseGrainedExecutorBackend" in command_of(pid) and alive(pid)]

    def kill_executor(self) -> None:
        """Kill one executor with SIGKILL; the cluster starts another one some time later."""
        victim = self.executors()[0]
        os.kill(victim, signal.SIGKILL)
        wait_until(lambda: not alive(victim), 60, "the executor is gone")

    def stop(self) -> None:
        below = [pid for process in self._processes for pid in descendants(process.pid)]
        for process in self._processes:
            process.kill()
            process.wait()
        for pid in below:  # executors end with their worker, if slowly
            if alive(pid):
                os.kill(pid, signal.SIGKILL)


def _end_with_us() -> None:
    """End this process when the tests themselves are killed (Linux)."""
    if hasattr(_libc, "prctl"):
        _libc.prctl(_PDEATHSIG, signal.SIGKILL)


def _listens(port: int) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0
