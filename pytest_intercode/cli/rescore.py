"""``pytest-intercode rescore``: scores a results file again, without agent and sandbox."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_intercode.cli.arguments import (
    add_options,
    add_permission_arguments,
    add_results_argument,
    permissions_of,
)
from pytest_intercode.cli.printing import note, say, warn, write_output
from pytest_intercode.core.text import first_names, format_columns, one_line, pluralize
from pytest_intercode.errors import ConfigurationError
from pytest_intercode.options.table import Options
from pytest_intercode.system.files import same_file

if TYPE_CHECKING:
    from pytest_intercode.rescoring.rescored import Change, Rescored

__all__ = ["HELP", "add_arguments", "run"]

HELP = "score a recorded run again, with another profile or a function of your own"

_MAX_SHOWN = 10  # episodes that changed


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    add_results_argument(parser)
    scoring = parser.add_mutually_exclusive_group()
    scoring.add_argument(
        "--profile",
        choices=Options.profile.allowed,
        help="the profile to score by (default: the one that the run had)",
    )
    scoring.add_argument(
        "--reward",
        metavar="MODULE:FUNCTION",
        help="a function (task, agent's end state, gold's end state) to a number in [0, 1], as "
        "module:function or path/to/file.py:function",
    )
    parser.add_argument(
        "--suite",
        metavar="FILE",
        type=Path,
        nargs="+",
        default=[],
        help="suites of the tasks; their reward options of today count, not the recorded ones",
    )
    add_options(parser, Options.data_path)
    parser.add_argument(
        "--output", metavar="FILE.jsonl", type=Path, help="write the rows with their new rewards"
    )
    add_permission_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Score the file's episodes again; print what changed, and what could not be scored.

    Raises:
        ConfigurationError: the file, a suite or the function is wrong.
    """
    from pytest_intercode.rescoring.function import load_function
    from pytest_intercode.rescoring.rescored import rescore
    from pytest_intercode.rescoring.tasks import TaskFinder
    from pytest_intercode.results.files import no_episodes, read_records, to_text

    path: Path = options.results.expanduser()
    output: Path | None = options.output and options.output.expanduser()
    if output is not None and same_file(output, path):
        raise ConfigurationError(f"--output={output}: this is the run itself; name another file")
    records = read_records(path, warn)
    if not records:
        raise no_episodes(path)
    if options.data is not None and not options.data.expanduser().is_dir():
        raise ConfigurationError(f"--data={options.data}: there is no such folder")
    function = None if options.reward is None else load_function(options.reward, Path.cwd())
    rescored = rescore(
        records,
        profile=options.profile,
        reward=function,
        tasks=TaskFinder(
            [suite.expanduser() for suite in options.suite],
            options.data and options.data.expanduser(),
            permissions=permissions_of(options),
        ),
        todays=bool(options.suite) and function is None,
        file=str(path),
    )
    scorer = options.reward or options.profile or "the profile it had"
    say(f"{path}: {len(rescored.changes)} of {len(records)} episodes scored again by {scorer}")
    for line in _table(rescored.changes):
        say(line)
    _print_changes(rescored)
    if output is not None:
        write_output(output, to_text(rescored.records))
        say(f"written: {output}")
    for problem, ids in rescored.problems.items():
        note(f"not scored: {pluralize(len(ids), 'episode')} ({first_names(ids)}): {problem}")
    return 1 if rescored.problems else 0


def _table(changes: list[Change]) -> list[str]:
    """Return the numbers before and after, for each environment."""
    if not changes:
        return []
    lines = [["env", "episodes", "solved before", "now", "reward before", "now", "up", "down"]]
    envs = sorted({change.env for change in changes})
    for env in [*envs, *(["all"] if len(envs) > 1 else [])]:
        env_changes = [change for change in changes if env in (change.env, "all")]
        count = len(env_changes)
        lines.append(
            [
                env,
                str(count),
                str(sum(_solved(c.was, c.before) for c in env_changes)),
                str(sum(_solved(c.outcome, c.after) for c in env_changes)),
                f"{sum(c.before for c in env_changes) / count:.3f}",
                f"{sum(c.after for c in env_changes) / count:.3f}",
                str(sum(c.after > c.before for c in env_changes)),
                str(sum(c.after < c.before for c in env_changes)),
            ]
        )
    return format_columns(lines, labels=1)


def _solved(outcome: str, reward: float) -> bool:
    return outcome == "solved" or (not outcome and reward >= 1.0)


def _print_changes(rescored: Rescored) -> None:
    changed = [c for c in rescored.changes if c.before != c.after or (c.was and c.was != c.outcome)]
    for change in changed[:_MAX_SHOWN]:
        outcome = change.outcome
        if change.was and change.was != outcome:
            outcome = f"{change.was} -> {outcome}"
        task = one_line(change.task_id)
        say(f"{task}: {change.before:.2f} -> {change.after:.2f} ({outcome})")
    if len(changed) > _MAX_SHOWN:
        say(f"... and {len(changed) - _MAX_SHOWN} more")
    if not changed and rescored.changes:
        say("no reward changed")
    if rescored.left:
        say(f"left unchanged: {rescored.left}, not graded or run again")
