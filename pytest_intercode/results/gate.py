"""The gate's judgements on the tries of a run. Pure: tries in, judgements out.

Runs and ``pytest-intercode gate`` both use this module, so that their judgements agree. In a run,
pytest itself decides which single items fail; for a file, :func:`judge_tests` does.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Sequence
from typing import Literal, NamedTuple

from pytest_intercode.core.rates import FailUnder, PassRule
from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.core.text import first_names, pluralize
from pytest_intercode.results.baseline import Baseline
from pytest_intercode.results.cells import CONTROL, by_cell, cell_of
from pytest_intercode.results.summary import summarise
from pytest_intercode.results.tries import by_task, key_of

__all__ = [
    "Conclusion",
    "Judgement",
    "conclude",
    "is_judged_together",
    "judge",
    "judge_file",
    "judge_tests",
]

_MAX_NAMED_RATES = 3  # tests whose misses are counted in a line


class Judgement(NamedTuple):
    """One judgement of the gate.

    Attributes:
        kind: the kind; only ``passed`` lets the run pass.
        sentence: why, for people.
        subject: the agent and treatment that it is about, if a run has several.
        is_self_explanatory: whether the sentence shows the kind, so that its line need not.
        compares: whether it is the verdict of the comparison with the baseline.
    """

    kind: Literal["passed", "failed", "inconclusive"]
    sentence: str
    subject: str = ""
    is_self_explanatory: bool = False
    compares: bool = False

    @property
    def passed(self) -> bool:
        """Whether the run may pass."""
        return self.kind == "passed"

    @property
    def reason(self) -> str:
        """The sentence, with its subject."""
        return f"{self.subject}{self.sentence}"

    @property
    def line(self) -> str:
        """The whole judgement in one line, for people."""
        if self.passed or self.is_self_explanatory:
            return self.reason
        return f"{self.subject}{self.kind}: {self.sentence}"


class Conclusion(NamedTuple):
    """Whether a run passed, as a whole.

    Attributes:
        kind: ``inconclusive`` if nothing is known to be wrong, but too little is known to pass;
            ``incomplete`` if the run did not reach its end.
        sentence: why.
    """

    kind: Literal["passed", "failed", "inconclusive", "incomplete"]
    sentence: str


def conclude(judgements: Sequence[Judgement]) -> Conclusion:
    """Return the conclusion from judgements; those that fail a run are the reason."""
    failing = [judgement for judgement in judgements if not judgement.passed]
    if not failing:
        return Conclusion("passed", "; ".join(judgement.reason for judgement in judgements))
    is_inconclusive = all(judgement.kind == "inconclusive" for judgement in failing)
    return Conclusion(
        "inconclusive" if is_inconclusive else "failed",
        "; ".join(judgement.reason for judgement in failing),
    )


def judge(
    tries: Sequence[EpisodeRecord], baseline: Baseline | None, fail_under: FailUnder | None
) -> list[Judgement]:
    """Return the judgements on a run as a whole.

    Args:
        tries: its tries.
        baseline: the results to compare with, if any.
        fail_under: the required rate, if any.
    """
    return [
        *_judge_infrastructure(tries),
        *_judge_tasks(tries),
        *(_judge_baseline(baseline, tries) if baseline else ()),
        *(_judge_rate(fail_under, tries) if fail_under else ()),
    ]


def judge_file(
    tries: Sequence[EpisodeRecord],
    baseline: Baseline | None,
    fail_under: FailUnder | None,
    gate: str | None,
) -> list[Judgement]:
    """Return the judgements on a finished run: on its tests, if they count, and on the whole.

    Args:
        tries: its tries.
        baseline: the results to compare with, if any.
        fail_under: the required rate, if any.
        gate: what counts in a comparison, ``tasks`` or ``verdict``; None to let
            :func:`is_judged_together` decide.
    """
    together = is_judged_together(tries, baseline, fail_under, gate)
    single = [] if together else judge_tests(tries, baseline)
    return [*single, *judge(tries, baseline, fail_under)]


def is_judged_together(
    tries: Sequence[EpisodeRecord],
    baseline: Baseline | None,
    fail_under: FailUnder | None,
    gate: str | None,
) -> bool:
    """Whether unsolved tasks are judged together, and not each by itself.

    Args:
        tries: the run's tries.
        baseline: the results to compare with, if any.
        fail_under: the required rate, if any.
        gate: what counts in a comparison, ``tasks`` or ``verdict``; None for the latter if the run
            has several tries at each task and no pass rate, which already allows for chance.
    """
    if baseline is None:
        return fail_under is not None
    if gate is None:
        has_pass_rate = any(record.task.pass_rate is not None for record in tries)
        return not has_pass_rate and all(map(_has_several_tries, by_task(tries).values()))
    return gate == "verdict"


def _has_several_tries(tries: Sequence[EpisodeRecord]) -> bool:
    # Also if other tries were skipped because they could not change the verdict of a pass rate.
    return any((record.task.tries or record.task.repeat) > 1 for record in tries)


def judge_tests(tries: Sequence[EpisodeRecord], baseline: Baseline | None) -> list[Judgement]:
    """Return the judgements on a run's tests, each by itself, as pytest judged their items.

    Args:
        tries: the run's tries.
        baseline: the baseline, if any; tasks that it did not always solve may fail.
    """
    failures: list[str] = []
    broken: list[str] = []
    groups: dict[Hashable, list[EpisodeRecord]] = {}
    has_one_agent = len({cell_of(record)._replace(treatment="") for record in tries}) == 1
    for record in tries:
        if record.task.xfail is not None:
            continue
        if baseline and baseline.explain(
            key_of(record), cell_of(record), is_only_agent=has_one_agent
        ):
            continue
        if record.outcome == "task-error":
            broken.append(str(key_of(record)))
        elif record.graded and record.task.pass_rate is not None:
            groups.setdefault(_group_of(record), []).append(record)
        elif record.graded and not record.succeeded:
            failures.append(str(key_of(record)))
    judgements = []
    if failures:
        tests = dict.fromkeys(failures)
        judgements.append(_failure(tests, "was not solved", "were not solved", first_names(tests)))
    if broken:
        tests = dict.fromkeys(broken)
        own_error = "has an error of its own", "have errors of their own"
        judgements.append(_failure(tests, *own_error, first_names(tests)))
    rules = [(_rule_of(group), group) for group in groups.values()]
    misses = [
        _describe_miss(rule, group) for rule, group in rules if _decide(rule, group) == "missed"
    ]
    if misses:
        details = misses[:_MAX_NAMED_RATES]
        if len(misses) > len(details):
            details.append(f"{len(misses) - len(details)} more")
        own_rate = "misses its pass rate", "miss their pass rates"
        judgements.append(_failure(misses, *own_rate, "; ".join(details)))
    undecided = {str(key_of(group[0])) for rule, group in rules if _decide(rule, group) is None}
    if undecided:
        verb = "has" if len(undecided) == 1 else "have"
        subject = pluralize(len(undecided), "task")
        sentence = f"{subject} {verb} too few tries to reach or miss a pass rate"
        sentence = f"{sentence} ({first_names(sorted(undecided))})"
        judgements.append(Judgement("inconclusive", sentence))
    return judgements or [Judgement("passed", "no task failed that has to be solved")]


def _failure(tests: Collection[str], one: str, several: str, details: str) -> Judgement:
    verb = one if len(tests) == 1 else several
    return Judgement("failed", f"{pluralize(len(tests), 'task')} {verb} ({details})")


def _group_of(record: EpisodeRecord) -> Hashable:
    """Return the key that the tries of one test have in common."""
    return cell_of(record), key_of(record)


def _rule_of(group: Sequence[EpisodeRecord]) -> PassRule:
    task = group[0].task
    assert task.pass_rate is not None
    return PassRule(task.tries or 1, task.pass_rate)


def _decide(rule: PassRule, group: Sequence[EpisodeRecord]) -> Literal["missed", "reached"] | None:
    """Return what the tries of a test decide; None if there are too few."""
    solved = sum(record.succeeded for record in group)
    return rule.decide(solved, len(group) - solved)


def _describe_miss(rule: PassRule, group: Sequence[EpisodeRecord]) -> str:
    solved = sum(record.succeeded for record in group)
    return f"{key_of(group[0])}: {rule.describe_missed(len(group) - solved, solved)}"


def _judge_infrastructure(tries: Sequence[EpisodeRecord]) -> Iterable[Judgement]:
    failures = sum(record.outcome == "infrastructure-error" for record in tries)
    if failures:
        subject = "episodes were" if failures > 1 else "episode was"
        yield Judgement("inconclusive", f"{failures} {subject} lost to infrastructure errors")
    stopped = sum(record.outcome == "stopped" for record in tries)
    if stopped:
        subject = "episodes were" if stopped > 1 else "episode was"
        yield Judgement("inconclusive", f"{stopped} {subject} stopped by the user")


def _judge_tasks(tries: Iterable[EpisodeRecord]) -> Iterable[Judgement]:
    broken = dict.fromkeys(
        str(key_of(record)) for record in tries if record.outcome == "task-error"
    )
    if broken:
        verb = "has an error of its own" if len(broken) == 1 else "have errors of their own"
        tasks = f"{pluralize(len(broken), 'task')} {verb} ({first_names(broken)})"
        yield Judgement("passed", f"not counted: {tasks}")


def _judge_baseline(baseline: Baseline, tries: Sequence[EpisodeRecord]) -> Iterable[Judgement]:
    name = baseline.path.name
    verdicts = baseline.verdicts(tries)
    if not verdicts:
        yield Judgement("inconclusive", f"no task of this run has its result in {name}")
        return
    facts = []
    if unknown := baseline.unknown(tries):
        verb = "is" if unknown == 1 else "are"
        facts.append(f"{pluralize(unknown, 'task')} {verb} not in it")
    if cells := baseline.unknown_cells(tries):
        facts.append(
            f"{first_names(map(str, cells))} {'is' if len(cells) == 1 else 'are'} not in it"
        )
    new = f" ({', '.join(facts)})" if facts else ""
    has_one_cell = len(verdicts) == 1 and not cells
    for cell, verdict in verdicts.items():
        subject = "" if has_one_cell else f"{cell} "
        yield Judgement(
            "failed" if verdict.kind == "regressed" else "passed",
            f"compared with {name}{new}: {verdict.sentence}",
            subject,
            is_self_explanatory=True,
            compares=True,
        )
        new = ""  # mentioned only once


def _judge_rate(required: FailUnder, tries: Sequence[EpisodeRecord]) -> Iterable[Judgement]:
    tries_by_cell = by_cell(tries)
    if len(tries_by_cell) < 2:
        yield _judge_rate_of(required, tries, "")
        return
    # The treatments have to reach the rate, but not the control without them.
    treated = [cell for cell in tries_by_cell if cell.treatment != CONTROL]
    for cell in treated or tries_by_cell:
        yield _judge_rate_of(required, tries_by_cell[cell], f"{cell}: ")


def _judge_rate_of(required: FailUnder, tries: Sequence[EpisodeRecord], subject: str) -> Judgement:
    summary = summarise(tries)
    if summary.rate is None or summary.rate_interval is None:
        return Judgement("inconclusive", "no episode was graded, so there is no rate", subject)
    low, high = summary.rate_interval
    reached = low if required.lower else summary.rate
    quantity = "the rate's lower bound" if required.lower else "the rate"
    passed = reached >= required.rate
    verb = "reaches" if passed else "is under"
    return Judgement(
        "passed" if passed else "failed",
        f"{quantity}, {reached:.1%}, {verb} {required.rate:.1%} "
        f"({summary.solved} of {summary.graded} solved, 95 % interval {low:.1%} to {high:.1%})",
        subject,
        is_self_explanatory=True,
    )
