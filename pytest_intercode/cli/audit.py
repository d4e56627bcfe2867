"""``pytest-intercode audit``: what is wrong with the tasks of a suite.

Plays gold, agents that do nothing and wrong answers in sandboxes; changes no file but those that
are named for its output. Exit status: 0 clean, 1 there are faults or tasks that the machine
spoiled, 2 wrong usage.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_intercode.errors import ConfigurationError, suggestion

if TYPE_CHECKING:
    from pytest_intercode.auditing.findings import Audited
    from pytest_intercode.auditing.report import Report
    from pytest_intercode.core.task import Task
    from pytest_intercode.sandboxes.provider import SandboxProvider

__all__ = ["HELP", "add_arguments", "run"]

HELP = "look for what is wrong with the tasks of a suite"

_CONCURRENCY = 4
_USAGE = 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    parser.add_argument(
        "suites",
        metavar="SUITE",
        nargs="+",
        help="a suite (.yaml), a bundled one (bash, sql, python, ctf), or a data set (spider)",
    )
    parser.add_argument(
        "--check",
        metavar="NAME",
        nargs="+",
        action="extend",
        default=[],
        help="make these checks only (docs/auditing.md lists them)",
    )
    parser.add_argument(
        "--task",
        metavar="ID",
        nargs="+",
        action="extend",
        default=[],
        help="audit these tasks, and show all evidence",
    )
    parser.add_argument(
        "--every", metavar="N", type=_count, default=1, help="audit every N-th task of a suite"
    )
    parser.add_argument(
        "--limit", metavar="N", type=_count, help="audit the first N tasks of each suite"
    )
    parser.add_argument(
        "--sandbox",
        choices=("auto", "docker", "bubblewrap"),
        default="auto",
        help="the backend (default: the one that is there)",
    )
    parser.add_argument(
        "--concurrency",
        metavar="N",
        type=_count,
        default=_CONCURRENCY,
        help=f"tasks at a time ({_CONCURRENCY})",
    )
    parser.add_argument(
        "--data",
        metavar="DIR",
        type=Path,
        help="folder laid out as InterCode's data/ (default: $INTERCODE_DATA, else what "
        "`pytest-intercode fetch` got)",
    )
    parser.add_argument("--output", metavar="FILE.json", type=Path, help="write all findings")
    parser.add_argument(
        "--markdown", metavar="FILE.md", type=Path, help="write a page to publish; of one suite"
    )


def _count(text: str) -> int:
    number = int(text) if text.isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: a whole number from 1 is needed")
    return number


def run(options: argparse.Namespace) -> int:
    """Audit the suites; print a table of what was found."""
    try:
        suites = [(name, _tasks(name, options.data)) for name in options.suites]
        checks = _checks(options.check)
        chosen = [_chosen(tasks, options) for _, tasks in suites]
        unknown = set(options.task) - {task.id for tasks in chosen for task in tasks}
        if unknown:
            name = min(unknown)
            ids = [task.id for _, tasks in suites for task in tasks]
            raise ConfigurationError(
                f"--task={name}: no task that is audited has this id.{suggestion(name, ids)}"
            )
        if options.markdown is not None and len(suites) > 1:
            raise ConfigurationError("--markdown: a page is of one suite; name one")
    except ConfigurationError as error:
        print(f"pytest-intercode: {error}", file=sys.stderr)
        return _USAGE
    return _audit(options, suites, chosen, checks)


def _audit(
    options: argparse.Namespace,
    suites: Sequence[tuple[str, Sequence[Task]]],
    chosen: Sequence[Sequence[Task]],
    checks: Sequence[str],
) -> int:
    from pytest_intercode.auditing.auditor import Auditor
    from pytest_intercode.auditing.report import Report, as_json
    from pytest_intercode.sandboxes.provider import SandboxProvider

    reports = []
    hidden = [Path.cwd(), *filter(None, [options.data])]
    provider = SandboxProvider(sandbox=options.sandbox, progress=_tell, hidden=hidden)
    try:
        for (name, tasks), some in zip(suites, chosen, strict=True):
            auditor = Auditor(tasks, provider, checks)
            done = _all(auditor.audit, some, options.concurrency)
            findings = [finding for each in done for finding in each.findings]
            findings += auditor.of_suite(done)
            report = Report(
                suite=name,
                env=tasks[0].env,
                tasks=len(tasks),
                done=done,
                findings=findings,
                checks=checks,
                command=_command(options, sample=True),
                whole=_command(options, sample=False),
                sandbox=_backend(provider, some),
            )
            _show(report, evidence=bool(options.task))
            reports.append(report)
    finally:
        provider.close()
    if options.output is not None:
        _write(options.output, as_json(reports), "--output")
    if options.markdown is not None:
        _publish(options.markdown, reports[0])
    broken = any(each.broken for report in reports for each in report.done)
    return 1 if broken or any(report.faults for report in reports) else 0


def _backend(provider: SandboxProvider, tasks: Sequence[Task]) -> str:
    """Name what the tasks ran on: a database's engine, or the backend of the sandboxes."""
    engines = sorted({task.database.engine for task in tasks if task.database is not None})
    return ", ".join({"mysql": "MySQL", "sqlite": "SQLite"}[name] for name in engines) or str(
        provider.choice.backend
    )


def _all(
    audit: Callable[[Task], Audited], tasks: Sequence[Task], concurrency: int
) -> list[Audited]:
    """Audit tasks on so many threads; what is left is not begun when the user interrupts."""
    from concurrent.futures import ThreadPoolExecutor

    threads = ThreadPoolExecutor(concurrency, thread_name_prefix="intercode-audit")
    futures = [threads.submit(audit, task) for task in tasks]
    shown = sys.stderr.isatty()
    done = []
    try:
        for number, future in enumerate(futures, 1):
            done.append(future.result())
            if shown:  # for a person in front of a terminal
                end = "\n" if number == len(futures) else ""
                said = f"\r{number}/{len(futures)} tasks audited"
                print(said, end=end, file=sys.stderr, flush=True)
    finally:
        threads.shutdown(wait=True, cancel_futures=True)
    return done


def _tasks(name: str, data: Path | None) -> Sequence[Task]:
    from pytest_intercode.suites.catalogue import (
        bundled_tasks,
        data_folder,
        dataset_names,
        dataset_of,
        is_suite_file,
        named_tasks,
    )
    from pytest_intercode.suites.registered import environment_names

    if name in environment_names():
        return bundled_tasks(name, f"audit {name}")
    if dataset_of(name) is None and not is_suite_file(name):
        names = [*environment_names(), *dataset_names()]
        raise ConfigurationError(
            f"audit {name}: there is no such suite. Allowed: the path of a .yaml, or "
            f"{', '.join(names)}.{suggestion(name, names)}"
        )
    folder = data_folder(data, "--data")
    return named_tasks(name, folder, f"audit {name}", folder=Path(), env=None)


def _checks(given: Sequence[str]) -> Sequence[str]:
    from pytest_intercode.core.task import AUDIT_CHECKS

    for name in given:
        if name not in AUDIT_CHECKS:
            raise ConfigurationError(
                f"--check={name}: there is no such check.{suggestion(name, AUDIT_CHECKS)} "
                f"Allowed: {', '.join(AUDIT_CHECKS)}"
            )
    return [name for name in AUDIT_CHECKS if not given or name in given]


def _chosen(tasks: Sequence[Task], options: argparse.Namespace) -> list[Task]:
    some = [task for task in tasks[:: options.every] if not options.task or task.id in options.task]
    return some[: options.limit]


def _show(report: Report, *, evidence: bool) -> None:
    """Print the table; for tasks that were asked for by name, also the whole evidence."""
    from pytest_intercode.auditing.report import as_table
    from pytest_intercode.core.text import harmless

    for line in as_table(report.findings):
        print(line)
    for finding in report.findings if evidence else ():
        if finding.evidence:
            print(f"\n{finding.task}: {finding.check}: {harmless(finding.said)}")
            for line in finding.evidence.splitlines():
                print(f"    {harmless(line)}".rstrip())
    print(report.summary)
    for each in report.left_out:
        said = "not audited" if each.broken else "left out"
        print(f"pytest-intercode: {said}: {each.task.id}: {each.left_out}", file=sys.stderr)


def _command(options: argparse.Namespace, *, sample: bool) -> str:
    """Return the command line, without where its output went and where data are.

    Args:
        options: the options.
        sample: also say which of the tasks were chosen.
    """
    words = ["pytest-intercode", "audit", *options.suites]
    words += ["--check", *options.check] if options.check else []
    if sample:
        words += ["--task", *options.task] if options.task else []
        words += ["--every", str(options.every)] if options.every > 1 else []
        words += ["--limit", str(options.limit)] if options.limit else []
    words += ["--sandbox", options.sandbox] if options.sandbox != "auto" else []
    return shlex.join(words)


def _publish(path: Path, report: Report) -> None:
    from importlib.metadata import version

    from pytest_intercode.auditing.report import as_markdown

    _write(path, as_markdown(report, version("pytest-intercode")), "--markdown")


def _write(path: Path, text: str, option: str) -> None:
    try:
        path.expanduser().parent.mkdir(parents=True, exist_ok=True)
        path.expanduser().write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"{option}={path}: cannot be written: {error.strerror}") from None


def _tell(line: str) -> None:
    print(f"pytest-intercode: {line}", file=sys.stderr)
