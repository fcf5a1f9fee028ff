"""The ``npusim`` command; the only package that prints or exits."""

from npusim.cli.app import main

__all__ = ["main"]
