"""Secret settings: masked wherever the configuration is shown."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, SecretBytes, SecretStr
from pydantic.fields import FieldInfo

from penstock.files.errors import UnsafeFile
from penstock.files.secret_files import check_secret

MASK = "********"
SECRET: dict[str, Any] = {"secret": True}
"""Marks a field: ``Field(json_schema_extra=SECRET)``."""
_SECRET_NAME = re.compile(
    r"passw|secret|token|credential|jaas|(^|[._-])key([._-](pem|base64))?$|api[._-]?key", re.IGNORECASE
)

KAFKA_SECRET_FILES = (
    "ssl.key.location",
    "ssl.keystore.location",
    "sasl.kerberos.keytab",
    "sasl.oauthbearer.assertion.file",
    "sasl.oauthbearer.assertion.private.key.file",
)
"""Properties of Kafka's clients that name a file with a secret."""


def is_secret(name: str, field: FieldInfo | None = None) -> bool:
    """Report whether a key's value is secret: by the mark of its field, or else by its name."""
    extra = field.json_schema_extra if field is not None else None
    if isinstance(extra, dict) and "secret" in extra:
        return bool(extra["secret"])
    # Handlers of users have no marked fields, so their keys are judged by name.
    return _SECRET_NAME.search(name) is not None


def check_kafka_secrets(properties: Mapping[str, Any], file: Path | None = None) -> None:
    """Check the files with secrets that ``properties`` of a Kafka client name, and their own ``file`` if it holds
    secrets. Raises UnsafeFile that names the property.
    """
    secret_files = {name: Path(str(properties[name])) for name in KAFKA_SECRET_FILES if properties.get(name)}
    if file is not None:
        secret_files |= dict.fromkeys(filter(is_secret, properties), file)
    for name, path in secret_files.items():
        try:
            check_secret(path)
        except UnsafeFile as error:
            raise type(error)(f"{name}: {error}") from None


def masked(settings: BaseModel | Mapping[str, Any]) -> dict[str, Any]:
    """Return ``settings`` as a mapping for JSON with MASK in place of each secret."""
    if isinstance(settings, BaseModel):
        fields = type(settings).model_fields
        dumped = settings.model_dump(mode="json")
        return {name: _mask(name, getattr(settings, name, None), text, fields) for name, text in dumped.items()}
    return {str(name): _mask(str(name), value, value, {}) for name, value in settings.items()}


def _mask(name: str, value: Any, plain: Any, fields: Mapping[str, FieldInfo]) -> Any:
    if (
        value not in (None, "", {}, (), [])
        # The name of a file is not a secret, and people who look for a fault need it.
        and not isinstance(value, int | float | Path)
        and (isinstance(value, SecretStr | SecretBytes) or is_secret(name, fields.get(name)))
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
