"""The endpoint of Kafka's protocol: accepts connections and owns the handlers of all requests."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl

from penstock.config import split_address
from penstock.server.api.entries import EntriesApi
from penstock.server.event_loop import LoopCalls
from penstock.server.kafka.calls import Address, Handler, QuickHandler
from penstock.server.kafka.connection.connection import Connection, Serving
from penstock.server.kafka.connection.frames import Frames, TlsFrames
from penstock.server.kafka.entries.fetch import Fetching
from penstock.server.kafka.entries.produce import Producing
from penstock.server.kafka.groups.group_offsets import GroupOffsets
from penstock.server.kafka.groups.groups import Groups, group_handlers
from penstock.server.kafka.limits import KafkaLimits
from penstock.server.kafka.metadata.cluster import Cluster, CreationQuota
from penstock.server.kafka.metadata.topics import Topics
from penstock.server.kafka.schema.messages import Api

_LOGGER = logging.getLogger(__name__)


class KafkaEndpoint:
    """Serves Kafka clients on one event loop, which owns all of its state.

    ``advertised`` is the address that clients connect to after the first one; empty means the address that they used.
    """

    def __init__(self, api: EntriesApi, limits: KafkaLimits | None = None, advertised: str = "") -> None:
        self._api, self._limits, self._advertised = api, limits or KafkaLimits(), advertised
        self._groups = Groups(offsets := GroupOffsets(api))
        calls = LoopCalls(asyncio.get_running_loop())
        producing, fetching = Producing(api, calls), Fetching(api)
        self._unanswered_refusals = producing.unanswered_refusals
        handlers = _handlers(api, producing, fetching, self._groups, offsets)
        quick: dict[Api, QuickHandler] = {Api.PRODUCE: producing.produce_at_once, Api.FETCH: fetching.fetch}
        self._serving = Serving(handlers, quick, api.guard, self._limits, calls)
        self._connections: dict[Frames, Connection] = {}
        self._full_reports, self._next_full_report_s = 0, 0.0
        self._server: asyncio.Server | None = None

    async def start(self, listener: socket.socket, tls: ssl.SSLContext | None) -> None:
        """Accept connections from now on."""
        self._server = await asyncio.get_running_loop().create_server(
            self._tls_frames if tls else self._frames,
            sock=listener,
            ssl=tls,
            ssl_handshake_timeout=10 if tls else None,
        )

    def _frames(self, read_ahead_bytes: int = 0) -> Frames:
        return Frames(self._limits, self._serve, _warn_over_limit, read_ahead_bytes)

    def _tls_frames(self) -> TlsFrames:
        return TlsFrames(self._frames(TlsFrames.READ_AHEAD_BYTES))

    async def _serve(self, frames: Frames) -> None:
        # Limit: each connection costs a task and buffers.
        if len(self._connections) >= self._limits.connections and not self._evict_idle():
            self._report_full("a new one is closed, because a request is under way on every other one")
            frames.abort()
            return
        connection = self._connections[frames] = Connection(frames, self._serving, self._address(frames))
        try:
            await connection.run()
        except asyncio.CancelledError:
            frames.abort()
        except Exception:
            _LOGGER.exception("kafka: connection failed")
            frames.abort()
        finally:
            self._connections.pop(frames, None)

    def _evict_idle(self) -> bool:
        """Close the connection without a request for the longest time; return whether there is one.

        Connections that never sent a request go first, so that silent ones cannot displace clients at work.
        """
        now = asyncio.get_running_loop().time()
        idle = [
            frames
            for frames, connection in self._connections.items()
            if connection.is_idle and now - frames.last_request_s >= MIN_IDLE_S
        ]
        if not idle:
            return False
        longest = min(idle, key=lambda frames: (frames.has_requested, frames.last_request_s))
        self._report_full("the one that was idle for the longest time is closed for a new one")
        # Order: out of the dictionary at once, so that its place counts as free; its task ends later.
        del self._connections[longest]
        longest.abort()
        return True

    def _report_full(self, outcome: str) -> None:
        # Limit: one line in a while, however many connections come.
        self._full_reports += 1
        now = asyncio.get_running_loop().time()
        if now >= self._next_full_report_s:
            self._next_full_report_s = now + FULL_REPORT_INTERVAL_S
            text = "kafka: log.max_connections (%d) are open: %s (%d times since the last report)"
            _LOGGER.warning(text, self._limits.connections, outcome, self._full_reports)
            self._full_reports = 0

    def _address(self, frames: Frames) -> Address:
        if self._advertised:
            return split_address(self._advertised)
        host, port, *_ = frames.transport.get_extra_info("sockname")
        return str(host), int(port)

    async def close(self, grace: float) -> None:
        """Stop accepting; end connections once their requests are answered, or after ``grace`` seconds."""
        if self._server is not None:
            self._server.close()
        # Order: release members that wait in a rebalance first, so that their connections can be answered.
        self._groups.close()
        tasks = [frames.task for frames in self._connections]
        await asyncio.wait([asyncio.create_task(asyncio.sleep(min(grace, SETTLE_S)))])
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=grace)
        self._unanswered_refusals.report()


MIN_IDLE_S = 1.0
"""Idle time before a connection may be closed for a new one: clients that take turns do not close each other's."""
FULL_REPORT_INTERVAL_S = 10.0
SETTLE_S = 0.5
"""Time for answers in flight when the server stops."""


def _warn_over_limit() -> None:
    _LOGGER.warning("kafka: connection closed: requests in flight exceed log.max_bodies")


def _handlers(
    api: EntriesApi, producing: Producing, fetching: Fetching, groups: Groups, offsets: GroupOffsets
) -> dict[Api, Handler]:
    quota = CreationQuota()
    cluster, topics = Cluster(api, quota), Topics(api, quota)
    return {
        Api.PRODUCE: producing.produce,
        Api.INIT_PRODUCER_ID: producing.init_producer_id,
        Api.LIST_OFFSETS: fetching.list_offsets,
        Api.OFFSET_FOR_LEADER_EPOCH: fetching.offset_for_leader_epoch,
        Api.METADATA: cluster.metadata,
        Api.DESCRIBE_CLUSTER: cluster.describe_cluster,
        Api.DESCRIBE_TOPIC_PARTITIONS: cluster.describe_topic_partitions,
        Api.FIND_COORDINATOR: cluster.find_coordinator,
        Api.CREATE_TOPICS: topics.create,
        Api.DELETE_TOPICS: topics.delete,
        Api.DESCRIBE_CONFIGS: topics.describe_configs,
        **group_handlers(groups, offsets),
    }
