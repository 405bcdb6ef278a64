"""One settings tree: a TOML file, then PENSTOCK_ variables, then ``-o key=value``; what is wrong stops the start.

Read ``settings`` (the whole tree), then a module for each part of it (``ingest``, ``handlers``, ``log``, ``security``,
``pipeline``, ``console``, ``otel``), ``values``, ``sources`` with ``ignored``, ``loader``, ``explain`` with
``secrets``, ``reloadable``, and ``daemon_access`` with ``tls`` (how other processes reach the daemon). Imports
``errors`` only.
"""

from penstock.config.handlers import (
    ConsoleHandler,
    DiscardHandler,
    EncryptionConfig,
    ForwardedHandler,
    HandlerConfig,
    KafkaHandler,
    LogHandler,
    UserHandler,
)
from penstock.config.ingest import TAKEN_NAMES, BufferConfig, DefragConfig, HoleConfig, ListenerConfig
from penstock.config.loader import ignored_keys, load
from penstock.config.log import LogConfig, TopicConfig, TransactionsConfig
from penstock.config.otel import OtelConfig
from penstock.config.pipeline import PipelineConfig
from penstock.config.secrets import masked
from penstock.config.security import SecurityConfig, TokenConfig, is_loopback
from penstock.config.settings import Settings, default_listeners
from penstock.config.sources import DEFAULT_FILE, ENVIRONMENT_PREFIX
from penstock.config.values import ConfigError, parse_size, parse_time, split_address

__all__ = [
    "DEFAULT_FILE",
    "ENVIRONMENT_PREFIX",
    "TAKEN_NAMES",
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
    "SecurityConfig",
    "Settings",
    "TokenConfig",
    "TopicConfig",
    "TransactionsConfig",
    "UserHandler",
    "default_listeners",
    "ignored_keys",
    "is_loopback",
    "load",
    "masked",
    "parse_size",
    "parse_time",
    "split_address",
]
