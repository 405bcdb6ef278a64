"""``penstock kafka``: run a broker for trials, and send and receive files as large messages."""

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
from penstock.cli.options import AsJson, Commands, Config, Override, load_settings
from penstock.config import parse_size
from penstock.config.keys.handlers import check_acknowledged
from penstock.config.keys.secrets import check_kafka_secrets
from penstock.files.errors import UnsafeFile
from penstock.process.reporting import configure

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
Bootstrap = Annotated[str, typer.Option("--bootstrap", metavar="HOST:PORT", help="Address of a broker.")]
Setting = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="K=V", help="Property of the Kafka client, as K=V; may be repeated.", show_default=False
    ),
]
kafka = Commands(no_args_is_help=True, help="Run a Kafka broker for trials, and send and receive large messages.")


@kafka.command()
def start(
    config: Config = None,
    override: Override = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on loopback; 0 for a free one.")] = 9092,
    folder: Annotated[
        Path | None, typer.Option("--folder", help="Data folder of the broker.", show_default="kafka in data_dir")
    ] = None,
    memory: Annotated[str, typer.Option(help="Maximum heap of the broker (Java's -Xmx).")] = "512m",
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="K=V", help="Line of server.properties, as K=V; may be repeated."),
    ] = None,
) -> None:
    """Run a Kafka broker of one node until Ctrl-C. Its jars are downloaded once."""
    from penstock.java.jars import CannotFetch
    from penstock.java.runtime import NoJava
    from penstock.kafka.broker import Broker, CannotStart

    configure("kafka broker")
    stopped = _stop_on_signals()
    data_folder = folder or load_settings(config, override).data_dir / "kafka"
    broker = Broker(data_folder, port=port, memory=memory, settings=parse_properties(setting or []))
    try:
        with errors.status("starting the broker"):
            broker.start()
    except (CannotStart, CannotFetch, NoJava) as error:
        fail(error)
    _print_status(f"bootstrap.servers={broker.address}, data in {data_folder}")
    while broker.pid and not stopped.wait(0.5):
        pass
    # Order: before the stop, which clears the process id as well.
    has_died = broker.pid is None
    broker.stop()
    if has_died:
        fail(f"the broker ended unexpectedly; see {data_folder / 'broker.log'}")


@kafka.command()
def produce(
    topic: Annotated[str, typer.Argument(help="Topic to send to.")],
    files: Annotated[list[Path], typer.Argument(help="Files to send; - is standard input.")],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    key: Annotated[str | None, typer.Option(help="Key of the messages.")] = None,
    partition: Annotated[int, typer.Option(min=-1, help="Partition; -1 chooses it by the key.")] = -1,
    setting: Setting = None,
    as_json: AsJson = False,
) -> None:
    """Send files to a topic, each as one message of any size."""
    properties = {"bootstrap.servers": bootstrap, "large.message.enabled": "true", "log_level": "0"}
    properties |= parse_properties(setting or [])
    try:
        check_acknowledged(properties)
    except ValueError as error:
        fail(str(error))
    failed = 0
    with (
        _errors_in_one_line(bootstrap),
        _byte_progress(sum(file.stat().st_size for file in files if file.is_file())) as step,
    ):
        from penstock.cli.kafka.files import Rate, send_files

        rate = Rate()
        for transfer in send_files(properties, topic, files, key, partition):
            failed += transfer.error is not None
            if as_json:
                print(json.dumps(transfer.document()), flush=True)
            elif transfer.error:
                errors.print(f"penstock: {transfer.file}: {transfer.error}", style="red", markup=False, soft_wrap=True)
            if not transfer.error:
                rate.add(transfer)
                step(transfer.bytes)
    _print_status(f"{rate} to {topic}")
    if failed:
        fail(f"{failed} of {len(files)} files were not sent")


@kafka.command()
def consume(
    topic: Annotated[str, typer.Argument(help="Topic to read.")],
    into: Annotated[Path, typer.Option("--into", help="Folder to write files to.")] = Path("."),
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    start: Annotated[
        str,
        typer.Option(
            "--from",
            help="Start at earliest, latest, committed or an offset.",
            show_default="earliest, or committed with --group",
        ),
    ] = "",
    count: Annotated[int | None, typer.Option("-n", min=1, help="Number of messages to write.")] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Write new messages until Ctrl-C.")] = False,
    group: Annotated[str | None, typer.Option(help="Consumer group to continue and to commit for.")] = None,
    buffer: Annotated[str, typer.Option(help="Maximum bytes of incomplete messages in memory.")] = "1GiB",
    setting: Setting = None,
    as_json: AsJson = False,
) -> None:
    """Write the messages of a topic to files, each under the name that it was sent with."""
    with _errors_in_one_line(bootstrap), _byte_progress(None) as step:
        from penstock.cli.kafka.files import Rate, ReadRequest, parse_start, receive_files
        from penstock.kafka import Consumer

        first = parse_start(start or ("committed" if group else "earliest"))
        properties = {
            "bootstrap.servers": bootstrap,
            "log_level": "0",
            "group.id": group or "penstock-kafka-consume",
            "enable.auto.commit": "false",
            "auto.offset.reset": "earliest",
            "message.assembler.buffer.capacity": parse_size(buffer),
            **parse_properties(setting or []),
        }
        rate, stopped = Rate(), _stop_on_signals()
        request = ReadRequest(topic, into, first, count, follow, commits=group is not None)
        with Consumer(properties) as consumer:
            for transfer in receive_files(consumer, request, stopped.is_set):
                rate.add(transfer)
                step(transfer.bytes)
                if as_json:
                    print(json.dumps(transfer.document()), flush=True)
            counts = consumer.counts()
    dropped = {name: number for name, number in counts.items() if number and name != "assembled"}
    _print_status(f"{rate} from {topic}")
    if dropped:
        _print_status("not delivered: " + ", ".join(f"{name} {number}" for name, number in sorted(dropped.items())))


@contextmanager
def _errors_in_one_line(bootstrap: str) -> Iterator[None]:
    """End the command with one line on an error of Kafka or of a file."""
    try:
        from confluent_kafka import KafkaError, KafkaException

        from penstock.kafka.errors import LargeMessageError
    except ImportError:
        fail("this needs confluent-kafka: pip install 'penstock-pipe[kafka]'")
    try:
        yield
    except KafkaException as error:
        kafka_error = error.args[0]
        if kafka_error.code() in (KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._ALL_BROKERS_DOWN):
            fail(f"no broker answers at {bootstrap} ({kafka_error.str()}); `penstock kafka start` runs one")
        fail(kafka_error.str())
    except (LargeMessageError, ValueError, OSError) as error:
        fail(error)


@contextmanager
def _byte_progress(total: int | None) -> Iterator[Callable[[int], None]]:
    """Show a bar on standard error if it is a terminal; yield the function to call with transferred bytes."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TransferSpeedColumn

    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as progress:
        task = progress.add_task("", total=total)
        yield lambda count: progress.advance(task, count)


def _stop_on_signals() -> threading.Event:
    """Return an event that SIGTERM and SIGINT set."""
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    return stopped


def parse_properties(pairs: list[str]) -> dict[str, str]:
    """Return ``key=value`` pairs as a mapping. Raises typer.BadParameter; an unsafe file with a secret ends the
    command.
    """
    parts = [pair.partition("=") for pair in pairs]
    if any(not name or not equals for name, equals, _ in parts):
        raise typer.BadParameter("not of the form K=V")
    properties = {name: value for name, _, value in parts}
    try:
        check_kafka_secrets(properties)
    except UnsafeFile as error:
        fail(error, 2)
    return properties


def _print_status(line: str) -> None:
    errors.print(f"penstock: {line}", markup=False, soft_wrap=True)
