"""What is wrong with a command line itself."""

from __future__ import annotations


class UsageError(Exception):
    """An option, a variable or an argument that can't be taken; exit status 2."""
