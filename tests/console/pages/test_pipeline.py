"""The page of the pipeline while the ends of its topics are unknown."""

from __future__ import annotations

from pathlib import Path

from penstock.console.daemon_poll import Daemon
from penstock.console.pages.pipeline import status_html, topics
from penstock.landing.from_kafka.partitions import KafkaPartitions
from penstock.landing.table_paths import Layout
from penstock.proof.status import status


def test_topics_are_not_known_while_kafka_does_not_answer(tmp_path: Path) -> None:
    source, daemon = KafkaPartitions({"bootstrap.servers": "127.0.0.1:1"}), Daemon("http://127.0.0.1:1")
    away = status(source, Layout(tmp_path), ["*"])
    assert "Connection refused" in status_html(away)
    assert "No topics yet" not in topics(away, daemon)
    empty = status(tmp_path, Layout(tmp_path), ["*"])
    assert "No topics yet" in topics(empty, daemon)
