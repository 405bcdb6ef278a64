"""Keys of the export of metrics by OpenTelemetry."""

from __future__ import annotations

import importlib.util

from pydantic import Field, field_validator

from penstock.config.keys.secrets import SECRET
from penstock.config.keys.values import Seconds, Section

EXPORTER = "opentelemetry.exporter.otlp.proto.http"


class OtelConfig(Section):
    """Metrics to an OpenTelemetry collector, by OTLP over HTTP."""

    endpoint: str = Field(
        "", description='URL to which metrics are sent, such as http://127.0.0.1:4318/v1/metrics; "" = off.'
    )
    every: Seconds = Field(60.0, ge=0.1, description="Interval of sending.")
    timeout: Seconds = Field(10.0, gt=0, description="Time limit of one delivery.")
    headers: dict[str, str] = Field(
        default_factory=dict, json_schema_extra=SECRET, description="Headers of the requests, such as authorization."
    )

    @field_validator("endpoint")
    @classmethod
    def _check_endpoint(cls, endpoint: str) -> str:
        if endpoint and not endpoint.startswith(("http://", "https://")):
            raise ValueError(f"{endpoint!r} is not an address such as http://127.0.0.1:4318/v1/metrics")
        if endpoint and not is_installed():
            raise ValueError("endpoint needs OpenTelemetry: pip install 'penstock-pipe[otel]'")
        return endpoint


def is_installed() -> bool:
    """Report whether the packages are installed."""
    try:
        return importlib.util.find_spec(EXPORTER) is not None
    except ModuleNotFoundError:
        return False
