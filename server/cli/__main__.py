"""`python -m server.cli`, the same as `gramserve`."""

from __future__ import annotations

import sys

from server.cli import main

if __name__ == "__main__":  # the model's process imports the main module again
    sys.exit(main())
