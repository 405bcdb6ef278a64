"""Options that several commands have, declared once: a command takes what is made of them as one parameter."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from penstock.cli.plain_words import PlainCommand, PlainGroup
from penstock.config import ConfigError
from penstock.config.daemon_keys import DaemonKeys, daemon_keys

if TYPE_CHECKING:
    from penstock.config import Settings
else:
    Settings = object  # brings pydantic, which commands that only ask the daemon do without

Config = Annotated[Path | None, typer.Option("--config", help="Configuration file (TOML).", show_default=False)]
Override = Annotated[
    list[str] | None, typer.Option("-o", help="One setting, as key=value; may be repeated.", show_default=False)
]
Rpc = Annotated[
    str | None, typer.Option("--rpc", metavar="HOST:PORT", help="The log's gRPC address.", show_default="log.grpc")
]
TokenFile = Annotated[
    Path | None,
    typer.Option("--token-file", help="File with the bearer token to show.", show_default="that of the data directory"),
]
Ca = Annotated[
    Path | None, typer.Option("--ca", help="Whom to trust with TLS (PEM).", show_default="security.tls_cert")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@dataclass(frozen=True, slots=True)
class MadeOf:
    """Marks a command's parameter: the command has the options of ``maker``, and gets what it makes of them."""

    maker: Callable[..., Any]


class Commands(typer.Typer):
    """A group of commands, whose parameters may be marked with ``MadeOf``. Help is plain: frames are slow to import."""

    def __init__(self, **given: Any) -> None:
        super().__init__(rich_markup_mode=None, cls=PlainGroup, **given)

    def command(self, *args: Any, **kwargs: Any) -> Callable[[Any], Any]:
        register = super().command(*args, cls=PlainCommand, **kwargs)

        def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
            register(with_options(command))
            return command

        return decorate


def with_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """``command`` as typer takes it: with the options in the place of each parameter that is made of options."""
    own = inspect.signature(command, eval_str=True)
    makers = {name: made.maker for name, one in own.parameters.items() for made in _marks(one)}
    taken = {name: inspect.signature(maker, eval_str=True).parameters for name, maker in makers.items()}
    parameters = [
        option.replace(kind=option.KEYWORD_ONLY)
        for name, one in own.parameters.items()
        for option in (taken[name].values() if name in taken else [one])
    ]

    @functools.wraps(command)
    def run(**given: Any) -> Any:
        made = {name: maker(**{option: given.pop(option) for option in taken[name]}) for name, maker in makers.items()}
        return command(**given, **made)

    run.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    return run


def _marks(parameter: inspect.Parameter) -> Iterator[MadeOf]:
    return (mark for mark in get_args(parameter.annotation) if isinstance(mark, MadeOf))


def settings_of(config: Config = None, override: Override = None) -> Settings:
    """The settings, or the end with what is wrong with them."""
    from penstock.cli.common import fail  # brings rich, which help does without
    from penstock.config import load

    try:
        return load(config, override or [])
    except ConfigError as error:
        fail(error, 2)


def reach_of(config: Config = None, override: Override = None) -> DaemonKeys:
    """Where the daemon is, or the end with what is wrong with that."""
    from penstock.cli.common import fail

    try:
        return daemon_keys(config, override or [])
    except ConfigError as error:
        fail(error, 2)


Configured = Annotated[Settings, MadeOf(settings_of)]
"""A command's settings: it has the options --config and -o."""
Reached = Annotated[DaemonKeys, MadeOf(reach_of)]
"""Likewise, of a command that asks the daemon, and needs all settings at most at times: it starts without pydantic."""
