"""``penstock promote``: continue a topic of the log in Kafka, with the pipeline that reads it.

Each step can be repeated: a killed command continues when it is run again.
"""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from penstock.cli.common import console, fail
from penstock.cli.kafka.broker import Setting, parse_properties
from penstock.cli.options import ConfiguredData
from penstock.cli.progress import Progress
from penstock.files.change_log import record_command

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.config import Settings
    from penstock.landing.table_paths import Layout

TOPIC_NAME = re.compile(r"[A-Za-z0-9_\-.]{1,249}")


def promote(
    settings: ConfiguredData,
    topic: Annotated[str, typer.Argument(help="Topic of the log.")],
    to: Annotated[Literal["kafka"], typer.Option(help="Destination.")] = "kafka",
    name: Annotated[
        str | None, typer.Option("--as", help="Name of the topic in Kafka.", show_default="the same")
    ] = None,
    partitions: Annotated[int, typer.Option(min=1, help="Number of partitions of a topic that is created.")] = 1,
    bootstrap: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Address of a broker.", show_default="pipeline.kafka")
    ] = None,
    copy_only: Annotated[
        bool, typer.Option("--copy-only", help="Copy the topic, but keep the pipeline reading from the log.")
    ] = False,
    setting: Setting = None,
) -> None:
    """Copy a topic to Kafka, each row once, and let the pipeline continue there.

    A killed command continues when it is run again.
    """
    # `to` has one value so far. It makes the destination visible in the command.
    servers = {"bootstrap.servers": bootstrap} if bootstrap else {}
    kafka = {**settings.pipeline.kafka, **servers, **parse_properties(setting or [])}
    if not kafka.get("bootstrap.servers"):
        fail("no broker is named: use --bootstrap or set pipeline.kafka", 2)
    if not TOPIC_NAME.fullmatch(topic) or not (settings.topics / topic).is_dir():
        fail(f"no topic is named {topic!r}; `penstock topics` lists them", 2)
    try:
        from penstock.kafka.errors import KafkaAway
        from penstock.landing.landing_lock import PipelineRunning, acquire_landing_lock
        from penstock.landing.table_paths import Layout
        from penstock.upkeep.promote.kafka_writer import CannotSend
        from penstock.upkeep.promote.promotion import CannotMove, Promotion
    except ImportError:
        fail("this needs confluent-kafka and Spark: pip install 'penstock-pipe[spark,kafka]'")
    layout = Layout.for_tables(settings.tables)
    try:
        with Progress(f"copying {topic}") as progress:
            promotion = Promotion(settings.topics, layout, topic, kafka, name or topic, partitions)
            copied = promotion.copy(lambda copied_rows, of: progress.update(f"{copied_rows:,} of {of:,}"))
            promotion.close()
        if copied:
            change = f"copy {copied} rows of topic {topic} to topic {promotion.map.kafka_topic} of Kafka"
            record_command(settings.data_dir, change)
        console.print(
            f"{copied:,} rows copied to {promotion.map.kafka_topic}, {promotion.map.end:,} in all", markup=False
        )
        if not copy_only:
            # Order: the pipeline's lock before the move, so that no pipeline lands from the log in between.
            # Held until this process ends.
            acquire_landing_lock(layout, threading.Event(), patience=0.0)
            _move_pipeline(settings, layout, kafka)
    except (CannotSend, CannotMove, KafkaAway, PipelineRunning, FileNotFoundError) as error:
        fail(error)


def _move_pipeline(settings: Settings, layout: Layout, kafka: Mapping[str, str]) -> None:
    from penstock.proof.posts.ledger_client import LedgerAway, LedgerClient, LedgerRefused
    from penstock.proof.posts.moved_topics import post_moves
    from penstock.upkeep.promote.promotion import move_pipeline
    from penstock.upkeep.repair.checkpoint_repair import repair_checkpoint

    repair_checkpoint(layout)
    for topic, moved_topic in move_pipeline(layout, kafka).items():
        record_command(settings.data_dir, f"move the pipeline of topic {topic} to Kafka")
        where = ", ".join(
            f"partition {partition} from {offset:,} on" for partition, offset in sorted(moved_topic.begins.items())
        )
        console.print(
            f"the pipeline had landed {topic} up to {moved_topic.landed:,}; it continues in Kafka: {where}",
            markup=False,
        )
    try:
        post_moves(settings.topics, layout, LedgerClient.from_settings(settings))
    except (LedgerAway, LedgerRefused) as error:
        fail(f"the ledger does not know of the move ({error}): run this command again while the log daemon runs")
    if settings.pipeline.source != "kafka":
        console.print('now set pipeline.source = "kafka", and replace the log handler by a kafka handler')
