"""What PyArrow is told of a store."""

from __future__ import annotations

from penstock.landing.storage.arrow_file_system import file_system, of_s3
from penstock.landing.storage.object_path import ObjectPath


def test_options_by_any_of_their_names_reach_pyarrow() -> None:
    told = of_s3(
        {"AWS_ACCESS_KEY_ID": "a", "secret_access_key": "b", "aws_region": "c", "AWS_ENDPOINT_URL": "http://d"}
    )
    assert {name: told[name] for name in ("access_key", "secret_key", "region", "endpoint_override")} == {
        "access_key": "a",
        "secret_key": "b",
        "region": "c",
        "endpoint_override": "http://d",
    }


def test_a_file_is_named_with_its_bucket() -> None:
    _, base = file_system(ObjectPath("s3://lake/t", {"AWS_REGION": "us-east-1"}))
    assert base == "lake/t/"
