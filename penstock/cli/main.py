"""The entry point of the command ``penstock``, which imports everything else only where Ctrl-C is expected.

The imports of ``command_line`` take up to a second on a busy machine.
"""

import signal
import sys

INTERRUPTED = 130
"""The status that shells report of a command that Ctrl-C ended; as in ``process_end``, whose import takes longer."""


def main() -> None:
    """Run the command line."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # Workaround: pydantic 2 turns a KeyboardInterrupt into an error of its own; `command_line` ends this.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        from penstock.cli.command_line import run_command_line

        run_command_line()
    except KeyboardInterrupt:
        # Ctrl-C during the imports of a command, which has begun nothing.
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
