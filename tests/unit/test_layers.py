"""The module graph, read from the sources: no circle, no import upward; and what is loaded when.

Every import counts, wherever it stands: at the top, in a function, for the type checker alone.
"""

from __future__ import annotations

import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.support.architecture import (
    MODULES,
    PACKAGE,
    PICTURE,
    draw,
    graph,
    imports,
    layer,
    ours,
    top,
)


def test_the_root_holds_no_more_than_the_public_names() -> None:
    found = {path.name for path in PACKAGE.iterdir() if path.is_file()}
    assert found == {"__init__.py", "__init__.pyi", "__main__.py", "errors.py", "py.typed"}


def test_no_circle() -> None:
    try:
        TopologicalSorter(graph()).prepare()
    except CycleError as error:
        pytest.fail(f"modules import each other: {' -> '.join(error.args[1])}")


def test_imports_point_down() -> None:
    upward = [
        f"{module} imports {imported}, which is not below it"
        for module, all_imported in graph().items()
        for imported in all_imported
        if top(imported) != top(module) and layer(imported) <= layer(module)
    ]
    assert not upward


def test_only_the_plugin_imports_pytest() -> None:
    without_it = [name for name in MODULES if top(name) not in ("testing", "plugin", "cli")]
    pytests = {"pytest", "_pytest", "xdist"}
    assert not [name for name in without_it if pytests & set(map(top, imports(MODULES[name])))]


def test_only_sandboxes_import_docker() -> None:
    violations = [
        f"{module} imports {imported}"
        for module in MODULES
        if top(module) != "sandboxes"
        for imported in imports(MODULES[module])
        if top(imported) == "docker" or imported.startswith("pytest_intercode.sandboxes.docker")
    ]
    assert not violations


def test_core_is_data() -> None:
    touching = {"asyncio", "io", "os", "shutil", "socket", "subprocess", "tempfile"}
    violations = [
        name
        for name in MODULES
        if top(name) == "core" and touching & set(map(top, imports(MODULES[name])))
    ]
    assert not violations, "these belong in system/"


def test_the_picture_is_that_of_the_code() -> None:
    assert PICTURE.read_text(encoding="utf-8") == draw(), "draw it again: scripts/draw-architecture"


def test_the_rule_sees_what_it_should(tmp_path: Path) -> None:
    source = tmp_path / "module.py"
    source.write_text("import a.b\nfrom c import d, e as f\ndef g():\n    from h.i import j\n")
    assert imports(source) == {"a.b", "c.d", "c.e", "h.i.j"}
    assert ours("pytest_intercode.core.task.Task") == "core.task"
    assert ours("pytest_intercode.suites") == "suites"
    assert ours("pytest.fixture") is None
    assert layer("plugin.reporter") < layer("results.files") < layer("core.task")
    assert layer("sandboxes.docker.engine") == layer("sandboxes.pool")


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
        "pytest_intercode.core.presets",
        "pytest_intercode.core.values",
        "pytest_intercode.plugin",
        "pytest_intercode.plugin.episode_items",
        "pytest_intercode.plugin.errors",
        "pytest_intercode.plugin.fixtures",
        "pytest_intercode.plugin.hookspecs",
        "pytest_intercode.options",
        "pytest_intercode.options.models",
        "pytest_intercode.options.option",
        "pytest_intercode.options.parsers",
        "pytest_intercode.options.runs",
        "pytest_intercode.options.sandboxes",
        "pytest_intercode.options.table",
        "pytest_intercode.options.tasks",
        "pytest_intercode.plugin.ini",
        "pytest_intercode.plugin.options",
    }


def test_rewards_need_neither_pytest_nor_docker_nor_numbers() -> None:
    names = [f"pytest_intercode.{module}" for module in MODULES if module.startswith("rewards.")]
    assert len(names) > 3
    found = _loaded(*names)
    assert not found & (_HEAVY | {"pytest", "_pytest"})


def test_the_engine_runs_without_pytest() -> None:
    found = _loaded("pytest_intercode.suites.making", "pytest_intercode.rollouts.turn_loop")
    assert not found & {"pytest", "_pytest", "docker", "openai"}
