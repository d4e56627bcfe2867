"""pytester, for the whole of the tests: pytest takes this line in the root's conftest alone."""

from __future__ import annotations

pytest_plugins = ["pytester"]
