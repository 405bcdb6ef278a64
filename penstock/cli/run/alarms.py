"""``penstock alarms``: try the delivery of alarms."""

from __future__ import annotations

import asyncio
import socket
from datetime import UTC, datetime

from penstock.cli.common import fail
from penstock.cli.options import Commands, Configured

alarms = Commands(no_args_is_help=True, help="Try the delivery of alarms.")


@alarms.callback()
def _alarms() -> None:
    """Make ``test`` a subcommand even while it is the only one."""


@alarms.command()
def test(settings: Configured) -> None:
    """Send a test alarm, and its end, to each configured destination once.

    Exits with status 1 if a destination fails or none is configured.
    """
    from penstock.server.alarms.delivery import AlarmDelivery
    from penstock.server.alarms.watch import BEGINS, ENDS

    if not settings.alarms.has_destination:
        fail("no destination: set webhook, command, slack, pagerduty or smtp in [alarms]")
    alarm = {
        "alarm": "PenstockTest",
        "severity": "info",
        "labels": {},
        "value": 0,
        "summary": "test alarm of penstock: nothing is wrong",
        "advice": "",
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "host": socket.gethostname(),
        "receipt": "sent by penstock alarms test",
    }
    delivery, failed = AlarmDelivery(settings.alarms), False
    for state in (BEGINS, ENDS):
        # In this order: a destination such as PagerDuty closes what the begin opened.
        for name, error in asyncio.run(delivery.try_once({**alarm, "state": state})).items():
            print(f"{name}: {state}: {error or 'delivered'}")
            failed = failed or bool(error)
    if failed:
        raise SystemExit(1)
