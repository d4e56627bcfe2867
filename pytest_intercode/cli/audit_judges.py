"""The judges in ``pytest-intercode audit``; models are asked only with ``--judge``."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pytest_intercode.cli.arguments import map_concurrently, permissions_of
from pytest_intercode.cli.printing import note, say, warn
from pytest_intercode.core.text import first_names, one_line, pluralize
from pytest_intercode.errors import ConfigurationError, JudgeError

if TYPE_CHECKING:
    from pytest_intercode.auditing.findings import Finding
    from pytest_intercode.auditing.judge_checks import JudgedTask
    from pytest_intercode.auditing.labels import Label
    from pytest_intercode.core.permissions import Permissions
    from pytest_intercode.core.record import EpisodeRecord
    from pytest_intercode.core.task import Task
    from pytest_intercode.judging.judges import Judges

__all__ = ["JudgedWork", "audit_judges", "checks_of", "judges_of", "read_judged_work"]


def checks_of(tasks: Sequence[Task], checks: Sequence[str]) -> Sequence[str]:
    """Return the checks that apply to a suite: those of judges only if a task has a judge."""
    from pytest_intercode.suites.schema import JUDGE_CHECKS

    if any(task.judge is not None for task in tasks):
        return checks
    return [check for check in checks if check not in JUDGE_CHECKS]


@contextlib.contextmanager
def judges_of(options: argparse.Namespace) -> Iterator[Judges | None]:
    """Yield the judges, which ask the models; None if no model is to be asked.

    Raises:
        ConfigurationError: a price is asked for that is not shipped.
    """
    if options.judge is None:
        yield None
        return
    from pytest_intercode.gateway.prices import with_shipped_prices
    from pytest_intercode.gateway.settings import GatewaySettings
    from pytest_intercode.judging.judges import Judges

    try:
        prices = with_shipped_prices(dict(options.gateway_price))
    except ValueError as error:
        raise ConfigurationError(f"--gateway-price: {error}") from None
    settings = GatewaySettings.of_environment(
        prices=prices, record=options.gateway_record, replay=options.gateway_replay
    )
    with contextlib.closing(Judges(settings)) as judges:
        yield judges


class JudgedWork(NamedTuple):
    """The material for auditing the judges of a suite.

    Attributes:
        tasks: the tasks that have a judge to audit.
        labels: people's judgements of agents' work.
        records: recorded episodes.
    """

    tasks: Sequence[Task] = ()
    labels: Sequence[Label] = ()
    records: Sequence[EpisodeRecord] = ()


def read_judged_work(
    suite: str, tasks: Sequence[Task], checks: Sequence[str], options: argparse.Namespace
) -> JudgedWork:
    """Return the material for auditing a suite's judges, read before anything is played.

    Args:
        suite: the suite, as the user named it.
        tasks: those of its tasks that are audited.
        checks: the checks to make.
        options: the arguments of the command.

    Raises:
        ConfigurationError: a label or a results file is wrong.
    """
    from pytest_intercode.results.files import read_records
    from pytest_intercode.suites.schema import JUDGE_CHECKS

    judged_tasks = [task for task in tasks if task.judge is not None and task.repeat == 1]
    if not judged_tasks or not set(JUDGE_CHECKS) & set(checks):
        return JudgedWork()
    labels = _labels(suite, judged_tasks, permissions_of(options))
    records = [record for path in options.results for record in read_records(path, warn)]
    return JudgedWork(judged_tasks, labels, records)


def audit_judges(
    suite: str,
    work: JudgedWork,
    checks: Sequence[str],
    options: argparse.Namespace,
    judges: Judges | None,
    failures: list[str],
) -> list[Finding]:
    """Return what is wrong with the judges of a suite's tasks; print what was not audited.

    Args:
        suite: the suite, as the user named it.
        work: the material for auditing its judges.
        checks: the checks to make.
        options: the arguments of the command.
        judges: asks the models; None if no model is to be asked.
        failures: takes a line for each judge that gave no verdict.

    Raises:
        ConfigurationError: a judge cannot be asked.
    """
    from pytest_intercode.auditing.judge_checks import JudgeAuditor
    from pytest_intercode.results.tables import bill

    if not work.tasks:
        return []
    if judges is None and not work.records:
        note(
            f"{suite}: judges were not audited: --results FILE.jsonl uses recorded votes, and "
            "--judge N asks the judges"
        )
        return []
    auditor = JudgeAuditor(checks, work.records, work.labels, judges, options.judge or 1)

    def audit(task: Task) -> JudgedTask | None:
        try:
            return auditor.audit(task)
        except JudgeError as error:
            failures.append(line := f"not audited: {task.id}: {error}")
            note(line)
            return None

    results = map_concurrently(audit, work.tasks, options.concurrency)
    audited = [result for result in results if result is not None]
    if judges is not None:
        say(bill(f"{suite}: spent by judges", [result.usage for result in audited]))
    findings = [finding for result in audited for finding in result.findings]
    return [*findings, *auditor.of_suite(audited)]


def _labels(suite: str, tasks: Sequence[Task], permissions: Permissions) -> list[Label]:
    """Return the labels in the file next to a suite, for tasks that have a judge."""
    from pytest_intercode.auditing.labels import FILE_NAME, read_labels

    path = Path(suite).expanduser()
    if not path.is_file():
        return []
    labels = read_labels(path.with_name(FILE_NAME), permissions)
    ids = {task.id for task in tasks}
    other_ids = list(dict.fromkeys(label.task for label in labels if label.task not in ids))
    if other_ids:
        names = first_names(map(one_line, other_ids))
        note(
            f"{path.with_name(FILE_NAME)}: no judge of this audit uses the labels of "
            f"{pluralize(len(other_ids), 'task')}: {names}"
        )
    return [label for label in labels if label.task in ids]
