"""``pytest-intercode gate``: judges a finished results file as a run would; runs nothing."""

from __future__ import annotations

import argparse
from pathlib import Path

from pytest_intercode.cli.printing import say, warn
from pytest_intercode.errors import ConfigurationError
from pytest_intercode.system.files import same_file

__all__ = ["HELP", "add_arguments", "run"]

HELP = "judge a finished run by its results file, with the summary and exit status of a run"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    from pytest_intercode.cli.arguments import add_options
    from pytest_intercode.options.table import Options

    parser.add_argument("results", metavar="RESULTS.jsonl", type=Path, help="the run's results")
    add_options(parser, Options.baseline, Options.requested_gate, Options.fail_under)


def run(options: argparse.Namespace) -> int:
    """Print the judgements; return 1 if one of them fails the run.

    Raises:
        ConfigurationError: a file is not a results file, or both are the same.
    """
    from pytest_intercode.core.text import pluralize
    from pytest_intercode.results.baseline import Baseline
    from pytest_intercode.results.files import iterate_records, no_episodes
    from pytest_intercode.results.gate import judge_file
    from pytest_intercode.results.summary import summarise
    from pytest_intercode.results.tries import counted_tries

    results = options.results.expanduser()
    baseline = None
    if options.baseline is not None:
        path = options.baseline.expanduser()
        if same_file(results, path):
            raise ConfigurationError(f"--baseline={path}: this is the run itself; name another one")
        baseline = Baseline(path, warn, option="--baseline")
    if options.gate is not None and baseline is None:
        raise ConfigurationError(
            f"--gate={options.gate}: needs --baseline=FILE.jsonl, the results to compare with"
        )
    light = (record.for_statistics() for record in iterate_records(results, warn))
    tries = counted_tries(light)
    if not tries:
        raise no_episodes(results)
    summary = summarise(tries)
    say(
        f"{results}: {pluralize(summary.tasks, 'task')}, {summary.solved} of "
        f"{pluralize(summary.tries, 'try', 'tries')} solved"
    )
    judgements = judge_file(tries, baseline, options.fail_under, options.gate)
    for judgement in judgements:
        say(f"gate: {judgement.line}")
    return 0 if all(judgement.passed for judgement in judgements) else 1
