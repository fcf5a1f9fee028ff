"""Version of npusim, the one place of it."""

__version__ = "0.1.0"
