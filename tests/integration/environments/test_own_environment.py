"""An environment that somebody else adds, Perl in examples/perl/: it is as good as ours."""

from __future__ import annotations

import importlib
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given
from hypothesis import strategies as st

import pytest_intercode
import pytest_intercode.gym
from pytest_intercode.core.reward import Reward
from pytest_intercode.environments import registry
from pytest_intercode.environments.base import Environment
from pytest_intercode.sandboxes.provider import SandboxProvider
from pytest_intercode.sandboxes.settings import SandboxSettings
from tests.conftest import results

PERL = Path(__file__).parents[3] / "examples" / "perl"

AGENT = """\
class Half:
    def reset(self, task):
        self.plan = ["sub slug { lc(shift) =~ s/[^a-z0-9]+/-/gr }", "submit"]

    def act(self, observation):
        return self.plan.pop(0)
"""


@pytest.fixture(autouse=True)
def _nothing_added(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is added here is unknown to every other test."""
    monkeypatch.setattr(registry, "_added", {})
    monkeypatch.setattr(registry, "_watching", [pytest_intercode.gym._register])
    monkeypatch.setattr(gymnasium, "registry", dict(gymnasium.registry))
    monkeypatch.setattr(gymnasium.envs.registration, "registry", gymnasium.registry)


@pytest.fixture
def perl(pytester: pytest.Pytester, needs_sandboxes: None) -> Path:
    """A project that holds the example."""
    for path in PERL.iterdir():
        if path.is_file():
            shutil.copy(path, pytester.path)
    (pytester.path / "agents.py").write_text(AGENT)
    return pytester.path


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The example's module, imported as any user would."""
    monkeypatch.syspath_prepend(str(PERL))
    yield importlib.import_module("perl_environment")
    sys.modules.pop("perl_environment", None)


@pytest.fixture
def env(module: Any, quick_sandbox: str) -> Iterator[Environment]:
    """An environment without pytest."""
    provider = SandboxProvider(SandboxSettings(quick_sandbox.partition("=")[2]))
    made = pytest_intercode.make("perl", action_timeout=1, max_turns=30, provider=provider)
    made.reset(options={"task": "slug"})
    yield made
    made.close()
    provider.close()


def test_it_is_short() -> None:
    """Dockerfile, dataset, reward function and interpreter, all together."""
    files = [path for path in PERL.iterdir() if path.is_file()]
    assert len(files) == 5
    assert sum(len(path.read_text().splitlines()) for path in files) < 100


@pytest.mark.parametrize("options", [["--strict-markers"], ["--intercode-concurrency=3"]])
def test_the_oracle_solves_it(pytester: pytest.Pytester, perl: Path, options: list[str]) -> None:
    done = pytester.runpytest("perl.yaml", "--intercode-agent=oracle", *options)
    done.assert_outcomes(passed=3)


def test_the_oracle_solves_it_in_an_image(
    pytester: pytest.Pytester, perl: Path, needs_docker: None
) -> None:
    done = pytester.runpytest(
        "--intercode-env=perl", "--intercode-agent=oracle", "--intercode-sandbox=docker"
    )
    done.assert_outcomes(passed=3)


def test_a_wrong_agent_fails(pytester: pytest.Pytester, perl: Path) -> None:
    done = pytester.runpytest(
        *("--intercode-env=perl", "-m", "perl and strings", "--intercode-results=r.jsonl"),
        "--intercode-agent=agents.py:Half",
    )
    done.assert_outcomes(failed=1, deselected=2)
    (row,) = results(perl / "r.jsonl")
    assert (row["environment"], row["outcome"]) == ("ic_perl", "failed")
    assert 0.0 < row["summary"]["max_reward"] < 1.0
    assert len(row["end_state"]["agent"]["printed"]) == 3
    done.stdout.fnmatch_lines(["reward 0.33 < 1.00 after 2/8 turns: 2 of 3 tests go wrong"])


def test_a_printed_id_can_be_pasted(pytester: pytest.Pytester, perl: Path) -> None:
    done = pytester.runpytest("intercode/perl::test_solves[slug]", "--intercode-agent=oracle", "-v")
    done.assert_outcomes(passed=1)
    done.stdout.fnmatch_lines(["intercode/perl::test_solves?slug? PASSED*"])


def test_a_mark_names_it(pytester: pytest.Pytester, perl: Path) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.intercode(env="perl", tags=["state"])
        def test_own(intercode_episode):
            assert intercode_episode.reward == 1.0
        """
    )
    pytester.runpytest("--intercode-agent=oracle").assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            ["--intercode-env=prl"],
            "--intercode-env=prl: allowed are *, perl, all. Did you mean 'per*",
        ),
        (["wrong.yaml"], "wrong.yaml:1: env: 'prl' is not one of *, perl. Did you mean 'perl'?"),
        (
            ["--intercode-env=perl", "--intercode-profile=paper"],
            "'perl' cannot be run with the pro*",
        ),
    ],
)
def test_a_mistake_is_one_line(
    pytester: pytest.Pytester, perl: Path, arguments: list[str], told: str
) -> None:
    (perl / "wrong.yaml").write_text("env: prl\ntasks: [{id: a, query: q, gold: g}]\n")
    done = pytester.runpytest("--intercode-agent=oracle", *arguments)
    assert done.ret != 0
    lines = pytest.LineMatcher(done.outlines + done.errlines)
    lines.fnmatch_lines([f"*{told}"])
    assert "Traceback" not in done.stdout.str() + done.stderr.str()


def test_gymnasium_has_it(env: Environment) -> None:
    made = gymnasium.make("InterCode/Perl-v0").unwrapped
    try:
        assert isinstance(made, pytest_intercode.gym.IntercodeEnv)
        made.environment.provider = env.provider
        check_env(made, skip_render_check=True)
    finally:
        made.close()


def test_its_results_are_scored_again(pytester: pytest.Pytester, perl: Path, module: Any) -> None:
    pytester.runpytest(
        "perl.yaml", "--intercode-agent=agents.py:Half", "--intercode-results=r.jsonl"
    )
    rows = pytest_intercode.read_results(perl / "r.jsonl")
    pytest_intercode.register_environment(module.PerlEnvironment)
    done = pytest_intercode.rescore(rows)
    assert not done.problems
    assert [change.after for change in done.changes] == [row["reward"] for row in rows]
    (rows[0]["end_state"]["agent"]["printed"]) = rows[0]["end_state"]["gold"]["printed"]
    assert pytest_intercode.rescore(rows).changes[0].outcome == "solved"


# -- what the interpreter remembers, and what it does not


def told(env: Environment, action: str) -> tuple[str, int | None]:
    observation, *_ = env.step(action)
    return str(observation), observation.status


LOST = "a new interpreter has none of the names from before]\n"


def test_it_remembers(env: Environment) -> None:
    assert told(env, "use strict; my @all = (1, 2); sub twice { 2 * shift }") == ("", 0)
    assert told(env, "push @all, twice($_) for 3 .. 4") == ("", 0)
    assert told(env, "print qq(@all\\n); print STDERR 'x'; print qq(y\\n)") == ("1 2 6 8\nxy\n", 0)
    assert told(env, "$all = 1")[1] == 1  # strict lasts, too
    assert told(env, "print for @all")[0] == "1268"


def test_a_failed_action_changes_nothing_else(env: Environment) -> None:
    env.step("my $x = 1")
    assert told(env, "$x = 2; die 'so '") == ("so  at action line 1.\n", 1)
    assert told(env, "}")[1] == 1
    assert told(env, "return 7; __END__\nmore") == ("", 0)
    assert told(env, "last") == ("", 0)
    assert told(env, "exit if !fork; wait; print $x") == ("2", 0)
    assert told(env, "print defined(<STDIN>) ? 'input' : 'none'") == ("none", 0)
    assert told(env, "a\0b") == ("[not run: an action cannot hold a NUL character]\n", None)


@pytest.mark.parametrize(
    ("action", "words"),
    [
        ("1 while 1", "[timed out after 1 s and was stopped; "),
        ("exit 3", "[the interpreter ended with status 3; "),
        ("kill KILL => $$", "[the interpreter ended with status 137; "),
        ("kill KILL => getppid", "[the interpreter ended with status 137; "),
    ],
)
def test_who_loses_it_is_told(env: Environment, action: str, words: str) -> None:
    env.step("my $x = 1; our $y = 2")
    assert told(env, action)[0] == words + LOST
    assert told(env, "print defined $x || defined $y ? 'kept' : 'lost'") == ("lost", 0)
    assert told(env, "my $z = 4") == ("", 0)
    assert told(env, "print $z") == ("4", 0)


def test_a_flood_is_stopped_and_nothing_of_it_comes_later(env: Environment) -> None:
    text, status = told(env, "print 'a' x 100_000_000, qq(\\n) while 1")
    assert status is None
    assert text.endswith(LOST)
    assert told(env, "print 'b'") == ("b", 0)


def test_each_episode_begins_anew(env: Environment) -> None:
    env.step("our $x = 1; sub slug { 'mine' }")
    assert env.submit()[1] == 0.0
    env.reset(options={"task": "slug"})
    assert told(env, "print defined $x || defined &slug ? 'kept' : 'lost'") == ("lost", 0)


def test_rewards_as_feedback(module: Any, env: Environment) -> None:
    made = module.PerlEnvironment(env.provider, feedback="reward")
    try:
        made.reset(task=env.tasks.find("slug"))
        assert made.step("1")[1] == 0.0
        _, reward, terminated, *_ = made.step(env.tasks.find("slug").gold[0])
        assert (reward, terminated) == (1.0, True)
    finally:
        made.close()


@pytest.mark.parametrize(
    ("task", "told"),
    [
        ("gold: my $x = 1", "*gold prints nothing, so nothing can be compared"),
        ("gold: print 1\n    tests: ['1']", "*a test prints nothing after gold, so nothing*"),
        ("gold: die", "*gold, or a test after it, does not end well: 'die' printed 'Died at ac*"),
        ("gold: print 1\n    tests: [{input: a, output: b}]", "*a test of the env perl is its so*"),
    ],
)
def test_what_cannot_be_graded(pytester: pytest.Pytester, perl: Path, task: str, told: str) -> None:
    (perl / "bad.yaml").write_text(f"env: perl\ntasks:\n  - id: a\n    query: q\n    {task}\n")
    done = pytester.runpytest("bad.yaml", "--intercode-agent=oracle")
    done.assert_outcomes(errors=1)
    done.stdout.fnmatch_lines([told])


def test_a_machine_without_the_program(pytester: pytest.Pytester, perl: Path) -> None:
    path = perl / "perl_environment.py"
    path.write_text(path.read_text().replace('("perl", ', '("no-perl", '))
    done = pytester.runpytest(
        "perl.yaml", "--intercode-agent=oracle", "--intercode-sandbox=bubblewrap", "-rs"
    )
    done.assert_outcomes(skipped=3)
    done.stdout.fnmatch_lines(["*this machine lacks no-perl; install it, or give --intercode-ro*"])


# -- its reward

PRINTED = st.text("ab \n", max_size=6)
PAIRS = st.lists(st.tuples(st.none() | PRINTED, PRINTED), min_size=1, max_size=8)


def test_the_reward_of_the_example(module: Any) -> None:
    @given(PAIRS)
    def holds(pairs: list[tuple[str | None, str]]) -> None:
        mine, theirs = [a for a, _ in pairs], [b for _, b in pairs]
        reward: Reward = module.perl_reward(mine, theirs)
        right = sum(a is not None and a.rstrip() == b.rstrip() for a, b in pairs)
        assert reward.value == right / len(pairs)
        assert (reward.value == 1.0) == (not reward.reason) == (right == len(pairs))
        assert module.perl_reward(theirs, theirs).value == 1.0
        assert module.perl_reward([None] * len(pairs), theirs).value == 0.0
        better = [b if n == 0 else a for n, (a, b) in enumerate(pairs)]
        assert module.perl_reward(better, theirs).value >= reward.value

    holds()
