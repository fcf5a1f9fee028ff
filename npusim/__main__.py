"""``python -m npusim``: the command without its script."""

import sys

from npusim.cli import main

if __name__ == "__main__":
    sys.exit(main())
