"""The auditor: audits tasks, several at a time if need be, and then the suite as a whole.

Every answer is played in a fresh sandbox under the strict profile. Nothing here imports pytest.
"""

from __future__ import annotations

import posixpath
import threading
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cached_property

from pytest_intercode.auditing.determinism import difference
from pytest_intercode.auditing.duplicates import find_duplicates
from pytest_intercode.auditing.file_usage import unused_files
from pytest_intercode.auditing.findings import AuditedTask, Finding, acknowledge
from pytest_intercode.auditing.mutations import empty_answers, idle_answers, wrong_answers
from pytest_intercode.auditing.playing import Answer, Played, gold_answer, play
from pytest_intercode.core.reward import Reward
from pytest_intercode.core.task import AUDIT_CHECKS, Task
from pytest_intercode.environments.registry import environment_class
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

__all__ = ["Auditor"]

_PAUSE = 1.1  # seconds before the second run of gold: a clock that shows seconds has moved on
_LEAST_TIME = 2.0  # seconds that an action of a wrong answer has
_SLOWER = 4  # or so many times gold's duration, if that is more
_PLAYED = frozenset(AUDIT_CHECKS) - {"files-used", "no-duplicates"}


class Auditor:
    """Audits the tasks of a suite. ``audit`` may be called from several threads.

    Args:
        tasks: all tasks of the suite; those that are audited are among them.
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
        """Return the findings of a task, by itself and as a duplicate of others."""
        if task.skip or task.gold_skip:
            return AuditedTask(task, left_out=task.skip or task.gold_skip or "")
        unused: set[str] = set()
        try:
            findings = list(self._findings(task))
            if "files-used" in self._checks and task.files:
                cls = environment_class(task.env, "strict")
                shell = cls if issubclass(cls, ShellEnvironment) else ShellEnvironment
                unused = unused_files(self._provider, task, shell)
        except MissingProgram as missing:
            return AuditedTask(task, left_out=str(missing))
        except (TaskError, InfrastructureError, ConfigurationError) as error:
            return AuditedTask(task, left_out=" ".join(str(error).split()), broken=True)
        own = sorted(path for path in unused if not self._is_shared(path, task))
        if own:
            said = (
                "gold does not use, and nothing names, these files (name them in decoys if they "
                f"are there to mislead): {', '.join(own)}"
            )
            findings.append(Finding(task.id, "files-used", said))
        with self._lock:
            findings += self._duplicates.get(task.id, [])
        wanted = [finding for finding in findings if finding.check in self._checks]
        return AuditedTask(
            task, tuple(acknowledge(finding, task) for finding in wanted), frozenset(unused)
        )

    def faults(self, task: Task) -> tuple[list[Finding], str]:
        """Audit one task, as one item of pytest does.

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
        if len(audited) < len(self.tasks) or any(each.left_out for each in audited):
            return []
        return [*self._unused_by_all(audited), *self._outdated(audited)]

    # -- one task

    def _findings(self, task: Task) -> Iterator[Finding]:
        if not self._checks & _PLAYED:
            return
        try:
            gold = play(self._provider, task, gold_answer(task))
        except MissingProgram:
            raise
        except TaskError as error:
            why = _without_place(error, task)
            if isinstance(error, GoldRefused):  # the engine's own words, which quote no gold
                yield Finding(task.id, "gold-runs", why, _quoted_gold(task))
            else:
                yield Finding(task.id, "gold-runs", "gold does not run", why)
            return
        yield from self._failures_of_gold(task, gold)
        yield from self._left_in_scratch(task, gold)
        yield from self._failures_of_alternatives(task)
        limit = min(task.action_timeout, max(_LEAST_TIME, _SLOWER * gold.seconds))
        yield from self._accepted(task, gold, limit)
        if "gold-deterministic" in self._checks:
            yield from self._second_run(task, gold)

    def _failures_of_gold(self, task: Task, gold: Played) -> Iterator[Finding]:
        """Yield what gold fails at; its status says nothing where tests have found it right."""
        verified = gold.solved and task.verification is not None
        for action, seen in zip(gold_answer(task).actions, gold.observations, strict=False):
            if not (seen.executed or verified):
                status = f" with status {seen.status}" if seen.status is not None else ""
                yield Finding(task.id, "gold-runs", f"gold fails{status}", f"{action}\n{seen}")
                break
        if not gold.solved and not difference(task.env, gold):
            said = f"gold gets {gold.reward.value:.2f}"
            why = "its turns are used up" if gold.over == "budget" else gold.reward.reason
            yield Finding(task.id, "gold-scores-1", f"{said}: {why}" if why else said)

    def _left_in_scratch(self, task: Task, gold: Played) -> Iterator[Finding]:
        """Yield a finding for what gold leaves where agents may leave anything: it is compared."""
        if task.env != "bash" or "gold" not in gold.state:
            return
        scratch = [posixpath.join(task.workdir, each).rstrip("/") for each in task.reward.scratch]
        places = [place for place in scratch if place not in task.query]  # or it is asked for
        left = [
            path
            for path, entry in sorted(gold.state["gold"].get("entries", {}).items())
            if entry is not None
            and any(path.startswith(f"{place}/") for place in places)
            and posixpath.relpath(path, task.workdir) not in task.query
        ]
        if left:
            said = f"gold leaves {', '.join(left[:3])}, which a right answer need not have"
            yield Finding(task.id, "scratch-clean", said, _quoted_gold(task))

    def _failures_of_alternatives(self, task: Task) -> Iterator[Finding]:
        """Yield a finding for each alternative of gold that does not run, or is not accepted."""
        if not self._checks & {"gold-runs", "gold-scores-1"}:
            return
        for number, commands in enumerate(task.golds[1:], start=1):
            what = f"alternative {number}"
            try:
                played = play(self._provider, task, Answer(commands))
            except TaskError as error:
                said = f"{what} of gold does not run"
                yield Finding(task.id, "gold-runs", said, _without_place(error, task))
                continue
            failed = next((seen for seen in played.observations if not seen.executed), None)
            if failed is not None:
                said = f"{what} of gold fails with status {failed.status}"
                yield Finding(task.id, "gold-runs", said, "\n".join((*commands, str(failed))))
            if not played.solved:
                said = f"{what} of gold gets {played.reward.value:.2f}: {played.reward.reason}"
                yield Finding(task.id, "gold-scores-1", said, "\n".join(commands))

    def _accepted(self, task: Task, gold: Played, limit: float) -> Iterator[Finding]:
        """Yield a finding for each kind of wrong answer that solves the task."""
        if "noop-scores-0" in self._checks:
            for answer in idle_answers(task):
                played = self._try(task, answer, limit)
                if played is not None and played.solved:
                    said, evidence = f"{answer.what} solves it", _quoted_gold(task)
                    yield Finding(task.id, "noop-scores-0", said, f"{answer.shown}\n{evidence}")
                    return  # then every answer does
                if played is not None and played.reward.value > 0:
                    said = f"{answer.what} gets {played.reward.value:.2f}"
                    yield Finding(task.id, "noop-scores-0", said, answer.shown, note=True)
        wrong = wrong_answers(task, self.tasks)
        for check, what, answers in (
            ("empty-answer-fails", "an empty answer", empty_answers(task, gold)),
            ("wrong-answer-fails", "a wrong answer", (each for each in wrong if each.certain)),
            ("weak-check", "a changed gold", (each for each in wrong if not each.certain)),
        ):
            if check in self._checks:
                yield from self._solving(task, answers, check, limit, what)

    def _solving(
        self, task: Task, answers: Iterable[Answer], check: str, limit: float, what: str
    ) -> Iterator[Finding]:
        """Yield one finding for all answers that solve the task, and one for those worth a note."""
        played = [(answer, self._try(task, answer, limit)) for answer in answers]
        solving = [answer for answer, done in played if done is not None and done.solved]
        for note in (False, True):
            those = [answer for answer in solving if answer.note == note]
            if those:
                said = f"{what} solves it: {'; '.join(dict.fromkeys(a.what for a in those))}"
                evidence = "\n--\n".join(answer.shown for answer in those)
                yield Finding(task.id, check, said, f"{evidence}\n{_quoted_gold(task)}", note)

    def _try(self, task: Task, answer: Answer, limit: float) -> Played | None:
        """Play an answer; return None if gold, which ran before, did not run beside it."""
        for seconds in (limit, None):  # gold has this time, too, and the machine may be busy
            try:
                return play(self._provider, task, answer, seconds)
            except SolvedAtFirst as error:
                return Played(Reward(1.0, reason=str(error)), (), {}, "submitted", 0.0)
            except TaskError:
                continue
        return None

    def _second_run(self, task: Task, gold: Played) -> Iterator[Finding]:
        try:
            again = play(self._provider, task, gold_answer(task), pause=_PAUSE)
        except TaskError as error:
            said = "gold runs once and not the next time"
            yield Finding(task.id, "gold-deterministic", said, _without_place(error, task))
            return
        unlike = difference(task.env, gold, again)
        if unlike:
            yield Finding(task.id, "gold-deterministic", "two runs of gold differ", unlike)

    @cached_property
    def _duplicates(self) -> dict[str, list[Finding]]:
        found: dict[str, list[Finding]] = {}
        for finding in find_duplicates(self.tasks):
            found.setdefault(finding.task, []).append(finding)
        return found

    def _is_shared(self, path: str, task: Task) -> bool:
        """Whether other tasks have the same file, as those have that come from ``defaults``."""
        return any(
            other.id != task.id and other.files.get(path) == task.files[path]
            for other in self.tasks
        )

    # -- the suite

    def _unused_by_all(self, audited: Sequence[AuditedTask]) -> Iterator[Finding]:
        reported: set[str] = set()
        for each in audited:
            for path in sorted(each.unused - reported):
                spec = each.task.files[path]
                those = [other for other in audited if other.task.files.get(path) == spec]
                if len(those) > 1 and all(path in other.unused for other in those):
                    reported.add(path)
                    said = f"no gold of {len(those)} tasks needs {path}, and no query names it"
                    yield acknowledge(Finding(each.task.id, "files-used", said), each.task)

    def _outdated(self, audited: Sequence[AuditedTask]) -> Iterator[Finding]:
        """Yield a note for each acknowledgement of the suite that nothing is found for."""
        reasons: dict[tuple[str, str], list[AuditedTask]] = {}
        for each in audited:
            for check, reason in each.task.audit.items():
                if check in self._checks:
                    reasons.setdefault((check, reason), []).append(each)
        for (check, reason), those in reasons.items():
            found = [f for each in those for f in each.findings if f.check == check]
            if not any(finding.acknowledged for finding in found):
                said = f"it is acknowledged, and nothing is found any more: {reason}"
                yield Finding(those[0].task.id, check, said, note=True)


def _quoted_gold(task: Task) -> str:
    """Return gold for comparison, but never a flag."""
    text = "\n".join(task.gold)
    return "" if task.env == "ctf" else f"-- gold:\n{text}"


def _without_place(error: TaskError, task: Task) -> str:
    """Return a message without the task's name, which every line of the report has."""
    _, name, message = str(error).partition(f"task {task.id!r}: ")
    return message if name else str(error)
