"""The tutorial works: files are written, commands run, in order, and print what is shown."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import ADDOPTS
from tests.docs.shell import run
from tests.docs.test_ci import Runner, read
from tests.support.pages import DOCS, links, navigation

PAGES = ("tutorial-first-test.md", "tutorial-first-task.md", "tutorial-first-gate.md")
WORKFLOW = ".github/workflows/agents.yml"
FAILURE = re.compile(r"FAILED|\b[1-9]\d* failed|gate: failed|^E ", re.MULTILINE)
BLOCK = re.compile(r"^```(\w*)(?: (\S+))?\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def blocks(page: str) -> list[tuple[str, str, str]]:
    return BLOCK.findall((DOCS / page).read_text("utf-8"))


def squeezed(text: str) -> str:
    return " ".join(text.split())


def play(page: str, folder: Path, options: str) -> None:
    """Do what the page says, from top to bottom."""
    pairs = blocks(page)
    for (language, name, body), following in zip(pairs, [*pairs[1:], ("end", "", "")], strict=True):
        if name:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(body)
        elif language == "sh":
            done = run(body, folder, options, COLUMNS="80")
            printed = squeezed(done.stdout + done.stderr)
            shown = following[2] if following[:2] == ("", "") else ""
            for line in shown.splitlines():
                assert squeezed(line) in printed, f"{body}\n{done.stdout}{done.stderr}"
            fails = FAILURE.search(shown) is not None
            assert done.returncode == int(fails), f"{body}\n{done.stdout}{done.stderr}"
            assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=() if "test" in page else pytest.mark.slow) for page in PAGES]
)
def test_a_page(page: str, tmp_path: Path, quick_sandbox: str) -> None:
    play(page, tmp_path, f"{ADDOPTS} {quick_sandbox}")


def test_every_block_is_tested() -> None:
    """Each is a file, a command, or what the command before it prints."""
    for page in PAGES:
        kinds = [(language, bool(name)) for language, name, _ in blocks(page)]
        for kind, previous in zip(kinds[1:], kinds, strict=False):
            assert kind[1] or kind[0] == "sh" or (kind[0] == "" and previous == ("sh", False))


@pytest.mark.slow
def test_the_workflow_of_the_gate(
    tmp_path: Path, quick_sandbox: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if quick_sandbox != "--intercode-sandbox=bubblewrap":
        pytest.skip("the workflow takes bubblewrap, which makes no sandboxes here")
    project = tmp_path / "project"
    project.mkdir()
    play("tutorial-first-gate.md", project, f"{ADDOPTS} {quick_sandbox}")
    shutil.copy(project / "main.jsonl", project / "baseline.jsonl")
    subprocess.run(["git", "init", "--quiet", str(project)], check=True)
    for name in ("GITHUB_REPOSITORY", "GITHUB_EVENT_PATH"):
        monkeypatch.delenv(name, raising=False)
    runner = Runner(project, tmp_path / "runner")
    workflow = read((project / WORKFLOW).read_text("utf-8"))
    assert runner.run(workflow) == {"greetings": True}, runner.said
    assert {path.name for path in (runner.artefacts / "agents").iterdir()} == {
        *("page.html", "all.jsonl")
    }
    assert "The comment could not be posted, so it is shown here: " in runner.summary.read_text()


def test_it_is_the_first_part_of_the_site() -> None:
    parts = dict(navigation())
    assert tuple(parts["Tutorial"]) == PAGES
    assert {*PAGES} <= {link.path for link in links(DOCS / "index.md")}
