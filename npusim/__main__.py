"""``python -m npusim``: the command without its script."""

from npusim.cli import main

if __name__ == "__main__":
    main()
