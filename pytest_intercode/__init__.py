"""pytest-intercode: test coding agents as pytest items, each task in its own sandbox.

The public names are those of ``__init__.pyi``. They are imported on first access, so that none of
them is loaded if the plugin is only installed.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module


@cache
def _homes() -> dict[str, str]:
    """Return the public names, each with its module."""
    import ast
    from pathlib import Path

    stub = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: str(node.module) for node in imports for alias in node.names}


def __getattr__(name: str) -> object:
    if name == "__all__":
        return sorted(_homes())
    if name.startswith("__") or name not in _homes():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_homes()[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_homes()])
