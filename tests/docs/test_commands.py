"""The commands of the README and of docs/ on results run as they are shown.

Each page's commands run in one folder, in order, on a small part of the suites. Pages that have a
test of their own are left to it.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from pytest_intercode.agents.installed.recipe import executables
from tests.conftest import ADDOPTS
from tests.docs.shell import run
from tests.support.git import git

ROOT = Path(__file__).parents[2]
PAGES = (
    "README.md",
    *(f"docs/{name}.md" for name in ("results", "comparing", "page", "exporting", "platforms")),
)
PAGES += tuple(f"docs/{name}.md" for name in ("auditing", "rescoring", "concurrency", "exporting"))
# What needs data from elsewhere, or stands for what the reader has; and what has its own test.
ELSEWHERE = re.compile(
    r"pip install|scripts/|agent=codex|\bfetch\b|=(nl2bash|spider)|record-mode|=tools|SUITE\.\.\."
)
COMMAND = re.compile(r"^    ((?:pytest|pytest-intercode) (?:.*\\\n)*.*)$", re.MULTILINE)
AGENT = """\
class Agent:
    def act(self, observation):
        return "submit"
"""
SUITE = """\
env: bash
tasks:
  - id: hello
    query: Write the word hello to /tmp/hello.txt.
    gold: echo hello > /tmp/hello.txt
  - id: seven
    query: Write the number 7 to /tmp/seven.txt.
    gold: echo 7 > /tmp/seven.txt
"""
RESULTS = ("baseline", "main", "new", "old", "before", "after", "r", "run")


def _commands(page: str) -> list[str]:
    text = (ROOT / page).read_text(encoding="utf-8")
    found = [each.partition("   #")[0].strip() for each in COMMAND.findall(text)]
    return [each for each in found if not ELSEWHERE.search(each)]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory, quick_sandbox: str) -> Path:
    """A project with an agent, suites, and results under all the names that the pages use."""
    folder = tmp_path_factory.mktemp("prepared")
    (folder / "my_agent.py").write_text(AGENT)
    (folder / "pytest.ini").write_text("[pytest]\n")
    for name in ("suite", "tasks", "notes"):
        (folder / f"{name}.yaml").write_text(SUITE)
    (folder / "my_rewards.py").write_text("def brief(task, mine, theirs):\n    return 0.5\n")
    done = _run(
        "pytest --intercode-env=sql --intercode-agent=oracle --intercode-results=run.jsonl", folder
    )
    assert done.returncode == 0, done.stdout
    for name in RESULTS[:-1]:
        shutil.copy(folder / "run.jsonl", folder / f"{name}.jsonl")
    for number, line in enumerate((folder / "run.jsonl").read_text().splitlines(True), 1):
        (folder / f"shard-{number}.jsonl").write_text(line)
    (folder / "shard-3.jsonl").write_text("")
    return folder


def _run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return run(command, folder, f"{ADDOPTS} --intercode-limit=2 --intercode-sandbox=bubblewrap")


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page(page: str, prepared: Path, tmp_path: Path) -> None:
    folder = tmp_path / "project"
    shutil.copytree(prepared, folder)
    git(folder, "init", "-q")
    commands = _commands(page)
    assert commands
    for command in commands:
        shown = command.replace("...", "suite.yaml --intercode-agent=my_agent.py:Agent")
        if "merge" in command:
            for made in ("all.jsonl", "run.jsonl"):
                (folder / made).unlink(missing_ok=True)
        if command.startswith("pytest-intercode gate"):  # results of one set of tasks
            shutil.copy(prepared / "baseline.jsonl", folder / "baseline.jsonl")
        done = _run(shown, folder)
        said = done.stdout + done.stderr
        # The agent solves nothing. Compared, it is no worse, or two tasks are too few to tell: that
        # both are solved does not show a rate of 80 % either.
        plays = "Agent" in shown and "intercode-plan" not in shown
        fails = (plays and "baseline=" not in shown) or "lower:" in shown
        assert done.returncode == (1 if fails else 0), f"{command}\n{said}"
        assert f"{ROOT}/pytest_intercode/" not in said, f"{command}\n{said}"  # in no traceback
        if "merge" in command:
            shutil.copy(prepared / "run.jsonl", folder / "run.jsonl")
        for made in re.findall(r"--(?:intercode-)?(?:html|output|results)[= ](\S+)", command):
            assert (folder / made).is_file(), f"{command}\n{said}"


def test_agents_that_need_a_model_are_shown_with_one() -> None:
    """Installed agents are not played here, so nothing else would find a command that fails."""
    names = [name for name, recipe in executables().items() if "model" in recipe.arguments]
    agent = re.compile(rf"(?:intercode-agent=|\")({'|'.join(names)})(?![\w:/-])")
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    without = [
        f"{page.name}: {line}"
        for page in pages
        if "audits" not in page.parts
        for line in page.read_text(encoding="utf-8").splitlines()
        if ("intercode-agent=" in line or "intercode_agent =" in line)
        and agent.search(line)
        and "model=" not in line
    ]
    assert not without
