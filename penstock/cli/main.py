"""The entry point of the command ``penstock``, which imports everything else only where Ctrl-C is expected.

The imports of ``command_line`` take up to a second on a busy machine.
"""

import sys

INTERRUPTED = 130
"""The status that shells report of a command that Ctrl-C ended; as in ``process_end``, whose import takes longer."""


def main() -> None:
    """Run the command line."""
    try:
        from penstock.cli.command_line import run_command_line

        run_command_line()
    except KeyboardInterrupt:
        # Ctrl-C during the imports of a command, which has begun nothing.
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
