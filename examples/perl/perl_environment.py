"""The environment `perl`: an action is Perl, run by an interpreter that remembers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pytest_intercode import InterpreterEnvironment, Reward, register_environment

HERE = Path(__file__).parent


def perl_reward(agent: Sequence[str | None], gold: Sequence[str]) -> Reward:
    """The share of tests that print after the agent's work what they print after gold's."""
    right = [
        mine is not None and mine.rstrip() == theirs.rstrip()
        for mine, theirs in zip(agent, gold, strict=True)
    ]
    share = sum(right) / len(right)
    reason = "" if all(right) else f"{right.count(False)} of {len(right)} tests go wrong"
    return Reward(share, {"tests": share}, reason)


@register_environment
class PerlEnvironment(InterpreterEnvironment):
    """Perl as it is: `my` variables, subs and modules last from action to action."""

    name = "perl"
    suite = HERE / "perl.yaml"
    dockerfile = HERE / "perl.Dockerfile"
    program = ("perl", "-e", (HERE / "repl.pl").read_text())
    compare = staticmethod(perl_reward)
