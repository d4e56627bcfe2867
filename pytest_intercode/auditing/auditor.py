"""Audits tasks, one at a time or many at the same time, and then the suite as a whole.

Every answer is played on a fresh sandbox under the strict profile. ``audit`` may be called from
several threads.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cached_property

from pytest_intercode.auditing.determinism import difference
from pytest_intercode.auditing.duplicates import duplicates
from pytest_intercode.auditing.file_usage import unread
from pytest_intercode.auditing.findings import Audited, Finding, acknowledged
from pytest_intercode.auditing.mutations import empty_answers, idle_answers, wrong_answers
from pytest_intercode.auditing.playing import Answer, Played, gold_answer, play
from pytest_intercode.core.task import AUDIT_CHECKS, Task
from pytest_intercode.environments.registry import environment_class
from pytest_intercode.environments.shell import ShellEnvironment
from pytest_intercode.errors import (
    ConfigurationError,
    GoldRefused,
    InfrastructureError,
    MissingProgram,
    SandboxError,
    TaskError,
)
from pytest_intercode.sandboxes.provider import SandboxProvider

__all__ = ["Auditor"]

_APART = 1.1  # seconds that the second agent starts later: a clock that shows them has moved on
_LEAST_TIME = 2.0  # seconds that an action of a wrong answer has
_SLOWER = 4  # times gold's own, which it has where that is more
_PLAYED = frozenset(AUDIT_CHECKS) - {"files-used", "no-duplicates"}


class Auditor:
    """Audits the tasks of a suite.

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

    def audit(self, task: Task) -> Audited:
        """Return what is wrong with a task by itself, and beside the others."""
        if task.skip:
            return Audited(task, left_out=task.skip)
        try:
            findings = list(self._findings(task))
            files = unread(self._provider, task, self._shell(task)) if self._reads(task) else set()
        except MissingProgram as missing:
            return Audited(task, left_out=str(missing))
        except (TaskError, InfrastructureError, ConfigurationError) as error:
            return Audited(task, left_out=" ".join(str(error).split()), broken=True)
        own = sorted(path for path in files if not self._is_shared(path, task))
        if own:
            findings.append(_unread(task, own))
        findings += self._duplicates.get(task.id, [])
        wanted = [f for f in findings if f.check in self._checks]
        return Audited(task, tuple(acknowledged(f, task) for f in wanted), frozenset(files))

    def faults(self, task: Task) -> tuple[list[Finding], str]:
        """Audit one task, as one item of pytest does.

        Returns:
            The faults, and why the task cannot be audited here, if it cannot.

        Raises:
            InfrastructureError: the machine spoiled it.
        """
        done = self.audit(task)
        if done.broken:
            raise InfrastructureError(done.left_out)
        return [finding for finding in done.findings if finding.fault], done.left_out

    def of_suite(self, done: Sequence[Audited]) -> list[Finding]:
        """Return what only shows when every task of the suite was audited."""
        if len(done) < len(self.tasks) or any(each.left_out for each in done):
            return []
        return [*self._unread_by_all(done), *self._needless(done)]

    # -- one task

    def _findings(self, task: Task) -> Iterator[Finding]:
        if not self._checks & _PLAYED:
            return
        try:
            gold = play(self._provider, task, gold_answer(task))
        except (MissingProgram, SandboxError):
            raise
        except TaskError as error:
            why = _short(error, task)
            if isinstance(error, GoldRefused):  # the engine's own words, which quote no gold
                yield Finding(task.id, "gold-runs", why, _gold(task))
            else:
                yield Finding(task.id, "gold-runs", "gold does not run", why)
            return
        yield from self._of_gold(task, gold)
        limit = min(task.action_timeout, max(_LEAST_TIME, _SLOWER * gold.seconds))
        yield from self._taken_for_right(task, gold, limit)
        if "twins-agree" in self._checks:
            yield from self._twins(task, gold)

    def _of_gold(self, task: Task, gold: Played) -> Iterator[Finding]:
        for action, seen in zip(gold_answer(task).actions, gold.observations, strict=False):
            if not seen.executed:
                status = f" with status {seen.status}" if seen.status is not None else ""
                yield Finding(task.id, "gold-runs", f"gold fails{status}", f"{action}\n{seen}")
                break
        if not gold.solved and not difference(task.env, gold):
            said = f"gold gets {gold.reward.value:.2f}"
            why = "its turns are used up" if gold.over == "budget" else gold.reward.reason
            yield Finding(task.id, "gold-scores-1", f"{said}: {why}" if why else said)

    def _taken_for_right(self, task: Task, gold: Played, limit: float) -> Iterator[Finding]:
        if "noop-scores-0" in self._checks:
            for answer in idle_answers(task):
                done = self._try(task, answer, limit)
                if done is not None and done.solved:
                    said = f"{answer.what} solves it"
                    yield Finding(task.id, "noop-scores-0", said, f"{answer.shown}\n{_gold(task)}")
                    return  # nothing can be wrong, then
                if done is not None and done.reward.value > 0:
                    said = f"{answer.what} gets {done.reward.value:.2f}"
                    yield Finding(task.id, "noop-scores-0", said, answer.shown, note=True)
        if "empty-answer-fails" in self._checks:
            yield from self._solving(
                task, empty_answers(task, gold), "empty-answer-fails", limit, "an empty answer"
            )
        wrong = wrong_answers(task, self.tasks)
        sure = [answer for answer in wrong if answer.surely]
        judged = [answer for answer in wrong if not answer.surely]
        if "wrong-answer-fails" in self._checks:
            yield from self._solving(task, sure, "wrong-answer-fails", limit, "a wrong answer")
        if "weak-check" in self._checks:
            yield from self._solving(task, judged, "weak-check", limit, "a changed gold")

    def _solving(
        self, task: Task, answers: Iterable[Answer], check: str, limit: float, what: str
    ) -> Iterator[Finding]:
        """Yield one finding for those of some answers that solve the task, and one for notes."""
        solving = []
        for answer in answers:
            done = self._try(task, answer, limit)
            if done is not None and done.solved:
                solving.append(answer)
        for note in (False, True):
            taken = [answer for answer in solving if answer.note == note]
            if not taken:
                continue
            said = f"{what} solves it: {'; '.join(dict.fromkeys(a.what for a in taken))}"
            evidence = "\n--\n".join(answer.shown for answer in taken)
            yield Finding(task.id, check, said, f"{evidence}\n{_gold(task)}", note)

    def _try(self, task: Task, answer: Answer, limit: float) -> Played | None:
        """Play an answer; None if gold, which ran before, did not run beside it."""
        for seconds in (limit, None):  # the time is gold's, too, and the machine may be busy
            try:
                return play(self._provider, task, answer, seconds)
            except SandboxError:
                raise
            except TaskError:
                continue
        return None

    def _twins(self, task: Task, gold: Played) -> Iterator[Finding]:
        try:
            again = play(self._provider, task, gold_answer(task), pause=_APART)
        except SandboxError:
            raise
        except TaskError as error:
            said = "gold runs once and not the next time"
            yield Finding(task.id, "twins-agree", said, _short(error, task))
            return
        unlike = difference(task.env, gold, again)
        if unlike:
            yield Finding(task.id, "twins-agree", "two runs of gold differ", unlike)

    # -- files

    def _reads(self, task: Task) -> bool:
        return "files-used" in self._checks and bool(task.files)

    def _shell(self, task: Task) -> type[ShellEnvironment]:
        cls = environment_class(task.env, "strict")
        return cls if issubclass(cls, ShellEnvironment) else ShellEnvironment

    def _is_shared(self, path: str, task: Task) -> bool:
        """Whether other tasks have the same file, as those have that come from ``defaults``."""
        return any(
            other.id != task.id and other.files.get(path) == task.files[path]
            for other in self.tasks
        )

    def _unread_by_all(self, done: Sequence[Audited]) -> Iterator[Finding]:
        if "files-used" not in self._checks:
            return
        told: set[str] = set()
        for each in done:
            for path in sorted(each.unread - told):
                spec = each.task.files[path]
                those = [other for other in done if other.task.files.get(path) == spec]
                if len(those) > 1 and all(path in other.unread for other in those):
                    told.add(path)
                    said = f"no gold of {len(those)} tasks needs {path}, and no query names it"
                    yield acknowledged(Finding(each.task.id, "files-used", said), each.task)

    @cached_property
    def _found_duplicates(self) -> dict[str, list[Finding]]:
        found: dict[str, list[Finding]] = {}
        for finding in duplicates(self.tasks):
            found.setdefault(finding.task, []).append(finding)
        return found

    @property
    def _duplicates(self) -> dict[str, list[Finding]]:
        with self._lock:
            return self._found_duplicates

    # -- what a suite acknowledges

    def _needless(self, done: Sequence[Audited]) -> Iterator[Finding]:
        """Yield a note for each reason of the suite's that nothing was found for."""
        reasons: dict[tuple[str, str], list[Audited]] = {}
        for each in done:
            for check, reason in each.task.audit.items():
                if check in self._checks:
                    reasons.setdefault((check, reason), []).append(each)
        for (check, reason), those in reasons.items():
            found = [f for each in those for f in each.findings if f.check == check]
            if not any(finding.acknowledged for finding in found):
                said = f"it is acknowledged, and nothing is found any more: {reason}"
                yield Finding(those[0].task.id, check, said, note=True)


def _unread(task: Task, paths: Sequence[str]) -> Finding:
    named = ", ".join(paths)
    said = "gold does not need what nobody names; if it is to mislead, name it in decoys"
    return Finding(task.id, "files-used", f"{said}: {named}")


def _gold(task: Task) -> str:
    """Return gold for comparison; a flag is told to nobody."""
    text = "\n".join(task.gold)
    return "" if task.env == "ctf" else f"-- gold:\n{text}"


def _short(error: TaskError, task: Task) -> str:
    """Leave out of a message what every line of the report has."""
    said = str(error)
    with contextlib.suppress(ValueError):
        said = said[said.index(f"task {task.id!r}: ") + len(f"task {task.id!r}: ") :]
    return said
