"""``pytest-intercode doctor``: whether this machine can run tasks and a configuration.

It only inspects: it starts, builds, installs and downloads nothing, and leaves nothing behind. Exit
status: 0 the configuration can run, 1 it cannot.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from pytest_intercode.cli.printing import say, say_json, say_states
from pytest_intercode.core.text import pluralize

if TYPE_CHECKING:
    from pytest_intercode.core.facts import Fact

__all__ = ["HELP", "add_arguments", "run"]

HELP = "check what this machine has, and report what your configuration is missing"

_VERSION = 1  # of the JSON; increase it with a change that its readers would misread


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    parser.add_argument(
        "arguments",
        metavar="-- ARGUMENT",
        nargs="*",
        help="arguments for pytest, after --, such as -- --intercode-env=bash; without them, the "
        "configuration of a plain pytest here is checked",
    )
    parser.add_argument(
        "--json", action="store_true", help="print JSON, for a bug report; it holds no secrets"
    )
    parser.set_defaults(
        hint="arguments for pytest come after --: pytest-intercode doctor -- --intercode-env=bash"
    )


def run(options: argparse.Namespace) -> int:
    """Print a line for each thing that tasks or the configuration may need."""
    from pytest_intercode.plugin.diagnosis import diagnose

    facts = diagnose(options.arguments)
    failed = any(fact.state == "problem" for fact in facts)
    if options.json:
        rows = list(map(asdict, facts))
        say_json({"version": _VERSION, "runs": not failed, "facts": rows})
    else:
        say_states([(fact.state, fact.subject, fact.text) for fact in facts])
        say(_summarise(facts))
    return int(failed)


def _summarise(facts: Sequence[Fact]) -> str:
    counts = Counter(fact.state for fact in facts)
    notes = f"{pluralize(counts['note'], 'note')} about what is optional"
    if not counts["problem"]:
        return f"what this configuration asks for can run; {notes}"
    return f"{pluralize(counts['problem'], 'problem')}, {notes}"
