"""Bundles of installed agents: installed once, and again where the program is gone."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from pytest_intercode.agents.installed import bundle
from pytest_intercode.agents.loader import load_agent
from pytest_intercode.errors import AgentLoadError

pytest.importorskip("aiohttp")


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A recipe whose package is a file of ours, so that npm needs no network."""
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    package = tmp_path / "mine-1.0.0.tgz"
    about = json.dumps({"name": "mine", "version": "1.0.0"})
    files = {"package.json": about, "run.sh": "exit 0\n"}
    with tarfile.open(package, "w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(f"package/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content.encode()))
    written = tmp_path / "mine.yaml"
    written.write_text(
        f'npm: ["file:{package}"]\nprogram: node_modules/mine/run.sh\n'
        'command: [sh, "{program}"]\n'
    )
    return written


def _load(recipe: Path) -> list[str]:
    """Load the agent; return what it has said of its progress."""
    lines: list[str] = []
    name = f"installed:{recipe.name}"
    load_agent(name, {}, recipe.parent, progress=lines.append).close()
    return lines


def _programs(recipe: Path) -> list[Path]:
    return list((recipe.parent / "cache").glob("**/agents/*/node_modules/mine/run.sh"))


def test_a_bundle_is_installed_once_and_again_without_its_program(recipe: Path) -> None:
    [line] = _load(recipe)
    assert line.startswith("installing file:")
    assert line.endswith(" for the agent mine, once; it may take minutes")
    assert _load(recipe) == []
    [program] = _programs(recipe)
    program.unlink()
    [line] = _load(recipe)
    assert line.endswith(", again, as its program is missing; it may take minutes")
    assert _programs(recipe) == [program]
    assert _load(recipe) == []


@pytest.mark.slow
def test_packages_without_the_program_are_not_kept(recipe: Path) -> None:
    written = recipe.read_text()
    recipe.write_text(written.replace("mine/run.sh", "mine/other.sh"))
    for _ in range(2):
        with pytest.raises(
            AgentLoadError, match=r"was installed, but has no program node_modules/mine/other\.sh"
        ):
            _load(recipe)
        assert _programs(recipe) == []
    recipe.write_text(written)
    assert len(_load(recipe)) == 1


def test_a_node_that_cannot_be_had_is_named(recipe: Path) -> None:
    recipe.write_text(f"{recipe.read_text()}node: '999.1'\n")
    message = r"Node\.js 999\.1 or newer is needed for linux/\w+, but npm's is 22\."
    with pytest.raises(AgentLoadError, match=message):
        _load(recipe)


@pytest.mark.slow
def test_an_old_node_is_replaced_by_npms(recipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle, "_own_node", lambda: "v20.20.2\n")
    recipe.write_text(f"{recipe.read_text()}node: '22.19'\n")
    assert len(_load(recipe)) == 1
    [program] = _programs(recipe)
    node = program.parents[2] / "node"
    library = node / "lib"
    words = [f"{library}/ld.so", "--library-path", f"{library}", f"{node}/bin/.node", "--version"]
    assert subprocess.run(words, capture_output=True, check=True).stdout.startswith(b"v22.")


def test_a_run_of_pytest_says_that_it_installs(recipe: Path, pytester: pytest.Pytester) -> None:
    """And tasks that it cannot play are one error for all of them."""
    shutil.copy(recipe, pytester.path)
    run = pytester.runpytest_subprocess(
        "--intercode-agent=installed:mine.yaml", "--intercode-env=sql", "--intercode-env=bash", "-q"
    )
    assert run.ret == pytest.ExitCode.USAGE_ERROR
    run.stdout.fnmatch_lines(["intercode: installing file:* for the agent mine, once; *"])
    [error] = [line for line in run.stderr.lines if line]
    assert error.startswith(
        "ERROR: --intercode-agent=installed:mine.yaml: it needs a shell, which sql does not have ("
    )
    selected = pytester.runpytest_subprocess(
        *("--intercode-agent=installed:mine.yaml", "--intercode-env=sql", "-q", "-k", "no-such")
    )
    assert selected.ret == pytest.ExitCode.NO_TESTS_COLLECTED


_SHELL = """\
from pytest_intercode import Environment, EnvironmentKind, Observation, Reward, register_environment


class FishKind(EnvironmentKind):
    has_shell = True


@register_environment
class Fish(Environment):
    name = "fish"
    kind = FishKind

    @classmethod
    def sandboxes(cls, task, provider):
        return []

    def start(self, task):
        pass

    def execute(self, action):
        return Observation("")

    def grade(self, answer):
        return Reward(0.0)

    def stop(self):
        pass

    def interrupt(self):
        pass
"""


@pytest.mark.slow
def test_the_kind_says_where_there_is_a_shell(recipe: Path, pytester: pytest.Pytester) -> None:
    """Also the kind of an environment that is not built in; this one has no sandbox to start in."""
    shutil.copy(recipe, pytester.path)
    pytester.makeconftest(_SHELL)
    pytester.makefile(".yaml", suite="env: fish\ntasks: [{id: a, query: q, gold: g}]\n")
    agent = "--intercode-agent=installed:mine.yaml"
    run = pytester.runpytest_subprocess("suite.yaml", agent)
    run.assert_outcomes(failed=1)
    run.stdout.no_fnmatch_line("*needs a shell*")
    pytester.makeconftest(_SHELL.replace("has_shell = True", "has_shell = False"))
    run = pytester.runpytest_subprocess("suite.yaml", agent)
    run.stderr.fnmatch_lines(["*needs a shell, which fish does not have (1 of 1 tasks); *"])
