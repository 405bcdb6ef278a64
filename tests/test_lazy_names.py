from __future__ import annotations

import json.decoder

import pytest

from penstock.lazy_names import lazy_names


def test_lazy_name_is_imported_from_its_module() -> None:
    assert lazy_names("json", {"JSONDecoder": "decoder"})("JSONDecoder") is json.decoder.JSONDecoder


def test_unknown_name_is_refused_as_python_does() -> None:
    with pytest.raises(AttributeError, match="module 'json' has no attribute 'dump_all'"):
        lazy_names("json", {"JSONDecoder": "decoder"})("dump_all")
