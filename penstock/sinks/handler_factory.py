"""Handlers made of their configuration: Penstock's own, and users' by their entry points."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from typing import Any

from pydantic import BaseModel, ValidationError

from penstock.config import (
    ConsoleHandler,
    DiscardHandler,
    ForwardedHandler,
    KafkaHandler,
    UserHandler,
)
from penstock.config.complaints import in_words
from penstock.config.keys.handlers import ENTRY_POINTS
from penstock.sinks.handler import BadSettings, Handler


def make(listener: str, handler: ForwardedHandler) -> Handler:
    """The handler of a configuration. Raises BadSettings.

    What a handler needs is imported here, when it is needed: its process should be small.
    """
    if isinstance(handler, ConsoleHandler):
        from penstock.sinks.console import Console

        return Console(listener, handler)
    if isinstance(handler, DiscardHandler):
        from penstock.sinks.discard import Discard

        return Discard()
    if isinstance(handler, KafkaHandler):
        from penstock.sinks.kafka import Kafka

        return Kafka(listener, handler)
    return _own(handler)


def _own(handler: UserHandler) -> Handler:
    (entry, *_) = entry_points(group=ENTRY_POINTS, name=handler.type)
    try:
        factory: Callable[..., Any] = entry.load()
    except Exception as error:  # noqa: BLE001 - a user's module may raise anything
        raise BadSettings(f"type: the entry point {handler.type!r} cannot be loaded: {error!r}") from None
    made = _called(factory, handler.settings)
    if not isinstance(made, Handler):
        raise BadSettings(f"type: what the entry point {handler.type!r} makes has no deliver()")
    return made


def _called(factory: Callable[..., Any], settings: Mapping[str, Any]) -> Any:
    model = getattr(factory, "Settings", None)
    try:
        if isinstance(model, type) and issubclass(model, BaseModel):
            _refuse_unknown(model, settings)
            return factory(model.model_validate(settings))
        inspect.signature(factory).bind(**settings)
        return factory(**settings)
    except ValidationError as error:
        lines = (f"{'.'.join(map(str, each['loc']))}: {in_words(dict(each))}" for each in error.errors())
        raise BadSettings("\n".join(lines)) from None
    except BadSettings:
        raise
    except Exception as error:  # noqa: BLE001 - a user's handler may raise anything
        raise BadSettings(f"settings: {error}") from None


def _refuse_unknown(model: type[BaseModel], settings: Mapping[str, Any]) -> None:
    """A key that the model does not know is refused, also where it would not mind."""
    if model.model_config.get("extra") == "allow":
        return
    aliases = {field.alias for field in model.model_fields.values() if field.alias}
    unknown = sorted(settings.keys() - model.model_fields.keys() - aliases)
    if unknown:
        known = ", ".join(sorted(model.model_fields))
        raise BadSettings("\n".join(f"{key}: unknown key (known: {known})" for key in unknown))
