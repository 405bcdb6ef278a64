"""Plug-ins reach the client with the configuration, the producer and their own properties."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from penstock.kafka import Consumer, Producer
from penstock.kafka.client.plugins.loading import CannotLoad

NOWHERE = {"bootstrap.servers": "127.0.0.1:1"}


class Configured:
    """A serializer of a user that reads a property of its own, as one for Kafka in Java does."""

    properties = ("codec.level",)
    calls: ClassVar[list[tuple[dict[str, Any], bool]]] = []

    def configure(self, config: dict[str, Any], is_key: bool) -> None:
        self.calls.append((config, is_key))

    def __call__(self, content: Any, context: Any) -> bytes:
        return bytes(content)


@pytest.fixture
def calls() -> list[tuple[dict[str, Any], bool]]:
    Configured.calls.clear()
    return Configured.calls


def test_serializers_receive_the_configuration_and_the_producer(calls: list[tuple[dict[str, Any], bool]]) -> None:
    serializers = {"key.serializer": Configured, "value.serializer": Configured()}
    producer = Producer({**NOWHERE, **serializers, "codec.level": 3})
    assert [is_key for _, is_key in calls] == [True, False]
    for config, _ in calls:
        assert config["codec.level"] == 3
        assert type(config["current.producer"]).__module__ == "cimpl"
    producer.purge()


def test_deserializers_receive_the_configuration(calls: list[tuple[dict[str, Any], bool]]) -> None:
    deserializers = {"key.deserializer": Configured(), "value.deserializer": Configured}
    with_group = {**NOWHERE, **deserializers, "group.id": "g", "codec.level": 3}
    Consumer(with_group).close()
    assert [(config["codec.level"], is_key) for config, is_key in calls] == [(3, True), (3, False)]


def test_serializer_that_cannot_be_configured_names_its_property() -> None:
    class Broken(Configured):
        def configure(self, config: dict[str, Any], is_key: bool) -> None:
            raise ValueError("no registry")

    with pytest.raises(CannotLoad, match=r"value\.serializer: .*Broken.* cannot be created: no registry"):
        Producer({**NOWHERE, "value.serializer": Broken})
