"""Commands that run the pipe and look after the machine: up, serve, reload, console, doctor, config."""
