"""Options that several commands share, and the classes of commands that use them.

A parameter annotated with ``OptionsOf(function)`` gives its command the options of ``function`` and receives its return
value: see ``Configured``. Parameters of type str and Path bypass Typer's conversion (``PlainParameter``): Typer checks
every parameter with pydantic, whose import takes twice as long as the rest of a short command.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer
from typer._click.exceptions import NoArgsIsHelpError, UsageError
from typer.core import TyperCommand, TyperGroup

from penstock.cli.commands import OTHER_NAMES, SECTIONS, examples_of
from penstock.config import ConfigError
from penstock.config.daemon_keys import DaemonKeys, daemon_keys

if TYPE_CHECKING:
    from penstock.config import Settings
else:
    # The real class imports pydantic, which commands that only query the daemon do without.
    Settings = object

Config = Annotated[Path | None, typer.Option("--config", help="Configuration file (TOML).", show_default=False)]
Override = Annotated[
    list[str] | None,
    typer.Option("-o", help="Configuration key and value, as key=value; may be repeated.", show_default=False),
]
Rpc = Annotated[
    str | None,
    typer.Option("--rpc", metavar="HOST:PORT", help="gRPC address of the log daemon.", show_default="log.grpc"),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        "--token-file", help="File containing the bearer token.", show_default="the token of the data directory"
    ),
]
Ca = Annotated[
    Path | None,
    typer.Option("--ca", help="File containing the trusted CA certificates (PEM).", show_default="security.tls_cert"),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@dataclass(frozen=True, slots=True)
class OptionsOf:
    """A mark on a command's parameter: the command has the options of ``maker``, and receives its return value."""

    maker: Callable[..., Any]


_NO_COMMAND = re.compile(r"No such command '([^']*)'")
LIST_ITEMS: dict[Any, type] = {list[str]: str, list[Path]: Path}
PLAIN_TYPES = (str, Path)


@dataclass(frozen=True, slots=True)
class PlainParameter:
    """Replacement for Typer's runtime parameter that converts str and Path itself, and leaves other types to Typer."""

    annotation: Any

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the value of a parameter from its word, its words or its default."""
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        if self.annotation in LIST_ITEMS and isinstance(value, list | tuple):
            return [LIST_ITEMS[self.annotation](word) for word in value]
        if self.annotation in PLAIN_TYPES and isinstance(value, str):
            return self.annotation(value)
        # A default value has its type already.
        if type(value) is self.annotation:
            return value
        param._runtime_param = None
        return param.get_runtime_param().coerce(value, param=param, ctx=ctx)


def _replace_runtime_parameters(parameters: list[Any]) -> list[Any]:
    # Workaround: `_runtime_param` is private to Typer. A version without it ignores the attribute, and is only slower.
    for parameter in parameters:
        descriptor = getattr(parameter, "type_descriptor", None)
        parameter._runtime_param = PlainParameter(getattr(descriptor, "annotation", None))
    return parameters


@contextlib.contextmanager
def _usage_errors(command_path: str) -> Iterator[None]:
    """End the command with one line for a wrong option or argument, where Typer prints four."""
    try:
        yield
    except NoArgsIsHelpError:
        raise
    except UsageError as error:
        from penstock.cli.common import fail

        path = error.ctx.command_path if error.ctx else command_path
        # A message of pydantic may have several lines.
        message = " ".join(error.format_message().split()).rstrip(".").replace("Value error, ", "")
        word = _NO_COMMAND.match(message)
        if word and path == "penstock" and word[1] in OTHER_NAMES:
            fail(f"{word[0]}: {OTHER_NAMES[word[1]]}", error.exit_code)
        fail(f"{message}; `{path} --help` shows what it takes", error.exit_code)


def _command_path(name: str | None, parent: Any) -> str:
    return f"{parent.command_path} {name}" if parent else name or ""


class _Plain:
    """Parameters without pydantic, errors of one line, and examples at the end of the help."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        with _usage_errors(_command_path(info_name, parent)):
            return super().make_context(info_name, args, parent, **extra)  # type: ignore[misc]

    def get_params(self, ctx: Any) -> Any:
        return _replace_runtime_parameters(super().get_params(ctx))  # type: ignore[misc]

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        _write_examples(ctx, formatter)


class PlainCommand(_Plain, TyperCommand):
    """A command whose texts and paths are converted without pydantic, and whose help ends with examples."""


class PlainGroup(_Plain, TyperGroup):
    """A group of commands whose own options are converted without pydantic.

    Its help prints each command's whole summary, where Typer would cut it, in the sections of ``SECTIONS``.
    """

    def invoke(self, ctx: Any) -> Any:
        with _usage_errors(ctx.command_path):
            return super().invoke(ctx)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        sections: dict[str, Iterable[str]] = {**SECTIONS} if ctx.parent is None else {}
        names = dict.fromkeys(name for listed in sections.values() for name in listed)
        others = [name for name in self.list_commands(ctx) if name not in names]
        for title, listed in {**sections, ("Other" if names else "Commands"): others}.items():
            rows = [(name, self._summary(ctx, name)) for name in listed if name in self.commands]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)

    def _summary(self, ctx: Any, name: str) -> str:
        command = self.get_command(ctx, name)
        return " ".join((command.help or "").partition("\n\n")[0].split()) if command else ""


def _write_examples(ctx: Any, formatter: Any) -> None:
    if examples := examples_of(" ".join(ctx.command_path.split()[1:])):
        with formatter.section("Examples" if len(examples) > 1 else "Example"):
            for example in examples:  # as they are: an example is copied, so it is not wrapped
                formatter.write(f"{'':>{formatter.current_indent}}{example}\n")


class Commands(typer.Typer):
    """A group of commands with parameters that may be marked with ``OptionsOf``.

    Help is plain text: the modules that draw frames are slow to import.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(rich_markup_mode=None, cls=PlainGroup, **settings)

    def command(self, *args: Any, **kwargs: Any) -> Callable[[Any], Any]:
        register = super().command(*args, cls=PlainCommand, **kwargs)

        def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
            register(with_options(command))
            return command

        return decorate


def with_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``command`` with the options of each ``OptionsOf`` parameter in place of the parameter."""
    signature = inspect.signature(command, eval_str=True)
    makers = {name: mark.maker for name, parameter in signature.parameters.items() for mark in _marks(parameter)}
    options = {name: inspect.signature(maker, eval_str=True).parameters for name, maker in makers.items()}
    parameters = [
        option.replace(kind=option.KEYWORD_ONLY)
        for name, parameter in signature.parameters.items()
        for option in (options[name].values() if name in options else [parameter])
    ]

    if sys.flags.optimize > 1:
        command.__doc__ = _docstring_in_source(command)

    @functools.wraps(command)
    def run(**arguments: Any) -> Any:
        made_parameters = {
            name: maker(**{option: arguments.pop(option) for option in options[name]}) for name, maker in makers.items()
        }
        return command(**arguments, **made_parameters)

    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def _docstring_in_source(command: Callable[..., Any]) -> str | None:
    """Return the docstring of a function, which Python drops with PYTHONOPTIMIZE=2: it is the command's help."""
    tree = ast.parse(Path(command.__code__.co_filename).read_text())
    functions = (node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == command.__name__)
    return next(map(ast.get_docstring, functions), None)


def _marks(parameter: inspect.Parameter) -> Iterator[OptionsOf]:
    return (mark for mark in get_args(parameter.annotation) if isinstance(mark, OptionsOf))


def load_settings(config: Config = None, override: Override = None) -> Settings:
    """Return the configuration, or end the command with its errors and status 2."""
    # Imports rich, which help does without.
    from penstock.cli.common import fail
    from penstock.config import load

    try:
        return load(config, override or [])
    except ConfigError as error:
        fail(error, 2)


def load_settings_with_data(config: Config = None, override: Override = None) -> Settings:
    """Return the configuration for a command that reads files; end the command if there is no data directory.

    Without this, a command in the wrong folder would answer from an empty pipe: 0 rows, exit status 0.
    """
    settings = load_settings(config, override)
    require_data(settings)
    return settings


def require_data(settings: Settings) -> None:
    """End the command if there is no data directory."""
    if isinstance(settings.tables, Path) and _is_absent(settings.tables) and _is_absent(settings.data_dir):
        from penstock.cli.common import fail
        from penstock.supervise.instances import describe_instances

        fail(
            f"no data directory at {settings.data_dir.absolute()} (data_dir); run the command in the folder of "
            f"penstock.toml, or name the file with --config; {describe_instances()}",
            2,
        )


def _is_absent(folder: Path) -> bool:
    try:
        folder.stat()
    except FileNotFoundError:
        return True
    except OSError:  # the command itself reports it, with the reason
        return False
    return False


def load_daemon_keys(config: Config = None, override: Override = None) -> DaemonKeys:
    """Return the keys that say how to reach the daemon, or end the command with their errors and status 2."""
    from penstock.cli.common import fail

    try:
        return daemon_keys(config, override or [])
    except ConfigError as error:
        fail(error, 2)


Configured = Annotated[Settings, OptionsOf(load_settings)]
"""The configuration of a command with the options --config and -o."""
ConfiguredData = Annotated[Settings, OptionsOf(load_settings_with_data)]
"""The configuration of a command that reads the files of an existing data directory."""
DaemonConfigured = Annotated[DaemonKeys, OptionsOf(load_daemon_keys)]
"""The daemon's keys for a command with the options --config and -o; it starts without pydantic."""
