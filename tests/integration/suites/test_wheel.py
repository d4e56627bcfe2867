"""The wheel alone, without the checkout: it plays the bundled suites, and has all that it needs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from pytest_intercode.suites.catalogue import bundled_tasks
from tests.conftest import ADDOPTS, results
from tests.supply.locks import ROOT, project
from tests.support.wheel import build, clean_environment, install, run

pytestmark = pytest.mark.skipif(
    not (ROOT / "pyproject.toml").is_file(), reason="not run from a checkout"
)
ENVIRONMENTS = {"ic_bash", "ic_sql", "ic_python", "ic_ctf", "ic_swe"}
LOOK = """\
import inspect, json, sys
from importlib.metadata import distributions
import pytest_intercode
from pytest_intercode.sandboxes import lister

folder = pytest_intercode.__path__[0]
print(json.dumps({
    "installed": [d.version for d in distributions() if d.metadata["Name"] == "pytest-intercode"],
    "mute": [
        name for name in pytest_intercode.__all__
        if inspect.isclass(value := getattr(pytest_intercode, name)) and not inspect.getdoc(value)
    ],
    "listers": {name: f"{folder}/sandboxes/lister/lister-{name}" for name in lister.MACHINES},
    "modules": sorted(
        module.__file__ for name, module in sys.modules.items()
        if name.startswith("pytest_intercode") and getattr(module, "__file__", None)
    ),
}))
"""
USER = """\
from pytest_intercode import Observation, StepAgent

agent: StepAgent = 3
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment that has the wheel."""
    (wheel,) = build(ROOT, tmp_path_factory.mktemp("dist"), ("wheel",)).iterdir()
    return install(wheel, tmp_path_factory.mktemp("installed"))


def play(python: Path, folder: Path, *options: str) -> list[dict[str, object]]:
    """Play bundled suites by the oracle, and return the rows of the results file."""
    environment = {**clean_environment(), "PYTEST_ADDOPTS": ADDOPTS}
    words = (
        *("--intercode-agent=oracle", "--intercode-sandbox=bubblewrap"),
        *("--intercode-results=r.jsonl", "-p", "no:cacheprovider", *options),
    )
    run(python, "-m", "pytest", *words, cwd=folder, env=environment)
    return results(folder / "r.jsonl")


@pytest.mark.usefixtures("bubblewrap")
def test_it_plays_a_task_of_each_suite(python: Path, tmp_path: Path) -> None:
    rows = play(python, tmp_path, "--intercode-env=all", "--intercode-limit=1")
    assert {row["environment"] for row in rows} == ENVIRONMENTS
    assert {row["outcome"] for row in rows} == {"solved"}


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("bubblewrap")
@pytest.mark.parametrize("name", sorted(ENVIRONMENTS))
def test_it_plays_all_tasks(python: Path, tmp_path: Path, name: str) -> None:
    env = name.removeprefix("ic_")
    rows = play(python, tmp_path, f"--intercode-env={env}")
    tasks = {task.id for task in bundled_tasks(env, env)}
    assert {row["task_id"] for row in rows} == tasks
    assert {(row["environment"], row["outcome"]) for row in rows} == {(name, "solved")}


@pytest.mark.slow
def test_nothing_of_it_is_of_the_checkout(python: Path, tmp_path: Path) -> None:
    seen = json.loads(run(python, "-c", LOOK, cwd=tmp_path, env=clean_environment()))
    folder = python.parents[1]
    assert len(seen["modules"]) > 20
    assert all(Path(name).is_relative_to(folder) for name in seen["modules"])
    assert seen["installed"] == [project()["version"]]
    assert seen["mute"] == []
    assert seen["listers"]
    for path in map(Path, seen["listers"].values()):
        ours = ROOT / "pytest_intercode" / "sandboxes" / "lister" / path.name
        assert path.read_bytes() == ours.read_bytes()


def test_its_commands(python: Path, tmp_path: Path) -> None:
    def command(*words: str) -> str:
        program = python.with_name("pytest-intercode")
        return run(program, *words, cwd=tmp_path, env=clean_environment())

    assert command("--version").strip() == f"pytest-intercode {project()['version']}"
    assert re.search(r"^ +doctor +\S", command("--help"), re.MULTILINE)
    report = json.loads(command("doctor", "--json", "--", "--intercode-env=sql"))
    assert f"pytest-intercode {project()['version']}" in json.dumps(report)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_it_is_typed(python: Path, tmp_path: Path) -> None:
    """A user's file is checked with the types of the wheel, whose py.typed is tested every day."""
    (tmp_path / "user.py").write_text(USER)
    words = (python, "-m", "mypy", "--strict", "--config-file=", "user.py", "--no-error-summary")
    script = f"! {' '.join(map(str, words))} --cache-dir={tmp_path / 'cache'}"
    output = run("bash", "-c", script, cwd=tmp_path, env=clean_environment())
    (line,) = output.splitlines()
    assert line.startswith("user.py:3: error: Incompatible types in assignment")
    assert '"StepAgent"' in line
