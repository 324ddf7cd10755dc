"""``python -m figures`` is the command ``expqk``."""

import sys

from figures.command.cli import main

if __name__ == "__main__":
    sys.exit(main())
