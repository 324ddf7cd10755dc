"""``python -m expqk`` is the command ``expqk``; what can be imported is in approx and analysis."""

import sys

from figures.command.cli import main

if __name__ == "__main__":
    sys.exit(main())
