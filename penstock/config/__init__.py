"""One settings tree: a TOML file, then PENSTOCK_ variables, then ``-o key=value``; what is wrong stops the start.

Read ``keys/`` (the tree of settings), ``sources`` with ``ignored``, ``loader``, ``explain``, ``reloadable``,
``daemon_access`` (how other processes reach the daemon), and ``browser_access`` (what browsers may ask). Imports
``errors`` only.
"""

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
from penstock.config.keys.listeners import TAKEN_NAMES, BufferConfig, DefragConfig, HoleConfig, ListenerConfig
from penstock.config.keys.log import LogConfig, TopicConfig, TransactionsConfig
from penstock.config.keys.otel import OtelConfig
from penstock.config.keys.pipeline import PipelineConfig
from penstock.config.keys.secrets import masked
from penstock.config.keys.security import SecurityConfig, TokenConfig, is_loopback
from penstock.config.keys.tree import Settings, default_listeners
from penstock.config.keys.values import ConfigError, parse_size, parse_time, split_address
from penstock.config.loader import ignored_keys, load
from penstock.config.sources import DEFAULT_FILE, ENVIRONMENT_PREFIX

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
