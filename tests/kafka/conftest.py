from __future__ import annotations

import re
import secrets
from collections.abc import Iterator

import pytest

from penstock.kafka.broker import Broker
from tests.kafka.kafka_helpers import Topics


@pytest.fixture
def topics(kafka_broker: Broker, request: pytest.FixtureRequest) -> Iterator[Topics]:
    """Topics of the broker, named after the test and its attempt."""
    name = re.sub(r"\W+", "-", request.node.name)[-150:]
    topics_of_test = Topics(kafka_broker, f"{name}-{secrets.token_hex(3)}")
    yield topics_of_test
    topics_of_test.close()
