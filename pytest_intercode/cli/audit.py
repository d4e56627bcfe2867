"""``pytest-intercode audit``: finds what is wrong with the tasks of a suite.

Plays gold, agents that do nothing and wrong answers in sandboxes; writes only the named output
files. Exit status: 0 clean, 1 faults or a failure of the machine, 2 wrong usage.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_intercode.cli.arguments import (
    add_concurrency_argument,
    add_option,
    add_options,
    add_permission_arguments,
    add_suites_argument,
    count,
    map_concurrently,
    permissions_of,
    sandboxes_of,
    tasks_of,
)
from pytest_intercode.cli.printing import check_output, note, say, show_count, write_output
from pytest_intercode.errors import ConfigurationError, suggestion
from pytest_intercode.options.table import Options
from pytest_intercode.system.platform import check_platform

if TYPE_CHECKING:
    from pytest_intercode.auditing.report import Report
    from pytest_intercode.core.task import Task
    from pytest_intercode.sandboxes.provider import SandboxProvider

__all__ = ["HELP", "add_arguments", "run"]

HELP = "find what is wrong with the tasks of a suite"

_CONCURRENCY = 4  # tasks at a time
_USAGE = 2  # exit status


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    add_suites_argument(parser)
    for option, name, text in (
        ("--check", "NAME", "make these checks only (docs/auditing.md lists them)"),
        ("--task", "ID", "audit these tasks, and show all evidence"),
    ):
        parser.add_argument(option, metavar=name, nargs="+", action="extend", default=[], help=text)
    parser.add_argument(
        "--every", metavar="N", type=count, default=1, help="audit every N-th task of each suite"
    )
    parser.add_argument(
        "--limit", metavar="N", type=count, help="audit the first N tasks of each suite"
    )
    add_option(parser, Options.backend, "the backend of sandboxes")
    add_options(parser, Options.runtime, Options.docker_hosts, Options.registry)
    add_options(parser, Options.platform)
    add_permission_arguments(parser)
    add_concurrency_argument(parser, _CONCURRENCY, "tasks")
    add_options(parser, Options.data_path)
    parser.add_argument(
        "--judge",
        metavar="N",
        type=count,
        help="ask the judges of tasks, N times about each piece of work: this calls models",
    )
    parser.add_argument(
        "--results",
        metavar="FILE.jsonl",
        type=Path,
        nargs="+",
        action="extend",
        default=[],
        help="results of runs whose recorded votes are used to audit judges",
    )
    add_options(parser, Options.gateway_prices, Options.gateway_record, Options.gateway_replay)
    parser.add_argument("--output", metavar="FILE.json", type=Path, help="write all findings")
    parser.add_argument(
        "--markdown", metavar="FILE.md", type=Path, help="write a page about one suite to publish"
    )


def run(options: argparse.Namespace) -> int:
    """Audit the suites, and print a table of the findings."""
    try:
        check_platform()
        permissions = permissions_of(options)
        suites = [
            (name, tasks_of(name, options.data, permissions, "audit")) for name in options.suites
        ]
        checks = _checks(options.check)
        selections = [_select(tasks, options) for _, tasks in suites]
        unknown = set(options.task) - {task.id for tasks in selections for task in tasks}
        if unknown:
            name = min(unknown)
            ids = [task.id for _, tasks in suites for task in tasks]
            raise ConfigurationError(
                f"--task={name}: no task that is audited has this id.{suggestion(name, ids)}"
            )
        if options.markdown is not None and len(suites) > 1:
            raise ConfigurationError("--markdown: a page shows one suite; name only one")
        return _audit(options, suites, selections, checks)
    except ConfigurationError as error:
        note(str(error))
        return _USAGE


def _audit(
    options: argparse.Namespace,
    suites: Sequence[tuple[str, Sequence[Task]]],
    selections: Sequence[Sequence[Task]],
    checks: Sequence[str],
) -> int:
    from pytest_intercode.auditing.auditor import Auditor
    from pytest_intercode.auditing.report import Report, as_json, as_markdown
    from pytest_intercode.cli.audit_judges import (
        audit_judges,
        checks_of,
        judges_of,
        read_judged_work,
    )
    from pytest_intercode.system.files import check_writable, write_file

    if options.output is not None:
        check_output(options.output)
    if options.markdown is not None:
        check_writable(options.markdown.expanduser(), option="--markdown")
    reports = []
    judge_failures: list[str] = []
    all_checks = [checks_of(tasks, checks) for _, tasks in suites]
    all_work = [
        read_judged_work(name, selection, suite_checks, options)
        for (name, _), selection, suite_checks in zip(suites, selections, all_checks, strict=True)
    ]
    with sandboxes_of(options) as provider, judges_of(options) as judges:
        for (name, tasks), selection, suite_checks, work in zip(
            suites, selections, all_checks, all_work, strict=True
        ):
            auditor = Auditor(tasks, provider, suite_checks)
            audited = map_concurrently(
                auditor.audit,
                selection,
                options.concurrency,
                partial(show_count, "tasks audited", len(selection)),
                stop=provider.close,
            )
            findings = [finding for audited_task in audited for finding in audited_task.findings]
            findings += auditor.of_suite(audited)
            findings += audit_judges(name, work, suite_checks, options, judges, judge_failures)
            report = Report(
                suite=name,
                env=tasks[0].env,
                tasks=len(tasks),
                audited=audited,
                findings=findings,
                checks=suite_checks,
                command=_command(options, sample=True),
                whole=_command(options, sample=False),
                sandbox=_backend(provider, selection),
            )
            _show(report, evidence=bool(options.task))
            reports.append(report)
    if options.output is not None:
        write_output(options.output, as_json(reports))
    if options.markdown is not None:
        page = as_markdown(reports[0], version("pytest-intercode"))
        write_file(options.markdown.expanduser(), page, option="--markdown")
    broken = any(audited_task.broken for report in reports for audited_task in report.audited)
    broken = broken or bool(judge_failures)
    return 1 if broken or any(report.faults for report in reports) else 0


def _backend(provider: SandboxProvider, tasks: Sequence[Task]) -> str:
    """Return the name of what the tasks ran on: the engines of databases, or the backend."""
    from pytest_intercode.core.task import DATABASE_ENGINES

    engines = sorted({task.view().engine for task in tasks} - {""})
    return ", ".join(DATABASE_ENGINES[name] for name in engines) or str(provider.choice.backend)


def _checks(requested: Sequence[str]) -> Sequence[str]:
    from pytest_intercode.suites.schema import AUDIT_CHECKS

    for name in requested:
        if name not in AUDIT_CHECKS:
            raise ConfigurationError(
                f"--check={name}: there is no such check.{suggestion(name, AUDIT_CHECKS)} "
                f"Allowed: {', '.join(AUDIT_CHECKS)}"
            )
    return [name for name in AUDIT_CHECKS if not requested or name in requested]


def _select(tasks: Sequence[Task], options: argparse.Namespace) -> list[Task]:
    sampled = [
        task for task in tasks[:: options.every] if not options.task or task.id in options.task
    ]
    return sampled[: options.limit]


def _show(report: Report, *, evidence: bool) -> None:
    """Print the table and, for tasks that the user named, the whole evidence."""
    from pytest_intercode.auditing.report import as_table
    from pytest_intercode.core.text import one_line

    for line in as_table(report.findings):
        say(line)
    for finding in report.findings if evidence else ():
        if finding.evidence:
            say(f"\n{finding.task}: {finding.check}: {one_line(finding.said)}")
            for line in finding.evidence.splitlines():
                say(f"    {line}".rstrip())
    say(report.summary)
    for audited_task in report.left_out:
        status = "not audited" if audited_task.broken else "left out"
        note(f"{status}: {audited_task.task.id}: {audited_task.left_out}")


def _command(options: argparse.Namespace, *, sample: bool) -> str:
    """Return the command line, without its output files and the folder of the data.

    Args:
        options: the options.
        sample: include the options that choose some of the tasks.
    """
    words = ["pytest-intercode", "audit", *options.suites]
    words += ["--check", *options.check] if options.check else []
    if sample:
        words += ["--task", *options.task] if options.task else []
        words += ["--every", str(options.every)] if options.every > 1 else []
        words += ["--limit", str(options.limit)] if options.limit else []
    words += ["--sandbox", options.sandbox] if options.sandbox != "auto" else []
    words += ["--runtime", options.runtime] if options.runtime else []
    words += ["--judge", str(options.judge)] if options.judge else []
    return shlex.join(words)
