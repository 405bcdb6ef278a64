"""``penstock users``: the password file of the console; and ``penstock changes``, what people changed."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.common import fail
from penstock.cli.options import AsJson, Commands, Configured
from penstock.console.people import Role
from penstock.console.users import NAME, NO_PASSWORD, BadUsers, User, edit_users, hash_password, read_users
from penstock.errors import PenstockError
from penstock.files.change_log import DEFAULT_LIMIT, MAX_LIMIT, ChangeLog, record_command
from penstock.process.terminal import visible

if TYPE_CHECKING:
    from penstock.config import Settings

users = Commands(help="Add, remove and list users of the console.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the user.")]


@users.command()
def add(
    settings: Configured,
    name: Name,
    role: Annotated[Role, typer.Option(help="viewer: read only; operator: also change.")] = Role.VIEWER,
    proxy_only: Annotated[
        bool, typer.Option("--proxy-only", help="No password: the user logs in at the trusted proxy.")
    ] = False,
) -> None:
    """Add a user, or change the role and password of one. The password is asked for, or read from standard input."""
    path = _path(settings)
    if not NAME.fullmatch(name):
        fail(f"{name!r} is not a name: letters, digits and _ . @ + - are allowed", 2)
    try:
        # Order: the password first. Waiting for it must not lock the file.
        password_hash = NO_PASSWORD if proxy_only else hash_password(_ask_password())
        with edit_users(path) as existing:
            verb = "change" if name in existing else "add"
            existing[name] = User(name, role, password_hash)
    except (PenstockError, OSError) as error:
        fail(error)
    record_command(settings.data_dir, f"{verb} user {name}", role=role)
    print(f"{name} is {'an' if role is Role.OPERATOR else 'a'} {role} in {path}")


@users.command()
def remove(settings: Configured, name: Name) -> None:
    """Remove a user; open sessions end within ten seconds."""
    path = _path(settings)
    try:
        with edit_users(path) as existing:
            if existing.pop(name, None) is None:
                fail(f"{path} has no user {name!r}")
    except (PenstockError, OSError) as error:
        fail(error)
    record_command(settings.data_dir, f"remove user {name}")
    print(f"removed {name} from {path}")


@users.command("list")
def list_(settings: Configured, as_json: AsJson = False) -> None:
    """Print the users and their roles."""
    existing = [
        {"name": user.name, "role": str(user.role), "password": user.password_hash != NO_PASSWORD}
        for user in _read(_path(settings)).values()
    ]
    if as_json:
        print(json.dumps(existing, indent=2))
        return
    for user in existing:
        print(f"{user['name']:<30} {user['role']}{'' if user['password'] else ', at the proxy only'}")


def changes(
    settings: Configured,
    limit: Annotated[
        int, typer.Option("-n", "--limit", min=1, max=MAX_LIMIT, help="Newest changes to print.")
    ] = DEFAULT_LIMIT,
    as_json: AsJson = False,
) -> None:
    """Print what people changed: who, when, what and from where; the newest is the last line.

    Reads the files of the data directory; the daemon need not run.
    """
    try:
        newest = ChangeLog(settings.data_dir).newest(limit)
    except OSError as error:
        fail(error)
    for change in reversed(newest):
        details = ", ".join(
            f"{name}: {text}" for name, text in change.items() if name not in ("at", "who", "what", "from")
        )
        line = f"{change['at'][:19]} {change['who']} from {change['from']}: {change['what']}" + f" ({details})" * bool(
            details
        )
        print(json.dumps(change) if as_json else visible(line))


def _path(settings: Settings) -> Path:
    if settings.console.users is None:
        fail('set the password file first: users = "/etc/penstock/users" in [console]', 2)
    return settings.console.users


def _read(path: Path) -> dict[str, User]:
    try:
        return read_users(path)
    except FileNotFoundError:
        return {}
    except (PenstockError, OSError) as error:
        fail(error)


def _ask_password() -> str:
    """Return a new password, asked twice on a terminal, else the first line of standard input. Raises BadUsers."""
    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\n")
    password: str = typer.prompt("Password", hide_input=True)
    if typer.prompt("Again", hide_input=True) != password:
        raise BadUsers("the passwords differ")
    return password
