"""The workflows of docs/ci.md and docs/workflows/ are well-formed, and their steps work."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import results
from tests.docs.shell import run

DOCS = Path(__file__).parents[2] / "docs"
TEXT = (DOCS / "ci.md").read_text(encoding="utf-8")
BLOCKS = {
    name or f"{language} {number}": body
    for number, (language, name, body) in enumerate(
        re.findall(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)
    )
}
ONE_JOB = BLOCKS[".github/workflows/agent-tests.yml"]
SHARDED, PROJECT_TESTS, NIGHTLY = (
    (DOCS / "workflows" / f"{name}.yml").read_text(encoding="utf-8")
    for name in ("agent-tests", "project-tests", "nightly")
)
WORKFLOWS = {
    "one job": ONE_JOB,
    "many jobs": SHARDED,
    "project tests": PROJECT_TESTS,
    "nightly": NIGHTLY,
    "docker": yaml.safe_dump(
        {
            "on": ["push"],
            "jobs": {"j": {"runs-on": "ubuntu-24.04", "steps": yaml.safe_load(BLOCKS["steps"])}},
        }
    ),
}
# What is shown to be printed, by three jobs that go well, and by an agent that got worse.
SHOWN, WORSE = re.findall(r"^```\n(all.jsonl:.*?)\.\.\.\n(.*?) \(", TEXT, re.DOTALL | re.MULTILINE)[
    0
]
TASKS = [f"say-{number}" for number in range(8)]
BASH = ("bash", "--noprofile", "--norc", "-eo", "pipefail", "-c")  # GitHub's `shell: bash`
STAND_IN = '#!/bin/sh\necho "${0##*/} $*" >>"$CALLS"\n'


def read(text: str) -> dict[str, Any]:
    workflow: dict[Any, Any] = yaml.safe_load(text)
    return {("on" if key is True else key): value for key, value in workflow.items()}


@pytest.mark.parametrize("name", WORKFLOWS)
def test_it_is_a_workflow(name: str) -> None:
    """What GitHub asks for, as far as it can be told here."""
    workflow = read(WORKFLOWS[name])
    assert set(workflow) <= {"name", "on", "permissions", "concurrency", "defaults", "env", "jobs"}
    assert workflow["on"]
    for job in workflow["jobs"].values():
        assert re.fullmatch(r"ubuntu-\d\d\.\d\d", job["runs-on"])
        needs = job.get("needs", [])
        assert {needs} if isinstance(needs, str) else set(needs) <= set(workflow["jobs"])
        ids = {step["id"] for step in job["steps"] if "id" in step}
        for step in job["steps"]:
            assert set(step) <= {"name", "id", "if", "uses", "with", "env", "run"}
            assert ("uses" in step) != ("run" in step)
            assert re.fullmatch(r"actions/[a-z/-]+@v\d+", step.get("uses", "actions/x@v1"))
            assert "${{" not in step.get("run", "")
            assert set(re.findall(r"steps\.(\w+)\.", str(step))) <= ids
            if "run" in step:
                assert step["name"]
                subprocess.run(["bash", "-nc", filled(step["run"], {})], check=True)
    for expression in re.findall(r"\$\{\{(.*?)\}\}", WORKFLOWS[name]):
        known = r"(matrix\.(shard|agent)|strategy\.job-total|github\.(ref|run_id|token)|"
        known += r"secrets\.[A-Z_]+|steps\..*|!cancelled\(\).*|hashFiles\(.*\)|"
        known += r"github\.event_name == '(push|pull_request)')"
        assert re.fullmatch(known, expression.strip()), expression


def test_every_option_and_command_is_known(pytester: pytest.Pytester) -> None:
    known = pytester.runpytest("--intercode-help").stdout.str()
    for option in set(re.findall(r"--intercode-[a-z-]+", TEXT + "".join(WORKFLOWS.values()))):
        assert f"{option}=" in known or f"{option} " in known or f"{option}\n" in known, option
    told = subprocess.run(
        [sys.executable, "-m", "pytest_intercode", "--help"], capture_output=True, text=True
    ).stdout
    for command in set(re.findall(r"pytest-intercode (merge|view|compare|comment)\b", TEXT)):
        assert re.search(rf"^ +{command} ", told, re.MULTILINE), f"no command {command}: {told}"


# -- a runner of workflows, small but real: each run: in bash, each artefact in a folder


def filled(text: str, values: Mapping[str, str]) -> str:
    return re.sub(r"\$\{\{ *(.*?) *\}\}", lambda found: values.get(found[1], "x"), text)


class Runner:
    """Runs a workflow's jobs one after another, each in a fresh copy of the project."""

    def __init__(self, project: Path, folder: Path) -> None:
        self._project, self._folder = project, folder
        self.artefacts = folder / "artefacts"
        self.summary = folder / "summary.md"
        self.said = ""
        tools = folder / "tools"
        tools.mkdir(parents=True)
        for name in ("sudo", "pip", "docker"):  # nothing is installed, loaded or kept by tests
            (tools / name).write_text(STAND_IN)
            (tools / name).chmod(0o755)
        self.calls = folder / "calls"
        self.calls.touch()
        self._environment = {
            **os.environ,
            "PATH": f"{tools}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "GITHUB_OUTPUT": str(folder / "output"),
            "GITHUB_STEP_SUMMARY": str(self.summary),
            "CALLS": str(self.calls),
            "CI": "true",
        }

    def run(self, workflow: dict[str, Any], **environment: str) -> dict[str, bool]:
        """Return which jobs ended well; a job with a matrix is there once for each value."""
        done = {}
        shell = {**workflow.get("env", {}), **environment}
        for name, job in workflow["jobs"].items():
            shards = job.get("strategy", {}).get("matrix", {}).get("shard", [""])
            for shard in shards:
                values = {"matrix.shard": str(shard), "strategy.job-total": str(len(shards))}
                workspace = self._folder / f"{name}-{shard}"
                done[f"{name} {shard}".strip()] = self._job(job, workspace, values, shell)
        return done

    def _job(
        self, job: Any, workspace: Path, values: dict[str, str], shell: dict[str, str]
    ) -> bool:
        passed = True
        output = Path(self._environment["GITHUB_OUTPUT"])
        for step in job["steps"]:
            output.write_text("")
            if not passed and "cancelled" not in step.get("if", ""):
                continue
            with_ = {k: filled(str(v), values) for k, v in step.get("with", {}).items()}
            variables = {k: filled(str(v), values) for k, v in step.get("env", {}).items()}
            used = step.get("uses", "").partition("@")[0]
            if used == "actions/checkout":
                shutil.copytree(self._project, workspace)
            elif used == "actions/upload-artifact":
                kept = self.artefacts / with_["name"]
                kept.mkdir(parents=True)
                for pattern in with_["path"].split():
                    for path in workspace.glob(pattern):
                        shutil.copy(path, kept)
            elif used == "actions/download-artifact":
                assert with_["merge-multiple"] == "True"
                for path in self.artefacts.glob(f"{with_['pattern']}/*"):
                    shutil.copy(path, workspace)
            elif "run" in step:
                ran = subprocess.run(
                    [*BASH, filled(step["run"], values)],
                    cwd=workspace,
                    env={**self._environment, **shell, **variables},
                    capture_output=True,
                    text=True,
                )
                self.said += f"== {step['name']}: {ran.returncode}\n{ran.stdout}{ran.stderr}"
                passed = passed and ran.returncode == 0
                for name, value in re.findall(r"^(\w+)=(.*)$", output.read_text(), re.MULTILINE):
                    values[f"steps.{step['id']}.outputs.{name}"] = value
        return passed


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, quick_sandbox: str) -> Path:
    """A repository as the workflows want it, with the results of its agent as its baseline."""
    if quick_sandbox != "--intercode-sandbox=bubblewrap":
        pytest.skip("the workflows take bubblewrap, which makes no sandboxes here")
    folder = tmp_path_factory.mktemp("project")
    (folder / "suites").mkdir()
    tasks = "".join(
        f"  - {{id: {name}, query: Print {name}., gold: echo {name}}}\n" for name in TASKS
    )
    (folder / "suites" / "say.yaml").write_text(f"env: bash\ntasks:\n{tasks}")
    (folder / "requirements.txt").write_text("pytest-intercode[html]\n")
    (folder / "my_agent.py").write_text(
        "class Agent:\n"
        "    wrong = ()\n\n"
        "    def reset(self, task):\n"
        "        word = 'no' if task.id in self.wrong else task.id\n"
        "        self.plan = [f'echo {word}', 'submit']\n\n"
        "    def act(self, observation):\n"
        "        return self.plan.pop(0)\n\n\n"
        f"class Worse(Agent):\n    wrong = {TASKS[1:]}\n\n\n"
        "class Broken:\n    pass\n"
    )
    command = next(body for name, body in BLOCKS.items() if name.startswith("sh "))
    done = run(command, folder, quick_sandbox, "sh")
    assert done.returncode == 0, done.stdout
    return folder


@pytest.fixture
def runner(project: Path, tmp_path: Path) -> Iterator[Runner]:
    """A runner for the project."""
    made = Runner(project, tmp_path / "runner")
    yield made
    print(made.said)  # shown where the test fails


@pytest.mark.slow
def test_one_job(runner: Runner) -> None:
    assert runner.run(read(ONE_JOB)) == {"episodes": True}
    report = {path.name for path in (runner.artefacts / "report").iterdir()}
    assert report == {"report.html", "all.jsonl", "junit.xml"}
    assert "100.0%" in runner.summary.read_text()


@pytest.mark.slow
def test_many_jobs(runner: Runner) -> None:
    done = runner.run(read(SHARDED))
    assert done == {"episodes 1": True, "episodes 2": True, "episodes 3": True, "verdict": True}
    rows = results(runner.artefacts / "report" / "all.jsonl")
    assert sorted(row["task_id"] for row in rows) == TASKS
    assert (runner.artefacts / "report" / "report.html").is_file()
    parts = [results(runner.artefacts / f"shard-{n}" / f"shard-{n}.jsonl") for n in (1, 2, 3)]
    assert [sorted(row["task_id"] for row in part) for part in parts] == [
        ["say-0", "say-3", "say-6"],
        ["say-1", "say-4", "say-7"],
        ["say-2", "say-5"],
    ]
    assert all(f"\n{line}\n" in runner.said for line in SHOWN.splitlines())
    calls = runner.calls.read_text().splitlines()
    assert calls.count("pip install -r requirements.txt") == 4
    assert calls.count("sudo apt-get install -yq bubblewrap") == 3


@pytest.mark.slow
@pytest.mark.parametrize("workflow", ["one job", "many jobs"])
@pytest.mark.parametrize("agent", ["Agent", "Worse", "Broken"])
def test_without_a_baseline(project: Path, tmp_path: Path, workflow: str, agent: str) -> None:
    """The first run passes, whatever is solved, and says what to do; a fault is one."""
    folder = tmp_path / "project"
    shutil.copytree(project, folder)
    (folder / "baseline.jsonl").unlink()
    runner = Runner(folder, tmp_path / "runner")
    text = WORKFLOWS[workflow].replace("my_agent.py:Agent", f"my_agent.py:{agent}")
    jobs = read(text) if workflow == "one job" else in_one_part(read(text))
    done = runner.run(jobs)
    print(runner.said)  # shown where the test fails
    if workflow == "one job":
        assert done == {"episodes": agent != "Broken"}
    else:
        assert done == {"episodes 1": agent != "Broken", "verdict": agent != "Broken"}
    if agent != "Broken":
        said = "There is no baseline.jsonl to compare with yet. Commit all.jsonl of the artifact"
        assert f"{said} report as baseline.jsonl." in runner.summary.read_text()
        rows = results(runner.artefacts / "report" / "all.jsonl")
        assert len({row["task_id"] for row in rows}) == len(TASKS)


def test_images_are_kept(tmp_path: Path, needs_docker: None) -> None:
    """Which ones are kept is asked of the real engine; nothing is written."""
    docker = shutil.which("docker")
    if docker is None:
        pytest.skip("there is no docker program")
    (step,) = [
        step for step in yaml.safe_load(BLOCKS["steps"]) if step.get("name") == "Save images"
    ]
    stand_in = f'{STAND_IN}[ "$1" != images ] || exec {docker} "$@"\n'
    (tmp_path / "docker").write_text(stand_in)
    (tmp_path / "docker").chmod(0o755)
    calls = tmp_path / "calls"
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "CALLS": str(calls)}
    subprocess.run([*BASH, step["run"]], env=environment, check=True)
    asked, *saved = calls.read_text().splitlines()
    assert asked.startswith("docker images --format")
    for call in saved:
        images = r"docker save --output images\.tar( pytest-intercode/[\w.-]+:[\w.<>-]+)+"
        assert re.fullmatch(images, call)


def in_one_part(workflow: dict[str, Any]) -> dict[str, Any]:
    """Return a workflow that does the same with a matrix of one, which is quicker."""
    workflow["jobs"]["episodes"]["strategy"]["matrix"]["shard"] = [1]
    return workflow


@pytest.mark.slow
def test_an_agent_that_got_worse_fails_the_last_job(runner: Runner) -> None:
    done = runner.run(in_one_part(read(SHARDED)), AGENT="my_agent.py:Worse")
    assert done == {"episodes 1": True, "verdict": False}
    assert WORSE.startswith("regressed: ")
    assert WORSE in runner.summary.read_text()
    assert (runner.artefacts / "report" / "report.html").is_file()  # all the same


@pytest.mark.slow
@pytest.mark.parametrize("word", ["hello", "hallo"])
def test_project_tests(
    tmp_path: Path, quick_sandbox: str, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The comment stands in the summary, as there is no pull request; then the job fails or not."""
    if quick_sandbox != "--intercode-sandbox=bubblewrap":
        pytest.skip("the workflows take bubblewrap, which makes no sandboxes here")
    folder = tmp_path / "project"
    tests = folder / "tests" / "agents"
    tests.mkdir(parents=True)
    (tests / "test_rules.py").write_text(
        "def test_greets(intercode_project):\n"
        "    run = intercode_project.run('Write hello.')\n"
        "    assert run.created('hello')\n"
    )
    (folder / "pytest.ini").write_text("[pytest]\nintercode_agent = my_agent.py:Agent\n")
    (folder / "my_agent.py").write_text(
        "class Agent:\n"
        "    def reset(self, task):\n"
        f"        self.plan = ['touch {word}', 'submit']\n\n"
        "    def act(self, observation):\n"
        "        return self.plan.pop(0)\n"
    )
    subprocess.run(["git", "init", "--quiet", str(folder)], check=True)
    for name in ("GITHUB_REPOSITORY", "GITHUB_EVENT_PATH"):
        monkeypatch.delenv(name, raising=False)
    runner = Runner(folder, tmp_path / "runner")
    done = runner.run(read(PROJECT_TESTS))
    print(runner.said)  # shown where the test fails
    assert done == {"agents": word == "hello"}
    files = {path.name for path in (runner.artefacts / "agents").iterdir()}
    assert files == {"agents.jsonl", "agents.html", "agents.xml"}
    summary = runner.summary.read_text()
    assert f"### {int(word == 'hello')} of 1 solved" in summary
    assert "The comment could not be posted, so it is shown here: " in summary


@pytest.mark.slow
def test_a_fault_fails_its_own_job(runner: Runner) -> None:
    done = runner.run(in_one_part(read(SHARDED)), AGENT="my_agent.py:NoSuchAgent")
    assert done == {"episodes 1": False, "verdict": False}
    assert "has no 'NoSuchAgent'" in runner.said
