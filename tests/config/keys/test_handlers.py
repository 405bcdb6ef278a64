"""Keys of handlers: each type has its own, and an incomplete or unknown one is an error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.config import ConfigError, ListenerConfig, Settings, load, masked
from penstock.config.keys.handlers import KEY_LENGTHS, EncryptionConfig, forwarded_handler
from penstock.config.keys.secrets import KAFKA_SECRET_FILES, check_kafka_secrets
from penstock.files.errors import UnsafeFile
from tests.cli.command_line import run

KAFKA = {"type": "kafka", "default_topic": "events", "producer": {"bootstrap.servers": "127.0.0.1:9092"}}
AES = {"key": "0123456789abcdef", "algorithm": "AES"}


def listener(*handlers: dict[str, Any], protocol: str = "udp") -> ListenerConfig:
    return ListenerConfig.model_validate({"name": "x", "protocol": protocol, "handlers": list(handlers)})


def write(tmp_path: Path, handler: str) -> Path:
    file = tmp_path / "p.toml"
    file.write_text(f'[[listener]]\nname = "x"\nprotocol = "udp"\n[[listener.handlers]]\n{handler}\n')
    return file


@pytest.mark.parametrize(
    ("handler", "expected"),
    [
        ('type = "konsole"', "listener.x.handlers.0.type: unknown handler 'konsole' (did you mean 'console'?)"),
        ('type = "console"\nformt = "json"', "listener.x.handlers.0.formt: unknown key (did you mean 'format'?)"),
        ('type = "console"\nformat = "xml"', "listener.x.handlers.0.format: 'xml' is not 'text' or 'json'"),
        (
            'type = "discard"\ntopic = "a"',
            "listener.x.handlers.0.topic: unknown key (known: name, overflow, timeout, type",
        ),
        ('type = "kafka"\nproducer = {"bootstrap.servers" = "a:1"}', "handlers.0.default_topic: is missing"),
        ('type = "kafka"\ndefault_topic = "a"', "handlers.0.producer: is missing"),
        ('type = "kafka"\ndefault_topic = "a"\nproducer = {}', "handlers.0.producer: bootstrap.servers is missing"),
        ('type = "kafka"\ndefault_topic = "a b"', "handlers.0.default_topic: 'a b' is not a valid Kafka topic"),
        ('type = "log"\noverflow = "block"', "overflow = block is for tcp listeners only"),
        ('type = "console"\nname = "Upper"', "handlers.Upper.name: 'Upper' does not match"),
    ],
)
def test_invalid_handler_is_named(tmp_path: Path, handler: str, expected: str) -> None:
    with pytest.raises(ConfigError) as error:
        load(write(tmp_path, handler), environment={})
    assert expected in str(error.value)


@pytest.mark.parametrize(
    ("encryption", "expected"),
    [
        ({"algorithm": "AES"}, "needs key or key_file"),
        ({"key": "0123456789abcdef"}, "algorithm"),
        ({**AES, "key_file": "k"}, "only one of them"),
        ({**AES, "key": "short"}, "key has 5 bytes"),
        ({"key_file": "/nowhere", "algorithm": "AES"}, "cannot be read"),
        ({**AES, "algorithm": "DES"}, "algorithm"),
        ({**AES, "mode": "ECB"}, "mode 'ECB' is unknown"),
        ({**AES, "mode": "GCM", "padding": "PKCS5Padding"}, "padding 'PKCS5Padding' is not one of GCM"),
        ({**AES, "ivsize": 12}, "ivsize"),
        ({"key": AES["key"], "transformation": "AES/CBC"}, "transformation must be like"),
        ({**AES, "mode": "GCM", "transformation": "AES/CBC/PKCS5Padding"}, "agree with the other keys"),
    ],
)
def test_incomplete_encryption_is_an_error(encryption: dict[str, Any], expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        listener({**KAFKA, "encryption": encryption})


def test_key_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_bytes(b"0123456789abcdef")
    file.chmod(0o640)
    with pytest.raises(ValueError, match=r"key has mode 0640, so that others have access to it: chmod 600"):
        EncryptionConfig(algorithm="AES", key_file=file).key_bytes()


KEY = '"ssl.key.location" = "key.pem"'
SERVERS = '"bootstrap.servers" = "127.0.0.1:1"'


@pytest.mark.parametrize("name", KAFKA_SECRET_FILES)
def test_unsafe_file_in_properties_of_kafka_is_refused_by_name(tmp_path: Path, name: str) -> None:
    path = tmp_path / "secret"
    check_kafka_secrets({name: str(path)})  # the client reports that it is missing
    path.touch(0o600)
    check_kafka_secrets({name: str(path)})
    path.chmod(0o644)
    with pytest.raises(UnsafeFile, match=f"^{name}: {path} has mode 0644.*: chmod 600 {path}$"):
        check_kafka_secrets({name: str(path)})


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        (f'pipeline.source = "kafka"\npipeline.kafka = {{{SERVERS}, {KEY}}}', ["config", "check"]),
        (
            f'[[listener]]\nname = "x"\nprotocol = "udp"\n[[listener.handlers]]\ntype = "kafka"\n'
            f'default_topic = "a"\nproducer = {{{SERVERS}, {KEY}}}',
            ["config", "check"],
        ),
        ("ssl.key.location = key.pem", ["audit", "kafka://127.0.0.1:1/t", "t", "--properties", "penstock.toml"]),
        ("", ["audit", "kafka://127.0.0.1:1/t", "t", "--set", "ssl.key.location=key.pem"]),
        ("", ["kafka", "produce", "t", "key.pem", "--set", "ssl.key.location=key.pem"]),
    ],
)
def test_unsafe_key_of_kafka_is_one_line_with_its_remedy(tmp_path: Path, text: str, arguments: list[str]) -> None:
    (tmp_path / "key.pem").write_text("secret")
    (tmp_path / "key.pem").chmod(0o640)
    (tmp_path / "penstock.toml").write_text(text)
    refused = run(*arguments, folder=tmp_path)
    assert refused.status == 2
    line = "ssl.key.location: key.pem has mode 0640, so that others have access to it: chmod 600 key.pem"
    assert line in refused.text


def test_properties_file_with_a_password_is_refused_if_others_can_read_it(tmp_path: Path) -> None:
    (tmp_path / "client.properties").write_text("client.id = mine\nssl.key.password = hidden\n")
    (tmp_path / "client.properties").chmod(0o644)
    refused = run("audit", "kafka://127.0.0.1:1/t", "t", "--properties", "client.properties", folder=tmp_path)
    reason = "ssl.key.password: client.properties has mode 0644, so that others have access to it"
    assert (refused.status, refused.text.count("\n")) == (2, 1)
    assert f"{reason}: chmod 600 client.properties" in refused.text


def test_default_mode_of_encryption_is_gcm(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_bytes(b"0123456789abcdef0123456789abcdef\n")
    file.chmod(0o600)
    (handler,) = listener({**KAFKA, "encryption": {"key_file": str(file), "algorithm": "AES"}}).handlers
    assert (handler.encryption.mode, handler.encryption.padded) == ("GCM", False)
    assert handler.encryption.key_bytes() == b"0123456789abcdef0123456789abcdef"


def test_transformation_sets_mode_and_padding() -> None:
    options = {"key": AES["key"], "transformation": "AES/CBC/PKCS5Padding"}
    (handler,) = listener({**KAFKA, "encryption": options}).handlers
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
def test_transformation_accepts_the_names_of_java(transformation: str, mode: str, padded: bool) -> None:
    (handler,) = listener({**KAFKA, "encryption": {"key": AES["key"], "transformation": transformation}}).handlers
    assert (handler.encryption.mode, handler.encryption.padded) == (mode, padded)


def test_handlers_of_one_type_need_names() -> None:
    with pytest.raises(ValueError, match="two are called 'console'"):
        listener({"type": "console"}, {"type": "console"})
    parsed = listener({"type": "console"}, {"type": "console", "name": "second"})
    assert [handler.label for handler in parsed.forwarded] == ["console", "second"]
    with pytest.raises(ValueError, match="only the one of type log"):
        listener({"type": "console", "name": "log"})


def test_handler_without_propagation_is_the_last() -> None:
    parsed = listener({**KAFKA, "propagate": False}, {"type": "log"}, {"type": "console"})
    assert (parsed.log, [handler.label for handler in parsed.forwarded]) == (None, ["kafka"])
    parsed = listener(KAFKA, {"type": "log"}, {"type": "console"})
    assert parsed.log
    assert [handler.label for handler in parsed.forwarded] == ["kafka", "console"]


def test_handler_survives_a_round_trip() -> None:
    for settings in ({**KAFKA, "encryption": AES, "max_parallelism": 128}, {"type": "console", "format": "json"}):
        (handler,) = listener(settings).handlers
        assert forwarded_handler(handler.model_dump(mode="json")) == handler


SECRETS = ("0123456789abcdef", "hunter2", "pem-of-mine")


def test_secrets_are_masked_everywhere() -> None:
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
def test_arbitrary_key_file_is_a_key_or_an_error(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.mktemp("etc") / "key"
    path.write_bytes(data)
    path.chmod(0o600)
    try:
        assert len(EncryptionConfig(algorithm="AES", key_file=path).key_bytes()) in KEY_LENGTHS
    except ValueError as error:
        assert "an AES key has" in str(error)  # noqa: PT017 some bytes are a key
