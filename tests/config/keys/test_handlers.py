"""Configuration of handlers: each type has its own keys, what is incomplete or unknown stops the start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.config import ConfigError, ListenerConfig, Settings, load, masked
from penstock.config.keys.handlers import KEY_LENGTHS, EncryptionConfig, forwarded_handler

KAFKA = {"type": "kafka", "default_topic": "events", "producer": {"bootstrap.servers": "127.0.0.1:9092"}}
AES = {"key": "0123456789abcdef", "algorithm": "AES"}


def listener(*handlers: dict[str, Any], protocol: str = "udp") -> ListenerConfig:
    return ListenerConfig.model_validate({"name": "x", "protocol": protocol, "handlers": list(handlers)})


def write(tmp_path: Path, handler: str) -> Path:
    file = tmp_path / "p.toml"
    file.write_text(f'[[listener]]\nname = "x"\nprotocol = "udp"\n[[listener.handlers]]\n{handler}\n')
    return file


@pytest.mark.parametrize(
    ("handler", "said"),
    [
        ('type = "konsole"', "listener.x.handlers.0.type: there is no handler 'konsole' (did you mean 'console'?)"),
        ('type = "console"\nformt = "json"', "listener.x.handlers.0.formt: unknown key (did you mean 'format'?)"),
        ('type = "console"\nformat = "xml"', "listener.x.handlers.0.format: 'xml' is not 'text' or 'json'"),
        (
            'type = "discard"\ntopic = "a"',
            "listener.x.handlers.0.topic: unknown key (known: name, overflow, timeout, type",
        ),
        ('type = "kafka"\nproducer = {"bootstrap.servers" = "a:1"}', "handlers.0.default_topic: is missing"),
        ('type = "kafka"\ndefault_topic = "a"', "handlers.0.producer: is missing"),
        ('type = "kafka"\ndefault_topic = "a"\nproducer = {}', "handlers.0.producer: bootstrap.servers is missing"),
        ('type = "kafka"\ndefault_topic = "a b"', "handlers.0.default_topic: 'a b' cannot be a topic of Kafka"),
        ('type = "log"\noverflow = "block"', "overflow = block is for tcp listeners only"),
        ('type = "console"\nname = "Upper"', "handlers.Upper.name: 'Upper' does not match"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, handler: str, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        load(write(tmp_path, handler), environment={})
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("encryption", "said"),
    [
        ({"algorithm": "AES"}, "needs key or key_file"),
        ({"key": "0123456789abcdef"}, "algorithm"),
        ({**AES, "key_file": "k"}, "only one of them"),
        ({**AES, "key": "short"}, "key holds 5 bytes"),
        ({"key_file": "/nowhere", "algorithm": "AES"}, "cannot be read"),
        ({**AES, "algorithm": "DES"}, "algorithm"),
        ({**AES, "mode": "ECB"}, "mode 'ECB' is unknown"),
        ({**AES, "mode": "GCM", "padding": "PKCS5Padding"}, "padding 'PKCS5Padding' is not one of GCM"),
        ({**AES, "ivsize": 12}, "ivsize"),
        ({"key": AES["key"], "transformation": "AES/CBC"}, "transformation must be like"),
        ({**AES, "mode": "GCM", "transformation": "AES/CBC/PKCS5Padding"}, "not say otherwise"),
    ],
)
def test_encryption_that_is_not_complete_stops_the_start(encryption: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        listener({**KAFKA, "encryption": encryption})


def test_encryption_is_gcm_unless_told_otherwise(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_bytes(b"0123456789abcdef0123456789abcdef\n")
    (handler,) = listener({**KAFKA, "encryption": {"key_file": str(file), "algorithm": "AES"}}).handlers
    assert (handler.encryption.mode, handler.encryption.padded) == ("GCM", False)
    assert handler.encryption.key_bytes() == b"0123456789abcdef0123456789abcdef"


def test_plogs_transformation_says_mode_and_padding() -> None:
    given = {"key": AES["key"], "transformation": "AES/CBC/PKCS5Padding"}
    (handler,) = listener({**KAFKA, "encryption": given}).handlers
    assert (handler.encryption.mode, handler.encryption.padded) == ("CBC", True)
    (handler,) = listener({**KAFKA, "encryption": {**AES, "mode": "CFB"}, "padding": "PKCS5Padding"}).handlers
    assert (handler.encryption.mode, handler.encryption.padded) == ("CFB", True)


@pytest.mark.parametrize(
    ("transformation", "mode", "padded"),
    [
        ("aes/gcm/nopadding", "GCM", False),
        ("AES/cbc/PKCS5PADDING", "CBC", True),
        ("AES/CFB128/NoPadding", "CFB", False),
        ("AES/cfb8/NoPadding", "CFB8", False),
        ("AES/OFB128/NoPadding", "OFB", False),
    ],
)
def test_transformations_are_written_as_java_takes_them(transformation: str, mode: str, padded: bool) -> None:
    (handler,) = listener({**KAFKA, "encryption": {"key": AES["key"], "transformation": transformation}}).handlers
    assert (handler.encryption.mode, handler.encryption.padded) == (mode, padded)


def test_handlers_of_one_type_are_told_apart_by_name() -> None:
    with pytest.raises(ValueError, match="two are called 'console'"):
        listener({"type": "console"}, {"type": "console"})
    found = listener({"type": "console"}, {"type": "console", "name": "second"})
    assert [handler.label for handler in found.forwarded] == ["console", "second"]
    with pytest.raises(ValueError, match="only the one of type log"):
        listener({"type": "console", "name": "log"})


def test_a_handler_that_does_not_propagate_is_the_last_to_get_messages() -> None:
    found = listener({**KAFKA, "propagate": False}, {"type": "log"}, {"type": "console"})
    assert (found.log, [handler.label for handler in found.forwarded]) == (None, ["kafka"])
    found = listener(KAFKA, {"type": "log"}, {"type": "console"})
    assert found.log
    assert [handler.label for handler in found.forwarded] == ["kafka", "console"]


def test_a_handler_comes_back_from_what_it_is_dumped_as() -> None:
    for settings in ({**KAFKA, "encryption": AES, "max_parallelism": 128}, {"type": "console", "format": "json"}):
        (handler,) = listener(settings).handlers
        assert forwarded_handler(handler.model_dump(mode="json")) == handler


SECRETS = ("0123456789abcdef", "hunter2", "pem-of-mine")


def test_secrets_are_masked_wherever_they_stand() -> None:
    producer = {**KAFKA["producer"], "sasl.password": "hunter2", "ssl.key.pem": "pem-of-mine", "sasl.username": "me"}
    handler = {**KAFKA, "producer": producer, "encryption": AES}
    settings = Settings(listener=(listener(handler),))
    for shown in (masked(settings), masked(settings.listener[0]), masked(settings.model_dump(mode="json"))):
        text = str(shown)
        assert not any(secret in text for secret in SECRETS)
        assert "127.0.0.1:9092" in text
        assert "'sasl.username': 'me'" in text
    (kafka,) = masked(settings.listener[0])["handlers"]
    assert kafka["encryption"]["key"] == kafka["producer"]["sasl.password"] == "********"
    assert kafka["encryption"]["algorithm"] == "AES"


@given(st.binary(max_size=40))
def test_a_key_file_of_any_bytes_is_a_key_or_refused(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.mktemp("etc") / "key"
    path.write_bytes(data)
    try:
        assert len(EncryptionConfig(algorithm="AES", key_file=path).key_bytes()) in KEY_LENGTHS
    except ValueError as error:
        assert "a key of AES has" in str(error)  # noqa: PT017 some bytes are a key
