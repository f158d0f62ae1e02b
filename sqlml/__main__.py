"""`python -m sqlml`."""

from __future__ import annotations

import sys

from sqlml.tools.cli import main

if __name__ == "__main__":
    sys.exit(main())
