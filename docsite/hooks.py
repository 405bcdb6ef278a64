"""Hooks of ``mkdocs build``: add generated pages to the ones of ``docs/``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parents[1]))  # MkDocs does not add the repository to the path

from docsite.commands import commands_page
from docsite.metrics import metrics_page
from docsite.python_api import python_page

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

GENERATED = {"commands.md": commands_page, "metrics.md": metrics_page, "python.md": python_page}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    from mkdocs.structure.files import File

    for name, page in GENERATED.items():
        files.append(File.generated(config, name, content=page()))
    return files
