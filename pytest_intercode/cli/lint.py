"""``pytest-intercode lint``: finds mistakes in task folders and suites from their files alone.

Reads files, and runs, builds and downloads nothing. Exit status: 0 no errors (with ``--strict``, no
warnings either), 1 some, 2 wrong usage.
"""

from __future__ import annotations

import argparse
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_intercode.cli.arguments import (
    add_options,
    add_permission_arguments,
    permissions_of,
    tasks_of,
)
from pytest_intercode.cli.printing import note, say, say_json
from pytest_intercode.core.text import one_line, pluralize
from pytest_intercode.errors import ConfigurationError
from pytest_intercode.options.table import Options

if TYPE_CHECKING:
    from pytest_intercode.linting.rules import Finding

__all__ = ["HELP", "add_arguments", "run"]

HELP = "find mistakes in task folders and suites by reading them, before anything runs"

_USAGE = 2  # exit status
_VERSION = 1  # of the JSON; increase it with a change that its readers would misread


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    parser.add_argument(
        "suites",
        metavar="FOLDER",
        nargs="+",
        help="a task folder of Harbor or Terminal-Bench 1, a folder of them, a suite (.yaml), or a "
        "dataset",
    )
    for option, text in (
        ("--rule", "look at these rules only (docs/linting.md lists them)"),
        ("--disable", "leave out these rules"),
    ):
        parser.add_argument(
            option, metavar="NAME", nargs="+", action="extend", default=[], help=text
        )
    parser.add_argument("--strict", action="store_true", help="fail on warnings, too")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON")
    form.add_argument(
        "--github",
        action="store_true",
        help="print GitHub annotations (the default in GitHub Actions)",
    )
    add_options(parser, Options.data_path)
    add_permission_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Print each finding on its own line, and how many there are of each level."""
    from pytest_intercode.linting.rules import RULES, choose_rules

    try:
        rules = choose_rules(options.rule, options.disable)
        results = [_lint(name, options, rules) for name in options.suites]
    except ConfigurationError as error:
        note(str(error))
        return _USAGE
    tasks = sum(number for number, _ in results)
    findings = [finding for _, suite_findings in results for finding in suite_findings]
    levels = Counter(RULES[finding.rule].level for finding in findings)
    if options.json:
        say_json({"version": _VERSION, "findings": list(map(_as_row, findings))})
    else:
        is_github = options.github or os.environ.get("GITHUB_ACTIONS") == "true"
        for finding in findings:
            print(_as_annotation(finding)) if is_github else say(_as_line(finding))
        errors, warnings = (pluralize(levels[level], level) for level in ("error", "warning"))
        say(f"{pluralize(tasks, 'task')}, {errors}, {warnings}")
    return int(bool(levels["error"] or (options.strict and levels["warning"])))


def _lint(
    name: str, options: argparse.Namespace, rules: Sequence[str]
) -> tuple[int, Sequence[Finding]]:
    """Return how many tasks were read, and the findings of the rules."""
    from pytest_intercode.errors import SuiteError
    from pytest_intercode.linting.linter import lint_folder, lint_tasks
    from pytest_intercode.linting.rules import Finding
    from pytest_intercode.linting.tasks import split_place
    from pytest_intercode.suites.catalogue import dataset_of
    from pytest_intercode.suites.formats import holds_task_folders

    path = Path(name).expanduser()
    permissions = permissions_of(options)
    if dataset_of(name) is None and holds_task_folders(path):
        return lint_folder(path, permissions, rules)
    try:
        tasks = tasks_of(name, options.data, permissions, "lint")
    except SuiteError as error:
        place, _, message = str(error).partition(": ")
        source, line = split_place(place)
        if not line:
            source, message = str(path), str(error)
        findings = [Finding("cannot-load", "", source, line, message)]
        return 0, [finding for finding in findings if finding.rule in rules]
    return len(tasks), lint_tasks(tasks, path, rules)


def _place(finding: Finding) -> str:
    """Return the path of a finding, relative to the working directory if it is below it."""
    return finding.path.removeprefix(f"{Path.cwd()}/")


def _as_line(finding: Finding) -> str:
    from pytest_intercode.linting.rules import RULES

    rule = RULES[finding.rule]
    line = f":{finding.line}" if finding.line else ""
    return one_line(f"{_place(finding)}{line}: {rule.level}: {rule.name}: {_advice(finding)}")


def _advice(finding: Finding) -> str:
    """Return what is wrong, and what to do."""
    from pytest_intercode.linting.rules import RULES

    return "; ".join(filter(None, (finding.message, RULES[finding.rule].remedy)))


def _as_row(finding: Finding) -> dict[str, Any]:
    from pytest_intercode.linting.rules import RULES

    rule = RULES[finding.rule]
    row = {**asdict(finding), "path": _place(finding)}
    return {**row, "level": rule.level, "remedy": rule.remedy}


def _as_annotation(finding: Finding) -> str:
    """Return a finding as a GitHub workflow command, which shows it next to the line.

    https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands
    """
    from pytest_intercode.linting.rules import RULES

    rule = RULES[finding.rule]
    path = Path(finding.path).absolute()
    workspace = Path(os.environ.get("GITHUB_WORKSPACE") or Path.cwd())
    name = path.relative_to(workspace) if path.is_relative_to(workspace) else path
    values = {"file": str(name), "line": str(finding.line or 1), "title": rule.name}
    properties = ",".join(f"{key}={_escape(value, property=True)}" for key, value in values.items())
    message = _escape(one_line(_advice(finding)))
    return f"::{rule.level} {properties}::{message}"


def _escape(text: str, *, property: bool = False) -> str:
    text = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return text.replace(":", "%3A").replace(",", "%2C") if property else text
