"""A package of somebody else's brings an environment, a format, a parser and a backend.

It is ``tests/support/extension``, installed with pip: nothing of it is named in our sources, or put
into a registry by a test. Its environment has a kind of its own, which every part of a run asks:
items, audit, page, exports, prompts, rescoring, and the terminal of a human.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pexpect
import pytest

from tests.conftest import ADDOPTS, results
from tests.support.chat_server import ChatServer, calls
from tests.support.page_rows import blocks_of
from tests.support.site_folder import install

EXTENSION = Path(__file__).parents[2] / "support" / "extension"
_TERMINAL_TIMEOUT = 60  # seconds for the next text in the terminal, on a machine that is busy

# Plays gold for the first task, and does nothing for the second.
AGENT = """\
class Agent:
    def reset(self, task):
        self.actions = {"square": ["sub square { $_[0] ** 2 }"]}.get(task.id, []) + ["submit"]

    def act(self, observation):
        return self.actions.pop(0)
"""

SWE_SUITE = """\
env: swe
tasks:
  - id: greet
    query: Write hello to /tmp/greeting.
    gold: echo hello > /tmp/greeting
    verification:
      command: grep -qx hello /tmp/greeting && echo "t/greet.t .. ok" || echo "t/greet.t .. Failed"
      parser: prove
      fail_to_pass: [t/greet.t]
"""

Command = Callable[..., pytest.RunResult]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder that the package is installed in."""
    return install(EXTENSION, tmp_path_factory.mktemp("extension"))


@pytest.fixture(params=["bwrap", pytest.param("docker", marks=pytest.mark.slow)])
def backend(request: pytest.FixtureRequest) -> str:
    """Return the package's backend, and one of ours."""
    request.getfixturevalue("needs_docker" if request.param == "docker" else "bubblewrap")
    return str(request.param)


@pytest.fixture(autouse=True)
def _installed(
    pytester: pytest.Pytester, site: Path, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Have every process find the package, and run its sandboxes on the backend."""
    monkeypatch.setenv("PYTHONPATH", str(site), prepend=":")
    monkeypatch.setenv("PYTEST_ADDOPTS", f"{ADDOPTS} --intercode-sandbox={backend}")
    (pytester.path / "agents.py").write_text(AGENT)


@pytest.fixture
def command(pytester: pytest.Pytester) -> Command:
    """Return a function that runs a command of ours, which has to succeed."""

    def run(*words: str, status: int = 0) -> pytest.RunResult:
        result = pytester.run(sys.executable, "-m", "pytest_intercode", *words)
        assert result.ret == status, result.stdout.str() + result.stderr.str()
        return result

    return run


@pytest.fixture
def recorded(pytester: pytest.Pytester) -> Path:
    """Run an agent that solves one task of two; return the results file."""
    result = pytester.runpytest_subprocess(
        *("--intercode-env=perl", "--intercode-agent=agents.py:Agent"),
        *("--intercode-results=r.jsonl", "--intercode-html=page.html"),
    )
    result.assert_outcomes(passed=1, failed=1)
    return pytester.path / "r.jsonl"


@pytest.mark.parametrize("options", [["--strict-markers"], ["--intercode-concurrency=2"]])
def test_a_suite_is_solved(pytester: pytest.Pytester, backend: str, options: list[str]) -> None:
    result = pytester.runpytest_subprocess(
        *("--intercode-env=perl", "-m", "perl", "--intercode-agent=oracle"),
        *("--intercode-results=r.jsonl", *options),
    )
    result.assert_outcomes(passed=2)
    rows = results(pytester.path / "r.jsonl")
    assert {(row["environment"], row["sandbox"]) for row in rows} == {("ic_perl", backend)}


@pytest.mark.slow
def test_the_audit_tries_the_wrong_answers_of_the_kind(
    pytester: pytest.Pytester, backend: str, command: Command
) -> None:
    result = pytester.runpytest_subprocess("--intercode-env=perl", "--intercode-audit", "-v")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["weak-check: a changed gold solves it: another number"])
    result = command("audit", "perl", f"--sandbox={backend}", status=1)
    result.stdout.fnmatch_lines(["limit*weak-check*", "perl: 2 tasks audited, 1 fault"])


def test_the_page_shows_the_sections_of_the_kind(recorded: Path) -> None:
    [[solved, failed]] = blocks_of(recorded.with_name("page.html"))
    sections = [episode["state"] for episode in (solved, failed)]
    assert [section["title"] for [section] in sections] == ["Printed by Perl"] * 2
    assert sections[0][0]["lines"] == [["=", "9", "9"], ["=", "16", "16"]]
    assert sections[1][0]["lines"] == [["!", "low", "high"]]


@pytest.mark.slow
def test_exports_name_the_tool_of_the_kind(recorded: Path, command: Command) -> None:
    command("export", "--format=atif", "r.jsonl", "-o", "trajectories")
    [path] = recorded.with_name("trajectories").glob("*square*.json")
    trajectory = json.loads(path.read_text())
    [tool, _] = trajectory["agent"]["tool_definitions"]
    assert tool["function"]["name"] == "perl"
    assert tool["function"]["description"] == "Run Perl in the task's interpreter."
    [call] = next(step["tool_calls"] for step in trajectory["steps"] if "tool_calls" in step)
    assert call["function_name"] == "perl"
    assert call["arguments"] == {"source": "sub square { $_[0] ** 2 }"}
    command("export", "--format=inspect", "r.jsonl", "-o", "log.json")
    assert '"function": "perl"' in recorded.with_name("log.json").read_text()
    command("export", "--format=jsonl", "r.jsonl", "-o", "chat.jsonl")
    assert len(results(recorded.with_name("chat.jsonl"))) == 2


def test_results_are_scored_again(recorded: Path, command: Command) -> None:
    rows = results(recorded)
    rows[1]["end_state"]["agent"]["printed"] = ["high"]
    recorded.write_text("".join(json.dumps(row) + "\n" for row in rows))
    result = command("rescore", "r.jsonl", "--output=again.jsonl")
    assert "perl" in result.stdout.str()
    again = results(recorded.with_name("again.jsonl"))
    assert [row["outcome"] for row in again] == ["solved", "solved"]


@pytest.mark.slow
def test_a_model_is_shown_the_prompt_of_the_kind(pytester: pytest.Pytester) -> None:
    # Two ways to mark the language, the second with code in the same line.
    script = ["I look.\n```pl\nprint 1\n```", "```pl sub square { $_[0] ** 2 }\n```"]
    with ChatServer(script) as server:
        _chat(pytester, "try-again", server).assert_outcomes(passed=1)
        system = server.requests[0].body["messages"][0]["content"]
    assert "You work in a Perl interpreter in /work." in system
    assert "An action is Perl, such as: print $0" in system


@pytest.mark.slow
def test_a_model_calls_the_tools(pytester: pytest.Pytester) -> None:
    script = [calls(("execute", {"code": "sub square { $_[0] ** 2 }"})), calls(("submit", {}))]
    with ChatServer(script) as server:
        _chat(pytester, "tools", server).assert_outcomes(passed=1)
        body = server.requests[0].body
    assert "You work in a Perl interpreter in /work." in body["messages"][0]["content"]
    [execute, _] = body["tools"]
    assert "Perl" in json.dumps(execute)


def _chat(pytester: pytest.Pytester, agent: str, server: ChatServer) -> pytest.RunResult:
    return pytester.runpytest_subprocess(
        *("--intercode-env=perl", "-k", "square", f"--intercode-agent={agent}"),
        *("--intercode-agent-arg", f"base_url={server.url}"),
        *("--intercode-agent-arg", "model=test"),
    )


def test_a_human_plays(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("XDG_STATE_HOME", str(pytester.path / "state"))
    monkeypatch.setenv("PROMPT_TOOLKIT_NO_CPR", "1")  # nobody says where the cursor is
    words = [sys.executable, "-m", "pytest", "--intercode-agent=human"]
    words += ["intercode/perl::test_solves[square]", "--intercode-results=r.jsonl"]
    terminal = pexpect.spawn(
        "/bin/bash", ["-c", shlex.join(words)], timeout=_TERMINAL_TIMEOUT, dimensions=(40, 200)
    )
    try:
        terminal.expect(r"workdir /work")
        terminal.expect(r"perl \(4 left\)>")
        terminal.send(":help\r")
        terminal.expect("an open brace goes on")
        terminal.expect(r"perl \(4 left\)>")
        terminal.send("sub square {\r")  # the kind says that more is to come
        terminal.send("$_[0] ** 2 }\r")
        terminal.expect(r"perl \(3 left\)>")
        terminal.send("submit\r")
        terminal.expect("1 passed")
        terminal.expect(pexpect.EOF)
    finally:
        terminal.close(force=True)
    [row] = results(pytester.path / "r.jsonl")
    assert row["turn_history"]["actions"] == ["sub square {\n$_[0] ** 2 }", "submit"]


@pytest.mark.slow
def test_a_folder_in_a_format_of_its_own(pytester: pytest.Pytester, command: Command) -> None:
    katas = pytester.mkdir("katas")
    (katas / "KATAS").write_text("hello\n")
    kata = katas / "hello"
    kata.mkdir()
    (kata / "QUERY").write_text("Print hello.")
    (kata / "gold.pl").write_text('print "hello"')
    result = pytester.runpytest_subprocess(
        *("--intercode-dataset=katas", "--intercode-agent=oracle"),
        *("--intercode-results=r.jsonl", "--intercode-html=page.html"),
    )
    result.assert_outcomes(passed=1)
    [[episode]] = blocks_of(pytester.path / "page.html")
    assert episode["state"][0]["lines"] == [["=", "hello", "hello"]]
    command("audit", "katas").stdout.fnmatch_lines(["katas: 1 task audited, 0 faults"])


@pytest.mark.slow
def test_a_parser_of_logs(pytester: pytest.Pytester, backend: str, command: Command) -> None:
    (pytester.path / "suite.yaml").write_text(SWE_SUITE)
    result = pytester.runpytest_subprocess(
        "suite.yaml", "--intercode-agent=oracle", "--intercode-results=r.jsonl"
    )
    result.assert_outcomes(passed=1)
    command("audit", "suite.yaml", f"--sandbox={backend}")
    command("rescore", "r.jsonl", "--output=again.jsonl")
