"""The rules of ``pytest-intercode lint``, each declared once, and what they find."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Literal

from pytest_intercode.errors import ConfigurationError, suggestion

__all__ = ["RULES", "Finding", "Rule", "choose_rules"]


@dataclass(frozen=True)
class Rule:
    """One rule.

    Attributes:
        name: its name, by which it can be switched off.
        level: an ``error`` makes the task's results wrong; a ``warning`` may.
        summary: what tasks do that follow it.
        remedy: what to do where one does not, beyond what its message says.
    """

    name: str
    level: Literal["error", "warning"]
    summary: str
    remedy: str


@dataclass(frozen=True)
class Finding:
    """A place where a rule is not followed.

    Attributes:
        rule: the rule's name.
        task: the task's id; empty for a whole suite.
        path: the file.
        line: the line in it, from 1; 0 where it is about the whole file.
        message: what is wrong there.
    """

    rule: str
    task: str
    path: str
    line: int
    message: str


_ALL = (
    Rule(
        "cannot-load",
        "error",
        "the task has all its files, and they say what the format knows",
        "",  # its message says it
    ),
    Rule(
        "cannot-run",
        "warning",
        "the task can be played here",
        "leave out what the message names, or switch this rule off",
    ),
    Rule(
        "answer-in-image",
        "error",
        "the agent's image holds no file of the tests or of the solution",
        "copy single files, or a folder that holds none of them",
    ),
    Rule(
        "instruction-names-tests",
        "warning",
        "the instruction names no file of the tests or of the solution",
        "say what is asked for, and not how it is graded",
    ),
    Rule(
        "no-reward",
        "error",
        "the tests write a reward",
        "write 1 or 0 to /logs/verifier/reward.txt, whatever happens before",
    ),
    Rule(
        "reward-not-reached",
        "error",
        "a script with `set -e` writes its reward also where the tests fail",
        "leave out set -e, or test the command itself: if pytest ...; then ... else ... fi",
    ),
    Rule(
        "reward-kept",
        "error",
        "the reward is written where the tests fail, too, over what an agent may have left there",
        "write 0 first, or in an else",
    ),
    Rule(
        "windows-line-ends",
        "error",
        "scripts have the line ends of Linux",
        "end lines with LF alone: dos2unix, and *.sh text eol=lf in .gitattributes",
    ),
    Rule(
        "no-tests",
        "error",
        "there is something that grades the task",
        "add tests, or what the task's environment has instead",
    ),
    Rule(
        "no-solution",
        "warning",
        "there is a solution, so that the oracle shows that the task can be solved",
        "add one: solution/solve.sh, solution.sh, or gold",
    ),
    Rule(
        "shared-verifier",
        "warning",
        "tests run in a machine that the agent never had",
        'environment_mode = "separate" in [verifier], with the paths that are graded in artifacts; '
        "place: fresh in a suite of ours",
    ),
    Rule(
        "verifier-downloads",
        "warning",
        "tests download nothing, so that a network that fails is not an agent that fails",
        "install what tests need in the image; pytest-intercode kit holds it for runs here",
    ),
    Rule(
        "unpinned-package",
        "warning",
        "packages of Python are installed in one version",
        "write NAME==VERSION",
    ),
    Rule(
        "unpinned-image",
        "warning",
        "images are named with a version",
        "name a tag other than latest, or a digest",
    ),
    Rule(
        "no-timeout",
        "warning",
        "the agent's time is limited",
        "set timeout_sec in [agent]",
    ),
    Rule(
        "unknown-key",
        "warning",
        "task.toml has no key that nothing reads",
        "write it as the format does, or put it into [metadata]",
    ),
    Rule(
        "no-metadata",
        "warning",
        "the task says who wrote it, how difficult it is and what it is about",
        "add it to [metadata]",
    ),
)

RULES = {rule.name: rule for rule in _ALL}
"""All rules by their names, in the order in which they are shown."""


def choose_rules(only: Collection[str], disabled: Iterable[str]) -> list[str]:
    """Return the names of the rules that are looked at.

    Args:
        only: those that are asked for; all where there are none.
        disabled: those that are switched off.

    Raises:
        ConfigurationError: there is no such rule.
    """
    disabled = set(disabled)
    for name in (*only, *sorted(disabled)):
        if name not in RULES:
            raise ConfigurationError(
                f"{name}: there is no such rule.{suggestion(name, RULES)} Allowed: "
                f"{', '.join(RULES)}"
            )
    return [name for name in RULES if (not only or name in only) and name not in disabled]
