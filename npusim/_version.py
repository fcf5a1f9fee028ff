"""Version of npusim, the one place of it besides pyproject.toml."""

__version__ = "0.1.0"
