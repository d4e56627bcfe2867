"""Project tests with recordings, as a user has them: recorded, replayed, stale, not there."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import results
from tests.docs.shell import run
from tests.support.example_recordings import EXAMPLES
from tests.support.model_server import Command, ModelServer
from tests.support.recorded_project import SCRIPT_TEXT, make_project

NO_KEYS = dict.fromkeys(("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OPENAI_BASE_URL"), "")
KEY = "sk-real-0123456789abcdef"


def play(
    folder: Path, *options: str, server: ModelServer | None = None
) -> subprocess.CompletedProcess[str]:
    """Run pytest in a project, where a model can be reached or not."""
    keys = NO_KEYS
    if server is not None:
        keys = {**NO_KEYS, "OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": f"{server.url}/v1"}
    words = " ".join(("pytest -p no:cacheprovider --intercode-results=r.jsonl", *options))
    return run(words, folder, "", **keys)


def lines_of(done: subprocess.CompletedProcess[str]) -> list[str]:
    """Return what pytest says of an error, above its summary."""
    failures = done.stdout.partition("= FAILURES =")[2].partition("\n=")[0]
    others = ("___", "intercode: ")
    return [
        line
        for line in failures.splitlines()[1:]
        if not line.startswith(others) and "r.jsonl: " not in line
    ]


@pytest.mark.slow
def test_from_the_first_run_to_ci(tmp_path: Path, bubblewrap: None) -> None:
    test = make_project(tmp_path)
    done = play(tmp_path)  # in CI, with neither recording nor key
    assert done.returncode == 1, done.stdout + done.stderr
    [line] = lines_of(done)
    assert "there is no recording test_rules/test_writes_x[" in line
    assert line.endswith("--intercode-record=missing")

    with ModelServer([Command("cat AGENTS.md; echo hi >x"), SCRIPT_TEXT]) as server:
        done = play(tmp_path, "--intercode-record=none", server=server)
        assert "--intercode-record=none does not allow model calls" in done.stdout
        assert not server.requests
        done = play(tmp_path, "--intercode-record=missing", server=server)
        assert done.returncode == 0, done.stdout + done.stderr
        assert len(server.requests) == 2
        [path] = (tmp_path / "tests" / "agents" / "recordings" / "test_rules").iterdir()
        first = results(tmp_path / "r.jsonl")[0]
    done = play(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    [row] = results(tmp_path / "r.jsonl")
    assert row["outcome"] == "solved"
    for name in ("turn_history", "usage", "end_state"):
        assert row[name] == first[name]

    # The agent is not installed: its record is played.
    shutil.rmtree(tmp_path / "program")
    [line] = lines_of(play(tmp_path, "--intercode-record=none"))
    assert line.endswith("program does not exist")
    text = test.read_text()
    test.write_text(text.replace('x.")', 'x.", replay="observations")'))
    done = play(tmp_path, "--intercode-record=none")
    assert done.returncode == 0, done.stdout + done.stderr
    assert results(tmp_path / "r.jsonl")[0]["turn_history"] == first["turn_history"]

    (tmp_path / "AGENTS.md").write_text("Write files with printf.\n")
    [line] = lines_of(play(tmp_path, "--intercode-record=none"))
    assert line == (
        f"the recording {path.name} is stale: AGENTS.md, which the agent has read, was changed; "
        "record it again with --intercode-record=all"
    )


def test_an_agent_in_the_tests_process_is_recorded_without_exchanges(
    tmp_path: Path, bubblewrap: None
) -> None:
    test = make_project(tmp_path)
    (tmp_path / "my_agent.py").write_text(
        "def agent(task, env):\n"
        "    open('called', 'a').write('1')\n"
        "    env.step('echo hi >x')\n"
        f"    env.submit({SCRIPT_TEXT!r})\n"
    )
    options = "--intercode-agent=my_agent:agent -o intercode_agent_arg="
    for mode in ("missing", "none"):
        result = play(tmp_path, f"{options} --intercode-record={mode}")
        assert result.returncode == 0, result.stdout + result.stderr
    assert (tmp_path / "called").read_text() == "1"
    test.write_text(f"{test.read_text().rstrip()}\n    run.check('true')\n")
    result = play(tmp_path, f"{options} --intercode-record=none")
    assert (
        "run.check() needs the agent's sandbox, but this run was replayed from its "
        in result.stdout
    )


FAKES = """\
from pytest_intercode import Fake

def test_lists(intercode_project):
    gh = Fake({"repo view": "a", "repo *": "b"})
    intercode_project.run("List them.", fake={"gh": gh, "jq": "jq.sh"})
"""


def test_a_fake_that_answers_otherwise_makes_it_stale(tmp_path: Path, bubblewrap: None) -> None:
    test = make_project(tmp_path)
    test.write_text(FAKES)
    script = test.parent / "jq.sh"
    script.write_text("#!/bin/sh\n")
    (tmp_path / "my_agent.py").write_text("def agent(task, env):\n    env.step('gh repo view')\n")
    options = "--intercode-agent=my_agent:agent -o intercode_agent_arg="

    def stale_fakes() -> list[str]:
        result = play(tmp_path, f"{options} --intercode-record=none")
        return re.findall(r"\b(fake \w+) is changed", "".join(lines_of(result)))

    result = play(tmp_path, f"{options} --intercode-record=missing")
    assert result.returncode == 0, result.stdout + result.stderr
    assert stale_fakes() == []
    script.write_text("#!/bin/sh\necho other\n")
    assert stale_fakes() == ["fake jq"]
    test.write_text(FAKES.replace('"repo view": "a"', '"repo view": "x"'))
    assert stale_fakes() == ["fake gh", "fake jq"]


SERVERS = """\
def test_lists(intercode_project):
    servers = {"tickets": "python3 tools/server.py --port 1"}
    intercode_project.run("List them.", mcp=servers, setup=["sh ./prepare.sh"])
"""


def test_files_that_the_test_has_run_make_it_stale(tmp_path: Path, bubblewrap: None) -> None:
    make_project(tmp_path).write_text(SERVERS)
    (tmp_path / "tools").mkdir()
    paths = [tmp_path / name for name in ("prepare.sh", "tools/server.py", "tools/other.py")]
    for path in paths:
        path.write_text("")
    shutil.copy(EXAMPLES / "mcp-server" / "server.py", paths[1])
    (tmp_path / "my_agent.py").write_text("def agent(task, env):\n    env.step('ls')\n")
    options = "--intercode-agent=my_agent:agent -o intercode_agent_arg="
    result = play(tmp_path, f"{options} --intercode-record=missing")
    assert result.returncode == 0, result.stdout + result.stderr
    for path in paths:
        path.write_text("# other\n")
    [line] = lines_of(play(tmp_path, f"{options} --intercode-record=none"))
    assert re.findall(r"[\w./]+(?=, which)", line) == ["prepare.sh", "tools/server.py"]
