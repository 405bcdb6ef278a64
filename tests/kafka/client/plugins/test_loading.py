"""Plug-ins of users, loaded by entry point, by path, or as objects."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from penstock.kafka.client.plugins.loading import (
    CannotLoad,
    load,
    load_chunk_deserializer,
    load_chunk_serializer,
    load_id_factory,
)
from penstock.kafka.large.chunks import Chunk, decode_chunk, deserialize_chunk, serialize_chunk
from penstock.kafka.large.splitter import random_id

CHUNK = Chunk(UUID(int=5), 0, 1, 3, b"abc")


class Reversing:
    """A serializer of segments with reversed payloads."""

    def configure(self, config: Any) -> None:
        self.mark = config["own.mark"]

    def serialize(self, topic: str, chunk: Chunk) -> bytes:
        return self.mark + bytes(chunk.payload)[::-1]

    def deserialize(self, topic: str, data: Any) -> Chunk | None:
        if not bytes(data).startswith(self.mark):
            return None
        return Chunk(UUID(int=5), 0, 1, 3, bytes(data)[1:][::-1])


CONFIG = {"own.mark": b"!", "current.producer": object()}
JAVA = "com.linkedin.kafka.clients.largemessage."


@pytest.mark.parametrize("name", ["default", "DefaultSegmentSerializer", f"{JAVA}DefaultSegmentSerializer"])
def test_default_is_loaded_by_each_of_its_names(name: str) -> None:
    assert load_chunk_serializer(name, {}) is serialize_chunk
    assert load_chunk_deserializer(name.replace("Serializer", "Deserializer"), {}) is deserialize_chunk


@pytest.mark.parametrize("configured", [f"{__name__}:Reversing", f"{__name__}.Reversing", Reversing, Reversing()])
def test_class_is_configured_by_path_or_object(configured: Any) -> None:
    data = load_chunk_serializer(configured, CONFIG)("topic", CHUNK)
    assert data == b"!cba"
    assert load_chunk_deserializer(configured, CONFIG)("topic", data) == CHUNK
    assert load_chunk_deserializer(configured, CONFIG)("topic", b"an ordinary message") is None


def test_function_is_accepted_as_plug_in() -> None:
    assert load_chunk_serializer(lambda topic, chunk: b"mine", {})("topic", CHUNK) == b"mine"
    assert load_chunk_serializer("penstock.kafka.large.chunks:serialize_chunk", {}) is serialize_chunk


def test_installed_entry_point_is_loaded_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "reversing-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: reversing\nVersion: 1.0\n")
    lines = f"[penstock.kafka.segment_serializers]\nreversing = {__name__}:Reversing\ngone = nowhere:At\n"
    (info / "entry_points.txt").write_text(lines)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert load_chunk_serializer("reversing", CONFIG)("topic", CHUNK) == b"!cba"
    with pytest.raises(CannotLoad, match=r"segment\.serializer: 'gone' cannot be loaded"):
        load_chunk_serializer("gone", CONFIG)


def test_composite_map() -> None:
    """CompositeMapTest: a plug-in gets the complete configuration of the client, including the producer."""
    seen: list[Any] = []

    class Curious:
        def configure(self, config: Any) -> None:
            seen.append(config)

    load("some.class", Curious, "no.such.group", {}, CONFIG)
    assert seen == [CONFIG]
    assert seen[0]["current.producer"] is CONFIG["current.producer"]


@pytest.mark.parametrize(
    ("configured", "error_text"),
    [
        ("defualt", "segment.serializer: unknown name 'defualt'.*did you mean 'default'"),
        ("no.such.module.Name", "segment.serializer: 'no.such.module.Name' cannot be loaded"),
        ("tests.kafka.client.plugins.test_loading:Nobody", "cannot be loaded"),
        (Reversing, "cannot be created: 'own.mark'"),
        (5, "has no method serialize"),
    ],
)
def test_missing_or_unsuitable_plug_in_is_named_in_the_error(configured: Any, error_text: str) -> None:
    with pytest.raises(CannotLoad, match=error_text):
        load_chunk_serializer(configured, {})


def test_ids_come_from_the_configured_factory() -> None:
    class Counting:
        def new_id(self, topic: str, key: Any, value: Any) -> UUID:
            return UUID(int=len(value))

    assert load_id_factory("default", {}) is random_id
    assert load_id_factory(Counting, {})("topic", None, b"abc") == UUID(int=3)
    assert load_id_factory(lambda topic, key, value: UUID(int=9), {})("topic", None, b"") == UUID(int=9)


def test_default_formats_are_compatible() -> None:
    assert decode_chunk(load_chunk_serializer("default", {})("topic", CHUNK)) == CHUNK
