"""Imports point down only, read from the sources; and what is imported when.

A module may import what lies in its own layer or in one below, wherever in its source the import
stands.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import pytest_intercode

_PACKAGE = Path(pytest_intercode.__file__).parent

_LAYERS = (
    ("errors", "escaping"),
    ("rewards", "sandboxes", "suites", "databases", "fetching"),
    ("agents", "environments", "budgets"),
    (
        *("reporting", "episode", "isolation", "making", "owners", "rescoring", "statistics"),
        *("scheduler", "gym", "cli", "__main__", "auditing", "comparison", "page"),
    ),
    # the faces that pytest sees
    (
        "plugin",
        "ahead",
        "audit_cases",
        "collection",
        "cases",
        "fixtures",
        "gate",
        "opening",
        "resumption",
        "rollout",
        "selection",
        "session",
        "hookspecs",
        "settings",
        "spending",
        "terminal",
        "workers",
        "reporting.terminal",
        "reporting.reports",
    ),
)

_MODULES = {
    ".".join(path.relative_to(_PACKAGE).with_suffix("").parts): path
    for path in sorted(_PACKAGE.rglob("*.py"))
    if path != _PACKAGE / "__init__.py"  # the public names, which are imported when asked for
}


def _imports(path: Path) -> set[str]:
    """Return the dotted names of all that a module imports, ``a.b`` for ``from a import b``."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: a relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def _top(name: str) -> str:
    return name.split(".")[0]


def _layer(module: str) -> int:
    """Return the layer of a module of ours; the longest name that is listed decides."""
    name = module
    while name:
        for number, names in enumerate(_LAYERS):
            if name in names:
                return number
        name = name.rpartition(".")[0]
    raise AssertionError(f"{module} has no layer yet: add it to _LAYERS")


def _ours(name: str) -> str | None:
    """Return the module of ours that an imported name is, or is in."""
    module = name.removeprefix("pytest_intercode.")
    if module == name:
        return None
    while module:
        if module in _MODULES or f"{module}.__init__" in _MODULES:
            return module
        module = module.rpartition(".")[0]
    return None


@pytest.mark.parametrize("module", _MODULES)
def test_imports_point_down(module: str) -> None:
    own = _layer(module.removesuffix(".__init__"))
    for name in _imports(_MODULES[module]):
        imported = _ours(name)
        if imported is not None:
            assert _layer(imported) <= own, f"{module} imports {imported}, which is above it"


@pytest.mark.parametrize("module", sorted(m for m in _MODULES if _layer(m) < len(_LAYERS) - 1))
def test_only_the_faces_import_pytest(module: str) -> None:
    assert not {"pytest", "_pytest"} & set(map(_top, _imports(_MODULES[module])))


@pytest.mark.parametrize("module", sorted(m for m in _MODULES if not m.startswith("sandboxes.")))
def test_only_sandboxes_import_docker(module: str) -> None:
    imports = _imports(_MODULES[module])
    assert "docker" not in set(map(_top, imports))
    assert not [name for name in imports if name.startswith("pytest_intercode.sandboxes.docker")]


def test_the_rule_sees_what_it_should(tmp_path: Path) -> None:
    source = tmp_path / "module.py"
    source.write_text("import a.b\nfrom c import d, e as f\ndef g():\n    from h.i import j\n")
    assert _imports(source) == {"a.b", "c.d", "c.e", "h.i.j"}
    assert _ours("pytest_intercode.suites.task.Task") == "suites.task"
    assert _ours("pytest_intercode.suites") == "suites"
    assert _ours("pytest.fixture") is None
    assert _layer("reporting.results") < _layer("reporting.terminal")
    assert _layer("sandboxes.docker.engine") == _layer("rewards.text")


def _loaded(*imports: str) -> set[str]:
    """Return the names of all modules that are there after some imports, in a fresh process."""
    code = f"import sys\nimport {', '.join(imports)}\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


_HEAVY = {
    "docker",
    "openai",
    "pydantic",
    "yaml",
    "requests",
    "gymnasium",
    "numpy",
    "scipy",
    "sklearn",
    "jinja2",
    "pymysql",
    "asyncio",
}


def test_an_installed_plugin_is_light() -> None:
    already = _loaded("pytest")
    found = _loaded(
        "pytest",
        "pytest_intercode",
        "pytest_intercode.plugin",
        "pytest_intercode.fixtures",
        "pytest_intercode.hookspecs",
    )
    assert not _HEAVY & (found - already)
    assert {name for name in found if name.startswith("pytest_intercode")} == {
        "pytest_intercode",
        "pytest_intercode.plugin",
        "pytest_intercode.fixtures",
        "pytest_intercode.hookspecs",
    }


def test_rewards_need_neither_pytest_nor_docker_nor_numbers() -> None:
    names = [f"pytest_intercode.{module}" for module in _MODULES if module.startswith("rewards.")]
    assert len(names) > 3
    found = _loaded(*(name.removesuffix(".__init__") for name in names))
    assert not found & (_HEAVY | {"pytest", "_pytest"})


def test_the_engine_runs_without_pytest() -> None:
    found = _loaded("pytest_intercode.making", "pytest_intercode.episode")
    assert not found & {"pytest", "_pytest", "docker", "openai"}
