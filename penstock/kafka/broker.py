"""A Kafka broker of one node, for trying out and for tests: KRaft, loopback only, everything in one folder.

The jars come from the user's cache folder (``penstock.java.jars``); nothing but Java and pyspark's Ivy is needed to
fetch them. The broker dies with the process that started it, and starts again on the folder it left.
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

HOST = "127.0.0.1"
DEFAULT_MEMORY = "512m"
START_SECONDS = 90.0
STOP_SECONDS = 30.0
TRIES = 3
"""A free port may be taken by another before Java has it."""
SMALL = {
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
"""What one node can do: no replicas, few partitions of its own, little memory for the cleaner.

The session is short because a killed broker cannot come back before it ends.
"""
LOGGING = """status=error
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
    """The broker did not start; the text says why, as far as it said so itself."""


class Broker:
    """A broker on ``host``:``port`` (0: a free one) with its data in ``folder``. A context manager: started, stopped.

    ``memory`` is Java's -Xmx, ``settings`` are further lines of server.properties, ``options`` further options of Java.
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
        self._asked, self._memory, self._options = port, memory, options
        self._settings = dict(settings or {})
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """What ``bootstrap.servers`` takes."""
        return f"{self.host}:{self.port}"

    @property
    def pid(self) -> int | None:
        """Its process id; None while it is not running."""
        return self._process.pid if self._process and self._process.poll() is None else None

    def start(self) -> None:
        """Start it and wait until it answers. Call this from the main thread: the kernel ties it to the thread.

        Raises CannotStart, CannotFetch, NoJava.
        """
        # Order: a missing client library is reported before minutes are spent on fetching Java libraries.
        import confluent_kafka.admin  # noqa: F401

        jars = fetch_all(KAFKA_BROKER)
        for tries in range(TRIES, 0, -1):
            try:
                self._try(jars)
                return
            except CannotStart:
                if self._asked or tries == 1:
                    raise

    def stop(self) -> None:
        """End it, cleanly if it can."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
        self._process = None

    def kill(self) -> None:
        """End it as a power cut would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def __enter__(self) -> Broker:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def _try(self, jars: list[Path]) -> None:
        self.port = self._asked or _free_port(self.host)
        if _taken(self.host, self.port):
            raise CannotStart(f"port {self.port} is taken: another broker? Choose another --port")
        self._prepare(jars)
        command = [*self._java(jars, self._memory), "kafka.Kafka", str(self.folder / "server.properties")]
        with (self.folder / "java.log").open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "penstock.kafka.broker", str(os.getpid()), *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C is for the one who started it
            )
        try:
            self._wait()
        except BaseException:
            self.kill()
            raise

    def _prepare(self, jars: list[Path]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        properties = {**self._properties(), **SMALL, **self._settings}
        text = "".join(f"{name}={value}\n" for name, value in properties.items())
        (self.folder / "server.properties").write_text(text)
        (self.folder / "log4j2.properties").write_text(LOGGING.format(folder=self.folder))
        if not (self.folder / "data" / "meta.properties").exists():
            self._format(jars)

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

    def _format(self, jars: list[Path]) -> None:
        identity = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        command = [*self._java(jars, "64m"), "kafka.tools.StorageTool", "format"]
        command += [f"--cluster-id={identity}", "-c", str(self.folder / "server.properties")]
        answer = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=START_SECONDS)
        if answer.returncode:
            raise CannotStart(f"the broker's folder cannot be made: {_complaint(answer.stderr or answer.stdout)}")

    def _java(self, jars: list[Path], memory: str) -> list[str]:
        java = find_java().home / "bin" / "java"
        options = [f"-Xmx{memory}", "-XX:+UseSerialGC", "-Djava.net.preferIPv4Stack=true", *self._options]
        options += [f"-Dlog4j2.configurationFile={self.folder / 'log4j2.properties'}"]
        return [str(java), *options, "-cp", os.pathsep.join(map(str, jars))]

    def _wait(self) -> None:
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until:
            assert self._process
            if self._process.poll() is not None:
                raise CannotStart(f"the broker ended at once: {self._complaint()}")
            if _taken(self.host, self.port) and answers(self.address):
                return
            time.sleep(0.05)
        raise CannotStart(f"the broker does not answer within {START_SECONDS:.0f} s: {self._complaint()}")

    def _complaint(self) -> str:
        """The last error it wrote."""
        written = ""
        for name in ("java.log", "broker.log"):
            with contextlib.suppress(OSError):
                written += (self.folder / name).read_text(errors="replace")[-200_000:]
        return _complaint(written)


def answers(address: str, seconds: float = 5.0) -> bool:
    """Whether a broker at ``address`` tells its metadata."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    try:
        return bool(AdminClient({"bootstrap.servers": address, "log_level": 0}).list_topics(timeout=seconds).brokers)
    except KafkaException:
        return False


def _free_port(host: str) -> int:
    with socket.socket() as listener:
        listener.bind((host, 0))
        port: int = listener.getsockname()[1]
        return port


def _taken(host: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((host, port)) == 0


def _complaint(text: str) -> str:
    """The last line that names an exception or an error, else the last line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if re.search(r"Exception\b.*:|\b(ERROR|FATAL)\b", line)]
    return (errors or lines or ["it said nothing"])[-1]


def main() -> None:
    """As a child: become the given command, tied to the process that started it."""
    die_with_parent()
    os.execv(sys.argv[2], sys.argv[2:])  # noqa: S606 - no shell is wanted


if __name__ == "__main__":
    main()
