"""``pytest-intercode init``: a first project test, its options and its workflow, in a repository.

It asks nothing, and never overwrites a file.
"""

from __future__ import annotations

import argparse
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_intercode.cli.printing import note, say
from pytest_intercode.errors import ConfigurationError
from pytest_intercode.system.files import write_file

if TYPE_CHECKING:
    from pytest_intercode.cli.starter import Findings

__all__ = ["HELP", "add_arguments", "run"]

HELP = "write a first test of agents, its options and its workflow into this repository"

_GIT_TIMEOUT = 30.0  # seconds


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    parser.add_argument(
        "--dry-run", action="store_true", help="print what would be written, without writing it"
    )


def run(options: argparse.Namespace) -> int:
    """Write the files that do not exist, and print what to run next.

    Raises:
        ConfigurationError: this is not a git repository, or there is no git.
    """
    from pytest_intercode.agents.installed.recipe import MODEL
    from pytest_intercode.cli.starter import (
        add_option,
        choose_agents,
        find_out,
        make_tests,
        workflow,
    )

    root = _find_root()
    findings = find_out(root)
    agents = choose_agents(findings)
    for line in _describe(findings, agents):
        say(line)
    is_complete = True
    for name, text in (
        (f"{findings.tests}/test_rules.py", make_tests(findings)),
        (".github/workflows/agents.yml", workflow(findings)),
    ):
        if (root / name).exists() or (root / name).is_symlink():
            say(f"left alone: {name} already exists")
        else:
            is_complete &= _write(root, name, text, text, options.dry_run)
    addition = add_option(root, agents)
    name = addition.path.relative_to(root).as_posix()
    if addition.text is None:
        say(f"left alone: {name}: {addition.reason}")
    else:
        is_complete &= _write(root, name, addition.text, addition.lines, options.dry_run)
    if is_complete:
        say("next:")
        if addition.text is not None and MODEL in addition.text:
            say(f"  in {name}, write the name of a model in place of each {MODEL}")
        command = f"pytest {findings.tests}"
        say(f"  {command} --intercode-record=missing   # asks models, and records their answers")
        say(f"  {command}   # replays what was recorded, as on every pull request")
    return 0 if is_complete else 1


def _find_root() -> Path:
    """Return the folder of the repository that contains the working directory."""
    try:
        result = subprocess.run(
            ["git", "rev-parse", "--show-toplevel"],
            capture_output=True,
            text=True,
            errors="surrogateescape",  # for a folder whose name is not UTF-8
            timeout=_GIT_TIMEOUT,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigurationError(
            f"init: git cannot be run: {error}; a project test has a copy of what git tracks"
        ) from None
    if result.returncode or not result.stdout.strip():
        reason = (result.stderr.strip().splitlines() or ["it has no working tree"])[0]
        raise ConfigurationError(
            f"init: {Path.cwd()} is not in a git repository ({reason}); `git init` makes it one"
        )
    return Path(result.stdout.removesuffix("\n"))


def _describe(findings: Findings, chosen_agents: Sequence[str]) -> Iterator[str]:
    from pytest_intercode.sandboxes.choice import describe_backends
    from pytest_intercode.sandboxes.settings import SandboxSettings

    yield f"repository: {findings.shipped}"
    agents = ", ".join(f"{name} ({reason})" for name, reason in findings.agents.items())
    default = f"this machine has no agent's program and no key; {chosen_agents[0]} is used"
    yield f"agents: {agents or default}"
    yield f"sandboxes: {describe_backends(SandboxSettings(), needed=True)[0].text}"


def _write(root: Path, name: str, text: str, shown: str, dry_run: bool) -> bool:
    """Write a file, or print what would be new in it; return whether that was possible."""
    if not (root / name).resolve().is_relative_to(root.resolve()):
        note(f"{name}: a link leads out of the repository, and nothing is written there")
        return False
    if dry_run:
        say(f"would write {name}:")
        say("".join(f"    {line}\n" if line else "\n" for line in shown.splitlines()))
        return True
    try:
        write_file(root / name, text)
    except ConfigurationError as error:
        note(str(error))
        return False
    say(f"written: {name}")
    return True
