"""The recipes in docs/agents/ work as they are shown there, with the real frameworks.

These live in environments of their own, which ``scripts/test --all`` installs. What is played is
the page's own command, against a model on loopback that solves every other task.
"""

from __future__ import annotations

import itertools
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_intercode.suites.loader import load_suite
from tests.conftest import results
from tests.docs.scripted_model import ScriptedModel

ROOT = Path(__file__).parents[2]
PAGES = {
    path.stem: path.read_text(encoding="utf-8")
    for path in (ROOT / "docs/agents").glob("*")
    if path.stem != "acp"  # a protocol
}
ASYNC = {"claude-agent-sdk", "google-adk", "langgraph", "openai-agents", "pydantic-ai"}
TASKS = load_suite(ROOT / "tasks" / "sql.yaml").tasks
ACTIONS = {
    task.query: ["SELECT 1", *(["SELECT 'wrong'"] if number % 2 else task.gold)]
    for number, task in enumerate(TASKS)
}


def blocks(page: str, head: str) -> list[str]:
    """Return the blocks of a page that begin in a way."""
    return re.findall(rf"^```{head}\n(.*?)^```$", PAGES[page], re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", PAGES)
def test_each_is_short(page: str) -> None:
    [adapter] = blocks(page, "python agent.py")
    assert len([line for line in adapter.splitlines() if line]) <= 20
    assert all(len(line) <= 100 for line in adapter.splitlines())
    [command] = blocks(page, "sh")
    assert ("--intercode-concurrency=4" in command) == (page in ASYNC)
    assert "## Easy to get wrong" in PAGES[page]


def test_each_is_linked() -> None:
    text = (ROOT / "docs" / "agents.md").read_text(encoding="utf-8")
    assert all(f"](agents/{name}.md)" in text for name in PAGES)
    assert "\n## Agent frameworks\n" in text
    assert "(docs/agents.md#agent-frameworks)" in (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module", params=PAGES)
def recipe(request: pytest.FixtureRequest) -> str:
    """A page whose framework is installed."""
    name = str(request.param)
    if not (venv(name) / "bin/pytest").exists():
        pytest.skip(f"{venv(name).name} is not installed: scripts/test --all does it")
    found = re.search(r"^`pip install pytest-intercode (.*?)`", PAGES[name], re.MULTILINE)
    assert found is not None
    for wanted in re.findall(r"[\w-]+(?=[\s'\[]|$)", re.sub(r"\[\w+\]", "", found[1])):
        folders = venv(name).glob(f"lib/python*/site-packages/{wanted.replace('-', '_')}-*")
        if not list(folders):
            pytest.skip(f"{wanted} is not installed: it has no version for this Python")
    return name


def venv(page: str) -> Path:
    """Return the environment that the framework of a page is installed in."""
    return ROOT / f".venv-{'mini-swe-agent' if page == 'mini-swe-agent' else 'frameworks'}"


@pytest.fixture
def model() -> Iterator[ScriptedModel]:
    model = ScriptedModel(ACTIONS)
    with model:
        yield model


class Played:
    """A run of a page's command: what it printed, and its episodes."""

    def __init__(self, page: str, model: ScriptedModel, folder: Path, *options: str) -> None:
        [adapter], [command] = blocks(page, "python agent.py"), blocks(page, "sh")
        assert "http://localhost:8000" in command
        command = command.replace("http://localhost:8000", model.url)
        if not any("concurrency" in option for option in options):
            command = command.replace(" --intercode-concurrency=4", "")
        (folder / "agent.py").write_text(adapter)
        (folder / "pytest.ini").write_text("[pytest]\n")
        (folder / "home").mkdir()
        kept = {name: os.environ[name] for name in ("LANG", "TMPDIR") if name in os.environ}
        done = subprocess.run(
            ["sh", "-ec", command],
            cwd=folder,
            env={
                **kept,
                "PATH": f"{venv(page)}/bin:{os.environ['PATH']}",
                "HOME": str(folder / "home"),
                # What calls home finds nobody, and does not get out.
                **dict.fromkeys(("HTTPS_PROXY", "https_proxy"), "http://127.0.0.1:9"),
                **dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost"),
                "PYTEST_ADDOPTS": " ".join(
                    ["--intercode-results=results.jsonl", "-p no:cacheprovider", *options]
                ),
            },
            capture_output=True,
            text=True,
            timeout=200,
        )
        self.said = done.stdout + done.stderr
        self.status = done.returncode
        assert (folder / "results.jsonl").exists(), self.said
        self.rows = {row["query"]: row for row in results(folder / "results.jsonl")}

    def outcomes(self) -> list[str]:
        return [self.rows[task.query]["outcome"] for task in TASKS if task.query in self.rows]

    def check(self, model: ScriptedModel) -> None:
        """Compare the tokens with the server's, and look for anything that was not to be said."""
        for query, row in self.rows.items():
            spent, usage = model.spent_on[query], row["usage"]
            assert (usage["input_tokens"], usage["output_tokens"]) == (spent.input, spent.output)
            assert usage["requests"] == model.asked.count(query)
            assert not [each for each in row.get("left_behind", ()) if not slow(each)], self.said
        assert set(model.asked) == set(self.rows), "requests that belong to no episode"
        warnings = re.findall(r"^.*Warning\b.*$", self.said, re.MULTILINE)
        assert not [each for each in warnings if not slow(each)], self.said
        assert "Traceback" not in self.said, self.said


def slow(line: str) -> bool:
    """Whether a line says no more than that a step took long, as all do on a busy machine."""
    return "a blocked event loop" in line


def actions(row: dict[str, Any]) -> list[str]:
    return [str(action) for action in row["turn_history"]["actions"]]


@pytest.mark.slow
def test_one_solved_and_one_failed(recipe: str, model: ScriptedModel, tmp_path: Path) -> None:
    played = Played(recipe, model, tmp_path, "--intercode-limit=2")
    assert played.outcomes() == ["solved", "failed"], played.said
    assert played.status == 1
    for query, row in played.rows.items():
        assert actions(row) == [*ACTIONS[query], "submit"]
        assert row["usage"]["requests"] == 3
    played.check(model)


@pytest.mark.slow
def test_side_by_side(recipe: str, model: ScriptedModel, tmp_path: Path) -> None:
    played = Played(recipe, model, tmp_path, "--intercode-limit=8", "--intercode-concurrency=4")
    assert played.outcomes() == ["solved", "failed"] * 4, played.said
    for query, row in played.rows.items():
        assert actions(row) == [*ACTIONS[query], "submit"]
    switches = sum(one != other for one, other in itertools.pairwise(model.asked))
    assert switches > 7, "one after the other"
    played.check(model)


@pytest.mark.slow
def test_out_of_turns(recipe: str, model: ScriptedModel, tmp_path: Path) -> None:
    played = Played(recipe, model, tmp_path, "--intercode-limit=2", "--intercode-max-turns=1")
    assert played.outcomes() == ["out-of-budget"] * 2, played.said
    assert len(model.asked) == len(set(model.asked)) == 2
    played.check(model)


@pytest.mark.slow
def test_out_of_tokens(recipe: str, model: ScriptedModel, tmp_path: Path) -> None:
    """The second of its requests uses up the budget; there is no third one."""
    played = Played(recipe, model, tmp_path, "--intercode-limit=2", "--intercode-max-tokens=200")
    requests = {model.asked.count(query) for query in played.rows}
    if recipe == "claude-agent-sdk":  # it runs a call before the answer is complete
        assert set(played.outcomes()) <= {"out-of-budget", "solved"}, played.said
        assert requests <= {2, 3}
    else:
        assert played.outcomes() == ["out-of-budget"] * 2, played.said
        assert all(actions(row) == ["SELECT 1"] for row in played.rows.values())
        assert requests == {2}
    played.check(model)
