"""``python -m pytest_intercode``, the same as the command ``pytest-intercode``."""

from __future__ import annotations

import sys

from pytest_intercode.cli import main

if __name__ == "__main__":
    sys.exit(main())
