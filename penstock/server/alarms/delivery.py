"""Delivers alarms to webhooks, Slack, PagerDuty, mail servers and commands without delaying the daemon.

One thread runs an event loop; each delivery is a task of its own, so that a destination that hangs delays neither the
other one nor later alarms. Only the begin and the end of the same alarm keep their order.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import shlex
import signal
import threading
from collections import Counter, defaultdict, deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from penstock.config.keys.alarms import AlarmsConfig
from penstock.errors import PenstockError
from penstock.process.module_search import module_command
from penstock.server.alarms.templates import Alarm, mail, pagerduty_event, slack_message
from penstock.server.metrics.prometheus import Family

MAX_UNFINISHED = 100
"""Limit: unfinished alarms; each has one attempt at a time per destination."""
MAX_OPEN_ATTEMPTS = 8
"""Limit: open connections or commands per destination: a burst of alarms must not start a hundred processes."""
FIRST_PAUSE_S, MAX_PAUSE_S = 1.0, 60.0
"""Pauses between attempts; each is twice the previous one."""
MAX_ERROR_BYTES = 4096
"""Limit: retained end of a command's standard error, whose last line is logged."""
ERROR_GRACE_S = 0.5
"""Time to read the rest of standard error; a child in another process group may hold it open forever."""
MIN_SECRET_CHARACTERS = 4
"""Length from which arguments are masked; shorter ones are options such as -X, and masked logs would be unreadable."""
SENT, FAILED, DROPPED = "sent", "failed", "dropped"
REMOVED = "removed"
"""Outcome of a delivery whose destinations are no longer configured; it is counted as failed."""
_LOGGER = logging.getLogger(__name__)
Attempt = Callable[[Alarm], Awaitable[None]]


class NotDelivered(PenstockError):
    """An attempt failed; the text says why, without secrets."""


class AlarmDelivery(threading.Thread):
    """The delivery thread. ``counts``: alarms sent, given up, and dropped because too many are unfinished."""

    def __init__(self, config: AlarmsConfig) -> None:
        super().__init__(name="alarm delivery", daemon=True)
        self._secrets: list[str] = []
        self.replace(config)
        # The lock guards what `enqueue` shares with the event loop: these four.
        self._lock = threading.Lock()
        self._inbox: deque[dict[str, Any]] = deque()
        self._unfinished = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_stopped = False
        self._newest: dict[str, asyncio.Task[str]] = {}
        self.on_finished: Callable[[Alarm, str], None] = lambda *_: None
        """Called once for each message, on this thread, with the outcome: SENT if each destination accepted it, FAILED
        if one was given up, REMOVED if none is configured any more."""
        self.counts: Counter[str] = Counter()

    @property
    def config(self) -> AlarmsConfig:
        """The settings by which alarms are delivered."""
        return self._config

    def replace(self, config: AlarmsConfig) -> None:
        """Deliver by ``config`` from now on, also unfinished alarms; those for a removed destination are given up."""
        attempts: dict[str, Attempt] = {}
        if config.webhook:
            attempts["webhook"] = lambda alarm: self._post(config.webhook, alarm)
        if config.command:
            attempts["command"] = self._run_command
        if config.slack:
            attempts["slack"] = lambda alarm: self._post(config.slack, slack_message(alarm))
        if config.pagerduty:
            attempts["pagerduty"] = lambda alarm: self._post(
                config.pagerduty_url, pagerduty_event(alarm, config.pagerduty)
            )
        if config.smtp:
            attempts["smtp"] = self._send_mail
        # Order: the secrets first, and the previous ones stay: an attempt that is open may still fail with them.
        self._secrets = sorted({*self._secrets, *_secrets_of(config)}, key=len, reverse=True)
        # Threads: both are replaced as a whole, because the event loop reads them without a lock.
        self._config, self._attempts = config, attempts

    def enqueue(self, message: dict[str, Any]) -> bool:
        """Queue a message; drop, count and log it, and return False, if too many are unfinished."""
        with self._lock:
            if self._unfinished >= MAX_UNFINISHED:
                self.counts[DROPPED] += 1
                _LOGGER.warning("alarms: dropped an alarm: more than %d are unfinished", MAX_UNFINISHED)
                return False
            self._unfinished += 1
            self._inbox.append(message)
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._wake.set)
        return True

    def run(self) -> None:
        """Deliver until stopped."""
        asyncio.run(self._serve())

    def stop(self) -> None:
        """End the thread. Unfinished alarms stay in the register, which delivers them after the next start."""
        with self._lock:
            self._is_stopped = True
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._wake.set)

    def family(self) -> Family:
        """Return the metric of alarms by outcome."""
        samples = [({"result": result}, self.counts[result]) for result in (SENT, FAILED, DROPPED)]
        return Family("penstock_alarms_total", "counter", "Alarms sent to a hook, by result", samples)

    async def try_once(self, alarm: Alarm) -> dict[str, str]:
        """Deliver an alarm to each destination once; return the error of each, "" for success."""
        return {name: await self._attempt_error(attempt, alarm) for name, attempt in self._attempts.items()}

    async def _attempt_error(self, attempt: Attempt, alarm: Alarm) -> str:
        """Attempt a delivery; return why it failed, without secrets, "" for success."""
        try:
            await self._within_deadline(attempt, alarm)
        except Exception as error:  # noqa: BLE001 - of the libraries: an alarm must not end the thread
            return self._without_secrets(str(error) or type(error).__name__)
        return ""

    async def _serve(self) -> None:
        self._wake = asyncio.Event()
        self._slots = defaultdict[str, asyncio.Semaphore](lambda: asyncio.Semaphore(MAX_OPEN_ATTEMPTS))
        with self._lock:
            self._loop = asyncio.get_running_loop()
        tasks: set[asyncio.Task[None]] = set()
        try:
            while not self._is_stopped:
                # Order: before the inbox is read; otherwise a message that arrives in between waits for the next one.
                self._wake.clear()
                while (message := self._next_message()) is not None:
                    task = asyncio.create_task(self._deliver(message))
                    tasks.add(task)
                    task.add_done_callback(tasks.discard)
                await self._wake.wait()
        finally:
            with self._lock:
                self._loop = None

    def _next_message(self) -> dict[str, Any] | None:
        with self._lock:
            return self._inbox.popleft() if self._inbox else None

    async def _deliver(self, message: dict[str, Any]) -> None:
        alarm = json.dumps([message.get("alarm"), message.get("labels")])
        deliveries: list[asyncio.Task[str]] = []
        try:
            async with asyncio.TaskGroup() as group:
                for name in self._attempts:
                    key = f"{name} {alarm}"
                    delivery = group.create_task(self._deliver_in_order(self._newest.get(key), name, message))
                    self._newest[key] = delivery
                    deliveries.append(delivery)
                    delivery.add_done_callback(lambda task, key=key: self._forget(key, task))  # type: ignore[misc]
        finally:
            with self._lock:
                self._unfinished -= 1
        # A message that a stop cancels is not finished: the register delivers it after the next start.
        outcomes = {delivery.result() for delivery in deliveries}
        self.on_finished(message, FAILED if FAILED in outcomes else SENT if SENT in outcomes else REMOVED)

    def _forget(self, key: str, delivery: asyncio.Task[str]) -> None:
        if self._newest.get(key) is delivery:
            del self._newest[key]

    async def _deliver_in_order(self, previous: asyncio.Task[str] | None, name: str, alarm: Alarm) -> str:
        # Order: the begin of an alarm is delivered before its end.
        if previous is not None:
            await asyncio.wait([previous])
        outcome = await self._retry(name, alarm)
        self.counts[SENT if outcome == SENT else FAILED] += 1
        return outcome

    async def _retry(self, name: str, alarm: Alarm) -> str:
        """Attempt a delivery until it succeeds; return SENT, FAILED or REMOVED."""
        pause, waited = FIRST_PAUSE_S, 0.0
        while attempt := self._attempts.get(name):
            async with self._slots[name]:
                reason = await self._attempt_error(attempt, alarm)
            if not reason:
                return SENT
            if waited >= self._config.retry_for:
                _LOGGER.warning("alarms.%s: gave up an alarm: %s", name, reason)
                return FAILED
            _LOGGER.warning("alarms.%s: %s; retrying in %.0f s", name, reason, pause)
            await asyncio.sleep(pause)
            waited, pause = waited + pause, min(2 * pause, MAX_PAUSE_S)
        _LOGGER.warning("alarms.%s: gave up an alarm: the destination is no longer configured", name)
        return REMOVED

    async def _within_deadline(self, attempt: Attempt, alarm: Alarm) -> None:
        """Limit the whole attempt: a timeout for each read would let a byte now and then hold it open forever."""
        try:
            async with asyncio.timeout(self._config.timeout):
                await attempt(alarm)
        except TimeoutError:
            raise NotDelivered(f"no answer within {self._config.timeout:g} s") from None

    async def _post(self, url: str, document: Mapping[str, Any]) -> None:
        await self._run_process({"url": url, "document": document})

    async def _send_mail(self, alarm: Alarm) -> None:
        config = self._config
        await self._run_process(
            {
                "server": config.smtp,
                "user": config.smtp_user,
                "password": config.smtp_password,
                "mail": mail(alarm, config.mail_from, config.mail_to).as_string(),
            }
        )

    async def _run_process(self, task: Mapping[str, Any]) -> None:
        """Do a task of ``delivery_process``: a host name that resolves slowly holds that process, not this loop."""
        arguments = module_command("penstock.server.alarms.delivery_process", str(os.getpid()))
        status, last_line = await self._run(arguments, task)
        if status:
            raise NotDelivered(last_line or f"the process that delivers alarms ended with status {status}")

    async def _run_command(self, alarm: Alarm) -> None:
        status, last_line = await self._run(shlex.split(self._config.command), alarm)
        if status:
            raise NotDelivered(f"status {status}{last_line and ': '}{last_line}")

    async def _run(self, arguments: list[str], document: Mapping[str, Any]) -> tuple[int, str]:
        """Run a program with JSON on standard input; its children end with it.

        Return its status and the last line of its standard error. Raises OSError.
        """
        output, error_end = os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                *arguments,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=error_end,
                # A process group of its own, so that the command is killed with its children.
                start_new_session=True,
            )
        except OSError:
            os.close(output)
            raise
        finally:
            os.close(error_end)
        errors = _ErrorOutput()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: errors, os.fdopen(output, "rb"))
        try:
            assert process.stdin is not None
            # The command may end without reading its input.
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                process.stdin.write(json.dumps(document).encode())
                await process.stdin.drain()
            process.stdin.close()
            status = await process.wait()
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            await asyncio.shield(process.wait())
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(errors.closed.wait(), ERROR_GRACE_S)
            transport.close()
        return status, errors.last_line()

    def _without_secrets(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text


class _ErrorOutput(asyncio.Protocol):
    """The end of a command's standard error. All of it is read, so that a chatty command does not block."""

    def __init__(self) -> None:
        self._end = b""
        self.closed = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        self._end = (self._end + data)[-MAX_ERROR_BYTES:]

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed.set()

    def last_line(self) -> str:
        """Return the last line, or nothing."""
        lines = self._end.decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else ""


def _secrets_of(config: AlarmsConfig) -> list[str]:
    """Return the texts that must not reach the log, the longest first: addresses of webhooks are passwords, too."""
    texts = [config.pagerduty, config.smtp_password]
    for url in filter(None, (config.webhook, config.slack)):
        address = urlsplit(url)
        texts += [url, f"{address.path}?{address.query}", address.path, address.query]
    arguments = shlex.split(config.command)[1:]
    texts += [*arguments, *(part for argument in arguments for part in argument.split("=")[1:])]
    return sorted({text for text in texts if len(text) >= MIN_SECRET_CHARACTERS}, key=len, reverse=True)
