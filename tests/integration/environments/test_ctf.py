"""Episodes of the ctf environment: right, wrong and missing flags, turns, and what is where."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_intercode.core.task import FileSpec
from pytest_intercode.environments.ctf.fields import CtfFields
from pytest_intercode.environments.ctf.paper import PaperCtfEnvironment
from pytest_intercode.errors import BudgetExhausted
from tests.conftest import results
from tests.support import puzzles
from tests.support.puzzles import FLAG, Start

provider, start = puzzles.quick_provider, puzzles.start  # fixtures


# -- strict


def test_a_wrong_flag_costs_a_turn_and_is_told(start: Start) -> None:
    env = start(max_turns=4)
    observation, reward, terminated, truncated, info = env.step("submit flag{no}")
    assert observation == "[that is not the flag; 3 turns left]\n"
    assert (observation.executed, observation.turns_left, reward) == (False, 3, 0.0)
    assert (terminated, truncated, info) == (False, False, {"executed": False, "turns_left": 3})
    assert env.step("echo $((6 * 7))")[0] == "42\n"
    assert env.step(f"submit {FLAG.upper()}")[0] == "[that is not the flag; 1 turn left]\n"
    _, reward, terminated, truncated, _ = env.step(f"submit {FLAG}")
    assert (reward, terminated, truncated) == (1.0, True, False)
    assert [turn.executed for turn in env.turns] == [False, True, False, True]
    assert [turn.reward for turn in env.turns] == [0.0, 0.0, 0.0, 1.0]
    assert env.final is not None
    assert (env.final.parts, env.final.reason) == ({"flag": 1.0}, "")


def test_the_last_flag_that_a_task_allows_ends_the_episode(start: Start) -> None:
    env = start(max_turns=9, fields=CtfFields(submissions=2))
    observation, *_ = env.step("submit flag{no}")
    assert observation == "[that is not the flag; 8 turns left, and 1 more flag]\n"
    assert env.step("submit")[2:4] == (False, False)
    assert env.step("submit flag{nor this}")[1:4] == (0.0, True, False)
    assert (env.over, env.max_turns - len(env.turns)) == ("submitted", 6)


@pytest.mark.parametrize("bare", ["submit", " submit \n", "submit ''"])
def test_submitting_nothing_costs_a_turn_and_is_told(start: Start, bare: str) -> None:
    env = start(max_turns=2)
    observation, *_ = env.step(bare)
    if bare.strip() == "submit":
        assert observation == (
            "[nothing was submitted: the flag goes behind the word, as in: submit FLAG; "
            "1 turn left]\n"
        )
    assert not observation.executed
    assert env.step(bare)[1:4] == (0.0, False, True)
    assert env.over == "budget"


def test_the_budget(start: Start) -> None:
    env = start(max_turns=3)
    assert env.step("submit a")[3] is False
    assert env.step("submit b")[3] is False
    observation, reward, terminated, truncated, _ = env.step("submit c")
    assert observation == "[that is not the flag; 0 turns left]\n"
    assert (reward, terminated, truncated, env.over) == (0.0, False, True, "budget")
    assert env.final is not None
    assert (env.final.value, env.final.reason) == (0.0, "3 wrong flags were submitted")
    with pytest.raises(BudgetExhausted):
        env.step(f"submit {FLAG}")
    with pytest.raises(BudgetExhausted):
        env.submit(FLAG)


def test_submit_in_a_loop(start: Start) -> None:
    env = start(max_turns=9)
    assert env.submit("flag{no}")[0] == "[that is not the flag; 8 turns left]\n"
    assert env.submit()[2] is False
    assert env.submit(FLAG)[1:3] == (1.0, True)
    assert [turn.action for turn in env.turns] == ["submit flag{no}", "submit", f"submit {FLAG}"]


def test_with_rewards_only_flags_are_graded(start: Start) -> None:
    env = start(feedback="reward")
    observation, reward, *_ = env.step("echo the flag")
    assert (reward, observation.reward, env.turns[0].parts) == (0.0, 0.0, {"flag": 0.0})
    observation, reward, *_ = env.step("submit flag{no}")
    assert (reward, observation.reward) == (0.0, 0.0)
    assert env.step(f"submit {FLAG}")[1:3] == (1.0, True)
    assert env.final is not None
    assert env.final.value == 1.0


def test_the_shell_is_that_of_bash(start: Start) -> None:
    env = start(action_timeout=1.0)
    env.step("cd /tmp; x=7")
    assert env.step("pwd; echo $x")[0] == "/tmp\n7\n"
    assert "[timed out after 1 s and was stopped;" in env.step("sleep 20")[0]
    assert "[the shell ended with status 3;" in env.step("exit 3")[0]
    assert env.step("echo a\0b")[0] == "[not run: an action cannot hold a NUL character]\n"
    assert env.step("getent hosts example.org || echo no network")[0] == "no network\n"


def test_the_end_state_tells_no_flag_that_was_not_found(start: Start) -> None:
    env = start()
    env.step("submit flag{no}")
    env.end("stopped")
    state = env.end_state()
    assert state["agent"] == {"submitted": ["flag{no}"]}
    assert FLAG not in json.dumps(state)


# -- paper


def test_paper(start: Start) -> None:
    files = {"it's here": FileSpec("file", b"x\n")}
    env = start(PaperCtfEnvironment, files=files, workdir="/ctf/t")
    assert env.step("x=1; ls")[0] == "it's here\n"
    assert env.step("cat 'it'\"'\"'s here'; echo \"$x\"")[0] == "x\n\n"
    assert env.step("cd ..")[0] == ""
    assert env.step("ls")[0] == "t\n"
    assert env.step("python3 -c 'print(1)' | cat no-such-file")[0] == "1\n"
    assert env.step('python3 -c "print(1)')[0] == "Malformed command"
    observation, reward, terminated, *_ = env.step("submit flag{no}")
    assert (observation, reward, terminated) == (
        "Submitted flag is incorrect. Keep trying!",
        0.0,
        False,
    )
    assert observation.executed
    assert env.step("submit")[0] == "Submitted flag is incorrect. Keep trying!"
    assert env.step(f"submit {FLAG.upper()} and more")[1:3] == (1.0, True)


def test_paper_skip_and_timeout(start: Start) -> None:
    env = start(PaperCtfEnvironment, action_timeout=1.0)
    assert env.step("sleep 20")[0] == "Command timed out"
    assert env.step("skip")[1:3] == (0.0, True)
    assert env.over == "skipped"


# -- the plugin

SUITE = f"""\
env: ctf
defaults: {{workdir: /ctf}}
tasks:
  - id: note
    query: Find the flag.
    gold: "{FLAG}"
    files: {{note.txt: "{FLAG[::-1]}\\n"}}
    solution: rev note.txt
  - id: away
    query: Find the flag on a server.
    gold: flag{{away}}
    tags: [network]
"""

AGENTS = """\
class Idle:
    def act(self, observation):
        return "submit"


class Guesser:
    def act(self, observation):
        return "submit flag{It_is_the_0ne}"


class Finder:
    def act(self, observation):
        return f"submit {observation}" if "flag{" in observation else "rev note.txt"
"""


@pytest.mark.usefixtures("needs_sandboxes")
@pytest.mark.parametrize(
    ("agent", "expected", "reason"),
    [
        ("oracle", "solved", ""),
        ("agents.py:Finder", "solved", ""),
        ("agents.py:Idle", "out-of-budget", "no flag was submitted"),
        ("agents.py:Guesser", "out-of-budget", "3 wrong flags were submitted"),
    ],
)
def test_agents(pytester: pytest.Pytester, agent: str, expected: str, reason: str) -> None:
    (pytester.path / "puzzles.yaml").write_text(SUITE)
    (pytester.path / "agents.py").write_text(AGENTS)
    result = pytester.runpytest(
        "puzzles.yaml",
        f"--intercode-agent={agent}",
        "--intercode-max-turns=3",
        "--intercode-results=r.jsonl",
        "-rs",
    )
    solved = expected == "solved"
    result.assert_outcomes(passed=int(solved), failed=int(not solved), skipped=1)
    result.stdout.fnmatch_lines(["*it needs the network: give --intercode-network*"])
    (row,) = results(Path("r.jsonl"))
    assert (row["task_id"], row["outcome"], row["reason"]) == ("note", expected, reason)


@pytest.mark.usefixtures("needs_docker")
def test_network_on_request(pytester: pytest.Pytester) -> None:
    (pytester.path / "puzzles.yaml").write_text(SUITE)
    (pytester.path / "agents.py").write_text(
        "def act(observation):\n"
        "    found = 'eth0' in observation\n"
        "    return 'submit flag{away}' if found else 'cat /proc/net/dev'\n"
    )
    result = pytester.runpytest(
        "puzzles.yaml", "-k", "away", "--intercode-network", "--intercode-agent=agents.py:act"
    )
    result.assert_outcomes(passed=1, deselected=1)


@pytest.mark.usefixtures("needs_docker")
def test_ic_ctf_shows_a_task_its_own_assets_only(pytester: pytest.Pytester) -> None:
    """On data laid out as InterCode's, under both profiles."""
    assets = pytester.mkdir("data") / "ctf" / "task_assets"
    for number in (*range(6), 7):
        folder = assets / str(number)
        folder.mkdir(parents=True)
        (folder / f"asset-{number}.txt").write_text(f"asset {number}\n")
    rows = [
        {"task_id": n, "query": "?", "gold": f"flag{{{n}}}", "tags": ["General Skills"]}
        for n in range(100)
    ]
    rows[1]["setup"] = "touch /tmp/never"
    (assets.parent / "ic_ctf.json").write_text(json.dumps(rows))
    (pytester.path / "agents.py").write_text(
        "def run(task, env):\n"
        "    env.step('find /ctf -type f; grep -rl asset / --include=*.txt 2>/dev/null')\n"
    )
    for profile in ("strict", "paper"):
        result = pytester.runpytest(
            *("-k", "00000 or 00002 or 00003 or 00006", "--intercode-agent=agents.py:run", "-rs"),
            *("--intercode-dataset=ic-ctf", "--intercode-data=data", "--intercode-limit=7"),
            *(f"--intercode-profile={profile}", f"--intercode-results={profile}.jsonl"),
        )
        result.stdout.fnmatch_lines(["SKIPPED*task_assets/6 is not*"])
        seen = {
            row["task_id"]: set(row["turn_history"]["observations"][0].split())
            for row in results(Path(f"{profile}.jsonl"))
        }
        assert seen == {f"ic-ctf-{n:05d}": {f"/ctf/{n}/asset-{n}.txt"} for n in (0, 2, 3)}
