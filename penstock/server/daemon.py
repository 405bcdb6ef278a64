"""The log daemon: ``python -m penstock.server.daemon``, its task on standard input.

It empties the listeners' log buffers into topics, keeps the ledger, and serves gRPC and HTTP.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from typing import Any

import penstock.ingest.lean  # noqa: F401
from penstock.config import Settings, TopicConfig
from penstock.ingest.process import die_with_parent
from penstock.ledger.ledger import Ledger
from penstock.log import Log, TopicSettings
from penstock.server.api import Api
from penstock.server.drain import Drain
from penstock.server.http import create_app
from penstock.server.reports import Reports
from penstock.server.serve import serve


def topic_settings(config: TopicConfig) -> TopicSettings:
    """A topic's settings as the log takes them."""
    return TopicSettings(
        message_size_limit=config.message_size_limit,
        segment_size_limit=config.segment_size_limit,
        rotate_after=config.rotate_after,
        durability=config.durability,
    )


def open_log(settings: Settings) -> Log:
    """The log in the data directory, recovered."""
    return Log(
        settings.topics,
        topic_settings(settings.log.topic_defaults),
        overrides={name: topic_settings(config) for name, config in settings.topic.items()},
        max_topics=settings.log.max_topics,
    )


async def run(settings: Settings, wakes: dict[str, int]) -> None:
    """Until SIGTERM: then the log buffers are emptied once more."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    log = open_log(settings)
    ledger = Ledger(log, settings.buffers, [listener.name for listener in settings.listener])
    drains = [Drain(x, settings.buffers, log, wakes[x.name], _say) for x in settings.listener if x.name in wakes]
    for drain in drains:
        drain.start()
    api = Api(log)
    reports = Reports(settings, log, ledger)
    app = create_app(
        api, stat=reports.stat, metrics=reports.metrics, balance=reports.balance, routers=[reports.router()]
    )
    await serve(api, app, grpc_address=settings.log.grpc, http_address=settings.log.http, stop=stop)
    for drain in drains:
        drain.stop()
    for drain in drains:
        await asyncio.to_thread(drain.join)
    log.close()


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main() -> None:
    """Run the task that stands on standard input."""
    die_with_parent()
    task: dict[str, Any] = json.load(sys.stdin)
    asyncio.run(run(Settings.model_validate(task["settings"]), task["wakes"]))


if __name__ == "__main__":
    main()
