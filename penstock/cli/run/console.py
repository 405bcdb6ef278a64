"""``penstock console``: the web console of a running daemon."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.common import console as terminal
from penstock.cli.common import fail
from penstock.cli.options import Config, Override, settings_of
from penstock.ingest.sockets import CannotListen, check_address


def console(
    config: Config = None,
    override: Override = None,
    http: Annotated[str | None, typer.Option(help="As console.http.", show_default=False)] = None,
) -> None:
    """Serve the web console until Ctrl-C."""
    given = [f"console.http={http}"] if http else []
    settings = settings_of(config, [*(override or []), *given])
    try:
        check_address("console.http", settings.console.http)
        from penstock.console.main import run
    except CannotListen as error:
        fail(error)
    except ImportError:
        fail("this needs NiceGUI: pip install 'penstock-pipe[console]'")
    terminal.print(f"the console is at http://{settings.console.http}", markup=False)
    run(settings)
