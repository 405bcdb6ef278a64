"""Runs at the start of every Python process whose PYTHONPATH has this folder: installs the faults of a drill."""

import os
from pathlib import Path

if path := os.environ.get("DRILL_FAULTS"):
    from penstock.drill.faults import install

    install(Path(path))
