"""Results of measurements are kept with their machine, and compared."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from bench import compare, peers, readme
from bench.results import load, machine, save


def test_a_result_is_kept_with_its_machine_and_its_load(tmp_path: Path) -> None:
    where = machine()
    document = load(save({"udp_per_s": 5}, where, tmp_path / "results"))
    assert (document["figures"], document["machine"]) == ({"udp_per_s": 5}, where)
    assert where["cores"] > 0
    assert "UDP_SEGMENT" in document["load"]["sender"]


def test_two_results_are_compared_figure_by_figure_and_told_where_they_cannot_be() -> None:
    a = {"figures": {"x": 100, "gone": 1}, "machine": {"cores": 2, "load_before": 0.1}, "load": {}}
    b = {"figures": {"x": 150, "new": "?"}, "machine": {"cores": 4, "load_before": 9.0}, "load": {}}
    assert compare.rows(a, b) == [("x", "100", "150", "1.50"), ("gone", "1", "", ""), ("new", "", "?", "")]
    assert compare.differences(a, b) == ["machine: cores is 2 and 4"]


def test_a_peer_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    for program in ("SLOGD", "RSYSLOGD"):
        monkeypatch.delenv(f"BENCH_{program}", raising=False)
    with pytest.raises(SystemExit, match="slogd is not on the PATH"):
        peers.measure(["slogd"])
    with pytest.raises(SystemExit, match="no peer 'nobody'"):
        peers.measure(["nobody"])


def test_what_the_kernel_drops_at_a_port_is_seen() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
        assert peers.dropped(port) == 0
        for _ in range(50):
            sock.sendto(b"x" * 1000, sock.getsockname())
        assert 0 < (peers.dropped(port) or 0) < 50
    assert peers.dropped(port) is None


def test_the_table_of_a_result_names_its_load_and_leaves_out_what_was_not_measured(tmp_path: Path) -> None:
    figures = {"tcp_lines_per_s": 1_980_000, "tcp_receiver_cpu_us_per_line": 0.45}
    head, _, *lines = readme.table(load(save(figures, machine(), tmp_path))).splitlines()
    assert "UDP_SEGMENT" in head
    assert "16MiB" in head
    assert lines[2:] == ["| TCP lines | 1,980,000/s, 0.45 us of CPU each |"]
