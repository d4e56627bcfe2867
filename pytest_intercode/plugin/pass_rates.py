"""``pass_rate``: several tries at a test are judged together, and no more of them run than needed.

A group consists of the items that are tries of one test: they differ only in the try. A try that
missed is reported as an expected failure (``xfailed``) as long as the group may miss so many, and
as a failure after that. Only misses are excused: errors of tasks, of the infrastructure and of the
test itself stay errors.

Reports are judged where they arrive, before other plugins see them. Under xdist this happens twice:
in a worker, which knows only its own tries, so that ``-x`` works there; and again on the
controller, which knows all tries, and whose verdict counts. So it does not matter which worker ran
which try. A try is skipped once the tries that this process knows decide the verdict, whatever the
others' results. So a worker may run one try more than needed, but never one too few.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from pytest_intercode.core.rates import PassRule
from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.core.task import Task
from pytest_intercode.plugin.run import run_of

__all__ = [
    *("PassRates", "attach_try", "count_tries", "has_pass_rate", "pass_rates_of", "skip_decided"),
]

_PASS_RATES = pytest.StashKey["PassRates"]()
_GROUP = pytest.StashKey[tuple[str, PassRule]]()
_SECTION = "intercode pass rate"


def pass_rates_of(config: pytest.Config) -> PassRates:
    """Return what this process knows about the groups; created on the first call."""
    return config.stash.setdefault(_PASS_RATES, PassRates())


def count_tries(items: Sequence[pytest.Item]) -> None:
    """Find the groups among the items that are to be run.

    The rule applies to the selected tries: where ``--lf`` or ``-k`` leaves one of five, that one
    has to pass. The items' parameters, and so their records, are changed to hold the number of
    selected tries.

    Args:
        items: all items of the run.
    """
    judged = {item: name for item in items if (name := _name_group(item)) is not None}
    counts = Counter(judged.values())
    for item, name in judged.items():
        parameters = _parameters(item)
        argument, value = _judged_parameter(parameters)
        item.stash[_GROUP] = name, PassRule(counts[name], value.pass_rate)
        tries = counts[name] if counts[name] > 1 else None
        if value.tries != tries:
            parameters[argument] = replace(value, tries=tries)


def _name_group(item: pytest.Item) -> str | None:
    """Return the name of an item's group, the same in all processes; None without a group."""
    parameters = _parameters(item)
    argument, value = _judged_parameter(parameters)
    if value is None:
        return None
    if isinstance(value, Task):
        test: tuple[str, ...] = (value.env, value.suite, value.dataset, value.id, value.treatment)
        agent = parameters.get("intercode_agent")  # set where the run has several
    else:  # a project test, whose task is not known before it runs
        test = (str(getattr(value.treatment, "name", "")),)
        agent = value.agent
    label = getattr(agent, "label", None)
    spec: Any = vars(item)["callspec"]
    # The index of our parameters differs between tries; those of the user's parameters do not.
    own_names = (argument, "intercode_agent") if label is not None else (argument,)
    indices = sorted(pair for pair in spec.indices.items() if pair[0] not in own_names)
    return repr((item.nodeid.partition("[")[0], test, label, indices))


def _parameters(item: pytest.Item) -> dict[str, Any]:
    """Return the parameters that an item's fixtures are given."""
    spec: Any = getattr(item, "callspec", None)
    return spec.params if spec is not None else {}


def _judged_parameter(parameters: Mapping[str, Any]) -> tuple[str, Any]:
    """Return the name and value of the parameter that identifies a try, if it has a pass rate."""
    for argument in ("intercode_task", "intercode_project"):
        value = parameters.get(argument)
        if getattr(value, "pass_rate", None) is not None:
            return argument, value
    return "", None


def has_pass_rate(item: pytest.Item) -> bool:
    """Whether an item is a try of a group that is judged."""
    return item.stash.get(_GROUP, None) is not None


def skip_decided(item: pytest.Item) -> None:
    """Have an item skipped that can no longer change the verdict on its group."""
    reason = pass_rates_of(item.config).reason_to_skip(item)
    if reason is not None:
        item.add_marker(pytest.mark.skip(reason=reason))


def attach_try(
    report: pytest.TestReport, item: pytest.Item, episodes: Sequence[EpisodeRecord]
) -> None:
    """Note on a report whether its try was solved, if it is one of a group that is judged.

    An item that may fail anyway (by an ``xfail`` mark or a baseline) is not judged again.

    Args:
        report: the report of the item's call.
        item: the item.
        episodes: the episodes that ran in it, one or more.
    """
    group = item.stash.get(_GROUP, None)
    graded = all(record.graded for record in episodes)
    if group is None or not graded or report.skipped or hasattr(report, "wasxfail"):
        return
    name, rule = group
    vars(report)["intercode_try"] = {
        "group": name,
        "tries": rule.tries,
        "pass_rate": rule.rate,
        "solved": report.passed,
    }


class PassRates:
    """What one process knows of the groups' tries."""

    def __init__(self) -> None:
        # Both by group, then by node id, so that the last result counts if a try is reported again.
        self._reported: dict[str, dict[str, bool]] = defaultdict(dict)
        self._known: dict[str, dict[str, bool]] = defaultdict(dict)  # also those before their turn
        self._lock = threading.Lock()

    def note(self, item: pytest.Item, *, solved: bool) -> None:
        """Note the result of a try that ended before its turn; may be called from any thread."""
        group = item.stash.get(_GROUP, None)
        if group is not None:
            with self._lock:
                self._known[group[0]][item.nodeid] = solved

    def needs(self, item: pytest.Item) -> bool:
        """Whether an item has to run, as far as pass rates are concerned.

        Not for the item whose turn it is: this was decided before its fixtures were made, and
        pytest waits for its rollout, whatever results have arrived since.
        """
        return self.reason_to_skip(item) is None

    def judge(self, report: pytest.TestReport) -> None:
        """Make a try that missed an expected failure, or a failure if it is one too many."""
        values = vars(report).get("intercode_try")
        if values is None or str(report.outcome) == "rerun":
            return
        rule = PassRule(values["tries"], values["pass_rate"])
        with self._lock:
            self._known[values["group"]][report.nodeid] = values["solved"]
            tally = self._reported[values["group"]]
            tally[report.nodeid] = values["solved"]
            solved, misses = _count(tally)
        if values["solved"]:
            return
        sections = [section for section in report.sections if section[0] != _SECTION]
        if rule.is_missed(misses):
            report.outcome = "failed"
            vars(report).pop("wasxfail", None)  # set by a worker, which knew fewer tries
            sections.append((_SECTION, rule.describe_missed(misses, solved) + "\n"))
        else:
            report.outcome = "skipped"
            report.wasxfail = rule.describe_allowed(misses)
        report.sections[:] = sections

    def reason_to_skip(self, item: pytest.Item) -> str | None:
        """Return why an item need not run; None if it has to run, or has run."""
        group = item.stash.get(_GROUP, None)
        if group is None:
            return None
        name, rule = group
        with self._lock:
            tally = self._known.get(name, {})
            solved, misses = _count(tally)
            is_over = item.nodeid in tally
        decided = not is_over and rule.decide(solved, misses) is not None
        if not decided or not run_of(item.config).settings.stop_early:
            return None
        return rule.describe_rest(solved, misses)


def _count(tally: dict[str, bool]) -> tuple[int, int]:
    """Return how many tries were solved, and how many missed."""
    solved = sum(tally.values())
    return solved, len(tally) - solved
