"""Reports of the audit: a table for the terminal, JSON for programs, Markdown to publish."""

from __future__ import annotations

import json
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_intercode.auditing.findings import MEANINGS, AuditedTask, Finding
from pytest_intercode.core.text import format_columns, markdown_text, pluralize

__all__ = ["Report", "as_json", "as_markdown", "as_table"]

_MAX_EVIDENCE = 60  # characters of evidence in the table
_MAX_MESSAGE = 90  # characters of a message in the table


@dataclass(frozen=True)
class Report:
    """The results of the audit of one suite.

    Attributes:
        suite: the suite, as the user named it.
        env: its environment.
        tasks: how many tasks it has.
        audited: the tasks that were audited, or left out.
        findings: all findings, in the order of the tasks.
        checks: the checks that were made.
        command: the command line that made the report.
        whole: the command line that audits all tasks.
        sandbox: the backend of the sandboxes, or the engines of the databases.
    """

    suite: str
    env: str
    tasks: int
    audited: Sequence[AuditedTask]
    findings: Sequence[Finding]
    checks: Sequence[str]
    command: str
    whole: str
    sandbox: str

    @property
    def faults(self) -> list[Finding]:
        """The findings that have to be fixed or acknowledged."""
        return [finding for finding in self.findings if finding.fault]

    @property
    def left_out(self) -> list[AuditedTask]:
        """The tasks that could not be audited here."""
        return [result for result in self.audited if result.left_out]

    @property
    def summary(self) -> str:
        """One line: the number of tasks, and of findings of each kind."""
        audited = len(self.audited) - len(self.left_out)
        total = "" if len(self.audited) == self.tasks else f" of {self.tasks}"
        parts = [
            f"{pluralize(audited, 'task')}{total} audited",
            pluralize(len(self.faults), "fault"),
        ]
        acknowledged = [f for f in self.findings if f.acknowledged]
        notes = [f for f in self.findings if f.note]
        parts += [f"{len(acknowledged)} acknowledged"] if acknowledged else []
        parts += [pluralize(len(notes), "note")] if notes else []
        parts += [f"{len(self.left_out)} left out"] if self.left_out else []
        return f"{self.suite}: {', '.join(parts)}"


def as_table(findings: Iterable[Finding]) -> list[str]:
    """Return the lines of a table: task, check, what, and shortened evidence."""
    lines = [["task", "check", "what", "evidence"]]
    for finding in findings:
        message = finding.said
        if finding.acknowledged:
            message = f"(acknowledged: {finding.acknowledged}) {message}"
        elif finding.note:
            message = f"(note) {message}"
        row = [
            finding.task,
            finding.check,
            _shorten(message, _MAX_MESSAGE),
            _shorten(finding.evidence, _MAX_EVIDENCE),
        ]
        lines.append(row)
    if len(lines) == 1:
        return []
    return format_columns(lines, labels=len(lines[0]))


def as_json(reports: Sequence[Report]) -> str:
    """Return reports as JSON."""
    suites: list[dict[str, Any]] = [
        {
            "suite": report.suite,
            "env": report.env,
            "sandbox": report.sandbox,
            "tasks": report.tasks,
            "audited": [result.task.id for result in report.audited if not result.left_out],
            "left_out": {result.task.id: result.left_out for result in report.left_out},
            "checks": list(report.checks),
            "findings": [finding.row() for finding in report.findings],
        }
        for report in reports
    ]
    return json.dumps({"suites": suites}, indent=1, ensure_ascii=True) + "\n"


def as_markdown(report: Report, version: str) -> str:
    """Return a page to publish: how it was made, counts by check, and every finding.

    It does not quote queries, gold or answers, which belong to the dataset.

    Args:
        report: the report.
        version: the version of this package.
    """
    lines = [
        f"# Audit of {report.suite}",
        "",
        f"Made by pytest-intercode {version} on {report.sandbox}, of {_describe_share(report)}:",
        "",
        f"    {report.command}",
        "",
        *((*_SAMPLE, f"    {report.whole}", "") if report.command != report.whole else ()),
        "Every finding is listed. A `weak-check` is for a person to judge: the changed gold may be",
        "as right as gold, or the data may hide that it is wrong. To see the evidence of a task,",
        "such as the wrong answer that solves it:",
        "",
        f"    pytest-intercode audit {report.suite} --task ID",
        "",
        "| check | asks for | faults | acknowledged | notes |",
        "| --- | --- | ---: | ---: | ---: |",
    ]
    for check in report.checks:
        findings = [finding for finding in report.findings if finding.check == check]
        kinds = Counter("f" if f.fault else "a" if f.acknowledged else "n" for f in findings)
        counts = " | ".join(str(kinds[kind]) for kind in "fan")
        lines.append(f"| `{check}` | {MEANINGS[check]} | {counts} |")
    if report.left_out:
        lines += ["", "## Left out", ""]
        lines += [
            f"- `{e.task.id}`: {markdown_text(_shorten(e.left_out, 300))}" for e in report.left_out
        ]
    for check in report.checks:
        findings = [finding for finding in report.findings if finding.check == check]
        if findings:
            lines += ["", f"## {check}", "", *_group(findings)]
    return "\n".join(lines) + "\n"


_SAMPLE = ("It is a sample, to save time. All tasks:", "")


def _describe_share(report: Report) -> str:
    audited = len(report.audited) - len(report.left_out)
    if audited == report.tasks:
        return f"all {pluralize(audited, 'task')}"
    return f"{audited} of its {pluralize(report.tasks, 'task')}"


def _group(findings: Sequence[Finding]) -> Iterator[str]:
    """Yield an item for each message, with the tasks that have it."""
    groups: dict[str, list[str]] = {}
    for finding in findings:
        message = markdown_text(finding.said)
        if finding.acknowledged:
            message = f"*acknowledged: {markdown_text(finding.acknowledged)}*"
        elif finding.note:
            message += " *(a note, no fault)*"
        groups.setdefault(message, []).append(f"`{finding.task}`")
    for message, tasks in sorted(groups.items(), key=lambda group: -len(group[1])):
        item = f"{message} ({len(tasks)}): {' '.join(tasks)}"
        yield textwrap.fill(
            item,
            100,
            initial_indent="- ",
            subsequent_indent="  ",
            break_long_words=False,
            break_on_hyphens=False,
        )


def _shorten(text: str, length: int) -> str:
    text = " ".join(text.split())
    return text if len(text) <= length else f"{text[: length - 3]}..."
