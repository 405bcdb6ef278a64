"""The folder of a drill whose pipe does not start."""

from __future__ import annotations

import shutil

import pytest

from penstock.config import Settings
from penstock.drill import run
from penstock.drill.pipe import NotBack


def test_folder_stays_if_the_pipe_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYTHONPATH", "DRILL_FAULTS"):
        monkeypatch.setenv(name, "")
    monkeypatch.setattr(run, "RECOVERY_TIMEOUT_S", 0.0)
    drill = run.Drill(Settings(), 1, lambda line: None, spark=False, kafka=False, keep=False)
    with pytest.raises(NotBack, match=r"serve\.log"), drill:
        pass
    assert (drill.folder / "serve.log").exists()
    shutil.rmtree(drill.folder)
