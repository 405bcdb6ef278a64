"""Functions that all commands share."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.cli.common import active_config_file, parse_answer


def test_active_config_file_is_the_named_or_the_existing_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert active_config_file(None) is None
    (tmp_path / "penstock.toml").touch()
    assert active_config_file(None) == Path("penstock.toml")
    assert active_config_file(Path("other.toml")) == Path("other.toml")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b'{"error":"PenstockKernelDrops does not fire","code":5}', "PenstockKernelDrops does not fire"),
        (b"no such page\n", "no such page"),
        (b'["error"]', '["error"]'),
    ],
)
def test_error_of_the_daemon_is_printed_as_its_reason(
    capsys: pytest.CaptureFixture[str], body: bytes, reason: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        parse_answer(404, body)
    assert ended.value.code == 2
    assert capsys.readouterr().err == f"penstock: the log daemon answers 404: {reason}\n"
