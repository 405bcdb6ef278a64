"""Where one message has been. Read ``tracer``, ``stations``, ``find_message``. Imports ``landing.proof``."""
