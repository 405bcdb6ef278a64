"""``penstock backup``: copy a running instance into a folder, and restore it from there."""

from __future__ import annotations

import json
import shlex
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.balance import receipt_lines
from penstock.cli.common import active_config_file, console, errors, fail
from penstock.cli.options import AsJson, Config, Override, load_settings


def backup(
    folder: Annotated[Path, typer.Argument(help="Folder of the backup: new or empty.")],
    config: Config = None,
    override: Override = None,
    restore: Annotated[
        Path | None,
        typer.Option("--restore", help="Restore the backup into this empty or new data directory.", show_default=False),
    ] = None,
    tables: Annotated[
        Path | None,
        typer.Option("--tables", help="With --restore: folder of tables that were outside of data_dir."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Copy a running instance into a folder: log, ledger, log buffers, local tables and configuration.

    Most is copied while everything runs; then all processes are paused for a moment, and what has changed is copied
    again. The balance is computed from the copy. The copy of the configuration is readable by its owner only. An
    interrupted backup or restore is repeated with the same command.
    """
    from penstock.upkeep.backup import CONFIGURATION, disk_bytes, make_backup, restore_backup

    if restore is not None:
        with errors.status("restoring"):
            document = restore_backup(folder, restore, tables)
    elif tables is not None:
        fail("--tables is for --restore", 2)
    else:
        settings = load_settings(config, override)
        with errors.status("copying"):
            document = make_backup(settings, folder, active_config_file(config))
    if as_json:
        print(json.dumps({name: part for name, part in asdict(document).items() if name != "files"}, indent=2))
        return
    done = f"restored into {restore}" if restore else f"backed up into {folder}"
    made_at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(document.made_at))
    size = f"{disk_bytes(folder) / 1e6:,.1f} MB on the disk"
    console.print(f"{done}: {len(document.files):,} files, {size}, as of {made_at}", markup=False, soft_wrap=True)
    if not restore and document.pause_s:
        console.print(f"all processes stood still for {document.pause_s:.2f} s", markup=False)
    for line in (*document.left_out, *receipt_lines(dict(document.balance))):
        console.print(line, markup=False, soft_wrap=True)
    if restore:
        configuration = folder / CONFIGURATION
        with_file = f"--config {shlex.quote(str(configuration))} " if configuration.exists() else ""
        data_dir = shlex.quote(f"data_dir={restore}")
        console.print(f"start it with: penstock up {with_file}-o {data_dir}", markup=False, soft_wrap=True)
