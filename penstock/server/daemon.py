"""Log daemon: forked, or ``python -m penstock.server.daemon`` with its task on standard input.

It empties the listeners' log buffers into topics, keeps the ledger, and serves gRPC, HTTP, Flight and Kafka's
protocol.
"""

from __future__ import annotations

from penstock.process.tuning import freeze_loaded_objects, tune

# Order: before all other imports, see penstock.process.tuning.
tune("log daemon")

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
from penstock.files.change_log import ChangeLog
from penstock.handover.disk_id import OwnDisk
from penstock.handover.drain.listener_drains import Drains
from penstock.handover.paths import RELAYS_FOLDER, listeners_in
from penstock.ledger.checkpoint_keeper import CheckpointKeeper
from penstock.ledger.event_recorder import EventRecorder
from penstock.ledger.ledger import Ledger
from penstock.log import Log, Sweeper
from penstock.process.kernel import die_with_parent, limit_connections, raise_file_limit
from penstock.process.process_end import end_process
from penstock.process.reporting import configure, starting
from penstock.process.servers.event_loop import ServerLoop
from penstock.process.servers.http_limits import HttpLimits
from penstock.server.alarms.delivery import AlarmDelivery
from penstock.server.alarms.register import FILE_NAME as ALARMS_FILE
from penstock.server.alarms.register import AlarmRegister
from penstock.server.alarms.watch import AlarmWatch, WatchClock, format_receipt
from penstock.server.api.entries import EntriesApi
from penstock.server.api.monitoring import MonitoringApi
from penstock.server.auth.rights import TokenAuthenticator
from penstock.server.http.application import OPEN_PATHS, create_app
from penstock.server.http.body_limits import closed_family, refused_family
from penstock.server.http.monitoring_routes import monitoring_routes
from penstock.server.http.operator_routes import operator_routes
from penstock.server.http.routes import daemon_routes
from penstock.server.live_settings import Alarms, Reconfigurer, log_settings
from penstock.server.metrics.prometheus import Family
from penstock.server.metrics.topic_metrics import refused_batches_family
from penstock.server.servers import Bound, serve
from penstock.supervise.daemon_channel import DaemonEnd

if TYPE_CHECKING:
    from penstock.server.metrics.opentelemetry import OtelExport

_LOGGER = logging.getLogger(__name__)
SWITCH_INTERVAL_S = 0.001
"""Python's thread switch interval: with the default of 5 ms a call waits while pages of other calls are encoded."""


def open_log(settings: Settings) -> Log:
    """Open the log in the data directory; recovers topics."""
    return Log(settings.topics, **log_settings(settings))


async def run(settings: Settings, wakes: dict[str, int], channel: int | None = None) -> None:
    """Serve until SIGTERM, then empty the log buffers again."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    with starting(f"the log in {settings.topics} cannot be opened"):
        log = open_log(settings)
    with starting(f"cannot start in {settings.data_dir}"):
        ledger = Ledger(log, settings.buffers, [listener.name for listener in settings.listener])
        internal = internal_token(settings.data_dir, replace=True) if settings.security.tokens else None
        drains = Drains(settings.buffers, log)
    # Limit: gRPC and HTTP get a quarter of the descriptors each, topics another one.
    connections = limit_connections(settings.log.max_connections, raise_file_limit() // 4, "log.max_connections")
    limits = HttpLimits(settings.log.max_bodies, settings.log.request_timeout, connections)
    delivery = AlarmDelivery(settings.alarms)
    register = AlarmRegister(
        settings.data_dir / ALARMS_FILE,
        delivery.enqueue if settings.alarms.has_destination else None,
        log.clock.expected,
    )
    delivery.on_finished = register.mark_finished
    reports = MonitoringApi(
        settings,
        log,
        ledger,
        lambda: refused_family(limits),
        lambda: closed_family(limits),
        lambda: refused_batches_family(api.refused_batches),
        delivery.family,
    )
    alarms = make_alarms(settings.alarms, log.clock, reports, register, delivery)
    changes = ChangeLog(settings.data_dir)
    guard = TokenAuthenticator.from_config(settings.security, internal)
    api = EntriesApi(log, guard, reports.post, changes, disk=OwnDisk(settings.data_dir / RELAYS_FOLDER))
    sweeper, keeper, recorder = (
        Sweeper(log),
        CheckpointKeeper(ledger),
        EventRecorder(ledger, log, reports.pulses, reports.landing_failure),
    )

    def start_background_work(_: Bound) -> None:
        freeze_loaded_objects()
        with starting(f"cannot start in {settings.data_dir}"):
            # Also for listeners that are no longer configured: their buffers may hold messages.
            drains.start({**dict.fromkeys(listeners_in(settings.buffers)), **wakes})
            drains.retain(wakes)
        sweeper.start()
        keeper.start()
        recorder.start()
        if channel is not None:
            Reconfigurer(DaemonEnd(channel), log, ledger, reports, api.guard, drains, alarms).start()

    routes = daemon_routes(api, stat=reports.stat, metrics=reports.metrics, balance=reports.balance)
    app = create_app(
        [*routes, *monitoring_routes(reports), *operator_routes(register, changes)],
        api.guard,
        open_paths=OPEN_PATHS if settings.security.open_reflection else (),
        hosts=(*settings.security.hosts, split_address(settings.log.http)[0]),
        limits=limits,
    )
    export = start_export(settings.otel, reports.metrics)
    alarms.watch.start()
    if settings.alarms.has_destination:
        delivery.start()
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
        # Order: the servers answer first. After a kill under load, drains and committers of full log buffers share the
        # interpreter with the start, and would hold it up for many seconds.
        ready=start_background_work,
        http_limits=limits,
    )
    # Order: the drains first, so that their last messages are counted; the log last, because all of them append to it.
    await asyncio.to_thread(drains.stop)
    if export:
        await asyncio.to_thread(export.stop)
    alarms.watch.stop()
    delivery.stop()
    await asyncio.to_thread(sweeper.stop)
    await asyncio.to_thread(recorder.stop)
    await asyncio.to_thread(keeper.stop)
    log.close()


def start_export(config: OtelConfig, families: Callable[[], Iterable[Family]]) -> OtelExport | None:
    """Start the export of metrics if an endpoint is configured."""
    if not config.endpoint:
        return None
    # Imported here: it takes many megabytes, and most daemons do not export.
    from penstock.server.metrics.opentelemetry import OtelExport

    export = OtelExport(config, families)
    export.start()
    return export


def make_alarms(
    config: AlarmsConfig, clock: WatchClock, reports: MonitoringApi, register: AlarmRegister, delivery: AlarmDelivery
) -> Alarms:
    """Return the alarms. The rules are evaluated also without a destination: the console shows their state."""
    watch = AlarmWatch(
        config.every,
        clock,
        reports.metrics,
        lambda: format_receipt(reports.balance({})),
        register.enter,
        register.firing(),
    )
    return Alarms(delivery, register, watch)


def main() -> None:
    """Run the task from standard input."""
    die_with_parent()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    configure("log daemon")
    # Connections and open topics take descriptors.
    raise_file_limit()
    task: dict[str, Any] = json.load(sys.stdin)
    with asyncio.Runner(loop_factory=ServerLoop) as runner:
        runner.run(run(Settings.model_validate(task["settings"]), task["wakes"], task.get("channel")))
    # Crash: everything is synced here. A disk that hangs may still hold a reader's thread, for which the interpreter
    # would wait, so the process ends at once.
    end_process(0)


if __name__ == "__main__":
    main()
