"""The codec of the documentation, installed as a user's package, decodes the messages of its listeners."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import pytest

from penstock.config import ListenerConfig
from penstock.supervise.reload import request_reload
from penstock.testing.pipe import wait_until
from tests.system.configured_pipe import SMALL, configured_pipe, listener
from tests.system.topic_files import entries

PAGE = Path(__file__).parents[2] / "docs" / "own_codec.md"
CODEC = 'codec = "sensors"'
LISTENERS = (
    SMALL
    + listener("sensors-udp", "udp", CODEC, topic="sensors")
    + listener("sensors-tcp", "tcp", CODEC, topic="sensors")
)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of packages with the package of the page."""
    folder = tmp_path / "site"
    about = folder / "sensors-1.0.dist-info"
    about.mkdir(parents=True)
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (folder / "sensors.py").write_text(code)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: sensors\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[penstock.codecs]\nsensors = sensors:Sensors\n")
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("PYTHONPATH", str(folder), prepend=":")
    return folder


def test_missing_codec_is_reported_with_the_closest_name() -> None:
    with pytest.raises(ValueError, match="unknown codec 'sylsog' \\(did you mean 'syslog'\\?\\)"):
        ListenerConfig.model_validate({"name": "x", "protocol": "udp", "codec": "sylsog"})


def test_codec_of_the_page(site: Path, tmp_path: Path) -> None:
    with configured_pipe(tmp_path, LISTENERS) as pipe:
        pipe.datagrams(b"cellar,21.5,C", b"no sensor", listener="sensors-udp")
        pipe.lines(b"roof,-3,F\nattic,18,C\n", listener="sensors-tcp")
        wait_until(lambda: len(entries(pipe, "sensors")) == 3)
        annotations_by_payload = {row["payload"]: row["annotations"] for row in entries(pipe, "sensors")}
        assert annotations_by_payload[b"cellar,21.5,C"] == {"sensor": "cellar", "value": "21.5", "unit": "C"}
        assert annotations_by_payload[b"roof,-3,F"] == {"sensor": "roof", "value": "-3", "unit": "F"}
        wait_until(lambda: pipe.counts("sensors-udp")["refused.damaged"] == 1)
        assert pipe.settled()["unaccounted"] == 0


def test_reload_ends_once_a_receiver_that_starts_slowly_accepts(site: Path, tmp_path: Path) -> None:
    module = site / "sensors.py"
    module.write_text(module.read_text() + "\nimport time\n\ntime.sleep(1)\n")
    with configured_pipe(tmp_path, SMALL + listener("other", "tcp")) as pipe:
        pipe.configure(LISTENERS)
        assert "listener 'sensors-tcp' is added" in request_reload(pipe.data_dir, timeout_s=60).applied
        with socket.create_connection(pipe.address("sensors-tcp")) as sender:
            sender.sendall(b"roof,-3,F\n")
        wait_until(lambda: len(entries(pipe, "sensors")) == 1)


def test_reload_with_a_codec_that_cannot_be_loaded_changes_nothing(site: Path, tmp_path: Path) -> None:
    module = site / "sensors.py"
    module.write_text("raise RuntimeError('no such sensor')\n")
    with configured_pipe(tmp_path, SMALL + listener("other", "tcp")) as pipe:
        pipe.configure(LISTENERS)
        outcome = request_reload(pipe.data_dir, timeout_s=60)
        assert "listener.sensors-udp.codec: 'sensors' cannot be loaded" in outcome.error
        assert "no such sensor" in outcome.error
        pipe.lines(b"still here\n", listener="other")
        wait_until(lambda: pipe.counts("other")["accepted"] == 1)
