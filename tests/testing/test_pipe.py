"""The waits of tests for a pipe."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from penstock.testing import pipe
from penstock.testing.pipe import PipeFailed, wait_until


def test_long_wait_asks_less_often_and_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    now, pauses = [0.0], list[float]()

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        now[0] += seconds

    monkeypatch.setattr(pipe, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
    with pytest.raises(PipeFailed, match="not within 20 s: it happens"):
        wait_until(lambda: False, 20, "it happens")
    assert (pauses[0], pauses[-1]) == (0.05, 0.25)
    assert pauses == sorted(pauses)
    pauses.clear()
    with pytest.raises(PipeFailed):
        wait_until(lambda: False, 5, pause=0.01)
    assert set(pauses) == {0.01}
    assert wait_until(lambda: len(pauses)) == len(pauses)
