"""The settings: a TOML file, then PENSTOCK_ variables, then ``-o key=value``; a bad key stops the start.

Read ``units``, ``syntax/``, ``nearest_name``, ``keys/`` (the tree of settings), ``sources`` with ``default_listeners``,
``loader`` with ``complaints`` and ``toml_lines``, ``template`` (a file to begin with), ``explain``, ``reloadable``,
``daemon_access`` (connections of other processes to the daemon) with ``daemon_keys``, and ``browser_access`` (requests
of browsers). Names are imported at first use: pydantic is slow to import, and commands that only contact the daemon do
not need it.
Imports ``errors`` only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.config.sources import DEFAULT_FILE, ENVIRONMENT_PREFIX
from penstock.config.units import ConfigError, parse_size, parse_time, split_address
from penstock.lazy_names import lazy_names

if TYPE_CHECKING:
    from penstock.config.keys.handlers import (
        ConsoleHandler,
        DiscardHandler,
        EncryptionConfig,
        ForwardedHandler,
        HandlerConfig,
        KafkaHandler,
        LogHandler,
        UserHandler,
    )
    from penstock.config.keys.listeners import RESERVED_NAMES, BufferConfig, DefragConfig, HoleConfig, ListenerConfig
    from penstock.config.keys.log import LogConfig, TopicConfig, TransactionsConfig
    from penstock.config.keys.otel import OtelConfig
    from penstock.config.keys.pipeline import PipelineConfig
    from penstock.config.keys.relay import RelayConfig
    from penstock.config.keys.secrets import masked
    from penstock.config.keys.security.servers import SecurityConfig, TokenConfig, is_loopback
    from penstock.config.keys.tree import Settings, default_listeners
    from penstock.config.loader import load, notices
else:
    _MODULES = {
        "keys.handlers": "ConsoleHandler DiscardHandler EncryptionConfig ForwardedHandler HandlerConfig KafkaHandler "
        "LogHandler UserHandler",
        "keys.listeners": "RESERVED_NAMES BufferConfig DefragConfig HoleConfig ListenerConfig",
        "keys.log": "LogConfig TopicConfig TransactionsConfig",
        "keys.otel": "OtelConfig",
        "keys.pipeline": "PipelineConfig",
        "keys.relay": "RelayConfig",
        "keys.secrets": "masked",
        "keys.security.servers": "SecurityConfig TokenConfig is_loopback",
        "keys.tree": "Settings default_listeners",
        "loader": "load notices",
    }
    __getattr__ = lazy_names(__name__, {name: module for module, names in _MODULES.items() for name in names.split()})

__all__ = [
    "DEFAULT_FILE",
    "ENVIRONMENT_PREFIX",
    "RESERVED_NAMES",
    "BufferConfig",
    "ConfigError",
    "ConsoleHandler",
    "DefragConfig",
    "DiscardHandler",
    "EncryptionConfig",
    "ForwardedHandler",
    "HandlerConfig",
    "HoleConfig",
    "KafkaHandler",
    "ListenerConfig",
    "LogConfig",
    "LogHandler",
    "OtelConfig",
    "PipelineConfig",
    "RelayConfig",
    "SecurityConfig",
    "Settings",
    "TokenConfig",
    "TopicConfig",
    "TransactionsConfig",
    "UserHandler",
    "default_listeners",
    "is_loopback",
    "load",
    "masked",
    "notices",
    "parse_size",
    "parse_time",
    "split_address",
]
