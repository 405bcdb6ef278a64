"""The broker that ``penstock kafka start`` runs: ``bench.kafka_log`` measures it, in turn with Penstock."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

from penstock.java.runtime import NoJava, find_java


def missing() -> str:
    """What is to be installed before it can be measured; empty where nothing is."""
    if importlib.util.find_spec("confluent_kafka") is None:
        return "confluent-kafka is not installed: pip install 'penstock-pipe[kafka]'"
    try:
        find_java()
    except NoJava as error:
        return str(error)
    return ""


def measure(rounds: int) -> dict[str, Any]:
    """As ``bench.kafka_log``, which needs the library that ``missing`` tells of."""
    figures: dict[str, Any] = importlib.import_module("bench.kafka_log").measure(rounds)
    return figures
