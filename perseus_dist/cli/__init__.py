"""The command line. Everything is wired here; nothing else in the package prints or exits."""

from perseus_dist.cli.main import main

__all__ = ["main"]
