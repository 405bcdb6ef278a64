"""The isolated copy of a configuration."""

from __future__ import annotations

from pathlib import Path

from penstock.config import KafkaHandler, Settings, load
from penstock.drill.settings import isolate_settings, kafka_handlers

CONFIG = """
data_dir = "precious"
[log]
http = "0.0.0.0:1"
[pipeline]
tables = "s3-like/tables"
[security]
insecure = true
[[relay]]
name = "central"
topic = "events"
to = "192.0.2.1:8845"
[[listener]]
name = "events"
protocol = "udp"
host = "0.0.0.0"
max_line = "64KiB"
defrag = {max_size = "64KiB"}
handlers = [
    {type = "log"},
    {type = "kafka", default_topic = "t", producer = {"bootstrap.servers" = "k:9092"}},
    {type = "console"},
]
"""


def loaded(folder: Path) -> Settings:
    (folder / "penstock.toml").write_text(CONFIG)
    return load(folder / "penstock.toml")


def test_folder_addresses_and_foreign_handlers_are_replaced(tmp_path: Path) -> None:
    copy, left_out = isolate_settings(loaded(tmp_path), tmp_path / "data")
    (listener,) = copy.listener
    assert not copy.relay
    assert (copy.data_dir, copy.tables) == (tmp_path / "data", tmp_path / "data" / "tables")
    assert {address.partition(":")[0] for address in (copy.log.http, copy.log.grpc, str(copy.log.flight))} == {
        "127.0.0.1"
    }
    assert (listener.host, listener.port) == ("127.0.0.1", 0)
    assert [(handler.type, handler.label) for handler in listener.handlers] == [
        ("log", "log"),
        ("discard", "kafka"),
        ("console", "console"),
    ]
    assert left_out == ["events: handler kafka (kafka) is replaced by one that discards"]


def test_tables_at_a_url_are_not_used(tmp_path: Path) -> None:
    settings = load(None, ["pipeline.tables=s3://lake/t", "pipeline.storage_options.AWS_REGION=x"])
    copy, _ = isolate_settings(settings, tmp_path / "data")
    assert copy.tables == tmp_path / "data" / "tables"
    assert copy.pipeline.storage_options == {}


def test_kafka_handlers_send_to_the_broker_of_the_drill(tmp_path: Path) -> None:
    copy, left_out = isolate_settings(loaded(tmp_path), tmp_path / "data", "127.0.0.1:9")
    kafka = copy.listener[0].handlers[1]
    assert isinstance(kafka, KafkaHandler)
    assert (kafka.producer, left_out) == ({"bootstrap.servers": "127.0.0.1:9"}, [])
    assert kafka_handlers(copy) == {"events": "kafka"}


def test_first_listener_gets_a_kafka_handler_if_none_has_one(tmp_path: Path) -> None:
    copy, _ = isolate_settings(Settings(), tmp_path / "data", "127.0.0.1:9")
    assert kafka_handlers(copy) == {copy.listener[0].name: "kafka"}


def test_log_buffers_have_the_smallest_allowed_size(tmp_path: Path) -> None:
    copy, _ = isolate_settings(loaded(tmp_path), tmp_path / "data")
    assert copy.buffer.term_length == 4 << 20
