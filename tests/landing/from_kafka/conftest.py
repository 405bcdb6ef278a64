"""A Kafka whose clients log in and need rights."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.java.jars import CannotFetch
from penstock.java.runtime import NoJava
from penstock.kafka.broker import Broker
from penstock.testing.pipe import free_ports


@pytest.fixture(scope="package")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, dict[str, str]]]:
    """A broker with access control, and the properties of a client that logs in as ``limited``."""
    port, guarded_port, control_port = free_ports(3)
    addresses = f"PLAINTEXT://127.0.0.1:{port},SASL_PLAINTEXT://127.0.0.1:{guarded_port}"
    login = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_limited="secret";'
    settings = {
        "listeners": f"{addresses},CONTROLLER://127.0.0.1:{control_port}",
        "advertised.listeners": addresses,
        "controller.quorum.voters": f"1@127.0.0.1:{control_port}",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": login,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    broker = Broker(tmp_path_factory.mktemp("guarded") / "broker", port=port, memory="256m", settings=settings)
    try:
        broker.start()
    except (NoJava, CannotFetch) as error:
        pytest.skip(str(error))
    limited = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
    limited |= {"sasl.username": "limited", "sasl.password": "secret"}
    yield broker, {"bootstrap.servers": f"127.0.0.1:{guarded_port}", **limited}
    broker.stop()
