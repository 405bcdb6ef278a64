"""Valid and invalid requests generated from the OpenAPI document."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import hypothesis
import pytest
import schemathesis
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from penstock.cli.run.api_reference import _openapi_document
from tests.server.api.test_answers_words import INSIDE
from tests.spark.spark_daemon import Daemon

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    unsupported_method,
]
ENDLESS = "/topic/{topic}/logstream"
EXAMPLES = 60
"""Examples per route."""


def operations() -> list[Any]:
    described = schemathesis.openapi.from_dict(_openapi_document()).exclude(path=ENDLESS).get_all_operations()
    return [result.ok() for result in described]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    daemon = Daemon(tmp_path_factory.mktemp("daemon"))
    yield f"http://{daemon.http}"
    daemon.close()


@pytest.mark.parametrize("operation", operations(), ids=lambda operation: operation.label)
def test_every_answer_matches_the_document(address: str, operation: Any) -> None:
    # What has neither parameters nor a body cannot be asked wrongly.
    requests = st.one_of(*(operation.as_strategy(generation_mode=mode) for mode in schemathesis.GenerationMode))

    @hypothesis.settings(
        max_examples=EXAMPLES,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=[hypothesis.HealthCheck.filter_too_much, hypothesis.HealthCheck.too_slow],
    )
    @hypothesis.given(case=requests)
    def send_case(case: Any) -> None:
        answer = case.call(base_url=address, timeout=20)
        case.validate_response(answer, checks=CHECKS)
        own_text = answer.text
        for sent in (case.path_parameters or {}).values():  # an answer repeats the name that was asked for
            own_text = own_text.replace(str(sent), "")
        assert answer.status_code == 200 or not INSIDE.search(own_text)

    send_case()
