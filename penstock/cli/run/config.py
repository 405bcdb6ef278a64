"""``penstock config``: what is configured, and whether it can be."""

from __future__ import annotations

import json
from dataclasses import asdict
from enum import StrEnum
from itertools import groupby
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from penstock.cli.common import console, fail
from penstock.cli.completion import key_names
from penstock.cli.options import AsJson, Commands, Config, Configured, Override
from penstock.cli.run.api_reference import grpc_page, http_page
from penstock.cli.run.config_reference import reference_page
from penstock.config import ConfigError
from penstock.config.explain import DEFAULT, ExplainedKey
from penstock.config.explain import explain as explain_keys

config = Commands(no_args_is_help=True, help="What is configured, and whether it can be.")


@config.command()
def check(settings: Configured) -> None:
    """Say what is wrong with the configuration, or that nothing is, as a start would."""
    from penstock.supervise.supervisor import check_listeners  # slow to import

    try:
        settings.security.check_files()
        check_listeners(settings, settings.listener)
    except ConfigError as error:
        fail(error, 2)
    names = ", ".join(listener.name for listener in settings.listener)
    console.print(f"the configuration is good: listeners {names}; data in {settings.data_dir}", markup=False)


@config.command()
def explain(
    pattern: Annotated[
        str, typer.Argument(help="Only keys that contain this.", show_default=False, autocompletion=key_names)
    ] = "",
    config: Config = None,
    override: Override = None,
    changed: Annotated[bool, typer.Option("--changed", help="Only keys that differ from their defaults.")] = False,
    as_json: AsJson = False,
) -> None:
    """Every key with its value, its default, what it means and where the value comes from."""
    try:
        keys = explain_keys(config, override or [])
    except ConfigError as error:
        fail(error, 2)
    if not any(pattern in key.name for key in keys):
        fail(f"no key contains {pattern!r}; `penstock config explain` shows all", 2)
    shown = [key for key in keys if pattern in key.name and not (changed and key.origin == DEFAULT)]
    if as_json:
        print(json.dumps([asdict(key) for key in shown], indent=2))
        return
    if not shown:
        console.print("every key has its default")
    for group, of_group in groupby(shown, lambda key: key.name.rpartition(".")[0]):
        console.print(_table(group, list(of_group)))


class Page(StrEnum):
    """A page of reference."""

    CONFIGURATION = "configuration"
    HTTP = "http"
    GRPC = "grpc"


PAGES = {Page.CONFIGURATION: reference_page, Page.HTTP: http_page, Page.GRPC: grpc_page}


@config.command()
def reference(
    page: Annotated[
        Page, typer.Argument(help="All keys with their defaults, or one of the APIs.")
    ] = Page.CONFIGURATION,
) -> None:
    """A page of the documentation's reference (Markdown)."""
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
