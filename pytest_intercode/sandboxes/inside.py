"""The text of our modules that run inside sandboxes, ready to be sent there.

Such a module is written like any other, so that linters, type checkers and unit tests see it, but
only its text is used. It may import only the standard library, and other such modules by name.
"""

from __future__ import annotations

import ast
import threading
from functools import cache
from importlib import resources

__all__ = ["text_of"]

_ONLY_FOR_CHECKERS = ("typing", "__future__")
# If two threads parse simultaneously, CPython 3.11.7 raises a SystemError in one (gh-106905).
_PARSING = threading.Lock()


@cache
def text_of(package: str, *modules: str) -> str:
    """Return modules below a package as one text, without what is not needed inside.

    What only type checkers read is left out, and so are imports from our own package: imported
    modules have to be among ``modules``, each before the modules that import from it.
    """
    lines = ["from __future__ import annotations"]
    for module in modules:
        path = f"{module.replace('.', '/')}.py"
        source = resources.files(package).joinpath(path).read_text("utf-8")
        with _PARSING:
            nodes = ast.parse(source).body
        source_lines = source.split("\n")
        for node in reversed(nodes):  # from the end, as deleting changes the numbers of later lines
            if not _is_needed(node):
                del source_lines[node.lineno - 1 : node.end_lineno]
        lines += source_lines
    return "\n".join([*lines, ""])


def _is_needed(node: ast.stmt) -> bool:
    if isinstance(node, ast.ImportFrom):
        return str(node.module).split(".")[0] not in (*_ONLY_FOR_CHECKERS, "pytest_intercode")
    if isinstance(node, ast.If):
        return ast.unparse(node.test) != "TYPE_CHECKING"
    if isinstance(node, ast.Assign):
        return ast.unparse(node.targets[0]) != "__all__"
    return not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
