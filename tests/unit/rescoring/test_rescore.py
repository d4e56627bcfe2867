"""Rows scored again: outcomes, what is missing, functions of users, the command's words."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from pytest_intercode.cli import main
from pytest_intercode.core.judge import Judge
from pytest_intercode.core.reward import Reward
from pytest_intercode.core.task import Normaliser, RewardOptions, Task
from pytest_intercode.errors import ConfigurationError
from pytest_intercode.rescoring.rescored import rescore
from pytest_intercode.results.files import read_results
from pytest_intercode.results.format import from_row, to_row
from pytest_intercode.results.recorded import RecordedRun
from pytest_intercode.rewards.bash_strict import BashState, bash_strict_state
from pytest_intercode.rewards.ctf import FlagDigest
from pytest_intercode.sandboxes.protocol import Entry

FLAG = "flag{Found}"
STATE = {"agent": {"submitted": [FLAG]}, "gold": asdict(FlagDigest.of(FLAG))}


def row(*actions: str, env: str = "ctf", **more: Any) -> dict[str, Any]:
    actions = actions or ("ls", f"submit {FLAG}")
    made: dict[str, Any] = {
        "environment": f"ic_{env}",
        "dataset": env,
        "task_id": "t-1",
        "query": "Find it.",
        "turn_history": {
            "actions": list(actions),
            "observations": ["" for _ in actions],
            "rewards": [*(0.0 for _ in actions[1:]), 1.0],
            "valid_action": [True for _ in actions],
        },
        "summary": {
            "max_reward": 1.0,
            "max_reward_idx": len(actions) - 1,
            "turns_taken": len(actions),
            "turns_max": 10,
        },
        "outcome": "solved",
        "reward": 1.0,
        "reward_parts": {"flag": 1.0},
        "reason": "",
        "turn_parts": [*({} for _ in actions[1:]), {"flag": 1.0}],
        "suite": "mine",
        "profile": "strict",
        "node_id": "",
        "end_state": STATE,
    }
    return {**made, **more}


def wrong(*actions: str, **more: Any) -> dict[str, Any]:
    """Return a solved row whose end state is not worth it any more."""
    state = {"agent": {"submitted": ["flag{else}"]}, "gold": STATE["gold"]}
    return row(*actions, end_state=state, **more)


def again(given: dict[str, Any], **how: Any) -> dict[str, Any]:
    done = rescore([given], file="run.jsonl", **how)
    assert not done.problems, done.problems
    return done.rows[0]


def problem(given: dict[str, Any], **how: Any) -> str:
    done = rescore([given], **how)
    assert not done.rows
    assert not done.changes
    (said,) = done.problems
    assert done.problems[said] == ["t-1"]
    return said


TASK = Task("t-1", "Find it.", (FLAG,), "ctf", "mine", "mine")


# -- what the new row says


def test_the_new_row() -> None:
    old = to_row(from_row(wrong()))
    new = again(old)
    assert list(new) == [*old, "rescored_from"]
    assert (new["reward"], new["outcome"], new["profile"]) == (0.0, "failed", "strict")
    assert new["reason"] == "the flag that was submitted is wrong"
    assert new["reward_parts"] == {"flag": 0.0}
    assert new["turn_history"]["rewards"] == [0.0, 0.0]
    assert new["turn_parts"] == [{}, {"flag": 0.0}]
    assert new["summary"]["max_reward"] == 0.0
    assert new["rescored_from"] == {
        "profile": "strict",
        "reward": 1.0,
        "outcome": "solved",
        "file": "run.jsonl",
    }
    assert old["reward"] == 1.0  # the caller's rows are left alone
    assert old["turn_history"]["rewards"] == [0.0, 1.0]


def test_records_are_taken_as_rows_are() -> None:
    record = from_row(wrong())
    done = rescore([record], file="run.jsonl")
    assert done.rows == rescore([wrong()], file="run.jsonl").rows
    assert (done.records[0].reward, done.records[0].outcome) == (0.0, "failed")


@pytest.mark.parametrize(
    ("old", "outcome"),
    [
        (row(), "solved"),
        (row(outcome="failed", reward=0.0), "solved"),
        (row(outcome="timed-out", reward=0.0), "solved"),
        (row(outcome="out-of-budget", reward=0.0), "solved"),
        (row(outcome="agent-error", reward=1.0), "agent-error"),
        (wrong(outcome="agent-error"), "agent-error"),
        (wrong(), "failed"),
        (wrong(outcome="timed-out"), "timed-out"),
        (wrong(outcome="out-of-budget"), "out-of-budget"),
        (wrong(*["ls"] * 10), "out-of-budget"),
        (wrong(*["ls"] * 9, "submit it"), "failed"),
        (wrong(*["ls"] * 9), "failed"),
        (wrong(*["ls"] * 9, "submit(", turn_passed=[False] * 9 + [True]), "out-of-budget"),
    ],
)
def test_outcomes(old: dict[str, Any], outcome: str) -> None:
    assert again(old)["outcome"] == outcome


def test_an_error_of_the_agent_keeps_its_reason() -> None:
    assert again(wrong(outcome="agent-error", reason="KeyError: 1"))["reason"] == "KeyError: 1"


@pytest.mark.parametrize(
    "more", [{"outcome": "infrastructure-error"}, {"outcome": "task-error"}, {"superseded": True}]
)
def test_what_says_nothing_of_the_agent_is_left_alone(more: dict[str, Any]) -> None:
    failed = to_row(from_row(row(end_state={}, **more)))
    done = rescore([failed, row()])
    assert done.rows[0] == failed
    assert (done.left, len(done.changes)) == (1, 1)


def test_a_row_that_was_scored_again_is_of_the_profile_it_was_played_under() -> None:
    lower = f"submit {FLAG.lower()}"
    state = {"agent": {"submitted": [FLAG.lower()]}, "gold": STATE["gold"]}
    old = row(lower, end_state=state, outcome="failed", reward=0.0)
    paper = again(old, profile="paper")
    assert (paper["reward"], paper["profile"]) == (1.0, "paper")
    back = again(paper)
    assert (back["reward"], back["profile"]) == (0.0, "strict")
    assert back["rescored_from"] == paper["rescored_from"]


# -- ctf


@pytest.mark.parametrize(
    ("actions", "strict", "paper"),
    [
        ((f"submit {FLAG}",), 1.0, 1.0),
        ((f"  submit   {FLAG} ",), 1.0, 0.0),
        ((f"submit '{FLAG}'",), 1.0, 0.0),
        ((f"submit {FLAG.upper()}",), 0.0, 1.0),
        ((f"submit {FLAG} of course",), 0.0, 1.0),
        ((f"submitted {FLAG}",), 0.0, 1.0),
        (("submit", "ls"), 0.0, 0.0),
        (("submit a", f"submit {FLAG}"), 1.0, 1.0),
        (("skip", f"submit {FLAG}"), 1.0, 0.0),
    ],
)
def test_flags_as_each_profile_reads_them(
    actions: tuple[str, ...], strict: float, paper: float
) -> None:
    for played, profile, reward in (("paper", "strict", strict), ("strict", "paper", paper)):
        assert again(row(*actions, profile=played), profile=profile)["reward"] == reward


def test_what_was_said_in_a_passed_turn_is_no_submission() -> None:
    said = row(f"submit {FLAG}", "ls", turn_passed=[True, False], profile="paper")
    assert again(said, profile="strict")["reward"] == 0.0


def test_a_file_of_intercodes() -> None:
    of_theirs = row("ls", f"submit {FLAG}")
    for ours in ("outcome", "reward", "reward_parts", "profile", "end_state", "suite"):
        del of_theirs[ours]
    of_theirs["task_id"] = 0
    new = again(of_theirs, tasks=[TASK], profile="paper")
    assert (new["reward"], new["outcome"], new["profile"]) == (1.0, "solved", "paper")
    assert again(new)["reward"] == 1.0
    with pytest.raises(AssertionError, match="no task was found"):
        again(of_theirs, profile="paper")
    for env in ("bash", "sql", "python"):
        of_theirs["environment"] = f"ic_{env}"
        (said,) = rescore([of_theirs]).problems
        assert said.startswith(f"{env}: InterCode's files do not contain ")
        assert said.endswith("run it again with --intercode-agent=replay:FILE")


def test_two_tasks_of_a_file_with_one_query() -> None:
    of_theirs = row("ls", f"submit {FLAG}", task_id=7, dataset="./data/ctf/ic_ctf.json")
    del of_theirs["outcome"], of_theirs["end_state"]
    other = Task("a-6", "Find it.", ("flag{no}",), "ctf", "a", "a", source="x/ic_ctf.json, row 6")
    mine = replace(other, id="a-7", gold=(FLAG,), source="x/ic_ctf.json, row 7")
    assert again(of_theirs, tasks=[other, mine])["reward"] == 1.0
    record = from_row(of_theirs)
    assert RecordedRun([record]).record_of(other) is None
    assert RecordedRun([record]).record_of(mine) is record


# -- bash


def _bash(output: str = "3\n", gold: str = "3\n", **options: Any) -> dict[str, Any]:
    file = Entry("f", 0o644, 0, 0, "abc")
    mine = BashState(output, entries={"/a": file}, touched=frozenset({"/a"}))
    theirs = BashState(gold, entries={"/a": file}, touched=frozenset({"/a"}))
    return bash_strict_state(mine, theirs, RewardOptions(**options), "/work")


def test_recorded_options_count_or_those_of_today() -> None:
    loose = Normaliser("trailing-space")
    old = row(env="bash", end_state=json.loads(json.dumps(_bash("3 \n", normalise=(loose,)))))
    assert again(old)["reward"] == 1.0
    strict_task = Task("t-1", "Find it.", ("g",), "bash", "mine", "mine")
    assert again(old, tasks=[strict_task], todays=True)["reward"] == 0.5
    assert again(old, tasks=[strict_task])["reward"] == 1.0


@pytest.mark.parametrize(
    ("more", "profile", "said"),
    [
        ({"env": "bash"}, "paper", "bash: the paper profile compares what git status and md5sum"),
        ({"env": "bash", "profile": "paper"}, "strict", "bash: the strict profile compares every"),
        ({"env": "python"}, "paper", "python: the paper profile compares what each test does"),
        ({"env": "python", "profile": "paper"}, "strict", "python: the strict profile has hidden"),
        ({"env": "bash", "end_state": {"agent": {}}}, "strict", "bash: the recorded end state is "),
        (
            {"env": "sql", "end_state": {"agent": 3}},
            "strict",
            "sql: the recorded end state is truncated",
        ),
        ({"env": "bash", "end_state": {}}, "strict", "bash: the record has no end state"),
        ({"env": "go"}, "strict", "go: its rewards are not known here; commands know"),
    ],
)
def test_what_is_not_recorded(more: dict[str, Any], profile: str, said: str) -> None:
    told = problem(row(**more), profile=profile)
    assert told.startswith(said)
    if more["env"] != "go" and "end_state" not in more:
        assert told.endswith(f"--intercode-agent=replay:FILE --intercode-profile={profile}")


# -- rewards as feedback


def _tries(rewards: list[float], reward: float, **state: Any) -> dict[str, Any]:
    given = row(*["ls"] * len(rewards), reward=reward, outcome="failed")
    given["turn_history"]["rewards"] = rewards
    given["turn_parts"] = [{"flag": each} for each in rewards]
    given["end_state"] = {**STATE, **state}
    return given


def test_of_several_tries_the_state_of_the_best_is_needed() -> None:
    assert again(_tries([0.0, 0.0, 1.0], 1.0))["reward"] == 1.0
    assert again(_tries([1.0, 0.0], 1.0, turn=1))["turn_history"]["rewards"] == [1.0, 0.0]
    assert "the best of several tries is not recorded" in problem(_tries([1.0, 0.0], 1.0))
    told = problem(_tries([0.0, 1.0], 1.0), profile="paper")
    assert "of all its tries only the best is recorded" in told


# -- functions of users


def test_a_function_gets_task_and_both_end_states() -> None:
    seen: list[Any] = []

    def mine(task: Task, agent: dict[str, Any], gold: dict[str, Any]) -> float:
        seen.append((task, agent, dict(gold)))
        gold.clear()
        agent["submitted"].clear()
        return 0.25

    old = row()
    new = again(old, reward=mine, tasks=[TASK])
    assert (new["reward"], new["reward_parts"], new["outcome"]) == (0.25, {}, "failed")
    assert new["reward_function"].endswith("mine")
    assert new["profile"] == "strict"
    assert new["end_state"] == STATE  # the function was given copies
    ((task, agent, gold),) = seen
    assert task is TASK
    assert gold == STATE["gold"]
    assert (agent["actions"], agent["executed"]) == (["ls", f"submit {FLAG}"], [True, True])
    assert (agent["reward"], agent["parts"], agent["outcome"]) == (1.0, {"flag": 1.0}, "solved")
    assert "reward_function" not in again(new)


@pytest.mark.parametrize("value", [True, 1, 1.0, Reward(1.0, {"a": 0.5}, "because")])
def test_what_a_function_may_return(value: Any) -> None:
    new = again(row(), reward=lambda *_: value, tasks=[TASK])
    assert (new["reward"], new["outcome"]) == (1.0, "solved")
    assert new["reward_parts"] == (dict(value.parts) if isinstance(value, Reward) else {})


@pytest.mark.parametrize(
    "value",
    [
        *("1", None, 1.5, -0.1, float("nan"), [1.0], Reward(2.0), Reward(None)),  # type: ignore[arg-type]
        *(Reward(1.0, {"a": part}) for part in ("1", None, float("nan"), 10**400)),  # type: ignore[dict-item]
        *(Reward(1.0, None), Reward(1.0, {}, None)),  # type: ignore[arg-type]
    ],
)
def test_what_a_function_may_not_return(value: Any) -> None:
    told = problem(row(), reward=lambda *_: value, tasks=[TASK])
    assert "a number in [0, 1] or a " in told


def test_a_function_that_raises() -> None:
    def bad(task: Task, agent: dict[str, Any], gold: dict[str, Any]) -> float:
        return float(agent["absent\nthing"])

    told = problem(row(), reward=bad, tasks=[TASK])
    assert "bad raised KeyError: " in told
    assert "test_rescore.py:" in told
    assert "\n" not in told


def test_a_function_is_not_given_what_was_cut() -> None:
    file = Entry("f", 0o644, 0, 0, "abc")
    many = {f"/{n}": file for n in range(3000)}
    cut = [
        row(
            env="bash",
            end_state=bash_strict_state(BashState("a", "12ab"), BashState("a"), RewardOptions()),
        ),
        row(
            env="bash",
            end_state=bash_strict_state(
                BashState("", entries=many, touched=frozenset(many)),
                BashState("a"),
                RewardOptions(),
            ),
        ),
        row(env="sql", end_state={"agent": {}, "gold": {}, "digested": True}),
        row(env="python", profile="paper", end_state={"agent": {"t": {"sha256": "1"}}, "gold": {}}),
    ]
    for given in cut:
        task = Task("t-1", "Find it.", ("g",), given["environment"][3:], "mine", "mine")
        assert "truncated or only digests" in problem(given, reward=lambda *_: 1.0, tasks=[task])


def test_a_function_needs_the_task() -> None:
    assert "no task was found" in problem(row(), reward=lambda *_: 1.0)
    other = Task("t-1", "Another query.", (FLAG,), "ctf", "other", "other")
    assert "no task was found" in problem(row(), reward=lambda *_: 1.0, tasks=[other])


# -- the command

SUITE = """\
env: ctf
suite: mine
tasks:
  - {id: t-1, query: Find it., gold: "flag{Found}", solution: "true"}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for module in ("my_reward", "beside"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    (tmp_path / "mine.yaml").write_text(SUITE)
    (tmp_path / "my_reward.py").write_text(
        "import beside\n\n\ndef half(task, agent, gold):\n    return beside.HALF\n\n\n"
        "def two(task, agent):\n    return 1\n"
    )
    (tmp_path / "beside.py").write_text("HALF = 0.5\n")
    (tmp_path / "broken.py").write_text("x = 1 / 0\n")
    write(tmp_path / "run.jsonl", row(), wrong())
    return tmp_path


def write(path: Path, *rows: dict[str, Any]) -> None:
    path.write_text("".join(json.dumps(each) + "\n" for each in rows))


def test_the_table_and_the_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rescore", "run.jsonl", "--output", "new/out.jsonl"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "run.jsonl: 2 of 2 episodes scored again by the profile it had",
        "env  episodes  solved before  now  reward before    now  up  down",
        "ctf         2              2    1          1.000  0.500   0     1",
        "t-1: 1.00 -> 0.00 (solved -> failed)",
        "written: new/out.jsonl",
    ]
    assert [each["reward"] for each in read_results(folder / "new/out.jsonl")] == [1.0, 0.0]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"turn_parts": 3}, "not a recorded episode: turn_parts is not a list"),
        (
            {"turn_parts": [{"rows": 1.0}, {}], "turn_history": {"actions": ["a", "b"]}},
            "not a recorded episode: it has turn_parts but no turn_history.rewards",
        ),
    ],
)
def test_a_damaged_row_is_named(more: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^run.jsonl, row 0: {said}$"):
        rescore([row(**more)], file="run.jsonl")


def test_rows_that_were_run_again_are_not_called_infrastructure_errors(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(folder / "twice.jsonl", row(superseded=True), row())
    assert main(["rescore", "twice.jsonl"]) == 0
    assert "left unchanged: 1, not graded or run again" in capsys.readouterr().out


def test_only_the_first_changes_are_told(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(folder / "many.jsonl", *(wrong() for _ in range(14)), row(env="bash"))
    assert main(["rescore", "many.jsonl"]) == 1
    told = capsys.readouterr()
    assert told.out.count("t-1: 1.00 -> 0.00") == 10
    assert "... and 4 more" in told.out
    (line,) = told.err.splitlines()
    assert line.startswith("pytest-intercode: not scored: 1 episode (t-1): bash: the recorded")


@pytest.mark.parametrize(
    "how",
    [
        ["--reward", "my_reward.py:half", "--suite", "mine.yaml"],
        ["--reward", "my_reward:half", "--suite", "mine.yaml"],
    ],
)
def test_a_function_from_a_file(
    folder: Path, how: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["rescore", "run.jsonl", *how, "--output", "out.jsonl"]) == 0
    rows = read_results(folder / "out.jsonl")
    assert [(each["reward"], each["reward_function"]) for each in rows] == [(0.5, how[1])] * 2


def test_the_function_of_the_docs(folder: Path) -> None:
    docs = Path(__file__).parents[3] / "docs/rescoring.md"
    (block,) = re.findall(
        r"```python(?: my_rewards.py)?\n(def .*?)```", docs.read_text("utf-8"), re.DOTALL
    )
    (folder / "my_rewards.py").write_text(block)
    how = ["--reward", "my_rewards.py:brief", "--suite", "mine.yaml"]
    assert main(["rescore", "run.jsonl", *how, "--output", "out.jsonl"]) == 0
    assert [each["reward"] for each in read_results(folder / "out.jsonl")] == [0.9, 0.9]


def test_the_suite_is_found_by_the_node_id(folder: Path) -> None:
    write(folder / "named.jsonl", row(node_id="mine.yaml::test_solves[t-1]"))
    assert main(["rescore", "named.jsonl", "--reward", "my_reward.py:half"]) == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nope.jsonl"], "nope.jsonl: there is no such results file"),
        (["my_reward.py"], "my_reward.py:1: not JSON: Expecting value"),
        (["."], ".: cannot be read: it is a folder, a file is needed"),
        (["empty.jsonl"], "empty.jsonl: contains no recorded episodes"),
        (["list.jsonl"], "list.jsonl:1: not a recorded episode: end_state is not an object"),
        (["text.jsonl"], "text.jsonl:1: not a recorded episode: reward is not a number"),
        (["loose.jsonl"], "loose.jsonl, task t-1: its profile is neither strict nor paper"),
        (["run.jsonl", "--output", "./run.jsonl"], "--output=run.jsonl: this is the run itself; "),
        (
            ["run.jsonl", "--output", "my_reward.py/x"],
            "--output=my_reward.py/x: cannot be written: ",
        ),
        (["run.jsonl", "--data", "nowhere"], "--data=nowhere: there is no such folder"),
        (["run.jsonl", "--suite", "nope.yaml"], "nope.yaml: "),
        (["run.jsonl", "--reward", "half"], "--reward=half: the form is module:NAME or "),
        (["run.jsonl", "--reward", "no.py:half"], "--reward=no.py:half: there is no file "),
        (["run.jsonl", "--reward", "absent:half"], "--reward=absent:half: there is no module "),
        (
            ["run.jsonl", "--reward", "my_reward.py:hlaf"],
            "--reward=my_reward.py:hlaf: my_reward.py has no 'hlaf'. Did you mean 'half'?",
        ),
        (
            ["run.jsonl", "--reward", "my_reward.py:two"],
            "--reward=my_reward.py:two: it cannot be called as two(task, agent, gold)",
        ),
        (
            ["run.jsonl", "--reward", "my_reward:half.x"],
            "--reward=my_reward:half.x: my_reward has no 'half.x'",
        ),
        (["run.jsonl", "--reward", "broken.py:x"], "--reward=broken.py:x: importing broken.py "),
    ],
)
def test_mistakes_are_one_line(
    folder: Path, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "empty.jsonl").write_text("")
    write(folder / "list.jsonl", row(end_state=[]))
    write(folder / "text.jsonl", row(reward="1"))
    write(folder / "loose.jsonl", row(profile="loose"))
    assert main(["rescore", *arguments]) == 1
    told = capsys.readouterr().err
    assert told.startswith(f"pytest-intercode: {said}")
    assert told.count("\n") == 1


def test_profile_or_function(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["rescore", "run.jsonl", "--profile", "paper", "--reward", "my_reward:half"])
    assert stopped.value.code == 2
    with pytest.raises(SystemExit):
        main(["rescore", "run.jsonl", "--profile", "loose"])


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"query": 3}, "query is not a string"),
        ({"environment": None}, "environment is not a string"),
        ({"turn_passed": "no"}, "turn_passed is not a list"),
        (
            {"turn_history": {"actions": [], "thoughts": [1]}},
            r"thoughts\[0\] is not a ",
        ),
        ({"turn_history": {"actions": [], "rewards": {}}}, "turn_history.rewards is not a list"),
    ],
)
def test_a_row_has_its_form(tmp_path: Path, more: dict[str, Any], said: str) -> None:
    write(tmp_path / "run.jsonl", {**row(), **more})
    with pytest.raises(ConfigurationError, match=r"run\.jsonl:1: not a recorded .*" + said):
        read_results(tmp_path / "run.jsonl")


# -- the votes of a judge


JUDGE = Judge("Is it short?", "m-1", weight=0.5)


def judged(*scores: float, **more: Any) -> dict[str, Any]:
    votes = {"model": "m-1", "digest": JUDGE.digest, "share": 0.5, "reward": 1.0}
    reasons = ["so" for _ in scores]
    return row(judge={**votes, "scores": list(scores), "reasons": reasons}, **more)


def test_recorded_votes_have_their_share() -> None:
    done = rescore([judged(0.0, 0.5, 1.0), judged(1.0, 1.0, 0.0), judged(outcome="agent-error")])
    assert [(each.reward, each.outcome) for each in done.records] == [
        *((0.75, "failed"), (1.0, "solved"), (0.5, "agent-error")),
    ]
    assert done.records[0].reason == "the judge gives 0.50: so"
    assert done.records[0].parts["judge"] == 0.5
    assert done.records[0].turns[-1].reward == 0.75


@pytest.mark.parametrize("score", [float("nan"), float("inf"), -1.0, 1.5])
def test_a_vote_that_cannot_be_one(score: float) -> None:
    done = rescore([judged(score)])
    assert not done.records
    assert list(done.problems) == ["ctf: a recorded vote of the judge is not a number from 0 to 1"]


def test_votes_are_on_the_rubric_of_today() -> None:
    task = Task("t-1", "Find it.", (FLAG,), "ctf", "mine", "ctf", judge=JUDGE)
    [record] = rescore([judged(0.0)], tasks=[task], todays=True).records
    assert record.reward == 0.5
    heavier = replace(task, judge=replace(JUDGE, weight=0.75))
    [record] = rescore([judged(0.0)], tasks=[heavier], todays=True).records
    assert record.reward == 0.25
    [record] = rescore([judged(0.0)], tasks=[replace(task, judge=None)], todays=True).records
    assert (record.reward, record.judge) == (1.0, None)
    for judge in (replace(JUDGE, rubric="Is it long?"), replace(JUDGE, model="m-2")):
        changed = replace(task, judge=judge)
        [problem] = rescore([judged(0.0)], tasks=[changed], todays=True).problems
        assert "so the recorded votes are stale" in problem
    [problem] = rescore([row()], tasks=[task], todays=True).problems
    assert problem.startswith("ctf: the task has a judge now, but no votes are recorded: ")
