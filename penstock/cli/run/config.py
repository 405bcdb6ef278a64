"""``penstock config``: write, check and explain the configuration, and print reference pages."""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import asdict
from enum import StrEnum
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer
from rich.table import Table
from rich.text import Text

from penstock.cli.common import console, fail
from penstock.cli.completion import key_names
from penstock.cli.options import AsJson, Commands, Config, Configured, Override
from penstock.cli.run.api_reference import grpc_page, http_page
from penstock.cli.run.config_reference import reference_page
from penstock.config import DEFAULT_FILE, ConfigError, load
from penstock.config.default_listeners import Protocol
from penstock.config.explain import DEFAULT, ExplainedKey
from penstock.config.explain import explain as explain_keys
from penstock.files.file_system import FILE_MODE, OS, create_once, replace_durably

if TYPE_CHECKING:
    from penstock.config import PipelineConfig

config = Commands(no_args_is_help=True, help="Write, check and explain the configuration.")
add = Commands(no_args_is_help=True, help="Add to the configuration file; comments and other lines stay.")


@config.command()
def init(config: Config = None) -> None:
    """Write a complete, commented configuration file with all defaults."""
    from penstock.config.template import template

    path = config or Path(DEFAULT_FILE)
    if path.exists():
        fail(f"{path} exists; `penstock config add listener` adds to it, --config writes another file", 2)
    try:
        create_once(path, template().encode())
    except OSError as error:
        _fail_to_write(path, error)
    console.print(f"{path} written: `penstock up --config {path}` uses it", markup=False, soft_wrap=True)


@add.command("listener")
def add_listener(
    name: Annotated[str, typer.Option(help="Name of the listener, in statistics and in the balance.")],
    protocol: Annotated[Protocol, typer.Option(help="Protocol of its senders.")],
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on.")],
    host: Annotated[str, typer.Option(help="Address to listen on.", metavar="ADDRESS", show_default="127.0.0.1")] = "",
    codec: Annotated[
        str, typer.Option(help="Decoder of messages (udp, tcp).", metavar="CODEC", show_default="plog")
    ] = "",
    topic: Annotated[
        str, typer.Option(help="Topic of its messages.", metavar="TOPIC", show_default="the listener's name")
    ] = "",
    config: Config = None,
) -> None:
    """Add a listener whose messages go to a topic.

    A file without listeners also gets the default listeners, which the new one would replace otherwise.
    """
    from penstock.config.template import listener_block, with_listener

    path = (config or Path(DEFAULT_FILE)).resolve()
    try:
        # Root's file belongs to the account of its folder, or that account could not read it.
        model = path if path.exists() else path.parent
        status, mode = model.stat(), path.stat().st_mode if model == path else FILE_MODE
        text = path.read_text("utf-8-sig") if model == path else ""
        changed = with_listener(text, listener_block(name, protocol, port, host, codec, topic or name))
        check_text(changed, path)
        replace_durably(OS, path, changed.encode())
        if os.geteuid() == 0:
            os.chown(path, status.st_uid, status.st_gid)
        # The file may hold tokens, and be readable by its owner only.
        path.chmod(mode & 0o777)
    except OSError as error:
        _fail_to_write(path, error)
    except (ConfigError, UnicodeDecodeError) as error:
        fail(error, 2)
    console.print(
        f"listener {name} added to {path.name}: `penstock reload` opens it in a running instance",
        markup=False,
        soft_wrap=True,
    )


def _fail_to_write(path: Path, error: OSError) -> NoReturn:
    """Name the folder, because the error names a temporary file in it."""
    # The file itself may not be readable, or be a folder.
    if error.filename == str(path):
        fail(error, 2)
    folder = path.resolve().parent
    fail(f"{folder}: {error.strerror}: {path.name} cannot be written there; name another file with --config", 2)


def check_text(text: str, path: Path) -> None:
    """Check ``text`` as the new content of ``path``. Raises ConfigError with lines of the new content."""
    # Slow to import.
    from penstock.supervise.listener_checks import check_ports

    with tempfile.TemporaryDirectory() as folder:
        draft = Path(folder, path.name)
        draft.write_text(text, "utf-8")
        try:
            check_ports(load(draft, environment={}))
        except ConfigError as error:
            raise ConfigError(str(error).replace(str(draft), f"{path} with the new listener")) from None


@config.command()
def check(settings: Configured) -> None:
    """Check the configuration as a start would, and report each error."""
    # Slow to import.
    from penstock.landing.transform.rules import BadTransform
    from penstock.supervise.listener_checks import check_console_address, check_listeners
    from penstock.upkeep.quarantine.fixes import BadFix

    try:
        settings.security.check_files()
        settings.console.check_files()
        check_listeners(settings, settings.listener)
        check_functions(settings.pipeline)
    except (ConfigError, BadTransform, BadFix) as error:
        fail(error, 2)
    names = ", ".join(listener.name for listener in settings.listener)
    console.print(
        f"the configuration is valid: listeners {names}; data in {settings.data_dir}", markup=False, soft_wrap=True
    )
    try:
        check_console_address(settings)
    except ConfigError as error:
        console.print(f"only for `penstock up` and `penstock console`: {error}", markup=False, soft_wrap=True)


def check_functions(pipeline: PipelineConfig) -> None:
    """Import the user's functions and compile the patterns. Raises BadTransform and BadFix, which name the key."""
    # Fast path: most pipelines have none, and the imports would take 40 MiB of `penstock up` for as long as it runs.
    if not (pipeline.transform or pipeline.fixes or pipeline.redact.patterns or pipeline.redact.hash):
        return
    from penstock.landing.transform.rules import TransformRules, import_function
    from penstock.upkeep.quarantine.fixes import BadFix

    TransformRules.from_config(pipeline).check()
    for function in pipeline.fixes:
        import_function(function, f"pipeline.fixes: {function!r}", BadFix)


@config.command()
def explain(
    pattern: Annotated[
        str, typer.Argument(help="Text that the printed keys contain.", show_default=False, autocompletion=key_names)
    ] = "",
    config: Config = None,
    override: Override = None,
    changed: Annotated[
        bool, typer.Option("--changed", help="Print only keys that differ from their defaults.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Print each key with its value, default, meaning and origin."""
    try:
        keys = explain_keys(config, override or [])
    except ConfigError as error:
        fail(error, 2)
    if not any(pattern in key.name for key in keys):
        fail(f"no key contains {pattern!r}; `penstock config explain` shows all", 2)
    printed = [key for key in keys if pattern in key.name and not (changed and key.origin == DEFAULT)]
    if as_json:
        print(json.dumps([asdict(key) for key in printed], indent=2))
        return
    if not printed:
        console.print("every key has its default")
    for group, keys_of_group in groupby(printed, lambda key: key.name.rpartition(".")[0]):
        console.print(_table(group, list(keys_of_group)))


class Page(StrEnum):
    """The name of a reference page."""

    CONFIGURATION = "configuration"
    HTTP = "http"
    GRPC = "grpc"


PAGES = {Page.CONFIGURATION: reference_page, Page.HTTP: http_page, Page.GRPC: grpc_page}


@config.command()
def reference(
    page: Annotated[
        Page, typer.Argument(help="Page to print: all keys with their defaults, or an API.")
    ] = Page.CONFIGURATION,
) -> None:
    """Print a reference page of the documentation (Markdown)."""
    print(PAGES[page](), end="")


def _table(group: str, keys: list[ExplainedKey]) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False, title=Text(f"[{group}]" if group else "", style="bold"))
    table.title_justify = "left"
    for no_wrap in (True, False, False, False):
        table.add_column(no_wrap=no_wrap)
    for key in keys:
        style = "" if key.origin == DEFAULT else "bold"
        origin = (
            "" if key.origin == DEFAULT else f"from {key.origin}" + (f"; default {key.default}" if key.default else "")
        )
        cells = (key.name.rpartition(".")[2], key.value, key.meaning, origin)
        table.add_row(*(Text(text, style=style) for text in cells))
    return table
