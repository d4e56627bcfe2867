"""The auditor: audits tasks, several at a time if need be, and then the suite as a whole.

Every answer is played in a fresh sandbox under the strict profile. Nothing here imports pytest.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cached_property

from pytest_intercode.auditing.duplicates import find_duplicates
from pytest_intercode.auditing.file_usage import unused_files
from pytest_intercode.auditing.findings import AuditedTask, Finding, acknowledge
from pytest_intercode.auditing.mutations import idle_answers, wrong_answers
from pytest_intercode.auditing.playing import Played, describe_difference, play
from pytest_intercode.core.reward import Reward
from pytest_intercode.core.task import Task
from pytest_intercode.environments.answer import Answer
from pytest_intercode.environments.registry import environment_class, kind_of
from pytest_intercode.environments.shell import ShellEnvironment
from pytest_intercode.errors import (
    ConfigurationError,
    GoldRefused,
    InfrastructureError,
    MissingProgram,
    SolvedAtFirst,
    TaskError,
)
from pytest_intercode.sandboxes.provider import SandboxProvider
from pytest_intercode.suites.schema import AUDIT_CHECKS, JUDGE_CHECKS

__all__ = ["Auditor"]

_PAUSE = 1.1  # seconds before the second run of gold: a clock that shows seconds has moved on
_MIN_ACTION_TIMEOUT = 2.0  # seconds for an action of a wrong answer
_GOLD_FACTOR = 4  # or this multiple of gold's duration, if that is more
_PLAYED = frozenset(AUDIT_CHECKS) - {"files-used", "no-duplicates", *JUDGE_CHECKS}


class Auditor:
    """Audits the tasks of a suite. ``audit`` may be called from several threads.

    Args:
        tasks: all tasks of the suite, including those to audit.
        provider: where sandboxes come from.
        checks: the names of the checks to make; all by default.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        provider: SandboxProvider,
        checks: Collection[str] = AUDIT_CHECKS,
    ) -> None:
        self.tasks = [task for task in tasks if task.repeat == 1]
        self._provider = provider
        self._checks = frozenset(checks)
        self._lock = threading.Lock()

    def audit(self, task: Task) -> AuditedTask:
        """Audit a task by itself, and as a duplicate of others."""
        if task.skip or task.gold_skip:
            return AuditedTask(task, left_out=task.skip or task.gold_skip or "")
        unused: set[str] = set()
        try:
            findings = list(self._play_checks(task))
            if "files-used" in self._checks and task.files:
                cls = environment_class(task.env, "strict")
                shell = cls if issubclass(cls, ShellEnvironment) else ShellEnvironment
                unused = unused_files(self._provider, task, shell)
        except MissingProgram as missing:
            return AuditedTask(task, left_out=str(missing))
        except (TaskError, InfrastructureError, ConfigurationError) as error:
            return AuditedTask(task, left_out=" ".join(str(error).split()), broken=True)
        unused_paths = sorted(path for path in unused if not self._is_shared(path, task))
        if unused_paths:
            message = (
                "gold does not use, and nothing names, these files (name them in decoys if they "
                f"are there to mislead): {', '.join(unused_paths)}"
            )
            findings.append(Finding(task.id, "files-used", message))
        with self._lock:
            findings += self._duplicates.get(task.id, [])
        selected = [finding for finding in findings if finding.check in self._checks]
        return AuditedTask(
            task, tuple(acknowledge(finding, task) for finding in selected), frozenset(unused)
        )

    def find_faults(self, task: Task) -> tuple[list[Finding], str]:
        """Audit one task, for one item of pytest.

        Returns:
            The faults, and why the task cannot be audited here, if it cannot.

        Raises:
            InfrastructureError: the machine failed.
        """
        audited = self.audit(task)
        if audited.broken:
            raise InfrastructureError(audited.left_out)
        return [finding for finding in audited.findings if finding.fault], audited.left_out

    def of_suite(self, audited: Sequence[AuditedTask]) -> list[Finding]:
        """Return the findings that need the audit of every task of the suite."""
        if len(audited) < len(self.tasks) or any(result.left_out for result in audited):
            return []
        return [*self._find_unused_by_all(audited), *self._find_outdated(audited)]

    # -- one task

    def _play_checks(self, task: Task) -> Iterator[Finding]:
        if not self._checks & _PLAYED:
            return
        try:
            gold = play(self._provider, task, kind_of(task.env).gold_answer(task))
        except MissingProgram:
            raise
        except TaskError as error:
            reason = _strip_task(error, task)
            if isinstance(error, GoldRefused):  # the engine's message, which does not quote gold
                yield Finding(task.id, "gold-runs", reason, _quote_gold(task))
            else:
                yield Finding(task.id, "gold-runs", "gold does not run", reason)
            return
        yield from self._check_gold(task, gold)
        yield from self._check_scratch(task, gold)
        yield from self._check_alternatives(task)
        limit = min(task.action_timeout, max(_MIN_ACTION_TIMEOUT, _GOLD_FACTOR * gold.seconds))
        yield from self._check_wrong_answers(task, gold, limit)
        if "gold-deterministic" in self._checks:
            yield from self._check_determinism(task, gold)

    def _check_gold(self, task: Task, gold: Played) -> Iterator[Finding]:
        """Yield gold's failures; its exit status does not count if tests have found it right."""
        verified = gold.solved and task.verification is not None
        for action, observation in zip(
            kind_of(task.env).gold_answer(task).actions, gold.observations, strict=False
        ):
            if not (observation.executed or verified):
                status = observation.status
                message = "gold fails" if status is None else f"gold fails with status {status}"
                yield Finding(task.id, "gold-runs", message, f"{action}\n{observation}")
                break
        if not gold.solved and not describe_difference(task.env, gold):
            message = f"gold gets {gold.reward.value:.2f}"
            reason = "its turns are used up" if gold.end_reason == "budget" else gold.reward.reason
            yield Finding(task.id, "gold-scores-1", f"{message}: {reason}" if reason else message)

    def _check_scratch(self, task: Task, gold: Played) -> Iterator[Finding]:
        """Yield a finding if gold leaves paths in scratch: they count, so agents need them, too."""
        if "gold" not in gold.state:
            return
        leftovers = kind_of(task.env).find_leftovers(task, gold.state)
        if leftovers:
            message = f"gold leaves {', '.join(leftovers[:3])}, which a right answer need not have"
            yield Finding(task.id, "scratch-clean", message, _quote_gold(task))

    def _check_alternatives(self, task: Task) -> Iterator[Finding]:
        """Yield a finding for each alternative of gold that does not run, or is not accepted."""
        if not self._checks & {"gold-runs", "gold-scores-1"}:
            return
        for number, commands in enumerate(kind_of(task.env).golds(task)[1:], start=1):
            label = f"alternative {number}"
            try:
                played = play(self._provider, task, Answer(commands))
            except TaskError as error:
                message = f"{label} of gold does not run"
                yield Finding(task.id, "gold-runs", message, _strip_task(error, task))
                continue
            failed = next((result for result in played.observations if not result.executed), None)
            if failed is not None:
                message = f"{label} of gold fails with status {failed.status}"
                yield Finding(task.id, "gold-runs", message, "\n".join((*commands, str(failed))))
            if not played.solved:
                message = f"{label} of gold gets {played.reward.value:.2f}: {played.reward.reason}"
                yield Finding(task.id, "gold-scores-1", message, "\n".join(commands))

    def _check_wrong_answers(self, task: Task, gold: Played, limit: float) -> Iterator[Finding]:
        """Yield a finding for each kind of wrong answer that solves the task."""
        if "noop-scores-0" in self._checks:
            for answer in idle_answers(task):
                played = self._try(task, answer, limit)
                if played is not None and played.solved:
                    message, evidence = f"{answer.description} solves it", _quote_gold(task)
                    yield Finding(
                        task.id, "noop-scores-0", message, f"{answer.evidence}\n{evidence}"
                    )
                    return  # then every answer solves it
                if played is not None and played.reward.value > 0:
                    message = f"{answer.description} gets {played.reward.value:.2f}"
                    yield Finding(task.id, "noop-scores-0", message, answer.evidence, note=True)
        wrong = wrong_answers(task, self.tasks)
        empty = kind_of(task.env).empty_answers(task, gold.state)
        for check, label, answers in (
            ("empty-answer-fails", "an empty answer", empty),
            ("wrong-answer-fails", "a wrong answer", [a for a in wrong if a.certain]),
            ("weak-check", "a changed gold", [a for a in wrong if not a.certain]),
        ):
            if check in self._checks:
                yield from self._find_solving(task, answers, check, limit, label)

    def _find_solving(
        self, task: Task, answers: Iterable[Answer], check: str, limit: float, label: str
    ) -> Iterator[Finding]:
        """Yield one finding for all answers that solve the task, and one for those worth a note."""
        played = [(answer, self._try(task, answer, limit)) for answer in answers]
        solving = [answer for answer, result in played if result is not None and result.solved]
        for note in (False, True):
            accepted = [answer for answer in solving if answer.note == note]
            if accepted:
                descriptions = dict.fromkeys(answer.description for answer in accepted)
                message = f"{label} solves it: {'; '.join(descriptions)}"
                evidence = "\n--\n".join(answer.evidence for answer in accepted)
                yield Finding(task.id, check, message, f"{evidence}\n{_quote_gold(task)}", note)

    def _try(self, task: Task, answer: Answer, limit: float) -> Played | None:
        """Play an answer; return None if gold, which ran before, did not run with it."""
        for seconds in (limit, None):  # the limit is gold's, too, and the machine may be busy
            try:
                return play(self._provider, task, answer, seconds)
            except SolvedAtFirst as error:
                return Played(Reward(1.0, reason=str(error)), (), {}, "submitted", 0.0)
            except TaskError:
                continue
        return None

    def _check_determinism(self, task: Task, gold: Played) -> Iterator[Finding]:
        try:
            second_run = play(
                self._provider, task, kind_of(task.env).gold_answer(task), pause=_PAUSE
            )
        except TaskError as error:
            message = "gold runs once and not the next time"
            yield Finding(task.id, "gold-deterministic", message, _strip_task(error, task))
            return
        differences = describe_difference(task.env, gold, second_run)
        if differences:
            yield Finding(task.id, "gold-deterministic", "two runs of gold differ", differences)

    @cached_property
    def _duplicates(self) -> dict[str, list[Finding]]:
        findings: dict[str, list[Finding]] = {}
        for finding in find_duplicates(self.tasks):
            findings.setdefault(finding.task, []).append(finding)
        return findings

    def _is_shared(self, path: str, task: Task) -> bool:
        """Whether other tasks have the same file, such as one from ``defaults``."""
        return any(
            sibling.id != task.id and sibling.files.get(path) == task.files[path]
            for sibling in self.tasks
        )

    # -- the suite

    def _find_unused_by_all(self, audited: Sequence[AuditedTask]) -> Iterator[Finding]:
        reported: set[str] = set()
        for result in audited:
            for path in sorted(result.unused - reported):
                spec = result.task.files[path]
                sharing = [r for r in audited if r.task.files.get(path) == spec]
                if len(sharing) > 1 and all(path in r.unused for r in sharing):
                    reported.add(path)
                    message = f"no gold of {len(sharing)} tasks needs {path}, and no query names it"
                    yield acknowledge(Finding(result.task.id, "files-used", message), result.task)

    def _find_outdated(self, audited: Sequence[AuditedTask]) -> Iterator[Finding]:
        """Yield a note for each acknowledgement of the suite that has no finding any more."""
        reasons: dict[tuple[str, str], list[AuditedTask]] = {}
        for result in audited:
            for check, reason in result.task.audit.items():
                if check in self._checks:
                    reasons.setdefault((check, reason), []).append(result)
        for (check, reason), results in reasons.items():
            findings = [f for result in results for f in result.findings if f.check == check]
            if not any(finding.acknowledged for finding in findings):
                message = f"it is acknowledged, and nothing is found any more: {reason}"
                yield Finding(results[0].task.id, check, message, note=True)


def _quote_gold(task: Task) -> str:
    """Return gold for comparison; empty if it may not be quoted."""
    text = "\n".join(task.gold)
    return "" if kind_of(task.env).secret_gold else f"-- gold:\n{text}"


def _strip_task(error: TaskError, task: Task) -> str:
    """Return a message without the task's name, which every line of the report has."""
    _, name, message = str(error).partition(f"task {task.id!r}: ")
    return message if name else str(error)
