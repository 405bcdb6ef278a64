"""The image listens on the published ports once access is configured; it is built if there is a builder."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from penstock.config import ConfigError, Settings, load
from tests.system.containers import builder

ROOT = Path(__file__).parents[2]
FILE = ROOT / "examples" / "Containerfile"
TEXT = FILE.read_text()
VARIABLES = dict(re.findall(r"(PENSTOCK_\w+)=(\S+)", TEXT.partition("\nENV ")[2].partition("\nEXPOSE")[0]))
INSECURE = {"PENSTOCK_SECURITY__INSECURE": "true"}


def configured(tmp_path: Path, **more: str) -> Settings:
    (tmp_path / "penstock.toml").touch()
    return load(tmp_path / "penstock.toml", environment=VARIABLES | more)


def test_image_does_not_start_without_configured_access(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"is not loopback: set security[.]tls_cert and tls_key and tokens"):
        configured(tmp_path)
    assert f"-e {next(iter(INSECURE))}=true" in TEXT


def test_all_endpoints_listen_on_exposed_ports(tmp_path: Path) -> None:
    settings = configured(tmp_path, **INSECURE)
    served = [settings.log.http, settings.log.grpc, settings.console.http]
    assert {address.rpartition(":")[0] for address in served} == {"0.0.0.0"}
    assert {listener.host for listener in settings.listener} == {"0.0.0.0"}
    expected_ports = {address.rpartition(":")[2] for address in served}
    expected_ports |= {f"{listener.port}/{listener.protocol}" for listener in settings.listener}
    (exposed,) = re.findall(r"^EXPOSE (.*)", TEXT, re.MULTILINE)
    assert set(exposed.split()) == expected_ports


def test_copied_files_exist_and_suffice_for_a_wheel() -> None:
    copied = [name for line in re.findall(r"^COPY (.*) \S+$", TEXT, re.MULTILINE) for name in line.split()]
    assert all((ROOT / name).exists() for name in copied)
    assert {"penstock", "pyproject.toml", "README.md", "LICENSE", "constraints.txt"} == set(copied)


@pytest.mark.container
@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_image_is_built_and_runs_the_demo() -> None:
    program = builder()
    assert program
    build = [program, "build", "-f", str(FILE), "-t", "penstock-test", str(ROOT)]
    assert subprocess.run(build, check=False, timeout=1500).returncode == 0
    demo = [program, "run", "--rm", "-e", "PENSTOCK_SECURITY__INSECURE=true", "penstock-test", "up", "--demo"]
    completed = subprocess.run(demo, capture_output=True, text=True, timeout=300, check=False)
    assert completed.stdout.splitlines()[-1:] == ["unaccounted: 0"], completed.stdout + completed.stderr
