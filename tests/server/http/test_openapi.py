from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.server.running import Running


@pytest.fixture
def document(running: Running) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(running.request("GET", "/openapi.json")[2])
    return document


def test_document_describes_errors(document: dict[str, Any]) -> None:
    for path, item in document["paths"].items():
        for method, operation in item.items():
            good = "201" if (method, path) == ("put", "/topics/{topic}") else "200"
            assert operation["responses"].keys() == {good, "default"}


def test_metrics_are_described_as_text(document: dict[str, Any]) -> None:
    assert document["paths"]["/metrics"]["get"]["responses"]["200"]["content"].keys() == {"text/plain"}
    assert document["components"]["schemas"].keys() == {"Error"}


def test_every_reference_resolves_to_a_schema(document: dict[str, Any]) -> None:
    references = re.findall(r'"\$ref": "([^"]*)"', json.dumps(document))
    assert set(references) == {"#/components/schemas/Error"}


def test_parameters_parsed_by_routes_are_described(document: dict[str, Any]) -> None:
    logs = document["paths"]["/topic/{topic}/logs"]
    body = logs["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert body["properties"]["logs"]["items"]["properties"]["raw_bytes"]["format"] == "byte"
    required_by_name = {each["name"]: each["required"] for each in logs["get"]["parameters"]}
    assert required_by_name.pop("topic") is True
    assert set(required_by_name) == {"offset", "timestamp", "position", "max_messages", "cursor", "filter"}
    assert not any(required_by_name.values())
    assert "required" not in json.dumps(body)
