"""``penstock promote``: a topic from the log to Kafka, with the pipeline that reads it."""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from penstock.cli.common import console, fail
from penstock.cli.kafka.broker import Setting, parse_properties
from penstock.cli.options import Configured
from penstock.cli.progress import Progress

if TYPE_CHECKING:
    from penstock.config import Settings
    from penstock.landing.table_paths import Layout

NAME = re.compile(r"[A-Za-z0-9_\-.]{1,249}")


def promote(
    settings: Configured,
    topic: Annotated[str, typer.Argument(help="The topic of the log.")],
    to: Annotated[Literal["kafka"], typer.Option(help="Where it goes.")] = "kafka",
    name: Annotated[str | None, typer.Option("--as", help="Its name in Kafka.", show_default="the same")] = None,
    partitions: Annotated[int, typer.Option(min=1, help="Of a topic that has to be made.")] = 1,
    bootstrap: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="A broker.", show_default="pipeline.kafka")
    ] = None,
    copy_only: Annotated[bool, typer.Option("--copy-only", help="Leave the pipeline where it is.")] = False,
    setting: Setting = None,
) -> None:
    """Copy a topic to Kafka, each row once, and have the pipeline go on there. Killed, it goes on when run again."""
    servers = {"bootstrap.servers": bootstrap} if bootstrap else {}
    kafka = {**settings.pipeline.kafka, **servers, **parse_properties(setting or [])}
    if not kafka.get("bootstrap.servers"):
        fail("say where Kafka is, by --bootstrap or pipeline.kafka", 2)
    if not NAME.fullmatch(topic) or not (settings.topics / topic).is_dir():
        fail(f"there is no topic {topic!r}", 2)
    try:
        from penstock.landing.landing_lock import PipelineRunning, take_lock
        from penstock.landing.table_paths import Layout
        from penstock.upkeep.promote.kafka_writer import CannotSend
        from penstock.upkeep.promote.promotion import CannotMove, Promotion
    except ImportError:
        fail("this needs confluent-kafka and Spark: pip install 'penstock-pipe[spark,kafka]'")
    layout = Layout.of(settings.tables)
    try:
        with Progress(f"copying {topic}") as progress:
            promotion = Promotion(settings.topics, layout, topic, kafka, name or topic, partitions)
            copied = promotion.copy(lambda done, of: progress.tell(f"{done:,} of {of:,}"))
            promotion.close()
        console.print(f"{copied:,} rows copied to {promotion.map.kafka}, {promotion.map.end:,} in all", markup=False)
        if not copy_only:
            take_lock(layout, threading.Event(), patience=0.0)  # held until this process ends
            _move(settings, layout)
    except (CannotSend, CannotMove, PipelineRunning, FileNotFoundError) as error:
        fail(error)


def _move(settings: Settings, layout: Layout) -> None:
    from penstock.proof.ledger_posts import LedgerAway, LedgerClient, LedgerRefused
    from penstock.proof.moved_topics import tell
    from penstock.upkeep.checkpoint_repair import mend
    from penstock.upkeep.promote.promotion import move

    mend(layout)
    for topic, one in move(layout).items():
        where = ", ".join(f"partition {p} from {at:,} on" for p, at in sorted(one.begins.items()))
        console.print(
            f"the pipeline had landed {topic} up to {one.landed:,}; it goes on in Kafka: {where}", markup=False
        )
    try:
        tell(settings.topics, layout, LedgerClient.of(settings))
    except (LedgerAway, LedgerRefused) as error:
        fail(f"the ledger was not told ({error}): run this again while the log daemon runs")
    if settings.pipeline.source != "kafka":
        console.print('set pipeline.source = "kafka" now, and a kafka handler in the place of the log\'s')
