"""``penstock kafka``: a broker for trying out, large messages in and out."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.common import errors, fail
from penstock.cli.options import AsJson, Commands, Config, Override, settings_of
from penstock.config import parse_size
from penstock.process.reporting import configure

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
Bootstrap = Annotated[str, typer.Option("--bootstrap", metavar="HOST:PORT", help="A broker.")]
Setting = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="K=V", help="A property of the client; may be repeated.", show_default=False),
]
kafka = Commands(no_args_is_help=True, help="Kafka: a broker for trying out, large messages in and out.")


@kafka.command()
def start(
    config: Config = None,
    override: Override = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on loopback; 0 picks a free one.")] = 9092,
    folder: Annotated[Path | None, typer.Option("--folder", help="Its data.", show_default="kafka in data_dir")] = None,
    memory: Annotated[str, typer.Option(help="Java's -Xmx.")] = "512m",
    setting: Annotated[
        list[str] | None, typer.Option("--set", metavar="K=V", help="A line of server.properties; may be repeated.")
    ] = None,
) -> None:
    """Run a Kafka broker of one node until Ctrl-C. Its jars are fetched once."""
    from penstock.java.jars import CannotFetch
    from penstock.java.runtime import NoJava
    from penstock.kafka.broker import Broker, CannotStart

    configure("kafka broker")
    stopped = _stopped()
    place = folder or settings_of(config, override).data_dir / "kafka"
    broker = Broker(place, port=port, memory=memory, settings=parse_properties(setting or []))
    try:
        with errors.status("starting the broker"):
            broker.start()
    except (CannotStart, CannotFetch, NoJava) as error:
        fail(error)
    _say(f"bootstrap.servers={broker.address}, data in {place}")
    while broker.pid and not stopped.wait(0.5):
        pass
    died = broker.pid is None
    broker.stop()
    if died:
        fail(f"the broker ended; see {place / 'broker.log'}")


@kafka.command()
def produce(
    topic: Annotated[str, typer.Argument(help="Topic to send to.")],
    files: Annotated[list[Path], typer.Argument(help="Each becomes a message; - is the standard input.")],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    key: Annotated[str | None, typer.Option(help="Key of the messages.")] = None,
    partition: Annotated[int, typer.Option(min=-1, help="Partition; -1: by the key.")] = -1,
    setting: Setting = None,
    as_json: AsJson = False,
) -> None:
    """Send files, each as one message of any size."""
    given = {"bootstrap.servers": bootstrap, "large.message.enabled": "true", "log_level": "0"}
    given |= parse_properties(setting or [])
    failed = 0
    with _failures(bootstrap), _progress(sum(file.stat().st_size for file in files if file.is_file())) as step:
        from penstock.cli.kafka.files import Rate, send_files

        rate = Rate()
        for moved in send_files(given, topic, files, key, partition):
            failed += moved.error is not None
            if as_json:
                print(json.dumps(moved.document()), flush=True)
            elif moved.error:
                errors.print(f"penstock: {moved.file}: {moved.error}", style="red", markup=False, soft_wrap=True)
            if not moved.error:
                rate.add(moved)
                step(moved.bytes)
    _say(f"{rate} to {topic}")
    if failed:
        fail(f"{failed} files were not sent")


@kafka.command()
def consume(
    topic: Annotated[str, typer.Argument(help="Topic to read.")],
    into: Annotated[Path, typer.Option("--into", help="Folder for the files.")] = Path("."),
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    start: Annotated[
        str,
        typer.Option(
            "--from", help="earliest, latest, committed or an offset.", show_default="earliest; with --group committed"
        ),
    ] = "",
    count: Annotated[int | None, typer.Option("-n", min=1, help="Stop after so many messages.")] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Go on with what comes.")] = False,
    group: Annotated[str | None, typer.Option(help="Go on for this group, and commit.")] = None,
    buffer: Annotated[str, typer.Option(help="Most bytes of incomplete messages in memory.")] = "1GiB",
    setting: Setting = None,
    as_json: AsJson = False,
) -> None:
    """Write messages into files, each under the name it was sent with."""
    with _failures(bootstrap), _progress(None) as step:
        from penstock.cli.kafka.files import Rate, Reading, parse_start, receive_files
        from penstock.kafka import Consumer

        begin = parse_start(start or ("committed" if group else "earliest"))
        given = {
            "bootstrap.servers": bootstrap,
            "log_level": "0",
            "group.id": group or "penstock-kafka-consume",
            "enable.auto.commit": "false",
            "auto.offset.reset": "earliest",
            "message.assembler.buffer.capacity": parse_size(buffer),
            **parse_properties(setting or []),
        }
        rate, stopped = Rate(), _stopped()
        reading = Reading(topic, into, begin, count, follow, commits=group is not None)
        with Consumer(given) as consumer:
            for moved in receive_files(consumer, reading, stopped.is_set):
                rate.add(moved)
                step(moved.bytes)
                if as_json:
                    print(json.dumps(moved.document()), flush=True)
            counts = consumer.counts()
    dropped = {name: number for name, number in counts.items() if number and name != "assembled"}
    _say(f"{rate} from {topic}")
    if dropped:
        _say("not delivered: " + ", ".join(f"{name} {number}" for name, number in sorted(dropped.items())))


@contextmanager
def _failures(bootstrap: str) -> Iterator[None]:
    """What can go wrong is one line."""
    try:
        from confluent_kafka import KafkaError, KafkaException

        from penstock.kafka.errors import LargeMessageError
    except ImportError:
        fail("this needs confluent-kafka: pip install 'penstock-pipe[kafka]'")
    try:
        yield
    except KafkaException as error:
        told = error.args[0]
        if told.code() in (KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._ALL_BROKERS_DOWN):
            fail(f"no broker answers at {bootstrap} ({told.str()}); `penstock kafka start` runs one")
        fail(told.str())
    except (LargeMessageError, ValueError, OSError) as error:
        fail(error)


@contextmanager
def _progress(total: int | None) -> Iterator[Callable[[int], None]]:
    """A bar on the standard error where that is a terminal; what it is given are bytes."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TransferSpeedColumn

    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as shown:
        task = shown.add_task("", total=total)
        yield lambda count: shown.advance(task, count)


def _stopped() -> threading.Event:
    """Set by SIGTERM and SIGINT."""
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    return stopped


def parse_properties(pairs: list[str]) -> dict[str, str]:
    """``key=value`` pairs as a mapping. Raises typer.BadParameter."""
    parted = [pair.partition("=") for pair in pairs]
    if any(not name or not equals for name, equals, _ in parted):
        raise typer.BadParameter("write it as K=V")
    return {name: value for name, _, value in parted}


def _say(line: str) -> None:
    errors.print(f"penstock: {line}", markup=False, soft_wrap=True)
