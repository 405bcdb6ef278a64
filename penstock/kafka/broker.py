"""A single-node Kafka broker for trying out and for tests: KRaft, loopback only, all files in one folder.

The jars come from the user's cache folder (``penstock.java.jars``); fetching them needs only Java and pyspark's Ivy.
The broker dies with the process that started it, and restarts on the folder that it left.
"""

from __future__ import annotations

import base64
import contextlib
import os
import re
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from penstock.errors import PenstockError
from penstock.java.jars import KAFKA_BROKER, fetch_all
from penstock.java.runtime import find_java
from penstock.process.kernel import die_with_parent
from penstock.process.module_search import module_command

HOST = "127.0.0.1"
DEFAULT_MEMORY = "512m"
START_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 30.0
MAX_START_ATTEMPTS = 3
"""Attempts with port 0: another process may take the free port before Java binds it."""
SINGLE_NODE_SETTINGS = {
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "4000",
    "log.cleaner.dedupe.buffer.size": str(4 << 20),
    "num.network.threads": "2",
    "num.io.threads": "4",
}
"""Settings for one node: no replicas, few internal partitions, little memory for the cleaner.

The session is short because a killed broker cannot rejoin before its session expires.
"""
LOG4J_PROPERTIES = """status=error
shutdownHook=disable
appender.file.type=RollingFile
appender.file.name=file
appender.file.fileName={folder}/broker.log
appender.file.filePattern={folder}/broker.log.%i
appender.file.layout.type=PatternLayout
appender.file.layout.pattern=%d %p %m (%c{{1}})%n
appender.file.policies.type=Policies
appender.file.policies.size.type=SizeBasedTriggeringPolicy
appender.file.policies.size.size=8MB
appender.file.strategy.type=DefaultRolloverStrategy
appender.file.strategy.max=2
rootLogger.level=info
rootLogger.appenderRef.file.ref=file
"""


class CannotStart(PenstockError, RuntimeError):
    """The broker did not start; the text gives the reason if the broker logged one."""


class Broker:
    """A broker on ``host``:``port`` (0: a free one) with its data in ``folder``; as a context manager, started and
    stopped.

    ``memory`` is Java's -Xmx, ``settings`` are further lines of server.properties, ``options`` further options of
    Java.
    """

    def __init__(
        self,
        folder: Path,
        *,
        host: str = HOST,
        port: int = 0,
        memory: str = DEFAULT_MEMORY,
        settings: Mapping[str, str] | None = None,
        options: tuple[str, ...] = (),
    ) -> None:
        self.folder, self.host, self.port = folder.resolve(), host, port
        self._requested_port, self._memory, self._options = port, memory, options
        self._settings = dict(settings or {})
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """Value for ``bootstrap.servers``."""
        return f"{self.host}:{self.port}"

    @property
    def pid(self) -> int | None:
        """Process id; None if the broker does not run."""
        return self._process.pid if self._process and self._process.poll() is None else None

    def start(self) -> None:
        """Start the broker and wait until it answers.

        Call this from the main thread: the kernel's parent-death signal is tied to the starting thread. Raises
        CannotStart, CannotFetch, NoJava.
        """
        # Order: a missing client library is reported before minutes are spent on fetching Java libraries.
        import confluent_kafka.admin  # noqa: F401

        jars = fetch_all(KAFKA_BROKER)
        for attempts_left in range(MAX_START_ATTEMPTS, 0, -1):
            try:
                self._start_once(jars)
                return
            except CannotStart:
                if self._requested_port or attempts_left == 1:
                    raise

    def stop(self) -> None:
        """Stop the broker, by SIGKILL if it does not end in time."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
        self._process = None

    def kill(self) -> None:
        """Kill the broker as a power cut would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def __enter__(self) -> Broker:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _start_once(self, jars: list[Path]) -> None:
        self.port = self._requested_port or _free_port(self.host)
        if _accepts_connections(self.host, self.port):
            raise CannotStart(f"port {self.port} is in use, perhaps by another broker; choose another --port")
        self._write_configuration(jars)
        command = [*self._java(jars, self._memory), "kafka.Kafka", str(self.folder / "server.properties")]
        with (self.folder / "java.log").open("wb") as output:
            self._process = subprocess.Popen(
                module_command("penstock.kafka.broker", str(os.getpid()), *command),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C is handled by the parent, which stops the broker
            )
        try:
            self._wait_until_ready()
        except BaseException:
            self.kill()
            raise

    def _write_configuration(self, jars: list[Path]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        properties = {**self._properties(), **SINGLE_NODE_SETTINGS, **self._settings}
        text = "".join(f"{name}={value}\n" for name, value in properties.items())
        (self.folder / "server.properties").write_text(text)
        (self.folder / "log4j2.properties").write_text(LOG4J_PROPERTIES.format(folder=self.folder))
        if not (self.folder / "data" / "meta.properties").exists():
            self._format_storage(jars)

    def _properties(self) -> dict[str, str]:
        control = _free_port(self.host)
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{self.host}:{control}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{self.host}:{self.port},CONTROLLER://{self.host}:{control}",
            "advertised.listeners": f"PLAINTEXT://{self.host}:{self.port}",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": str(self.folder / "data"),
        }

    def _format_storage(self, jars: list[Path]) -> None:
        cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        command = [*self._java(jars, "64m"), "kafka.tools.StorageTool", "format"]
        command += [f"--cluster-id={cluster_id}", "-c", str(self.folder / "server.properties")]
        process = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=START_TIMEOUT_S)
        if process.returncode:
            reason = _last_error(process.stderr or process.stdout)
            raise CannotStart(f"the folder of the broker cannot be formatted: {reason}")

    def _java(self, jars: list[Path], memory: str) -> list[str]:
        java = find_java().home / "bin" / "java"
        options = [f"-Xmx{memory}", "-XX:+UseSerialGC", "-Djava.net.preferIPv4Stack=true", *self._options]
        options += [f"-Dlog4j2.configurationFile={self.folder / 'log4j2.properties'}"]
        return [str(java), *options, "-cp", os.pathsep.join(map(str, jars))]

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            assert self._process
            if self._process.poll() is not None:
                raise CannotStart(f"the broker exited at once: {self._last_error()}")
            if _accepts_connections(self.host, self.port) and answers_metadata(self.address):
                return
            time.sleep(0.05)
        raise CannotStart(f"the broker did not answer within {START_TIMEOUT_S:.0f} s: {self._last_error()}")

    def _last_error(self) -> str:
        log_text = ""
        for name in ("java.log", "broker.log"):
            with contextlib.suppress(OSError):
                log_text += (self.folder / name).read_text(errors="replace")[-200_000:]
        return _last_error(log_text)


def answers_metadata(address: str, timeout_s: float = 5.0) -> bool:
    """Report whether a broker at ``address`` answers a metadata request."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    try:
        return bool(AdminClient({"bootstrap.servers": address, "log_level": 0}).list_topics(timeout=timeout_s).brokers)
    except KafkaException:
        return False


def _free_port(host: str) -> int:
    with socket.socket() as listener:
        listener.bind((host, 0))
        port: int = listener.getsockname()[1]
        return port


def _accepts_connections(host: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((host, port)) == 0


def _last_error(text: str) -> str:
    """Return the last line that names an exception or an error, else the last line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if re.search(r"Exception\b.*:|\b(ERROR|FATAL)\b", line)]
    return (errors or lines or ["it logged nothing"])[-1]


def main() -> None:
    """Run the given command in place of this process, tied to the parent's life."""
    die_with_parent()
    os.execv(sys.argv[2], sys.argv[2:])  # noqa: S606 - no shell is wanted


if __name__ == "__main__":
    main()
