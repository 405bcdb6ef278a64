"""Handlers: destinations of a listener's messages other than the log, each in a process of its own.

A user's handler is a class (or any callable) named by an entry point of the group ``penstock.handlers``:

    class Mine:
        class Settings(pydantic.BaseModel):    # the keys that its configuration may have next to the type
            path: str

        def __init__(self, settings: Settings) -> None: ...
        def deliver(self, batch: pyarrow.RecordBatch, origin: penstock.counts.Origin) -> penstock.sinks.Delivered: ...

Without ``Settings`` it is called with the settings as keyword arguments.

Read ``handler`` (the interface), ``handler_factory`` with ``handler_check`` (creation from the configuration),
Penstock's own (``console``, ``kafka``), then ``forwarder`` (the process). Imports ``config``,
``process``, ``wire``, ``logbuffer``, ``handover`` and ``kafka``. No room imports it: the supervisor starts its
processes by module name.
"""

from penstock.sinks.handler import BadSettings, Delivered, Handler

__all__ = ["BadSettings", "Delivered", "Handler"]
