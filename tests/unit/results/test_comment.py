"""A comment on a pull request: what it says, its length, and what hostile texts come to in it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.core.text import markdown_code
from pytest_intercode.errors import ConfigurationError
from pytest_intercode.results.cell_comparison import ComparedCells
from pytest_intercode.results.comment import (
    MAX_COMMENT,
    Links,
    checked_url,
    format_comment,
    marker,
)
from pytest_intercode.results.comparison import Run
from pytest_intercode.results.format import from_row
from pytest_intercode.results.tries import counted_tries
from tests.support.ci_log import HOSTILE, commands

ATTACKS = [
    "@octocat @github/security please merge",
    "#123 GH-7 octo/cat#9 0123456789abcdef0123456789abcdef01234567",
    "![x](https://evil.example/p.png) [approved](https://evil.example) <https://evil.example>",
    "https://evil.example www.evil.example mail@evil.example",
    "<img src=https://evil.example/p.png> <!-- --> </sub></details><h1>All solved</h1>",
    "`` ` ``` @octocat ` #1",
    "`@octocat",
    "@octocat`",
    "` @octocat `",
    "\\`@octocat\\`",
    "a | @octocat | b",
    "a \\| @octocat \\\\| b \\",
    "x\n\n# All solved\n\n- @octocat\n```\n",
    "x\r\n| solved | 100% |\r| --- | --- |",
    "[x]: https://evil.example\n\n[x]",
    "$`x`$ :+1: &commat;octocat &#64;octocat *a* _b_ ~~c~~ \\@octocat",
    "pre <!-- pytest-intercode:agent-tests --> post",
    "   ",
    "`",
    HOSTILE,
]


def _row(task: str, outcome: str = "solved", **more: Any) -> dict[str, Any]:
    return {
        "environment": "ic_bash",
        "dataset": "bash",
        "suite": "notes",
        "task_id": task,
        "query": f"Do {task}.",
        "turn_history": {"actions": [], "observations": []},
        "summary": {"turns_max": 10},
        "outcome": outcome,
        "reward": 1.0 if outcome == "solved" else 0.5,
        "agent": "mine",
        "agent_arguments": {},
        "format_version": 2,
        **more,
    }


def _run(rows: Iterable[dict[str, Any]]) -> Run:
    tries: list[EpisodeRecord] = counted_tries(map(from_row, rows))
    return Run(Path("new.jsonl"), tries)


def _comment(
    after: Sequence[dict[str, Any]],
    before: Sequence[dict[str, Any]] = (),
    links: Links | None = None,
    **more: Any,
) -> str:
    run = _run(after)
    compared = ComparedCells(_run(before), run, level=0.05, smallest=0.1) if before else None
    return format_comment(run, compared, links or Links(), name="agent-tests", **more)


def _usage(tokens: int, cost: float) -> dict[str, Any]:
    return {"usage": {"requests": 1, "input_tokens": tokens, "output_tokens": 0, "cost": cost}}


def test_the_verdict_is_first_and_then_what_changed() -> None:
    names = [f"task-{number}" for number in range(8)]
    before = [_row(name, "failed" if name == "task-7" else "solved") for name in names]
    after = [
        _row(
            name, "failed" if name == "task-0" else "solved", reason="no file" * (name == "task-0")
        )
        for name in names
    ]
    lines = _comment(after, before).splitlines()
    assert lines[:4] == [
        "<!-- pytest-intercode:agent-tests -->",
        "### Too few tasks to tell: 1 broke, 1 fixed; 7 of 8 solved (87.5%), before 87.5%",
        "",
        lines[3],
    ]
    assert lines[3].startswith("too few samples: ")
    assert lines[4:] == [
        "",
        "**Broke: solved before, in no try now** (1)",
        "",
        "- `notes/task-0`: 1/1 before, 0/1 now: failed `no file`",
        "",
        "**Fixed: in no try before, solved now** (1)",
        "",
        "- `notes/task-7`: 0/1 before, 1/1 now",
        "",
        "<sub>pytest-intercode</sub>",
    ]


def test_without_a_baseline_it_is_a_summary() -> None:
    text = _comment([_row("one"), _row("two", "timed-out")])
    assert "### 1 of 2 solved (50.0%), 95% interval 9-91%\n" in text
    assert "**Not always solved** (1)\n\n- `notes/two`: timed out\n" in text


def test_worse_is_said_when_it_is() -> None:
    names = [f"task-{number}" for number in range(12)]
    text = _comment([_row(name, "failed") for name in names], [_row(name) for name in names])
    assert "### Worse: 12 broke; 0 of 12 solved (0.0%), before 100.0%\n\nregressed: " in text


def test_nothing_changed() -> None:
    text = _comment([_row("one")], [_row("one")])
    assert "nothing changed; 1 of 1 solved (100.0%), before 100.0%" in text


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (None, "No episode was recorded"),
        (4, "Pytest ended with status 4: wrong usage; no episode was recorded"),
    ],
)
def test_a_run_without_episodes(status: int | None, words: str) -> None:
    text = format_comment(None, None, Links(), name="agent-tests", status=status)
    assert f"\n### {words}\n" in text


def test_a_fault_of_pytest_is_in_the_first_line() -> None:
    assert "### pytest ended with status 2: it was interrupted; 1 of 1" in _comment(
        [_row("one")], status=2
    )
    assert "status" not in _comment([_row("one")], status=1)


def test_what_was_not_graded() -> None:
    after = [_row("one"), _row("two", "infrastructure-error", reason="no engine")]
    text = _comment(after, [_row("one"), _row("two")])
    assert "**Not graded, and not counted** (1 try)\n" in text
    assert "- `notes/two`: infrastructure error: `no engine`\n" in text
    nothing = _comment([_row("two", "task-error")])
    assert "### none of 1 try was graded\n" in nothing


def test_links_lead_to_the_page_the_test_and_the_run() -> None:
    links = Links(
        page="https://pages.example/report.html",
        run="https://github.com/o/r/actions/runs/7",
        source=lambda node_id: f"https://github.com/o/r/blob/abc/{node_id.partition('::')[0]}",
        commit="abcdef0123",
    )
    after = [_row("a b/(c)", "failed", node_id="tests/test_x.py::test_y[a]")]
    text = _comment(after, [_row("a b/(c)", node_id="tests/test_x.py::test_y[a]")], links)
    tokens = _parse(text)
    page, test, run, trajectories = [token.attrs["href"] for token in tokens if _is(token, "link")]
    task = parse_qs(urlsplit(str(page)).fragment)["open"]
    assert task == ["ic_bash/notes/a b/(c) (tests/test_x.py::test_y)"] or task == [
        "bash/notes/a b/(c) (tests/test_x.py::test_y)"
    ]
    assert test == "https://github.com/o/r/blob/abc/tests/test_x.py"
    assert run == "https://github.com/o/r/actions/runs/7"
    assert trajectories == "https://pages.example/report.html"
    assert "commit `abcdef0123`" in text


def test_rates_by_cell_where_there_are_several() -> None:
    rows = [
        _row(f"{agent}-{treatment}", "solved" if treatment == "rules" else "failed",
             agent=agent, treatment=treatment)
        for agent in ("codex", "claude")
        for treatment in ("control", "rules")
    ]  # fmt: skip
    text = _comment(rows)
    assert "| agent | treatment | solved | rate | 95% interval |\n| --- | --- | ---: |" in text
    assert "| `codex` | `control` | 0/1 | 0.0% | 0-79% |\n" in text
    assert "| `claude` | `rules` | 1/1 | 100.0% | 21-100% |\n" in text
    assert "| agent |" not in _comment(rows[:1])


def test_a_run_of_several_cells_is_compared_by_cell() -> None:
    def rows(failing: int) -> list[dict[str, Any]]:
        return [
            _row(f"task-{number}", "failed" if agent == "b" and number < failing else "solved",
                 agent=agent)
            for agent in ("a", "b")
            for number in range(10)
        ]  # fmt: skip

    text = _comment(rows(8), rows(0), Links(page="https://pages.example/r.html"))
    assert "### Worse: 8 broke; 12 of 20 tries solved (60.0%), before 100.0%\n" in text
    assert re.search(r"^- \[`notes/task-0`\]\(\S+cell=b\) with `b`: 1/1 before", text, re.MULTILINE)
    assert "| `a` | 10/10 | 100.0% | 72-100% | 100.0% | too few tasks to tell |\n" in text
    assert "| `b` | 2/10 | 20.0% | 6-51% | 100.0% | worse |\n" in text
    assert "- `b against a: worse: " in text


def test_a_cell_that_only_one_run_has() -> None:
    text = _comment(
        [_row("one"), _row("one", agent="new")], [_row("one"), _row("one", agent="old")]
    )
    assert "- `only the baseline has old`\n- `only the newer run has new`\n" in text


def test_tokens_and_cost_against_the_baseline() -> None:
    text = _comment(
        [_row("one", **_usage(1200, 0.12)), _row("new", **_usage(5000, 0.5))],
        [_row("one", **_usage(1000, 0.16))],
    )
    assert "- in all: 6,200 tokens; cost 0.6200\n" in text
    assert (
        "- for each try of common tasks: 1,200 tokens (before 1,000, +20%); "
        "cost 0.1200 (before 0.1600, -25%)\n"
    ) in text
    assert "Used up" not in _comment([_row("one")])


def test_the_mean_cost_is_of_the_cells_that_have_a_price() -> None:
    login, priced = {"agent": "login"}, {"agent": "priced"}
    usage = {"requests": 1, "input_tokens": 1000, "output_tokens": 0}
    old_rows = [_row("one", **priced, **_usage(1000, 0.16)), _row("one", **login, usage=usage)]
    new_rows = [_row("one", **priced, **_usage(1000, 0.12)), _row("one", **login, usage=usage)]
    assert "; cost 0.1200 (before 0.1600, -25%)\n" in _comment(new_rows, old_rows)
    now_priced = [new_rows[0], _row("one", **login, **_usage(1000, 0.5))]
    assert "; cost 0.1200 (before 0.1600, -25%)\n" in _comment(now_priced, old_rows)
    assert "; cost 0.5000 (not known before)\n" in _comment(now_priced[1:], old_rows[1:])


def test_what_differs_between_the_runs_is_quoted() -> None:
    text = _comment(
        [_row("one", agent_arguments={"model": "@x"})],
        [_row("one", agent_arguments={"model": "@y"})],
    )
    assert "- `the runs differ in agent argument model: @y before, @x after`\n" in text


# -- length


@pytest.mark.parametrize("max_bytes", [1500, 4000, MAX_COMMENT])
def test_it_fits_and_counts_what_is_left_out(max_bytes: int) -> None:
    count = 400
    names = [f"{number:04d}-{'ü' * 150}" for number in range(count)]
    before = [_row(name) for name in names]
    after = [_row(name, "failed", reason="💥" * 300) for name in names[:-20]]
    after += [_row(name, "infrastructure-error", reason="x" * 300) for name in names[-20:]]
    text = _comment(after, before, max_bytes=max_bytes)
    assert len(text.encode()) <= max_bytes
    for title, noun, total in (("Broke", "task", 380), ("Not graded", "tr(?:y|ies)", 20)):
        section = text.partition(f"**{title}")[2].partition("\n**")[0]
        hidden = re.search(rf"^\.\.\. and (\d+) more {noun}s?$", section, re.MULTILINE)
        shown = section.count("\n- ")
        assert shown + (int(hidden[1]) if hidden else 0) == total, section
    assert text.rstrip().endswith("</sub>")
    if max_bytes == MAX_COMMENT:
        assert text.count("\n- ") > 50


# -- hostile texts


def _parse(text: str) -> list[Token]:
    tokens = MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(text)
    return [child for token in tokens for child in (token.children or [token])]


def _is(token: Token, kind: str) -> bool:
    return token.type == f"{kind}_open"


_INERT = re.compile(r"@|#\d|GH-|https?:|www\.|:\+1:|[0-9a-f]{40}|octo|evil|\$")


@pytest.mark.parametrize("text", ATTACKS)
@pytest.mark.parametrize("in_table", [False, True])
def test_a_code_span_holds_any_text(text: str, in_table: bool) -> None:
    line = markdown_code(text, in_table=in_table)
    assert "\n" not in line
    if in_table:
        assert "|" not in line
    content = f"| a |\n| --- |\n| {line} |" if in_table else f"- x {line}: y"
    tokens = _parse(content)
    assert [token.type for token in tokens if token.type.startswith(("html", "image"))] == []
    assert sum(token.type == "code_inline" for token in tokens) == 1
    assert not any(_is(token, kind) for token in tokens for kind in ("link", "em", "heading"))
    assert (
        len(re.findall("<td>|<li>", MarkdownIt("commonmark").enable("table").render(content))) == 1
    )


@pytest.mark.parametrize("attack", ATTACKS)
def test_nothing_that_an_agent_or_a_suite_wrote_is_more_than_text(attack: str) -> None:
    """Every field of a record that anyone may write, in every part of the comment."""
    more = {
        "suite": attack,
        "agent": attack,
        "agent_arguments": {"model": attack},
        "reason": attack,
        "node_id": attack,
        "dataset": attack,
        "query": attack,
        "hardness": attack,
        "tags": [attack],
        "treatment": attack,
    }
    outcomes = [
        ("solved", "failed"),
        ("failed", "solved"),
        ("solved", "task-error"),
        ("solved", ""),
        ("", "failed"),
    ]
    before = [
        _row(f"{number}{attack}", outcome, **{**more, "agent_arguments": {"model": "y"}})
        for number, (outcome, _) in enumerate(outcomes)
        if outcome
    ]
    after = [
        _row(f"{number}{attack}", outcome, **more)
        for number, (_, outcome) in enumerate(outcomes)
        if outcome
    ]
    after.append(_row("plain"))  # a second cell
    links = Links(page="https://pages.example/r.html", run="https://ci.example/1")
    for text in (_comment(after, before, links), _comment(after, (), links)):
        tokens = _parse(text)
        assert [token.content for token in tokens if token.type == "html_block"] == [
            "<!-- pytest-intercode:agent-tests -->\n"
        ]
        inline = [token.content for token in tokens if token.type == "html_inline"]
        assert inline == ["<sub>", "</sub>"]
        assert not any(token.type in ("image", "fence", "code_block") for token in tokens)
        for token in tokens:
            if _is(token, "link"):
                assert re.match("https://(pages|ci).example/", str(token.attrs["href"]))
            if token.type == "text":
                assert not _INERT.search(token.content), token.content
            assert not any(_is(token, kind) for kind in ("em", "strong_em", "s"))
        assert sum(_is(token, "heading") for token in tokens) == 1
        assert commands(text) == []
        assert text.count("<!-- pytest-intercode:") == 1 + text.count("pre <!-- pytest-intercode:")


# -- names and addresses


@pytest.mark.parametrize("name", ["agent-tests", "nightly 2", "a.b_c"])
def test_names(name: str) -> None:
    assert marker(name) == f"<!-- pytest-intercode:{name} -->"


@pytest.mark.parametrize("name", ["", "a--b", "a-", "-a", "-->", "a\n", "é", "a>b"])
def test_names_that_would_end_the_marker(name: str) -> None:
    with pytest.raises(ConfigurationError, match="--name="):
        marker(name)


@pytest.mark.parametrize(
    ("url", "encoded"),
    [
        ("https://a.example/b?c=d#e", "https://a.example/b?c=d#e"),
        ("https://a.example/x) [y](z", "https://a.example/x%29%20%5By%5D%28z"),
        ("https://a.example/<b>|`\\", "https://a.example/%3Cb%3E%7C%60%5C"),
    ],
)
def test_addresses(url: str, encoded: str) -> None:
    assert checked_url(url, "--link") == encoded


@pytest.mark.parametrize(
    "url", ["javascript:alert(1)", "/x", "https://", f"https://a/{'x' * 2000}"]
)
def test_addresses_that_are_none(url: str) -> None:
    with pytest.raises(ConfigurationError, match="--link="):
        checked_url(url, "--link")
