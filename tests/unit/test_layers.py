"""The module graph, read from the sources: no circle, no import upward; and what is loaded when.

Every import counts, wherever it stands: at the top, in a function, for the type checker alone.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import pytest_intercode

_PACKAGE = Path(pytest_intercode.__file__).parent

# From top to bottom; a folder imports from itself and from those below it. Folders in one line
# do not import each other.
_LAYERS = (
    ("__main__",),
    ("plugin", "cli"),
    ("page", "auditing", "rescoring", "gym"),
    ("rollouts",),
    ("agents",),
    ("environments",),
    ("rewards",),
    ("databases",),
    ("sandboxes",),
    ("results",),
    ("suites",),
    ("statistics",),
    ("core",),
    ("errors",),
)

_MODULES = {
    ".".join(path.relative_to(_PACKAGE).with_suffix("").parts).removesuffix(".__init__"): path
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
    for number, names in enumerate(_LAYERS):
        if _top(module) in names:
            return number
    raise AssertionError(f"{module} has no layer yet: add its folder to _LAYERS")


def _ours(name: str) -> str | None:
    """Return the module of ours that an imported name is, or is in."""
    module = name.removeprefix("pytest_intercode.")
    if module == name:
        return None
    while module:
        if module in _MODULES:
            return module
        module = module.rpartition(".")[0]
    return None


_GRAPH = {
    module: {found for name in _imports(path) if (found := _ours(name)) not in (None, module)}
    for module, path in _MODULES.items()
}


def test_the_root_holds_no_more_than_the_public_names() -> None:
    found = {path.name for path in _PACKAGE.iterdir() if path.is_file()}
    assert found == {"__init__.py", "__main__.py", "errors.py", "py.typed"}


def test_no_circle() -> None:
    try:
        TopologicalSorter(_GRAPH).prepare()
    except CycleError as error:
        pytest.fail(f"modules import each other: {' -> '.join(error.args[1])}")


@pytest.mark.parametrize("module", _MODULES)
def test_imports_point_down(module: str) -> None:
    for imported in _GRAPH[module]:
        assert imported is not None
        same_folder = _top(imported) == _top(module)
        assert same_folder or _layer(imported) > _layer(module), (
            f"{module} imports {imported}, which is not below it"
        )


@pytest.mark.parametrize("module", sorted(m for m in _MODULES if _top(m) not in ("plugin", "cli")))
def test_only_the_plugin_imports_pytest(module: str) -> None:
    assert not {"pytest", "_pytest", "xdist"} & set(map(_top, _imports(_MODULES[module])))


@pytest.mark.parametrize("module", sorted(m for m in _MODULES if not m.startswith("sandboxes.")))
def test_only_sandboxes_import_docker(module: str) -> None:
    imports = _imports(_MODULES[module])
    assert "docker" not in set(map(_top, imports))
    assert not [name for name in imports if name.startswith("pytest_intercode.sandboxes.docker")]


def test_the_rule_sees_what_it_should(tmp_path: Path) -> None:
    source = tmp_path / "module.py"
    source.write_text("import a.b\nfrom c import d, e as f\ndef g():\n    from h.i import j\n")
    assert _imports(source) == {"a.b", "c.d", "c.e", "h.i.j"}
    assert _ours("pytest_intercode.core.task.Task") == "core.task"
    assert _ours("pytest_intercode.suites") == "suites"
    assert _ours("pytest.fixture") is None
    assert _layer("plugin.reporter") < _layer("results.writing") < _layer("core.task")
    assert _layer("sandboxes.docker.engine") == _layer("sandboxes.pool")


def _loaded(*imports: str) -> set[str]:
    """Return the names of all modules that are there after some imports, in a fresh process."""
    code = f"import sys\nimport {', '.join(imports)}\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


_HEAVY = {
    *("docker", "openai", "pydantic", "yaml", "requests", "gymnasium", "numpy", "scipy"),
    *("sklearn", "jinja2", "pymysql", "asyncio"),
}


def test_an_installed_plugin_is_light() -> None:
    already = _loaded("pytest")
    found = _loaded(
        "pytest",
        "pytest_intercode",
        "pytest_intercode.plugin",
        "pytest_intercode.plugin.fixtures",
        "pytest_intercode.plugin.hookspecs",
    )
    assert not _HEAVY & (found - already)
    assert {name for name in found if name.startswith("pytest_intercode")} == {
        "pytest_intercode",
        "pytest_intercode.core",
        "pytest_intercode.core.values",
        "pytest_intercode.plugin",
        "pytest_intercode.plugin.fixtures",
        "pytest_intercode.plugin.hookspecs",
        "pytest_intercode.plugin.options",
    }


def test_rewards_need_neither_pytest_nor_docker_nor_numbers() -> None:
    names = [f"pytest_intercode.{module}" for module in _MODULES if module.startswith("rewards.")]
    assert len(names) > 3
    found = _loaded(*names)
    assert not found & (_HEAVY | {"pytest", "_pytest"})


def test_the_engine_runs_without_pytest() -> None:
    found = _loaded("pytest_intercode.environments.making", "pytest_intercode.rollouts.turn_loop")
    assert not found & {"pytest", "_pytest", "docker", "openai"}
