"""The rules of ``pytest-intercode lint``, each declared once, and their findings."""

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
        summary: what is true of tasks that follow it.
        remedy: what to do if a task does not follow it, beyond what the message says.
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
        line: the line in it, from 1; 0 if it is about the whole file.
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
        "the task has all its files, and they follow its format",
        "",  # the message says it
    ),
    Rule(
        "cannot-run",
        "warning",
        "the task can run on this machine",
        "remove what the message names, or disable this rule",
    ),
    Rule(
        "answer-in-image",
        "error",
        "the agent's image contains no file of the tests or the solution",
        "copy single files, or a folder that contains none of them",
    ),
    Rule(
        "instruction-names-tests",
        "warning",
        "the instruction names no file of the tests or the solution",
        "say what to do, not how it is graded",
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
        "a script with `set -e` writes its reward even if the tests fail",
        "remove set -e, or test the command itself: if pytest ...; then ... else ... fi",
    ),
    Rule(
        "reward-kept",
        "error",
        "failing tests write a reward, too, and so overwrite one that the agent left",
        "write 0 first, or in an else",
    ),
    Rule(
        "windows-line-ends",
        "error",
        "scripts have Linux line endings",
        "end lines with LF only: run dos2unix, and put *.sh text eol=lf into .gitattributes",
    ),
    Rule(
        "no-tests",
        "error",
        "the task has tests, or something else that grades it",
        "add tests, or what the task's environment uses instead",
    ),
    Rule(
        "no-solution",
        "warning",
        "the task has a solution, so that the oracle can show that it can be solved",
        "add one: solution/solve.sh, solution.sh, or gold",
    ),
    Rule(
        "shared-verifier",
        "warning",
        "the tests run in a sandbox that the agent never used",
        'set environment_mode = "separate" in [verifier], and list the paths that are graded in '
        "artifacts; in a suite, set place: fresh",
    ),
    Rule(
        "verifier-downloads",
        "warning",
        "the tests download nothing, so that a network failure does not fail the agent",
        "install what the tests need in the image; for runs here, pytest-intercode kit fetches it",
    ),
    Rule(
        "unpinned-package",
        "warning",
        "Python packages are installed in a fixed version",
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
        "task.toml has no unknown keys",
        "correct it, or move it to [metadata]",
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
    """Return the names of the rules to check.

    Args:
        only: the names of the requested rules; all if there are none.
        disabled: the names of the rules that are switched off.

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
