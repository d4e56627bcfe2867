"""What the README shows is what is in examples/, and it works; and so does its first command."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

from pytest_intercode.core.presets import PRESETS
from pytest_intercode.errors import EngineUnavailable
from pytest_intercode.sandboxes.docker.engine import connect
from pytest_intercode.suites.catalogue import bundled_tasks
from tests.support.core_python import locked_names
from tests.support.git import git

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
FIVE = ("bash", "sql", "python", "ctf", "swe")
HASTY = """\
class Hasty:
    def run(self, task, env):
        env.step("cat AGENTS.md")
        env.step("echo requests >> requirements.txt")
"""


def body(name: str, start: str) -> str:
    """Return an example from its first line of interest on."""
    text = (ROOT / "examples" / name).read_text(encoding="utf-8")
    return text[text.index(start) :]


def test_it_is_short() -> None:
    assert len(README.splitlines()) <= 150


@pytest.mark.parametrize(("name", "start"), [("my_agent.py", "COMMANDS"), ("notes.yaml", "env:")])
def test_shows_the_example_as_it_is(name: str, start: str) -> None:
    assert body(name, start).strip() in README


def test_what_is_counted() -> None:
    counts = [len(bundled_tasks(env, env)) for env in FIVE]
    assert f"   # {counts[0]} tasks, played by gold" in README
    assert f"And {sum(counts)} tasks of our own, in [five environments]" in README
    assert ", ".join(f"`{env}`" for env in FIVE) + "." in README
    assert len(PRESETS) == 11
    assert "[eleven coding agents](docs/installed.md)" in README


def test_the_project_test_fails_as_shown(pytester: pytest.Pytester, quick_sandbox: str) -> None:
    """By an agent that reads the rules and does not follow them."""
    [test] = re.findall(r"^```python test_rules.py\n(.*?)^```$", README, re.M | re.S)
    (pytester.path / "test_rules.py").write_text(test)
    (pytester.path / "agents.py").write_text(HASTY)
    (pytester.path / "AGENTS.md").write_text("Use uv.\n")
    (pytester.mkdir("legacy") / "old.py").touch()
    git(pytester.path, "init", "-q")
    result = pytester.runpytest("--intercode-agent=agents.py:Hasty", quick_sandbox)
    result.assert_outcomes(failed=1)
    [failure] = re.findall(r"^```\n(>.*?)^```$", README, re.M | re.S)
    seconds = re.compile(r"\d+\.\d s")
    assert seconds.sub("", failure) in seconds.sub("", result.stdout.str())


def test_the_examples_work(pytester: pytest.Pytester) -> None:
    try:
        connect().close()
    except EngineUnavailable as error:
        pytest.skip(str(error))
    for path in (ROOT / "examples").iterdir():
        if path.is_file():
            shutil.copy(path, pytester.path)
    result = pytester.runpytest_subprocess(
        "--intercode-agent=my_agent.py:Agent", "notes.yaml", "test_my_agent.py", "-v"
    )
    result.assert_outcomes(passed=3, failed=1)
    result.stdout.fnmatch_lines(["notes.yaml::test_solves?count-notes? PASSED*"])
    miss = re.search(r"^_+ test_solves\[sort-notes\] _+\n(.*?)```$", README, re.M | re.S)
    assert miss is not None
    assert miss[0].removesuffix("```") in result.stdout.str()


def test_the_demo_needs_only_what_it_installs() -> None:
    """No plugin of the tests, and no package that requirements/run.txt does not have."""
    present = {"pytest-intercode", *locked_names()}
    modules = packages_distributions()
    absent = [
        module
        for module, packages in modules.items()
        if present.isdisjoint(map(canonicalize_name, packages))
    ]
    assert {"openai", "psutil"} <= {*absent}
    command = (
        f"import sys; sys.modules.update(dict.fromkeys({absent})); import pytest;"
        "sys.exit(pytest.main(sys.argv[1:]))"
    )
    plugin = ["-p", "pytest_intercode.plugin", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [sys.executable, "-c", command, *plugin, "--co", "-q", "--intercode-env=bash"],
        cwd=ROOT,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


# -- scripts/demo: what it brings up, and what it then runs

# Stands for each program by which something is installed, started or run.
STAND_IN = """\
#!/bin/sh
echo "${0##*/} $*" >>"$CALLS"
case "${0##*/} $*" in
"docker-up --check") [ "$ENGINE" ] ;;
bubblewrap-up*) [ "$BUBBLEWRAP" ] ;;
sudo*) false ;;
esac
"""
CHECK = "docker-up --check"
Demo = Callable[..., list[str]]


@pytest.fixture
def demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Demo:
    """Run the demo in a copy of the project; return what it called, pip and apt-get left out."""
    scripts, tools, venv = (tmp_path / name for name in ("scripts", "tools", ".venv/bin"))
    for name in ("dockerfiles", "requirements"):
        shutil.copytree(ROOT / name, tmp_path / name)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for folder in (scripts, tools, venv):
        folder.mkdir(parents=True)
    for name in ("demo", "_setup"):
        shutil.copy(ROOT / "scripts" / name, scripts)
    for path in (
        *(scripts / name for name in ("docker-up", "bubblewrap-up")),
        *(tools / name for name in ("apt-get", "sudo")),
        venv / "python",
    ):
        path.write_text(STAND_IN)
        path.chmod(0o755)
    calls = tmp_path / "calls"

    def run(*arguments: str, engine: str = "", bubblewrap: str = "", host: str = "") -> list[str]:
        calls.write_text("")
        environment = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "CALLS": str(calls)}
        environment |= {"ENGINE": engine, "BUBBLEWRAP": bubblewrap}
        environment.pop("DOCKER_HOST", None)
        if host:
            environment["DOCKER_HOST"] = host
        command = ["bash", str(scripts / "demo"), *arguments]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        kept = re.compile(r"(docker-up|bubblewrap-up|python -m pytest).*")
        return [line.strip() for line in calls.read_text().splitlines() if kept.fullmatch(line)]

    return run


@pytest.mark.parametrize(
    ("machine", "arguments", "brought_up"),
    [
        ({"engine": "yes", "bubblewrap": "yes"}, [], [CHECK, "docker-up"]),
        ({"bubblewrap": "yes"}, [], [CHECK, "bubblewrap-up"]),
        ({}, [], [CHECK, "bubblewrap-up", "docker-up"]),
        ({"host": "tcp://there:2375", "bubblewrap": "yes"}, [], ["docker-up"]),
        ({"bubblewrap": "yes"}, ["--intercode-sandbox=docker"], ["docker-up"]),
        ({"bubblewrap": "yes"}, ["--intercode-sandbox", "docker"], ["docker-up"]),
        (
            {"engine": "yes", "bubblewrap": "yes"},
            ["--intercode-sandbox", "bubblewrap"],
            ["bubblewrap-up"],
        ),
        ({"engine": "yes"}, ["--intercode-sandbox=auto", "-x"], [CHECK, "docker-up"]),
    ],
)
def test_the_demo_brings_up_what_it_will_use(
    demo: Demo, machine: dict[str, str], arguments: list[str], brought_up: list[str]
) -> None:
    *calls, pytest_run = demo(*arguments, **machine)
    assert calls == brought_up
    words = ["--intercode-env=bash", "--intercode-agent=oracle", *arguments]
    assert pytest_run == f"python -m pytest {' '.join(words)}"


@pytest.mark.parametrize(
    ("arguments", "added"),
    [
        (["--intercode-agent", "react"], "--intercode-env=bash "),
        (["--intercode-dataset=mine.yaml"], "--intercode-agent=oracle "),
        (["--intercode-env=all", "--intercode-agent=a:B"], ""),
    ],
)
def test_the_demo_leaves_the_users_choice(demo: Demo, arguments: list[str], added: str) -> None:
    *_, pytest_run = demo(*arguments, engine="yes")
    assert pytest_run == f"python -m pytest {added}{' '.join(arguments)}"


def test_the_demo_installs_what_the_bash_image_has() -> None:
    """Where nothing is installed, for sandboxes of the machine's own programs."""
    script = """
        source scripts/_setup
        dpkg-query() { :; }
        take_sandbox_packages_along bash
        echo "${along[@]}"
    """
    done = subprocess.run(["bash", "-ec", script], cwd=ROOT, capture_output=True, text=True)
    text = (ROOT / "dockerfiles" / "bash.Dockerfile").read_text(encoding="utf-8")
    listed = re.search(r"apt-get install (.*?)&&", text.replace("\\\n", " "), re.DOTALL)
    assert listed is not None, done.stderr
    wanted = {word for word in listed[1].split() if not word.startswith("-")}
    assert wanted - {"python3"} == set(done.stdout.split()) - {"bubblewrap", "uidmap"}
