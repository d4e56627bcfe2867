"""Judges audited by recorded votes: nothing is asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pytest_intercode.auditing.findings import Finding
from pytest_intercode.auditing.judge_checks import JudgeAuditor
from pytest_intercode.auditing.labels import Label
from pytest_intercode.core.judge import Judge, JudgeRecord
from pytest_intercode.core.record import EpisodeRecord, TaskRecord
from pytest_intercode.core.task import Task
from pytest_intercode.core.turn import Turn
from pytest_intercode.judging.question import describe_episode
from pytest_intercode.suites.schema import JUDGE_CHECKS

JUDGE = Judge("Is it a greeting?", "m-1", weight=0.5)
TASK = Task("t", "Greet.", ("echo hello",), "bash", "s", "s", judge=JUDGE)


def episode(action: str, *scores: float, judge: Judge = JUDGE) -> EpisodeRecord:
    record = EpisodeRecord(
        TaskRecord.of(TASK), "failed", 0.5, (Turn(action, "", True),), 5, 1.0, "strict"
    )
    evidence = describe_episode(record).digest
    reasons = ("r",) * len(scores)
    votes = JudgeRecord(judge.model, judge.digest, 0.5, 1.0, scores, reasons, evidence=evidence)
    return replace(record, judge=votes)


def evidence_of(record: EpisodeRecord) -> str:
    assert record.judge is not None
    return record.judge.evidence


def findings(
    records: Sequence[EpisodeRecord], labels: Sequence[Label] = (), task: Task = TASK
) -> list[Finding]:
    auditor = JudgeAuditor(JUDGE_CHECKS, records, labels)
    result = auditor.audit(task)
    return [*result.findings, *auditor.of_suite([result])]


def test_votes_that_agree() -> None:
    assert findings([episode("echo hi", 1, 1, 1), episode("ls", 0, 0, 0), episode("w", 1)]) == []


def test_votes_that_pass_and_fail_the_same_work() -> None:
    split = episode("echo hm", 1, 0, 0.4)
    [finding] = findings([episode("echo hi", 1, 0.5, 1), split, episode("ls", 0, 0, 0)])
    assert finding.fault
    assert finding.said == (
        "its votes pass and fail the same work: 1 of 3 that were judged several times"
    )
    assert finding.evidence == f"the episode {evidence_of(split)}: 1.00, 0.00, 0.40"
    [note] = findings([episode("echo hi", 1, 0.5, 1)])
    assert note.note
    assert "differ on the same work" in note.said


def test_the_same_work_in_two_runs_is_the_same_work() -> None:
    [finding] = findings([episode("echo hm", 1), episode("echo hm", 0), episode("ls", 0)])
    assert finding.fault
    assert finding.said.endswith("1 of 1 that were judged several times")


def test_answers_that_were_not_a_verdict_are_counted() -> None:
    record = episode("echo hi", 1, 1, 1)
    assert record.judge is not None
    slipped = replace(record, judge=replace(record.judge, unusable=("Sure!",)))
    [note] = findings([slipped, episode("ls", 0)])
    assert note.note
    assert note.said == "1 of its 5 answers were not a verdict"


def test_it_can_be_acknowledged() -> None:
    task = replace(TASK, audit={"judge-consistent": "taste differs"})
    [finding] = findings([episode("echo hm", 1, 0, 0)], task=task)
    assert not finding.fault
    assert finding.acknowledged == "taste differs"


def test_votes_on_another_rubric_say_nothing() -> None:
    other = replace(JUDGE, rubric="Is it polite?")
    assert findings([episode("echo hm", 1, 0, 0, judge=other)]) == []


def test_people_and_judge() -> None:
    records = [episode(f"echo {number}", float(number % 2)) for number in range(10)]

    def label(number: int, passes: bool) -> Label:
        return Label("l:1", "t", passes, evidence=evidence_of(records[number]))

    right = [label(number, bool(number % 2)) for number in range(10)]
    [note] = findings(records, right)
    assert note.note
    assert note.said.startswith(
        "it agrees with 10 of 10 labels of people: kappa 1.00, 95% interval 0."
    )
    wrong = [label(number, bool(number % 2) == (number > 4)) for number in range(10)]
    [fault] = findings(records, wrong)
    assert fault.fault
    assert fault.said.startswith("it agrees with 5 of 10 labels of people: kappa 0.00")
    first = f"t: the episode {evidence_of(records[0])}: people say pass, the judge 0.00"
    assert fault.evidence.splitlines()[0] == first
    assert len(fault.evidence.splitlines()) == 5


def test_labels_of_one_kind_say_nothing() -> None:
    record = episode("echo hi", 1, 1, 1)
    [note] = findings([record], [Label("l:1", "t", True, evidence=evidence_of(record))])
    assert note.note
    assert "which are all alike: label work of both kinds" in note.said
