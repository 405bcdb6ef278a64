"""``penstock reload``: a running penstock goes on with the configuration as it is now."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

from penstock.cli.common import console, fail
from penstock.cli.options import AsJson, Configured
from penstock.supervise.reload import NoAnswer, NotRunning, request_reload

MARGIN = 30.0
"""Seconds that a reload may take beyond those that processes have to end."""


def reload(settings: Configured, as_json: AsJson = False) -> None:
    """Have the running penstock read its configuration anew; status 2 where that is no good, and nothing changes.

    It reads the file, and has the options, that it was started with; those given here are checked first, and say
    which data directory it runs on.
    """
    try:
        outcome = request_reload(settings.data_dir, 2 * settings.shutdown_time + MARGIN)
    except (NotRunning, NoAnswer) as error:
        fail(error)
    except PermissionError as error:
        fail(f"{settings.data_dir}: the penstock that runs there is somebody else's: {error.strerror}")
    if as_json:
        print(json.dumps(asdict(outcome), indent=2))
    elif outcome.error:
        fail("\n".join(outcome.lines), 2)
    else:
        for line in outcome.lines:
            console.print(line, markup=False, soft_wrap=True)
    sys.exit(2 if outcome.error else 0)
