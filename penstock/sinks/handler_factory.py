"""Creates handlers from their configuration: Penstock's own, and users' by their entry points."""

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
from penstock.process.module_search import add_working_folder
from penstock.sinks.handler import BadSettings, Discard, Handler


def make_handler(listener: str, handler: ForwardedHandler) -> Handler:
    """Create the handler of a configuration. Raises BadSettings.

    Handlers are imported here, when they are needed, so that a forwarder's process stays small.
    """
    if isinstance(handler, ConsoleHandler):
        from penstock.sinks.console import Console

        return Console(listener, handler)
    if isinstance(handler, DiscardHandler):
        return Discard()
    add_working_folder()
    if isinstance(handler, KafkaHandler):
        from penstock.sinks.kafka import Kafka

        return Kafka(listener, handler)
    return _make_user_handler(handler)


def _make_user_handler(handler: UserHandler) -> Handler:
    (entry, *_) = entry_points(group=ENTRY_POINTS, name=handler.type)
    try:
        factory: Callable[..., Any] = entry.load()
    except Exception as error:  # noqa: BLE001 - a user's module may raise anything
        raise BadSettings(f"type: the entry point {handler.type!r} cannot be loaded: {error!r}") from None
    instance = _call_factory(factory, handler.settings)
    if not isinstance(instance, Handler):
        raise BadSettings(f"type: the handler of the entry point {handler.type!r} has no method deliver")
    return instance


def _call_factory(factory: Callable[..., Any], settings: Mapping[str, Any]) -> Any:
    model = getattr(factory, "Settings", None)
    try:
        if isinstance(model, type) and issubclass(model, BaseModel):
            _refuse_unknown_keys(model, settings)
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


def _refuse_unknown_keys(model: type[BaseModel], settings: Mapping[str, Any]) -> None:
    """Raise BadSettings for a key that the model does not have, even if the model would ignore it."""
    if model.model_config.get("extra") == "allow":
        return
    aliases = {field.alias for field in model.model_fields.values() if field.alias}
    unknown = sorted(settings.keys() - model.model_fields.keys() - aliases)
    if unknown:
        valid_keys = ", ".join(sorted(model.model_fields))
        raise BadSettings("\n".join(f"{key}: unknown key (known: {valid_keys})" for key in unknown))
