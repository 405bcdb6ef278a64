"""Where a session runs."""

from __future__ import annotations

import pytest

from penstock.spark.session import is_here


@pytest.mark.parametrize("master", ["local", "local[2,3]", "local-cluster[2,1,512]", "spark://127.0.0.1:7077"])
def test_what_runs_on_this_machine_listens_on_loopback_alone(master: str) -> None:
    assert is_here(master)


@pytest.mark.parametrize("master", ["spark://host:7077", "spark://localhost.example.org:1", "yarn", "k8s://localhost"])
def test_a_cluster_elsewhere_is_reached_by_the_machines_name(master: str) -> None:
    assert not is_here(master)
