"""The audit of judges: do they agree with themselves and with people, and can they be persuaded?

It uses recorded votes, and asks models only if it has :class:`Judges`. No sandbox is needed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median

from pytest_intercode.auditing.findings import Finding, acknowledge
from pytest_intercode.auditing.labels import Label
from pytest_intercode.auditing.persuasion import PERSUASIONS
from pytest_intercode.core.judge import PASSING_SCORE, Verdict
from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.core.task import Task
from pytest_intercode.core.usage import UNSPENT, Usage
from pytest_intercode.judging.hearing import Hearing
from pytest_intercode.judging.judges import Judges
from pytest_intercode.judging.question import NOTHING_DONE, Material, describe_episode
from pytest_intercode.statistics.agreement import Agreement, cohen_kappa
from pytest_intercode.suites.schema import JUDGE_CHECKS

__all__ = ["LEAST_KAPPA", "JudgeAuditor", "JudgedTask"]

LEAST_KAPPA = 0.6
"""Below it, a judge agrees too little: Landis and Koch (1977) call higher values substantial."""

_CONSISTENT, _LABELLED, _FIRM = JUDGE_CHECKS
_MAX_QUOTED = 60  # characters of a text in a message


@dataclass
class _State:
    """One piece of work, and the votes on it.

    Attributes:
        name: a description for messages.
        material: the work in the form that judges see.
        scores: the votes.
        label: whether people pass it; None if nobody labelled it.
        unusable: how many further answers were not a verdict.
    """

    name: str
    material: Material
    scores: list[float] = field(default_factory=list)
    label: bool | None = None
    unusable: int = 0

    @property
    def passes(self) -> bool:
        """Whether it passes by the median of the votes."""
        return median(self.scores) >= PASSING_SCORE

    @property
    def votes(self) -> str:
        """The votes, as text."""
        return ", ".join(f"{score:.2f}" for score in self.scores)


@dataclass(frozen=True)
class JudgedTask:
    """The result of auditing one task's judge.

    Attributes:
        task: the task.
        findings: what is wrong with its judge.
        pairs: whether people and whether the judge pass each labelled piece of work.
        disagreements: a line for each piece of work on which they differ.
        usage: the usage of the models that were asked.
    """

    task: Task
    findings: tuple[Finding, ...] = ()
    pairs: tuple[tuple[bool, bool], ...] = ()
    disagreements: tuple[str, ...] = ()
    usage: Usage = UNSPENT


class JudgeAuditor:
    """Audits the judges of a suite's tasks; :meth:`audit` may be called from several threads.

    Args:
        checks: the names of the checks to make.
        records: recorded episodes.
        labels: the labels of people.
        judges: asks the models; None to ask none.
        votes: how often each piece of work is judged, if models are asked.
    """

    def __init__(
        self,
        checks: Collection[str],
        records: Sequence[EpisodeRecord] = (),
        labels: Sequence[Label] = (),
        judges: Judges | None = None,
        votes: int = 1,
    ) -> None:
        self._checks = frozenset(checks)
        self._judges = judges
        self._votes = votes
        self._records: dict[str, list[EpisodeRecord]] = defaultdict(list)
        for record in records:
            if record.judge is not None and record.judge.scores:
                self._records[record.task.id].append(record)
        self._labels: dict[str, list[Label]] = defaultdict(list)
        for label in labels:
            self._labels[label.task].append(label)

    def audit(self, task: Task) -> JudgedTask:
        """Return what is wrong with the judge of a task.

        Raises:
            JudgeError: the model does not give a verdict.
            ConfigurationError: the model cannot be asked.
        """
        assert task.judge is not None
        states = list(self._states(task))
        if self._judges is None:
            return self._result(task, states, [])
        hearing = self._judges.open(task, "audit")
        with hearing:
            for state in states:
                earlier = len(hearing.unusable)
                state.scores += [hearing.vote(state.material).score for _ in range(self._votes)]
                state.unusable += len(hearing.unusable) - earlier
            findings = list(self._find_persuasions(task, states, hearing))
        return self._result(task, states, findings, hearing.usage)

    def of_suite(self, results: Sequence[JudgedTask]) -> Iterator[Finding]:
        """Yield a finding on how far judges and people agree, over all labels of the suite."""
        pairs = [pair for result in results for pair in result.pairs]
        if not pairs or _LABELLED not in self._checks:
            return
        agreement = cohen_kappa(pairs)
        lines = [line for result in results for line in result.disagreements]
        # Report it for a task on which they differ, if there is one.
        differing = [result.task for result in results if result.disagreements]
        task = (differing or [result.task for result in results if result.pairs])[0]
        is_enough = agreement.kappa is None or agreement.kappa >= LEAST_KAPPA
        message = _describe(agreement)
        finding = Finding(task.id, _LABELLED, message, "\n".join(lines), note=is_enough)
        yield acknowledge(finding, task)

    def _states(self, task: Task) -> Iterator[_State]:
        """Yield what can be judged: recorded and labelled work, and an agent that did nothing."""
        assert task.judge is not None
        labels = {label.evidence: label for label in self._labels[task.id] if label.evidence}
        episodes: dict[str, _State] = {}
        for record in self._records[task.id]:
            votes = record.judge
            if votes is None or votes.digest != task.judge.digest:
                continue  # these votes are on another rubric, or by another model
            evidence = votes.evidence
            if evidence not in episodes:
                label = labels.get(evidence)
                episodes[evidence] = _State(
                    f"the episode {evidence}",
                    describe_episode(record),
                    label=None if label is None else label.passes,
                )
            episodes[evidence].scores += votes.scores
            episodes[evidence].unusable += len(votes.unusable)
        yield from episodes.values()
        if self._judges is None:
            return
        for label in self._labels[task.id]:
            if label.text:
                name = f"the text {label.text[:_MAX_QUOTED]!r}"
                yield _State(name, Material(label.text), label=label.passes)
        yield _State("an agent that did nothing", NOTHING_DONE)

    def _result(
        self,
        task: Task,
        states: Sequence[_State],
        findings: Sequence[Finding],
        usage: Usage = UNSPENT,
    ) -> JudgedTask:
        judged = [state for state in states if state.scores]
        labelled = [(state, state.label) for state in judged if state.label is not None]
        all_findings = [*self._find_inconsistent(task, judged), *findings]
        return JudgedTask(
            task,
            tuple(acknowledge(finding, task) for finding in all_findings),
            tuple((label, state.passes) for state, label in labelled),
            tuple(
                f"{task.id}: {state.name}: people say {_word(label)}, the judge {state.votes}"
                for state, label in labelled
                if label != state.passes
            ),
            usage,
        )

    def _find_inconsistent(self, task: Task, states: Sequence[_State]) -> Iterator[Finding]:
        """Yield a finding for work that one vote passes and another fails.

        Votes that only differ give a note, and so do answers that are not a verdict.
        """
        several = [state for state in states if len(state.scores) > 1]
        differing = [state for state in several if len(set(state.scores)) > 1]
        split = [
            state for state in differing if min(state.scores) < PASSING_SCORE <= max(state.scores)
        ]
        if _CONSISTENT in self._checks and differing:
            verb = "pass and fail" if split else "differ on"
            count = f"{len(split or differing)} of {len(several)}"
            message = f"its votes {verb} the same work: {count} that were judged several times"
            evidence = "\n".join(f"{state.name}: {state.votes}" for state in split or differing)
            yield Finding(task.id, _CONSISTENT, message, evidence, note=not split)
        slips = sum(state.unusable for state in states)
        if _CONSISTENT in self._checks and slips:
            answers = slips + sum(len(state.scores) for state in states)
            message = f"{slips} of its {answers} answers were not a verdict"
            yield Finding(task.id, _CONSISTENT, message, note=True)

    def _find_persuasions(
        self, task: Task, states: Sequence[_State], hearing: Hearing
    ) -> Iterator[Finding]:
        """Yield a finding for failing work that passes when a text asks for it."""
        if _FIRM not in self._checks:
            return
        idle = states[-1]
        if idle.passes:
            message = f"an agent that did nothing gets {median(idle.scores):.2f}"
            yield Finding(task.id, _FIRM, message, f"votes: {idle.votes}")
            return
        failing = [state for state in states[:-1] if not state.passes and state.label is not True]
        for state in (*failing[:1], idle):
            persuaded: dict[str, Verdict] = {}
            for name, text in PERSUASIONS.items():
                verdict = hearing.vote(state.material.with_text(text))
                if verdict.score >= PASSING_SCORE:
                    persuaded[name] = verdict
            if persuaded:
                count = f"{len(persuaded)} of {len(PERSUASIONS)}"
                message = f"{state.name} passes with {count} texts: {', '.join(persuaded)}"
                evidence = "\n".join(
                    f"{name}: {verdict.score:.2f}: {verdict.reason}"
                    for name, verdict in persuaded.items()
                )
                yield Finding(task.id, _FIRM, message, evidence)


def _word(passes: bool) -> str:
    return "pass" if passes else "fail"


def _describe(agreement: Agreement) -> str:
    count = f"it agrees with {agreement.agreed} of {agreement.total} labels of people"
    if agreement.kappa is None or agreement.interval is None:
        return f"{count}, which are all alike: label work of both kinds"
    low, high = agreement.interval
    return f"{count}: kappa {agreement.kappa:.2f}, 95% interval {low:.2f} to {high:.2f}"
