"""The text of our modules that run inside sandboxes, ready to be sent there.

Such a module is written like any other, so that linters, type checkers and unit tests see it; only
its text is used. It may import the standard library alone, and other such modules by name.
"""

from __future__ import annotations

import ast
import threading
from functools import cache
from importlib import resources

__all__ = ["text_of"]

_ONLY_FOR_CHECKERS = ("typing", "__future__")
# Of two threads that parse at once, CPython 3.11.7 ends one with a SystemError (gh-106905).
_PARSING = threading.Lock()


@cache
def text_of(package: str, *modules: str) -> str:
    """Return modules below a package as one text, without what there is no use for inside.

    What only a type checker reads is left out, and so are imports from our own package: what is
    imported has to be among ``modules``, each after those that it imports from.
    """
    lines = ["from __future__ import annotations"]
    for module in modules:
        path = f"{module.replace('.', '/')}.py"
        source = resources.files(package).joinpath(path).read_text("utf-8")
        with _PARSING:
            nodes = ast.parse(source).body
        source_lines = source.split("\n")
        for node in reversed(nodes):  # from the end, as the numbers of lines change behind it
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
