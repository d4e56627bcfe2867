"""Project tests: five hundred of them, eight at a time; and a replayed one against its agent alone.

The tests run on bubblewrap with an agent that does not think, in the workers of pytest-xdist,
because a project test runs in its item's turn.

A replay uses an example repository and the real Codex. Its time is that of a run, from the first
setup to the last teardown, divided by its ten tests: the copy of the project, the sandbox, the
program, the gateway that answers from the recording, and the reading of the end state. It is
compared with the same program with the same answers from a server on loopback, in a copy of the
same project, without a sandbox or anything else of ours.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from benchmarks.long_run import leak_rows
from benchmarks.machine import backends
from benchmarks.measuring import Scale, Unavailable, in_turn, seconds
from benchmarks.runs import ROOT, Folder, temporary_folder
from benchmarks.table import Bound, Part, Row, against
from pytest_intercode.agents.installed.bundle import BUNDLE_FOLDER, find_bundle, find_program
from pytest_intercode.agents.installed.recipe import Recipe, fill, load_recipe
from pytest_intercode.errors import AgentLoadError
from pytest_intercode.sandboxes.settings import SandboxSettings
from tests.support.example_recordings import EXAMPLES, SCRIPTS
from tests.support.model_server import ModelServer

WORKERS = 8
_EXAMPLE = "cli"
_AGENT = "codex"
_PROMPT = "We got 40 nuts."
_MODEL = "gpt-5.2-codex"
_TEST = """\
import pytest


@pytest.mark.parametrize("number", range({tests}))
def test_writes(intercode_project, number):
    run = intercode_project.run(f"Print the number {{number}}")
    assert run.ran(f"echo {{number}}")
    assert run.unchanged("README.md")
"""
_REPLAYED_TEST = f"""\
import pytest


@pytest.mark.parametrize("number", range({{tests}}))
def test_counts(intercode_project, number):
    run = intercode_project.run("{_PROMPT}")
    assert run.ran("stock add", ok=True)
    assert run.unchanged("stock")
"""


def measure(scale: Scale) -> Part:
    """Measure both."""
    tests = scale.pick(500, 50)
    part = Part(f"project tests: {tests} of them on bubblewrap, and a replay")
    if "bubblewrap" not in backends():
        raise Unavailable("bubblewrap cannot run here")
    with temporary_folder() as folder:
        _many(folder, tests, part)
    _replay(scale, part)
    return part


def _many(folder: Folder, tests: int, part: Part) -> None:
    """Run the tests one after another, which shows memory, and then in eight workers."""
    project = folder.path
    (project / "README.md").write_text("An empty project.\n")
    for name, count in (("first", 1), ("many", tests)):
        (project / f"test_{name}.py").write_text(_TEST.format(tests=count))
    subprocess.run(["git", "init", "-q", str(project)], check=True)
    options = (
        f"--intercode-agent={Path(__file__).with_name('thinker.py')}:Thinker",
        "--intercode-sandbox=bubblewrap",
    )
    folder.pytest("test_first.py", *options)  # the image is made once
    processes = _sandbox_processes()
    with (
        tempfile.TemporaryDirectory(prefix="benchmark-") as temporary,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("TMPDIR", temporary)
        run = folder.pytest("test_many.py", *options)
        together = folder.pytest("test_many.py", *options, "-p", "xdist", f"-n{WORKERS}")
        # pytest itself keeps the temporary folders of its last runs with workers.
        files = [path for path in Path(temporary).iterdir() if not path.match("pytest-of-*")]
        remains = [*(_sandbox_processes() - processes), *files]
    if run.passed != tests or together.passed != tests:
        raise RuntimeError(f"{run.passed} and {together.passed} of {tests} tests passed")
    part.rows += [
        *leak_rows(run, tests, "test"),
        Row(
            f"processes and temporary files that remain, after {2 * tests}",
            f"{len(remains)}",
            bound=Bound("at most", 0, "none"),
            value=len(remains),
        ),
        against(
            f"{tests} tests, {WORKERS} at a time",
            together.loop,
            "one after the other",
            run.loop,
        ),
    ]


def _sandbox_processes() -> set[str]:
    """Return the ids of the processes that are sandboxes on bubblewrap."""
    numbers = set()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # the process has ended
            if (process / "comm").read_text().strip() == "bwrap":
                numbers.add(process.name)
    return numbers


def _replay(scale: Scale, part: Part) -> None:
    """Compare a replayed test with its agent's own run."""
    _, recipe, recipe_folder = load_recipe(_AGENT, ROOT, _AGENT)
    try:
        bundle, _ = find_bundle(
            _AGENT, recipe, recipe_folder, _AGENT, scale.say, SandboxSettings("bubblewrap")
        )
        seen_program = find_program(bundle, recipe, _AGENT)
    except AgentLoadError as error:
        part.notes.append(f"The replay was not measured: {error}")
        return
    program = bundle / Path(seen_program).relative_to(BUNDLE_FOLDER)
    rounds, tests = scale.pick((7, 10), (1, 2))
    with temporary_folder() as folder, ModelServer(SCRIPTS[_EXAMPLE]) as server:
        example = folder.path / "example"
        ignored = shutil.ignore_patterns("tests", "pyproject.toml")
        shutil.copytree(EXAMPLES / _EXAMPLE, example, ignore=ignored)
        (example / "test_stock.py").write_text(_REPLAYED_TEST.format(tests=tests))
        subprocess.run(["git", "init", "-q", str(example)], check=True)
        project = Folder(example)
        options = (f"--intercode-agent={_AGENT}:model={_MODEL}", "--intercode-sandbox=bubblewrap")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("OPENAI_API_KEY", "none")
            patch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
            project.pytest(*options, "--intercode-record=all")
        requests = len(server.requests) // tests

        def replay() -> float:
            return project.pytest(*options).loop / tests

        def run_alone() -> float:
            return _run_alone(recipe, program, server.url)

        times = in_turn({"alone": run_alone, "replay": replay}, rounds)
    part.rows.append(
        against(
            f"a replayed test with {_AGENT}, {requests} requests of its model; {tests} in a run",
            times["replay"],
            f"{_AGENT} alone",
            times["alone"],
            Bound("at most", 1.3),
        )
    )


def _run_alone(recipe: Recipe, program: Path, url: str) -> float:
    """Run the program in a copy of the example; return the seconds from its start to its end."""
    with tempfile.TemporaryDirectory(prefix="benchmark-") as name:
        folder = Path(name)
        project, home = folder / "project", folder / "home"
        shutil.copytree(EXAMPLES / _EXAMPLE, project)
        subprocess.run(["git", "init", "-q", str(project)], check=True)
        values = {
            "program": str(program),
            "home": str(home),
            "gateway": url,
            "token": "none",
            "prompt": _PROMPT,
            "model": _MODEL,
            "servers": "",
        }
        for path, content in recipe.files.items():
            file = home / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(fill(content, values))
        variables = {key: fill(value, values) for key, value in recipe.variables.items()}
        command = recipe.fill_words(recipe.command, {}, values)
        environment = {"PATH": os.environ["PATH"], "HOME": str(home), **variables}

        def run() -> None:
            subprocess.run(
                command,
                cwd=project,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=True,
            )

        duration = seconds(run)
        if "nut,40" not in (project / "stock.csv").read_text():
            raise RuntimeError(f"{_AGENT} alone did not do its task")
        return duration
