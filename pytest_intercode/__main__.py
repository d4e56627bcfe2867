"""``python -m pytest_intercode`` is the command ``pytest-intercode``; touches nothing by itself."""

from __future__ import annotations

import sys

from pytest_intercode.cli import main

if __name__ == "__main__":
    sys.exit(main())
