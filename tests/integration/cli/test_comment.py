"""``pytest-intercode comment``, and its way to a pull request, on a GitHub of this machine."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_intercode.cli import main
from tests.support.github import Answer, FakeGitHub, serve_github

MARKER = "<!-- pytest-intercode:agent-tests -->"
REFUSED: Answer = (403, {}, {"message": "Resource not accessible by integration"})


def _row(task: str, outcome: str) -> dict[str, Any]:
    return {
        "environment": "ic_bash",
        "suite": "notes",
        "task_id": task,
        "query": task,
        "turn_history": {"actions": [], "observations": []},
        "summary": {"turns_max": 10},
        "outcome": outcome,
        "reward": float(outcome == "solved"),
        "agent": "mine",
        "agent_arguments": {},
        "format_version": 2,
        "node_id": f"tests/test_rules.py::test_it[{task}]",
    }


def _write(name: str, **outcomes: str) -> None:
    rows = [json.dumps(_row(task, outcome)) for task, outcome in outcomes.items()]
    Path(name).write_text("".join(f"{row}\n" for row in rows))


@pytest.fixture
def github(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeGitHub]:
    """A job of a pull request, with two results files in its working directory."""
    monkeypatch.chdir(tmp_path)
    event = {"pull_request": {"number": 7, "head": {"sha": "abcdef0123456789"}}}
    Path("event.json").write_text(json.dumps(event))
    Path("tests").mkdir()
    Path("tests/test_rules.py").touch()
    _write("main.jsonl", one="solved", two="solved")
    _write("new.jsonl", one="failed", two="solved")
    with serve_github() as github:
        for name, value in {
            "GITHUB_API_URL": github.url,
            "GITHUB_EVENT_PATH": "event.json",
            "GITHUB_REPOSITORY": "octo/cat",
            "GITHUB_RUN_ID": "42",
            "GITHUB_SERVER_URL": "https://github.com",
            "GITHUB_SHA": "fedcba9876543210",
            "GITHUB_STEP_SUMMARY": "summary.md",
            "GITHUB_TOKEN": github.token,
            "GITHUB_WORKSPACE": str(tmp_path),
            "no_proxy": "127.0.0.1",
        }.items():
            monkeypatch.setenv(name, value)
        yield github


def _post(*more: str) -> int:
    return main(["comment", "new.jsonl", "--baseline=main.jsonl", "--post", *more])


def test_it_is_printed_or_written(
    github: FakeGitHub, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["comment", "new.jsonl", "--baseline", "main.jsonl"]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"{MARKER}\n### Too few tasks to tell: 1 broke; 1 of 2 solved")
    blob = "https://github.com/octo/cat/blob/abcdef0123456789"
    assert f"([test]({blob}/tests/test_rules.py)): 1/1 before, 0/1 now" in text
    assert "[the run](https://github.com/octo/cat/actions/runs/42)" in text
    assert "commit `abcdef0123`" in text
    main(["comment", "new.jsonl", "--baseline=main.jsonl", "--output=c.md"])
    assert Path("c.md").read_text() == text
    for name in ("GITHUB_EVENT_PATH", "GITHUB_REPOSITORY", "GITHUB_SHA"):
        monkeypatch.delenv(name)
    capsys.readouterr()
    assert main(["comment", "new.jsonl", "--source-url=https://a.example/b"]) == 0
    assert "([test](https://a.example/b/tests/test_rules.py))" in capsys.readouterr().out
    assert github.requests == []


def test_it_is_created_and_then_edited(
    github: FakeGitHub, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _post() == 0
    assert "comment: https://github.com/octo/cat/pull/7#issuecomment-100" in capsys.readouterr().out
    _write("new.jsonl", one="solved", two="solved")
    assert _post() == 0
    (comment,) = github.comments
    assert comment["body"].startswith(f"{MARKER}\n")
    assert "nothing changed; 2 of 2 solved" in comment["body"]
    assert [request.partition(" ")[0] for request in github.requests] == [
        *("GET", "POST"),
        *("GET", "PATCH"),
    ]
    assert _post("--name=other") == 0
    assert len(github.comments) == 2
    assert not Path("summary.md").exists()


def test_it_is_found_on_a_later_page(github: FakeGitHub) -> None:
    for number in range(250):
        github.add(f"comment {number}")
    ours = github.add(f"{MARKER}\nold", "Bot")
    assert _post() == 0
    assert ours["body"].startswith(f"{MARKER}\n### ")
    assert len(github.comments) == 251
    assert github.requests[2].endswith("?per_page=100&page=3")


def test_a_comment_of_someone_else_stays(github: FakeGitHub) -> None:
    """Anyone may begin a comment with the marker, or quote ours."""
    planted = f"{MARKER}\nNice work!"
    github.add(planted)
    github.add(f"> {MARKER}\n> quoted", "Bot")
    assert _post() == 0
    assert [comment["body"] for comment in github.comments[:2]] == [
        planted,
        f"> {MARKER}\n> quoted",
    ]
    assert len(github.comments) == 3


def test_the_token_of_a_user_edits_their_own(github: FakeGitHub) -> None:
    github.user = 9
    assert _post() == 0
    assert _post() == 0
    assert len(github.comments) == 1


def test_one_that_was_deleted_since_is_created(github: FakeGitHub) -> None:
    github.add(f"{MARKER}\nold", "Bot")
    github.answers["PATCH"] = [(404, {}, {"message": "Not Found"})]
    assert _post() == 0
    assert len(github.comments) == 2


@pytest.mark.parametrize("method", ["GET", "POST", "PATCH"])
def test_a_token_that_may_not_write(
    github: FakeGitHub, capsys: pytest.CaptureFixture[str], method: str
) -> None:
    """As in a pull request from a fork: the summary has it, and one line says so."""
    if method == "PATCH":
        github.add(f"{MARKER}\nold", "Bot")
    github.answers[method] = [REFUSED]
    assert _post() == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert f"the API answers 403 to {method}: Resource not accessible by integration; " in line
    assert "pull-requests: write" in line
    summary = Path("summary.md").read_text()
    assert summary.startswith(f"{MARKER}\n### Too few tasks to tell: 1 broke")
    assert "The comment could not be posted, so it is shown here: " in summary


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((404, {}, {"message": "Not Found"}), "answers 404 to GET: Not Found"),
        ((401, {}, {"message": "Bad credentials"}), "answers 401 to GET: Bad credentials"),
        ((302, {"Location": "http://127.0.0.1:9/"}, {}), "answers 302 to GET"),
        ((200, {}, b"<html>"), "does not answer: "),
        ((200, {}, {}), "is not a list of comments"),
        ((410, {}, b"gone\n::error::x"), "answers 410 to GET: Gone"),
        ((422, {}, {"message": "a\n::error::x"}), "answers 422 to GET: a"),
    ],
)
def test_other_refusals(
    github: FakeGitHub, capsys: pytest.CaptureFixture[str], answer: Answer, words: str
) -> None:
    github.answers["GET"] = [answer]
    assert _post() == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert words in line
    assert len(github.requests) == 1
    assert MARKER in Path("summary.md").read_text()


@pytest.mark.parametrize(
    "limit",
    [
        (429, {"Retry-After": "3"}, {"message": "slow down"}),
        (403, {"Retry-After": "3"}, {"message": "You have exceeded a secondary rate limit."}),
        (
            403,
            {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1003"},
            {"message": "API rate limit exceeded"},
        ),
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_limit_is_waited_for(
    github: FakeGitHub, monkeypatch: pytest.MonkeyPatch, limit: Answer, method: str
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    monkeypatch.setattr(time, "time", lambda: 1000.0)
    github.answers[method] = [limit]
    assert _post() == 0
    assert pauses == [3.0]
    assert len(github.comments) == 1


def test_a_limit_is_not_waited_for_long(
    github: FakeGitHub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    github.answers["GET"] = [(429, {"Retry-After": "3600"}, {"message": "rate limit"})]
    assert _post() == 0
    assert pauses == []
    assert "answers 429 to GET: rate limit" in capsys.readouterr().err
    github.answers["GET"] = [(502, {}, b"bad gateway")] * 4
    assert _post() == 0
    assert pauses == [2.0, 4.0, 8.0]
    pauses.clear()
    github.answers["POST"] = [(502, {}, b"bad gateway")]  # it may have been created
    assert _post() == 0
    assert pauses == []


def test_nobody_listens(
    github: FakeGitHub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GITHUB_API_URL", "http://127.0.0.1:9")
    assert _post() == 0
    assert "the API does not answer: Connection refused" in capsys.readouterr().err
    monkeypatch.delenv("GITHUB_STEP_SUMMARY")
    assert _post() == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(
        "pytest-intercode: the comment could not be posted: the API does not answer"
    )


def test_a_job_without_a_pull_request(
    github: FakeGitHub, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("event.json").write_text('{"push": {}}')
    assert _post() == 0
    assert "shown here: the job does not belong to a pull request" in capsys.readouterr().err
    assert "### Too few" in Path("summary.md").read_text()
    assert _post("--pull-request=7") == 0
    assert len(github.comments) == 1


def test_no_token(
    github: FakeGitHub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("GITHUB_TOKEN")
    assert _post() == 0
    assert "GITHUB_TOKEN or GITHUB_REPOSITORY is not set" in capsys.readouterr().err
    assert github.requests == []


def test_results_that_are_missing(github: FakeGitHub, capsys: pytest.CaptureFixture[str]) -> None:
    """pytest ended before it ran a test: the comment of an earlier run must not stay as it is."""
    assert _post() == 0
    Path("new.jsonl").unlink()
    assert _post("--exit-status=4") == 0
    (comment,) = github.comments
    assert "### Pytest ended with status 4: wrong usage; no episode was recorded" in comment["body"]
    capsys.readouterr()
    assert _post() == 1
    assert "new.jsonl" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--name=-->"], "--name=-->: letters and digits are allowed"),
        (["--link=javascript:x"], "--link=javascript:x: an address of http or https is needed"),
        (["--output=new.jsonl"], "new.jsonl: this is the run itself"),
        (["--baseline=new.jsonl"], "new.jsonl: this is the run itself"),
        (["--baseline=none.jsonl"], "none.jsonl"),
    ],
)
def test_wrong_arguments(
    github: FakeGitHub, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    assert main(["comment", "new.jsonl", *arguments, "--post"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert words in line
    assert github.requests == []
