"""Fixtures: topics of a real Kafka."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from penstock.kafka.broker import Broker
    from tests.kafka.kafka_helpers import Topics


@pytest.fixture
def topics(kafka_broker: Broker) -> Iterator[Topics]:
    from tests.kafka.kafka_helpers import Topics

    made = Topics(kafka_broker, f"audit-{uuid.uuid4().hex}")
    yield made
    made.close()
