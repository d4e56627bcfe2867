"""The package's folders, their order and the module graph, read from the sources; and its picture.

``scripts/draw-architecture`` draws the picture of docs/architecture.md with it.
"""

from __future__ import annotations

import ast
import sys
import textwrap
from functools import cache
from html import escape
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "pytest_intercode"
PICTURE = PACKAGE.parent / "docs" / "architecture.svg"

# From top to bottom; a folder imports from itself and from those below it. Folders in one line
# do not import each other.
LAYERS = (
    ("__main__",),
    ("testing",),
    ("cli",),
    ("plugin",),
    ("projects",),
    ("page", "export", "auditing", "linting", "rescoring", "gym", "options"),
    ("rollouts",),
    ("judging",),
    ("agents",),
    ("suites",),
    ("environments",),
    ("rewards",),
    ("databases",),
    ("sandboxes",),
    ("results",),
    ("gateway", "statistics"),
    ("system",),
    ("core",),
    ("errors",),
)

MODULES = {
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
    if path != PACKAGE / "__init__.py"  # the public names, which are imported when asked for
}


@cache
def imports(path: Path) -> set[str]:
    """Return the dotted names of all that a module imports, ``a.b`` for ``from a import b``."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: a relative import"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def top(name: str) -> str:
    """Return the first part of a dotted name: of a module of ours, its folder."""
    return name.split(".")[0]


def layer(module: str) -> int:
    """Return the number of a module's layer, from the top."""
    for number, names in enumerate(LAYERS):
        if top(module) in names:
            return number
    raise AssertionError(f"{module} has no layer yet: add its folder to LAYERS")


def ours(name: str) -> str | None:
    """Return the module of ours that an imported name is, or is in."""
    module = name.removeprefix("pytest_intercode.")
    if module == name:
        return None
    while module:
        if module in MODULES:
            return module
        module = module.rpartition(".")[0]
    return None


@cache
def graph() -> dict[str, set[str]]:
    """Return the modules of ours that each module imports, wherever the import stands."""
    return {
        module: {
            imported for name in imports(path) if (imported := ours(name)) and imported != module
        }
        for module, path in MODULES.items()
    }


# -- the picture

_WIDTH, _GAP, _LEFT = 960, 8, 16
_COLOURS = ("#dbe7f6", "#e3efe0", "#f8ecd6", "#f0e2ef", "#e8e8e8")
_COLOUR_OF = {  # faces; rollouts and who acts; engines; records and tasks; data
    **dict.fromkeys(
        ("plugin", "cli", "page", "export", "auditing", "rescoring", "gym", "options"), 0
    ),
    **dict.fromkeys(("rollouts", "agents", "environments", "rewards"), 1),
    **dict.fromkeys(("databases", "sandboxes"), 2),
    **dict.fromkeys(("results", "suites", "gateway", "statistics"), 3),
}


def _purpose(folder: str) -> str:
    """Return the first sentence of a folder's docstring."""
    path = MODULES[folder]
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return " ".join(text.split("\n\n")[0].split()).rstrip(".").replace("``", "")


def _uses(folder: str) -> list[str]:
    imported_folders = {
        top(imported)
        for module, all_ in graph().items()
        if top(module) == folder
        for imported in all_
    }
    order = [name for names in LAYERS for name in names]
    return [name for name in order if name in imported_folders - {folder, "errors"}]


def draw() -> str:
    """Return the picture: the folders in their layers, what each is for, and what it imports."""
    boxes: list[str] = []
    y = _LEFT
    for names in LAYERS[1:]:
        width = (_WIDTH - 2 * _LEFT - _GAP * (len(names) - 1)) / len(names)
        texts = {name: _texts(name, width) for name in names}
        height = 24 + 14 * max(map(len, texts.values()))
        for row, name in enumerate(names):
            boxes += _box(name, _LEFT + row * (width + _GAP), y, width, height, texts[name])
        y += height + _GAP
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {y + _LEFT}" '
            'font-family="sans-serif" font-size="11">',
            "<title>The folders of pytest_intercode; each imports only from those below it</title>",
            f'<rect width="{_WIDTH}" height="{y + _LEFT}" fill="white"/>',
            *boxes,
            "</svg>",
            "",
        ]
    )


def _texts(name: str, width: float) -> list[tuple[str, str]]:
    """Return the lines below a folder's name, each with its colour."""
    uses = _uses(name)
    note = f"imports {', '.join(uses)}" if uses else "imports nothing of ours"
    columns = int(width / 6.2)
    return [
        *((text, "#000") for text in textwrap.wrap(_purpose(name), columns)),
        *((text, "#666") for text in textwrap.wrap(note, columns)),
    ]


def _box(
    name: str, x: float, y: int, width: float, height: int, texts: list[tuple[str, str]]
) -> list[str]:
    colour = _COLOURS[_COLOUR_OF.get(name, 4)]
    title = name if name == "errors" else f"{name}/"
    return [
        f'<rect x="{x:g}" y="{y}" width="{width:g}" height="{height}" rx="4" fill="{colour}"/>',
        f'<text x="{x + 8:g}" y="{y + 16}" font-size="13" font-weight="bold">{title}</text>',
        *(
            f'<text x="{x + 8:g}" y="{y + 31 + 14 * row}" fill="{grey}">{escape(text)}</text>'
            for row, (text, grey) in enumerate(texts)
        ),
    ]


if __name__ == "__main__":
    PICTURE.write_text(draw(), encoding="utf-8")
    sys.stdout.write(f"{PICTURE}\n")
