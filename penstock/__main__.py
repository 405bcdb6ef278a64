"""The command ``penstock`` as ``python -m penstock``. Start with ``cli.main``."""

from penstock.cli.main import main

if __name__ == "__main__":
    main()
