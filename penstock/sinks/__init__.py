"""Handlers: where a listener's messages go besides the log, each in a process of its own.

A handler of one's own is a class (or any callable) named by an entry point of the group ``penstock.handlers``:

    class Mine:
        class Settings(pydantic.BaseModel):    # what may stand in the configuration beside its type
            path: str

        def __init__(self, settings: Settings) -> None: ...
        def deliver(self, batch: pyarrow.RecordBatch, origin: penstock.counts.Origin) -> penstock.sinks.Delivered: ...

Without ``Settings`` it is called with the settings as keyword arguments.

Read ``handler`` (what one is), ``handler_factory`` with ``handler_check`` (making one of its configuration),
Penstock's own (``console``, ``kafka``, ``discard``), then ``forwarder`` (the process). Imports ``config``,
``process``, ``wire``, ``logbuffer``, ``handover`` and ``kafka``; nothing imports it, the supervisor starts its
processes by module name.
"""

from penstock.sinks.handler import BadSettings, Delivered, Handler

__all__ = ["BadSettings", "Delivered", "Handler"]
