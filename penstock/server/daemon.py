"""The log daemon: forked, or ``python -m penstock.server.daemon``, its task on standard input.

It empties the listeners' log buffers into topics, keeps the ledger, and serves gRPC, HTTP, Flight and Kafka's clients.
"""

from __future__ import annotations

from penstock.process.tuning import freeze_loaded_objects, tune

tune("log daemon")  # first, see penstock.process.tuning

import asyncio
import json
import logging
import signal
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from penstock.config import OtelConfig, Settings, split_address
from penstock.config.daemon_access import internal_token
from penstock.config.keys.alarms import AlarmsConfig
from penstock.handover.listener_drains import Drains
from penstock.handover.paths import listeners_in
from penstock.ledger.checkpoint_keeper import CheckpointKeeper
from penstock.ledger.event_recorder import EventRecorder
from penstock.ledger.ledger import Ledger
from penstock.log import Log, Sweeper
from penstock.process.http_limits import HttpLimits
from penstock.process.kernel import die_with_parent, raise_file_limit
from penstock.process.process_end import end_process
from penstock.process.reporting import configure, starting
from penstock.server.alarms.delivery import AlarmDelivery
from penstock.server.alarms.watch import AlarmWatch, WatchClock, words_of
from penstock.server.api.entries import EntriesApi
from penstock.server.api.monitoring import MonitoringApi
from penstock.server.auth.rights import TokenAuthenticator
from penstock.server.http.application import OPEN_PATHS, create_app
from penstock.server.http.body_limits import refused_family
from penstock.server.http.routes import daemon_routes
from penstock.server.live_settings import Reconfigurer, log_settings
from penstock.server.metrics.prometheus import Family
from penstock.server.servers import serve
from penstock.supervise.daemon_channel import DaemonEnd

if TYPE_CHECKING:
    from penstock.server.metrics.opentelemetry import OtelExport

_LOGGER = logging.getLogger(__name__)
SWITCH_INTERVAL = 0.001
"""Seconds after which a thread that computes lets others go on: with the usual 5 ms a call waits for pages and batches
that are made for others.
"""


def open_log(settings: Settings) -> Log:
    """The log in the data directory, recovered."""
    return Log(settings.topics, **log_settings(settings))


async def run(settings: Settings, wakes: dict[str, int], channel: int | None = None) -> None:
    """Until SIGTERM: then the log buffers are emptied once more."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with starting(f"the log in {settings.topics} cannot be opened"):
        log = open_log(settings)
    with starting(f"cannot start in {settings.data_dir}"):
        ledger = Ledger(log, settings.buffers, [listener.name for listener in settings.listener])
        internal = internal_token(settings.data_dir) if settings.security.tokens else None
        drains = Drains(settings.buffers, log)
        drains.start({**dict.fromkeys(listeners_in(settings.buffers)), **wakes})  # those not configured any more too
        drains.retain(wakes)
    limits = HttpLimits(settings.log.max_bodies, settings.log.request_timeout, settings.log.max_connections)
    delivery = AlarmDelivery(settings.alarms)
    reports = MonitoringApi(settings, log, ledger, lambda: refused_family(limits), delivery.family)
    api = EntriesApi(log, TokenAuthenticator.of(settings.security, internal), reports.post)
    sweeper, keeper, recorder = Sweeper(log), CheckpointKeeper(ledger), EventRecorder(ledger, log)
    sweeper.start()
    keeper.start()
    recorder.start()
    if channel is not None:
        Reconfigurer(DaemonEnd(channel), log, ledger, reports, api.guard, drains).start()
    routes = daemon_routes(api, stat=reports.stat, metrics=reports.metrics, balance=reports.balance)
    app = create_app(
        [*routes, *reports.routes()],
        api.guard,
        open_paths=OPEN_PATHS if settings.security.open_reflection else (),
        hosts=(*settings.security.hosts, split_address(settings.log.http)[0]),
        limits=limits,
    )
    export = start_export(settings.otel, reports.metrics)
    watch = start_alarms(settings.alarms, log.clock, reports, delivery)
    await serve(
        api,
        app,
        grpc_address=settings.log.grpc,
        http_address=settings.log.http,
        flight_address=settings.log.flight,
        kafka_address=settings.log.kafka,
        kafka_advertised=settings.log.kafka_advertised,
        security=settings.security,
        stop=stop,
        ready=lambda _: freeze_loaded_objects(),
        http_limits=limits,
    )
    await asyncio.to_thread(drains.stop)
    if export:
        await asyncio.to_thread(export.stop)
    if watch:
        watch.stop()
    delivery.stop()
    await asyncio.to_thread(sweeper.stop)
    await asyncio.to_thread(recorder.stop)
    await asyncio.to_thread(keeper.stop)
    log.close()


def start_export(config: OtelConfig, families: Callable[[], Iterable[Family]]) -> OtelExport | None:
    """The export of metrics, started, where there is to be one."""
    if not config.endpoint:
        return None
    from penstock.server.metrics.opentelemetry import OtelExport  # many megabytes that most daemons do without

    export = OtelExport(config, families)
    export.start()
    return export


def start_alarms(
    config: AlarmsConfig, clock: WatchClock, reports: MonitoringApi, delivery: AlarmDelivery
) -> AlarmWatch | None:
    """Start to evaluate the rules if alarms have a destination."""
    if not (config.webhook or config.command):
        return None
    watch = AlarmWatch(config.every, clock, reports.metrics, lambda: words_of(reports.balance({})), delivery.tell)
    delivery.start()
    watch.start()
    return watch


def main() -> None:
    """Run the task that stands on standard input."""
    die_with_parent()
    sys.setswitchinterval(SWITCH_INTERVAL)
    configure("log daemon")
    raise_file_limit()  # connections and open topics take descriptors
    task: dict[str, Any] = json.load(sys.stdin)
    # The loop is named: what else is installed (uvloop) changes nothing.
    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        runner.run(run(Settings.model_validate(task["settings"]), task["wakes"], task.get("channel")))
    # A Flight stream that nobody reads may still hold a thread; all that is to be kept is kept.
    end_process(0)


if __name__ == "__main__":
    main()
