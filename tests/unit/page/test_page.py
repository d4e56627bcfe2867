"""What the page is made of: charts, end states, changes; the file; the command's words."""

from __future__ import annotations

import base64
import gzip
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pytest_intercode.cli import view as command
from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.environments.sections import Section
from pytest_intercode.errors import ConfigurationError
from pytest_intercode.page import charts, write
from pytest_intercode.page.charts import Bin, failing_actions, rewards, solved_by_turn, turns
from pytest_intercode.page.run import Run, changes, facts, failures, verdict
from pytest_intercode.page.trajectories import Blocks, end_state_sections, episode
from pytest_intercode.results.format import from_row
from pytest_intercode.results.gate import Conclusion
from pytest_intercode.results.tries import counted_tries
from tests.support import page_rows


def row(*actions: str, reward: float = 0.0, **more: Any) -> dict[str, Any]:
    made = page_rows.run(1)[0]
    history = made["turn_history"]
    history["actions"] = list(actions or ("ls", "submit"))
    count = len(history["actions"])
    history["observations"] = [""] * count
    history["rewards"] = [*[0.0] * (count - 1), reward]
    history["valid_action"] = [True] * count
    made |= {"turn_parts": [*[{}] * (count - 1), {"output": reward}], "reward": reward}
    return {**made, "outcome": "solved" if reward >= 1 else "failed", **more}


def tries(*rows: dict[str, Any]) -> list[EpisodeRecord]:
    return counted_tries(
        from_row({"repeat": at, **each, "task_id": f"t{at}"}) for at, each in enumerate(rows, 1)
    )


def compared(given: dict[str, Any]) -> list[Section]:
    return end_state_sections(from_row(json.loads(json.dumps(given))))


def records(tasks: int) -> list[EpisodeRecord]:
    return [from_row(each) for each in page_rows.run(tasks)]


# -- figures


def test_solved_by_turn_counts_from_the_turn_of_the_reward() -> None:
    early = row("a", "b", "c", reward=1.0)
    early["turn_history"]["rewards"] = [0.5, 1.0, 1.0]
    late = row("a", "b", "submit", reward=1.0)
    failed = row("a", outcome="infrastructure-error")
    shares = solved_by_turn(tries(early, late, row("a", "b"), row(), failed))
    assert shares == [0.0, 0.25, 0.5]


def test_no_graded_try() -> None:
    failed = tries(row(outcome="infrastructure-error"))
    assert solved_by_turn(failed) == [0.0]
    assert sum(each.tries for each in [*rewards(failed), *turns(failed)]) == 0


def test_rewards_at_the_ends_stand_alone() -> None:
    found = rewards(tries(*(row(reward=each) for each in (0.0, 0.05, 0.3, 0.999, 1.0, 1.0))))
    counts = {name: count for name, count in found if count}
    assert counts == {"0": 1, ">0": 1, "0.3": 1, "0.9": 1, "1": 2}
    tenths = [f"0.{tenth}" for tenth in range(1, 10)]
    assert [each.name for each in found] == ["0", ">0", *tenths, "1"]
    assert rewards(tries(row(reward=-0.5)))[0] == Bin("<0", 1)


def test_turns_end_with_whatever_is_longer() -> None:
    found = turns(tries(row(*["ls"] * 50), row("ls")))
    assert found[0] == Bin("1", 1)
    assert found[-1] == Bin("30+", 1)
    nothing = row("ls") | {"turn_history": {"actions": []}, "turn_parts": []}
    assert turns(tries(nothing))[0] == Bin("0", 1)


def test_failing_actions_by_their_first_word() -> None:
    one = row("grep a b", "grep c", "", "ls", "x" * 30, "not run")
    one["turn_history"]["valid_action"] = [False, True, False, True, False, False]
    one["turn_passed"] = [False] * 5 + [True]
    found = failing_actions(tries(one))
    assert [each[:3] for each in found] == [
        ("(nothing)", 1, 1),
        ("grep", 1, 2),
        ("x" * 23 + "…", 1, 1),
    ]
    assert {each.share for each in found} == {1 / 3}


# -- charts


def test_steps_hold_what_was_reached() -> None:
    chart = charts.steps("Solved", "", ("old", "new"), [[0.5, 1.0], [0.0, 0.25, 0.25]])
    assert chart.rows == [
        ["1", "50.0%", "0.0%"],
        ["2", "100.0%", "25.0%"],
        ["3", "100.0%", "25.0%"],
    ]
    first = [float(each.split(",")[1]) for each in chart.lines[0].points.split()]
    assert first[0] == pytest.approx((chart.top + chart.bottom) / 2)
    assert first[2:] == [chart.top] * 4
    assert chart.says == "Solved: 100.0% by turn 2 (old), 25.0% by turn 3 (new)."


def test_bars_of_two_runs_share_their_labels_and_an_axis() -> None:
    before = [Bin("1", 1), Bin("2", 3)]
    after = [Bin("0", 5), Bin("1", 5), Bin("2", 0), Bin("3", 10)]
    chart = charts.bars("Turns", "", "turns", ("old", "new"), [before, after])
    assert [each[0] for each in chart.rows] == ["0", "1", "2", "3"]
    assert chart.rows[3] == ["3", "0", "10"]
    tallest = max(chart.bars, key=lambda bar: bar.height)
    assert tallest.says == "2: 3 tries (75.0%) (old)"
    assert all(chart.top <= bar.y <= chart.bottom for bar in chart.bars)
    assert chart.y_ticks[-1].text == "80%"


# -- end states


def marks(section: dict[str, Any]) -> str:
    return "".join(line[0] or " " for line in section["lines"])


@pytest.mark.parametrize(
    ("number", "solved", "title", "found"),
    [
        (0, True, "Output", "="),
        (0, False, "Output", "-++"),
        (1, True, "Result", "=="),
        (1, False, "Result", "-+="),
        (2, True, "Hidden tests", "==="),
        (2, False, "Hidden tests", "!=="),
        (3, True, "Flags submitted", "+="),
        (3, False, "Flags submitted", "+-"),
    ],
)
def test_end_states_of_each_env(number: int, solved: bool, title: str, found: str) -> None:
    env = ("bash", "sql", "python", "ctf")[number]
    state = page_rows.end_state(env, solved, number)
    given = row(reward=float(solved), environment=f"ic_{env}", end_state=state)
    given["reward_parts"] = {"output": float(solved)}
    section = compared(given)[0]
    assert (section["title"], section["same"], marks(section)) == (title, solved, found)


def bash(agent: dict[str, Any], gold: dict[str, Any], **more: Any) -> list[dict[str, Any]]:
    empty = {"output": "", "digest": "", "entries": {}, "before": {}, "touched": []}
    sides = {"agent": {**empty, **agent}, "gold": {**empty, **gold}, "workdir": "/work"}
    parts = more.pop("parts", {"files": 0.5})
    return compared(row(end_state={**sides, **more}, reward_parts=parts))


def test_bash_says_what_does_not_count() -> None:
    file = {"type": "f", "mode": 0o600, "uid": 0, "gid": 7, "content": "ab" * 32}
    link = {**file, "type": "l", "content": "../there"}
    output, disk = bash(
        {"output": "chatter", "entries": {"/a": file, "/s/x": file}, "touched": ["/a", "/s/x"]},
        {"entries": {"/a": link, "/gone": None}, "touched": ["/a", "/gone"]},
        options={"scratch": ["/s"]},
    )
    assert (output["same"], output["note"]) == (
        None,
        "It does not count: gold's effects are on disk.",
    )
    assert disk["note"] == "Left out: 1 of the agent's in folders for scratch."
    assert disk["lines"] == [
        ["!", "/a", "file 0600 0:7 sha256 abababababab", "link 0600 0:7 -> ../there"],
        ["=", "/gone", "untouched", "nothing"],
    ]


def test_bash_shows_diffs_of_files() -> None:
    lines = ["@@ -1 +1 @@", " a", "-b", "+<b>", "\\ No newline at end of file", ""]
    *_, section = bash({}, {}, diffs={"/w/x": lines})
    assert (section["title"], section["same"]) == ("/w/x", False)
    assert section["lines"] == [
        ["", "@@ -1 +1 @@"],
        ["=", "a"],
        ["-", "b"],
        ["+", "<b>"],
        ["", "\\ No newline at end of file"],
        ["", ""],
    ]
    (odd,) = bash({}, {}, diffs=[1])  # of no version of ours
    assert odd["title"] == "End state"


def test_bash_output_that_normalisers_make_equal() -> None:
    output, _ = bash({"output": "3 \n"}, {"output": "3\n"}, parts={"output": 1.0})
    assert (output["same"], output["note"]) == (True, "Equal as the task's normalisers write it.")
    output, _ = bash({"output": "3"}, {"output": "3\n"}, parts={"output": 0.99})
    assert (output["same"], output["note"]) == (False, "Only the ends of lines differ.")


def test_bash_by_a_rule_and_by_an_alternative() -> None:
    side = {"digest": "", "entries": {}, "before": {}, "touched": []}
    state: dict[str, Any] = {"agent": {**side, "output": "b\na\n"}}
    state |= {"gold": {**side, "output": "a\nb\n"}}
    state |= {"workdir": "/", "format": "line-order", "golds": [{"agent": "other"}, None]}
    output, *_ = compared(row(end_state=state, reward_parts={"output": 1.0, "gold_alone": 0.0}))
    assert output["same"] is True
    assert output["note"] == (
        "Compared with alternative 1 of gold, which is the best match. "
        "Equal in another format, by the rule line-order."
    )
    output, *_ = compared(row(end_state={**state, "golds": [None]}))
    assert not output.get("note", "").startswith("Beside")


def test_bash_where_paths_are_only_counted() -> None:
    sides = {"agent": {"output": "", "digest": ""}, "gold": {"output": "", "digest": ""}}
    counted = {"effects": 4000, "equal": 17, "by_gold": True}
    _, disk = compared(row(end_state={**sides, "counted": counted}))
    assert disk["note"].startswith("17 of 4000 are gold's")


def test_the_paper_profiles() -> None:
    side = {"output": "1\n", "status": [["a.txt", "??"]], "sums": {"a.txt": "12  a.txt\n"}}
    gold = {**side, "sums": {"a.txt": "34  a.txt\n"}}
    _, status, sums = compared(row(end_state={"agent": side, "gold": gold, "cut": False}))
    assert (status["same"], status["lines"]) == (True, [["=", "?? a.txt"]])
    assert sums["lines"] == [["!", "a.txt", "12  a.txt", "34  a.txt"]]
    ordered = {"agent": {"rows": ["b", "a"]}, "gold": {"rows": ["a", "b"]}, "ranked": False}
    (rows,) = compared(row(environment="ic_sql", end_state=ordered))
    assert (rows["same"], sorted(marks(rows))) == (False, ["+", "-", "="])
    none = {"agent": {"rows": None}, "gold": {"rows": ["a"]}, "ranked": False}
    (rows,) = compared(row(environment="ic_sql", end_state=none))
    assert rows["note"] == "The agent's last action gives no rows."
    tests = {"agent": {"f(1)": {"error": "no"}}, "gold": {"f(1)": {"error": ""}, "f(2)": 3}}
    (table,) = compared(row(environment="ic_python", end_state=tests))
    assert marks(table) == "!!"


def test_changes_to_a_database() -> None:
    agent = {"added": {"row of t: [1]": 2}, "removed": {}, "uncommitted": True}
    gold = {"added": {"row of t: [1]": 1}, "removed": {"row of t: [2]": 1}, "uncommitted": False}
    state = {"agent": agent, "gold": gold, "digested": False}
    added, removed = compared(row(environment="ic_sql", end_state=state))
    assert added["lines"] == [["+", "row of t: [1]"], ["=", "row of t: [1]"]]
    assert "left a transaction open" in added["note"]
    assert removed["lines"] == [["-", "row of t: [2]"]]


@pytest.mark.parametrize(
    "state",
    [{"agent": 3, "gold": {}}, {"what": [1, 2]}, {"agent": ["x"], "gold": []}],
)
@pytest.mark.parametrize("env", ["bash", "sql", "python", "ctf", "else"])
def test_a_state_of_another_version_is_shown_as_it_is(env: str, state: dict[str, Any]) -> None:
    (section,) = compared(row(environment=f"ic_{env}", end_state=state))
    assert section["title"] == "End state"
    assert section["lines"]


def test_much_is_cut() -> None:
    many = "\n".join(f"line {number}" for number in range(5000))
    output, _ = bash({"output": many}, {"output": "x" * 3000}, parts={"output": 0.0})
    assert len(output["lines"]) == 300
    assert output["more"] == 4701
    assert len(output["lines"][0][1]) < 600
    assert "Too long for a diff" in output["note"]


def test_rewards_that_were_not_given_are_not_shown() -> None:
    (one,) = tries(row("a", "b", "c", reward=0.5))
    assert [turn.get("reward") for turn in episode(one)["turns"]] == [None, None, 0.5]
    fewer = row("a", "b") | {"turn_history": {"actions": ["a", "b"], "rewards": [0.5]}}
    (one,) = tries({**fewer, "turn_parts": []})
    assert [turn.get("reward") for turn in episode(one)["turns"]] == [0.5, 0.0]


# -- two runs


def run_of(*outcomes: str, repeats: int = 1) -> Run:
    """A run of one try for each outcome; of several tries, outcomes follow by task."""
    found = []
    for at, outcome in enumerate(outcomes):
        task, repeat = divmod(at, repeats)
        if outcome:
            found.append(row() | {"task_id": f"t{task}", "outcome": outcome, "repeat": repeat + 1})
    return Run.of(map(from_row, found), "a run")


def test_what_became_of_tasks() -> None:
    failed, broken = "infrastructure-error", "task-error"
    before = run_of("solved", "failed", "solved", "solved", "failed", "", "solved")
    after = run_of("timed-out", "solved", "solved", failed, "", "solved", broken)
    found = changes(before, after)
    assert [each.kind for each in found] == [
        *("failed now", "solved now", "same", "not graded"),
        *("only before", "not graded", "only after"),
    ]
    assert found[0].words == "failed now, solved before"
    assert found[1].words == "solved now, failed before"
    said = verdict(before, after)
    assert said is not None
    assert said.tasks == 3
    assert verdict(run_of("solved"), run_of(failed)) is None


@pytest.mark.parametrize(
    ("solved_before", "solved_now", "kind", "words"),
    [
        (3, 1, "less often", "less often solved, within chance (p 0.52)"),
        (5, 0, "regressed", "regressed (p 0.0079)"),
        (0, 2, "more often", "more often solved, within chance (p 0.44)"),
        (0, 5, "improved", "improved (p 0.0079)"),
        (2, 2, "same", "same"),
    ],
)
def test_chance_is_not_called_a_change(
    solved_before: int, solved_now: int, kind: str, words: str
) -> None:
    before, after = (
        run_of(*["solved"] * count, *["failed"] * (5 - count), repeats=5)
        for count in (solved_before, solved_now)
    )
    (change,) = changes(before, after)
    assert (change.kind, change.words) == (kind, words)


def test_the_page_says_which_changes_are_within_chance(tmp_path: Path) -> None:
    before = run_of("solved", "solved", "solved", "solved", "solved", "solved", repeats=3)
    after = run_of("solved", "failed", "failed", "solved", "solved", "solved", repeats=3)
    write(before.tries, tmp_path / "page.html", "Two", other=after.tries)
    text = (tmp_path / "page.html").read_text("utf-8")
    assert "Solved less often: 1 task" in text
    assert "less often solved, within chance (p 0.4)" in text
    assert "broke" not in text.partition("<style>")[0] + text.partition("</style>")[2]


def test_a_run_against_its_baseline_shows_the_tasks_that_it_has(tmp_path: Path) -> None:
    before = [row(reward=1.0, task_id=f"t{at}") for at in range(6)]
    after = [
        row(reward=float(at != 2), task_id=f"t{at}", reason="bad" * (at == 2)) for at in (2, 4)
    ]
    for at, each in enumerate(after[::-1]):
        each["item"] = 1 - at
    results = tmp_path / "before.jsonl"
    results.write_text("".join(json.dumps(each) + "\n" for each in before))
    page = tmp_path / "page.html"
    newer = [from_row(each) for each in after[::-1]]  # as they ended
    write(newer, page, "New", baseline=results, names=("base", "new"), notes=["of <b>"])
    index = page_rows.index_of(page)
    assert index["runs"] == ["base", "new"]
    assert [task[0] for task in index["tasks"]] == ["t2", "t4"]
    assert [index["changes"][task[8]] for task in index["tasks"]] == ["failed now", "same"]
    assert index["reasons"][index["tasks"][0][7][0][5]] == "bad"
    text = page.read_text("utf-8")
    assert "<li>of &lt;b&gt;</li>" in text
    assert "over 2 common tasks, 1 worse and 0 better" in text


def test_a_baseline_of_other_tasks_is_no_second_run(tmp_path: Path) -> None:
    results = tmp_path / "before.jsonl"
    results.write_text(json.dumps(row(task_id="other")) + "\n")
    page = tmp_path / "page.html"
    write([from_row(row())], page, "New", baseline=results, names=("base", "new"))
    assert len(page_rows.index_of(page)["runs"]) == 1
    text = page.read_text("utf-8").partition("<script")[0]
    assert "no difference" not in text
    assert 'class="verdict failed"' in text


# -- a run: whether it passed, and what did not


def head_of(page: Path) -> str:
    return page.read_text("utf-8").partition("</style>")[2].partition("<script")[0]


def test_the_page_begins_with_whether_the_run_passed(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    write(tries(row(reward=1.0), row(reward=1.0)), page, "Good")
    passed = (
        '<p class="verdict passed"><strong>passed</strong> no task failed that has to be solved'
    )
    assert passed in head_of(page)
    assert "Not solved" not in head_of(page)
    write(tries(row(reward=1.0), row(reason="<b>\n why")), page, "Bad")
    text = head_of(page)
    assert "<strong>failed</strong> 1 task was not solved (bash-suite/t2)" in text
    assert "Not solved: 1 task<" in text
    assert '<a href="#open=bash%2Fbash-suite%2Ft2">bash-suite/t2</a>' in text
    assert '<span class="quiet">&lt;b&gt; why</span>' in text
    lost = row(outcome="infrastructure-error")
    write(tries(row(reward=1.0), lost), page, "Unknown")
    assert '<p class="verdict inconclusive">' in head_of(page)
    told = Conclusion("incomplete", "the run was ended <i>")
    write(tries(row(reward=1.0)), page, "Ended", conclusion=told)
    assert "<strong>incomplete</strong> the run was ended &lt;i&gt;" in head_of(page)


def test_what_pytest_has_not_run_has_no_verdict(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    write(tries(row(node_id=""), row(reward=1.0)), page, "A trainer's")
    assert "Verdict" not in head_of(page)
    assert "Not solved: 1 task<" in head_of(page)


def test_of_many_failures_the_first_are_named(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    write(tries(*(row(outcome="timed-out" if at % 2 else "failed") for at in range(30))), page, "")
    text = head_of(page)
    assert text.count('<li><a href="#open=') == 24
    assert '<a href="#outcome=failed%2Ctimed-out">all 30 in the table</a>' in text


def test_failures_are_of_cells_and_of_several_tries() -> None:
    rows = [
        row(reward=float(repeat == 2 or agent == "b"), agent=agent, repeat=repeat)
        | {"task_id": "t"}
        for agent in "ab"
        for repeat in (1, 2, 3)
    ]
    (failure,) = failures(Run("", "", counted_tries(map(from_row, rows))))
    assert (str(failure.cell), str(failure.share), failure.outcomes) == ("a", "1/3", ("failed",))
    own = row(reward=1.0, test_passed=False)
    (failure,) = failures(Run("", "", tries(own, row(reward=0.5, test_passed=True))))
    assert failure.outcomes == ("solved",)  # its own test says that it is not


def test_facts_are_what_all_tries_share() -> None:
    rows = [row(agent_arguments={"model": name}, task_id=name) for name in "abcdef"]
    again = {**rows[0], "superseded": True}
    found = dict(facts(Run.of(map(from_row, [again, *rows]), "a run")))
    assert found["arguments"] == "model=a, model=b, model=c, model=d and 2 more"
    assert found["sandbox"] == "bubblewrap"
    assert found["run again"] == "1 try"
    assert "image" not in found
    assert "feedback" not in found
    rows[0]["turn_parts"] = [{"output": 0.0}, {"output": 1.0}]
    assert (
        dict(facts(Run.of(map(from_row, rows), "a run")))["feedback"] == "reward after every action"
    )


# -- the file


def test_blocks_hold_what_was_put_into_them() -> None:
    blocks = Blocks()
    given = [{"n": number, "text": "</script>" * 4000} for number in range(20)]
    places = [blocks.add(each) for each in given]
    blocks.close()
    assert len(blocks.texts) > 2
    assert all(re.fullmatch(r"[A-Za-z0-9+/=]+", text) for text in blocks.texts)
    read = [json.loads(gzip.decompress(base64.b64decode(text))) for text in blocks.texts]
    assert [read[place.block][place.position] for place in places] == given


def test_numbers_that_json_does_not_have() -> None:
    given = {"reward": float("nan"), "parts": [float("inf"), 0.5, "NaN"], "turn": (1, None)}
    blocks = Blocks()
    blocks.add(given)
    blocks.close()
    (read,) = json.loads(gzip.decompress(base64.b64decode(blocks.texts[0])))
    assert read == {"reward": None, "parts": [None, 0.5, "NaN"], "turn": [1, None]}


def test_the_same_run_gives_the_same_page(tmp_path: Path) -> None:
    results = tmp_path / "run.jsonl"
    results.write_text("".join(json.dumps(each) + "\n" for each in page_rows.run(20)))
    for name in ("a", "b"):
        write(results, tmp_path / name / "page.html", "A run")
    first = (tmp_path / "a" / "page.html").read_bytes()
    assert first == (tmp_path / "b" / "page.html").read_bytes()
    assert [each.name for each in (tmp_path / "a").iterdir()] == ["page.html"]
    assert b"http://" not in first.replace(b"http://www.w3.org", b"")
    assert b"https://" not in first


def test_rows_of_intercode(tmp_path: Path) -> None:
    rows = {
        str(number): {
            "environment": "ic_sql",
            "dataset": "spider.json",
            "task_id": number,
            "query": "q",
            "turn_history": {
                "actions": ["SELECT 1", "submit"],
                "observations": ["1", None],
                "rewards": [None, 1.0],
                "valid_action": [True, True],
            },
            "summary": {"max_reward": 1.0, "turns_max": 10},
        }
        for number in range(3)
    }
    results = tmp_path / "theirs.json"
    results.write_text(json.dumps(rows))
    write(results, tmp_path / "page.html", "Theirs")
    assert "100.0%" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_a_missing_extra_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'pytest-intercode\[html\]'"):
        write(records(1), tmp_path / "page.html", "A run")
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match=r"page\.html: cannot be written: "):
        write(records(1), tmp_path / "file" / "page.html", "A run")
    with pytest.raises(
        ConfigurationError, match="contains no recorded episodes, so there is no page"
    ):
        write([], tmp_path / "page.html", "A run")


def test_nothing_heavy_is_imported_for_the_command() -> None:
    code = "import sys, pytest_intercode.cli.view, pytest_intercode.page; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"jinja2", "markupsafe", "webbrowser", "pytest_intercode.page.rendering"} & set(
        done.stdout.split()
    )


# -- the command


def view(*words: str) -> int:
    import argparse

    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return command.run(parser.parse_args(words))


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "run.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in page_rows.run(4)))
    return path


def test_view_writes_beside_the_results(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert view("run.jsonl") == 0
    assert capsys.readouterr().out == "written: run.html\n"
    assert "<h1>run</h1>" in Path("run.html").read_text(encoding="utf-8")
    assert view("run.jsonl", "-o", "a/b.html", "--title", "Of <today>") == 0
    assert "<h1>Of &lt;today&gt;</h1>" in Path("a/b.html").read_text(encoding="utf-8")


def test_view_of_two_runs(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("later").mkdir()
    for name in ("other.jsonl", "later/run.jsonl"):
        Path(name).write_text(results.read_text())
    assert view("run.jsonl", "other.jsonl") == 0
    assert "<h1>run and other</h1>" in Path("other.html").read_text(encoding="utf-8")
    assert view("run.jsonl", "later/run.jsonl") == 0
    folder = results.parent.name
    title = f"<h1>{folder}/run and later/run</h1>"
    assert title in Path("later/run.html").read_text(encoding="utf-8")
    assert view("run.jsonl", "run.jsonl") == 0
    assert "<h1>run (1) and run (2)</h1>" in Path("run.html").read_text(encoding="utf-8")
    assert capsys.readouterr().err == ""


def test_view_knows_what_runs_were_called(results: Path) -> None:
    rows = [json.loads(line) for line in results.read_text().splitlines()]
    named = {"a.jsonl": "nightly <b>", "b.jsonl": "with tools", "c.jsonl": "with tools"}
    for path, name in named.items():
        lines = (json.dumps({**row, "run_name": name}) for row in rows)
        Path(path).write_text("".join(f"{line}\n" for line in lines))
    titles = {
        ("a.jsonl",): "nightly &lt;b&gt;",
        ("a.jsonl", "b.jsonl"): "nightly &lt;b&gt; and with tools",
        ("b.jsonl", "c.jsonl"): "with tools (b) and with tools (c)",
        ("run.jsonl", "b.jsonl"): "run and with tools",
    }
    for files, title in titles.items():
        assert view(*files, "-o", "page.html") == 0
        text = Path("page.html").read_text(encoding="utf-8")
        assert re.findall("<h1>(.*?)</h1>", text) == [title]
        if len(files) == 2:
            found = re.findall('<h3 class="run-name"><span.*?</span>(.*?)</h3>', text)
            assert " and ".join(found) == title
    assert view("a.jsonl", "--title", "Mine", "-o", "page.html") == 0
    assert "<h1>Mine</h1>" in Path("page.html").read_text(encoding="utf-8")


def test_view_of_a_truncated_file(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with results.open("a") as file:
        file.write('{"environment": "ic_ba')
    assert view("run.jsonl") == 0
    assert "the last line is truncated" in capsys.readouterr().err


def test_view_does_not_write_over_the_run(results: Path) -> None:
    before = results.read_text()
    with pytest.raises(ConfigurationError, match="this is the run itself"):
        view("run.jsonl", "--output", "./run.jsonl")
    with pytest.raises(ConfigurationError, match="there is no such results file"):
        view("absent.jsonl")
    assert results.read_text() == before


def test_view_opens_the_page(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []

    def open_page(address: str) -> bool:
        opened.append(address)
        return True

    monkeypatch.setattr("webbrowser.open", open_page)
    assert view("run.jsonl", "--open") == 0
    assert opened == [results.with_suffix(".html").as_uri()]
    monkeypatch.setattr("webbrowser.open", lambda address: False)
    assert view("run.jsonl", "--open") == 1


def test_rewards_that_tests_said_themselves() -> None:
    state = {"patch": "", "left_out": ["/usr/bin/cat"], "rewards": {"reward": 1.0, "speed": 0.25}}
    given = row() | {"environment": "swe", "env": "swe", "end_state": state}
    (section,) = end_state_sections(from_row(json.loads(json.dumps(given))))
    assert section["title"] == "Rewards"
    assert section["note"] == "Not tested: /usr/bin/cat."
    assert "0.25" in json.dumps(section)


def test_votes_of_a_judge_are_next_to_the_end_state() -> None:
    judge = {"model": "m-1", "digest": "d", "share": 0.4, "reward": 1.0, "scores": [0.5]}
    given = row(judge={**judge, "reasons": ["<b>so</b>"], "unusable": ["Sure!"], "omitted": 9})
    section = episode(from_row(json.loads(json.dumps(given))))["state"][-1]
    assert section["title"] == "Judge"
    assert section["lines"] == [
        ["", "m-1 judges 0.4 of the reward; without it, the reward is 1.00"],
        ["", "0.50: <b>so</b>"],
        ["", "not a verdict: Sure!"],
        ["", "9 characters were too many to be shown to it"],
    ]
