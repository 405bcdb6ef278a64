"""Installations of Penstock in virtual environments of their own."""

from __future__ import annotations

import shutil
import sysconfig
import venv
from pathlib import Path

import penstock


def install(folder: Path, version: str) -> Path:
    """Make a virtual environment with Penstock as ``version``, and return the folder of the package."""
    venv.create(folder, with_pip=False)
    site_packages = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
    (site_packages / "dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    source, package = Path(penstock.__file__).parent, site_packages / "penstock"
    package.mkdir()
    for path in source.iterdir():
        # Bytecode of `__init__` is shared otherwise, and that of another version has the same length and second.
        if path.name not in ("__init__.py", "__pycache__"):
            (package / path.name).symlink_to(path)
    text = (source / "__init__.py").read_text()
    (package / "__init__.py").write_text(text.replace(penstock.__version__, version))
    script = folder / "bin" / "penstock"
    script.write_text(f"#!{folder}/bin/python\nfrom penstock.cli.main import main\nmain()\n")
    script.chmod(0o755)
    return package


def change_file(package: Path, path: str, text: str, replaced: str = "") -> None:
    """Change a file of one installation: replace its text, or ``replaced`` in it."""
    folder = package / Path(path).parts[0]
    source = folder.resolve()
    folder.unlink()
    shutil.copytree(source, folder)
    before = (package / path).read_text()
    assert replaced in before
    (package / path).write_text(before.replace(replaced, text) if replaced else text)


def script_of(package: Path) -> Path:
    """Return the command of the environment of a package."""
    return package.parents[3] / "bin" / "penstock"
