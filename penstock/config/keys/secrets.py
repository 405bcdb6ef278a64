"""Settings that nobody should see: they are masked wherever the configuration is shown."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, SecretBytes, SecretStr
from pydantic.fields import FieldInfo

MASK = "********"
SECRET: dict[str, Any] = {"secret": True}
"""Marks a field: ``Field(json_schema_extra=SECRET)``."""
_SECRET_NAME = re.compile(
    r"passw|secret|token|credential|jaas|(^|[._-])key([._-](pem|base64))?$|api[._-]?key", re.IGNORECASE
)


def is_secret(name: str, field: FieldInfo | None = None) -> bool:
    """Whether the value of a key must not be shown: by its field's mark, or else by its name."""
    extra = field.json_schema_extra if field is not None else None
    if isinstance(extra, dict) and "secret" in extra:
        return bool(extra["secret"])
    return _SECRET_NAME.search(name) is not None


def masked(settings: BaseModel | Mapping[str, Any]) -> dict[str, Any]:
    """``settings`` as a JSON-ready mapping, with MASK in the place of each secret that is set."""
    if isinstance(settings, BaseModel):
        fields = type(settings).model_fields
        shown = settings.model_dump(mode="json")
        return {name: _shown(name, getattr(settings, name, None), plain, fields) for name, plain in shown.items()}
    return {str(name): _shown(str(name), value, value, {}) for name, value in settings.items()}


def _shown(name: str, value: Any, plain: Any, fields: Mapping[str, FieldInfo]) -> Any:
    if value not in (None, "", {}) and (
        isinstance(value, SecretStr | SecretBytes) or is_secret(name, fields.get(name))
    ):
        return MASK
    if isinstance(value, BaseModel | Mapping):
        return masked(value)
    if isinstance(value, tuple | list):
        return [
            masked(item) if isinstance(item, BaseModel | Mapping) else dumped
            for item, dumped in zip(value, plain, strict=True)
        ]
    return plain
