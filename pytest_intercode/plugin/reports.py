"""What we add to pytest's reports: records as JSON, properties, the trajectory's tail.

``report.intercode`` has a line of JSON for each episode, of which a project test may have several.
These are builtins, so they survive the transfer from an xdist worker. Everything else on the
reports of our items is escaped: reasons, tracebacks, captured output. The terminal, JUnit's file
and the reports of other plugins are made from it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import pytest

from pytest_intercode.core.conversation import Exchange, group_by_turn
from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.core.text import clipped, escape_for_terminal, indented, one_line
from pytest_intercode.errors import (
    EngineUnavailable,
    EpisodeStopped,
    ImageError,
    InfrastructureError,
    TaskError,
)
from pytest_intercode.gateway.masking import Masks
from pytest_intercode.plugin.errors import MistakeFailure
from pytest_intercode.plugin.masking import headline_of, key_masks_of
from pytest_intercode.plugin.pass_rates import attach_try
from pytest_intercode.plugin.run import is_own_test, run_of, spec_of, task_of
from pytest_intercode.results.format import from_line, to_line
from pytest_intercode.rollouts.records import RecordBuilder, with_mistake, with_result

__all__ = [
    "RAN_AGAIN",
    "WITHOUT_AGENT",
    "amend_episode",
    "complete",
    "complete_subtest",
    "detach_episodes",
    "keep_episode",
    "reported_episode",
    "without_keys",
]

WITHOUT_AGENT = pytest.StashKey[bool]()
"""True on an item that was skipped because the run has no agent."""

RAN_AGAIN = pytest.StashKey[str]()
"""Why an item runs although the resumed run has a result of it; set on such items only."""

_EPISODES = pytest.StashKey[list[EpisodeRecord]]()
_SUBTEST_ERROR = pytest.StashKey[BaseException]()
_REPORTED: WeakKeyDictionary[pytest.TestReport, list[EpisodeRecord]] = WeakKeyDictionary()
"""The episodes of reports that were made in this process, which need not be parsed again."""

_PROPERTIES = frozenset(
    f"intercode_{name}"
    for name in (
        *("reward", "turns", "seconds", "outcome"),
        *("requests", "input_tokens", "output_tokens", "cost", "cached_tokens"),
    )
)
_TRAJECTORY = "intercode trajectory"
_MARGIN = "    "
_MAX_TAIL_TURNS = 5  # turns of an episode that are shown
_MAX_TAIL_CHARACTERS = 1500  # of one text of a turn
_MAX_PATCH_CHARACTERS = 6000  # of a patch, and of all diffs


def keep_episode(item: pytest.Item, episode: EpisodeRecord) -> None:
    """Remember an item's episode for its report, and set its JUnit properties."""
    item.stash.setdefault(_EPISODES, []).append(episode)
    _set_properties(item, episode)


def amend_episode(item: pytest.Item, episode: EpisodeRecord, amended: EpisodeRecord) -> None:
    """Replace a kept episode by an amended one.

    Args:
        item: the item.
        episode: the same object that was given to :func:`keep_episode`, or as ``amended``.
        amended: the new episode.
    """
    episodes = item.stash[_EPISODES]
    index = next(index for index, record in enumerate(episodes) if record is episode)
    episodes[index] = amended


def reported_episode(report: pytest.TestReport) -> EpisodeRecord | None:
    """Return the last episode of a report; None for a report without one."""
    lines = vars(report).get("intercode")
    if lines is None:
        return None
    episodes = _REPORTED.get(report)
    return episodes[-1] if episodes else from_line(lines[-1])


def detach_episodes(report: pytest.TestReport) -> list[tuple[EpisodeRecord, str]]:
    """Detach the episodes and their lines from a report, because pytest keeps it to the end."""
    lines: list[str] = vars(report).pop("intercode")
    episodes = _REPORTED.pop(report, None) or map(from_line, lines)
    return list(zip(episodes, lines, strict=True))


def _attach_episodes(
    report: pytest.TestReport, item: pytest.Item, episodes: list[EpisodeRecord]
) -> None:
    masks = key_masks_of(item.config)  # other plugins write everything that a report has
    vars(report)["intercode"] = [masks.line(to_line(episode)) for episode in episodes]
    _REPORTED[report] = episodes


def complete(report: pytest.TestReport, item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """Add our data to a report that pytest has just made; escape what others wrote."""
    _attach(report, item, call)
    if report.skipped and item.stash.get(WITHOUT_AGENT, False):
        vars(report)["intercode_without_agent"] = True
    escape(report, key_masks_of(item.config))


def complete_subtest(
    report: pytest.TestReport, item: pytest.Item, call: pytest.CallInfo[None]
) -> None:
    """Escape the report of a subtest; if it failed, its test has failed too."""
    if report.failed and call.excinfo is not None:
        item.stash.setdefault(_SUBTEST_ERROR, call.excinfo.value)
    escape(report, key_masks_of(item.config))


def escape(report: pytest.TestReport, masks: Masks) -> None:
    """Escape all texts of a report, even one that is not ours, and indent captured output.

    Args:
        report: the report.
        masks: the keys that it must not contain.
    """
    report.sections[:] = [
        (title, masks.text(text) if title == _TRAJECTORY else _indent(masks.text(text)))
        for title, text in report.sections
    ]
    report.longrepr = _escape_value(report.longrepr, masks)
    if hasattr(report, "wasxfail"):
        report.wasxfail = escape_for_terminal(masks.text(report.wasxfail))


def _indent(text: str) -> str:
    return indented(clipped(text).rstrip("\n")) + "\n"


def _escape_value(value: Any, masks: Masks) -> Any:
    """Return pytest's representation of an exception, all texts escaped, in place if possible."""
    if isinstance(value, str):
        return escape_for_terminal(clipped(masks.text(value)))
    if isinstance(value, (list, tuple)):
        return type(value)(_escape_value(element, masks) for element in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        for name, attribute in vars(value).items():
            setattr(value, name, _escape_value(attribute, masks))
    return value


def _attach(report: pytest.TestReport, item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    error = call.excinfo.value if call.excinfo is not None else None
    if report.when == "call" and _SUBTEST_ERROR in item.stash:
        error = error or item.stash[_SUBTEST_ERROR]
        del item.stash[_SUBTEST_ERROR]  # a rerun must not find it
    cause = error.__cause__ if isinstance(error, pytest.skip.Exception) else error
    if isinstance(cause, ImageError) and cause.image:
        vars(report)["intercode_missing_image"] = cause.image
    if isinstance(error, (InfrastructureError, TaskError, EpisodeStopped)):
        _attach_failure(report, item, error)
        return
    if isinstance(error, MistakeFailure) and hasattr(report, "wasxfail"):
        del report.wasxfail  # only a failure of the agent was expected, not a mistake
        report.outcome = "failed"
    if report.when != "call":
        return
    episodes = item.stash.get(_EPISODES, [])
    if not episodes:
        return
    del item.stash[_EPISODES]  # a rerun must not find the last run's
    if isinstance(error, MistakeFailure):
        # Also the runs in this test before the mistake must not count against the agent.
        episodes = [with_mistake(episode, str(error)) for episode in episodes]
    elif is_own_test(item) and not isinstance(error, pytest.skip.Exception):
        passed = error is None
        episodes = [
            dataclasses.replace(
                with_result(episode, passed),
                test_passed=passed,
                test_runs=len(episodes) if episode.test_digest else 0,
            )
            for episode in episodes
        ]
    _attach_episodes(report, item, episodes)
    if RAN_AGAIN in item.stash:
        vars(report)["intercode_ran_again"] = item.stash[RAN_AGAIN]
    attach_try(report, item, episodes)
    episode = episodes[-1]
    _set_properties(item, episode)  # the outcome is that of the test, now that it is known
    report.user_properties = list(item.user_properties)
    if report.failed or hasattr(report, "wasxfail"):
        results = run_of(item.config).settings.results
        episode = without_keys(episode, key_masks_of(item.config))
        report.sections.append((_TRAJECTORY, trajectory_tail(episode, results)))
        patch = episode.state.get("patch")
        if isinstance(patch, str) and patch:
            report.sections.append(("intercode patch", clipped(patch, _MAX_PATCH_CHARACTERS)))
        diffs = _join_diffs(episode)
        if diffs:
            report.sections.append(("intercode diff", clipped(diffs, _MAX_PATCH_CHARACTERS)))
        _add_test_output(report, episode)


def without_keys(episode: EpisodeRecord, masks: Masks) -> EpisodeRecord:
    """Return an episode without keys; for use before shortening, which may cut a key in two."""
    line = to_line(episode)
    masked_line = masks.line(line)
    return episode if masked_line == line else from_line(masked_line)


def _add_test_output(report: pytest.TestReport, episode: EpisodeRecord) -> None:
    if episode.test_output:
        report.sections.append(("intercode test output", episode.test_output))


def _join_diffs(episode: EpisodeRecord) -> str:
    """Return the recorded diffs of files, gold's and the agent's."""
    lines = []
    diffs = episode.state.get("diffs")
    for path, diff in sorted(diffs.items()) if isinstance(diffs, dict) else ():
        if isinstance(diff, list):
            lines += [f"--- gold: {path}", f"+++ agent: {path}", *diff]
    return "\n".join(map(str, lines))


def _attach_failure(
    report: pytest.TestReport,
    item: pytest.Item,
    error: InfrastructureError | TaskError | EpisodeStopped,
) -> None:
    """Report a failure that says nothing about the agent, such as a task's fault, as an ERROR."""
    task = task_of(item)
    if task is None:
        return
    if isinstance(error, EpisodeStopped) and isinstance(error.record, EpisodeRecord):
        episode = without_keys(error.record, key_masks_of(item.config))
        results = run_of(item.config).settings.results
        report.sections.append((_TRAJECTORY, trajectory_tail(episode, results)))
    else:
        episode = RecordBuilder(spec_of(item, task)).failure(error)
    _set_properties(item, episode)
    # The record of the error may be among the kept ones: a judge that fails amends it.
    amended = getattr(error, "record", None)
    episodes = [record for record in item.stash.get(_EPISODES, []) if record is not amended]
    _attach_episodes(report, item, [*episodes, episode])
    item.stash[_EPISODES] = []
    report.longrepr = headline_of(episode, item.config)
    _add_test_output(report, episode)
    if hasattr(report, "wasxfail"):
        if isinstance(error, TaskError):
            return  # the task is known not to work
        del report.wasxfail  # only a failure of the agent was expected, and this is another one
        report.outcome = "failed"
    if report.when == "call":
        report.when = "setup"  # pytest calls a fault outside of the test itself an error
    if isinstance(error, EngineUnavailable):
        item.session.shouldstop = one_line(str(error))


def _set_properties(item: pytest.Item, episode: EpisodeRecord) -> None:
    properties = {
        "intercode_reward": f"{episode.reward:.4f}",
        "intercode_turns": str(len(episode.turns)),
        "intercode_seconds": f"{episode.seconds:.3f}",
        "intercode_outcome": episode.outcome,
    }
    usage = episode.usage
    if usage:
        properties["intercode_requests"] = str(usage.requests)
        properties["intercode_input_tokens"] = str(usage.input_tokens)
        properties["intercode_output_tokens"] = str(usage.output_tokens)
    if usage.cached_tokens:
        properties["intercode_cached_tokens"] = str(usage.cached_tokens)
    if usage.cost is not None:
        properties["intercode_cost"] = f"{usage.cost:.6f}"
    user_properties = [pair for pair in item.user_properties if pair[0] not in _PROPERTIES]
    item.user_properties[:] = [*user_properties, *properties.items()]


def trajectory_tail(episode: EpisodeRecord, results: Path | None = None) -> str:
    """Return the last turns of an episode as text; what others wrote is indented."""
    lines = _quote("query: ", episode.task.query)
    skipped = len(episode.turns) - _MAX_TAIL_TURNS
    if skipped > 0:
        lines.append(f"[{skipped} earlier turns]")
    dialogue = group_by_turn(episode.dialogue, len(episode.turns))
    lines += _quote_exchanges(dialogue.get(max(0, skipped), ()), max(0, skipped) + 1)
    for number, turn in list(enumerate(episode.turns, 1))[-_MAX_TAIL_TURNS:]:
        if turn.thought:
            lines += _quote(f"{number} thought: ", turn.thought.strip())
        if turn.log:
            lines += _quote(f"{number} printed: ", turn.log.rstrip())
        lines += _quote(f"{number} > ", turn.action)
        if turn.observation:
            lines += _quote("", turn.observation.rstrip("\n"))
        lines += _quote_exchanges(dialogue.get(number, ()), number + 1)
    if episode.log:
        lines += _quote("printed at the end: ", episode.log.rstrip())
    for line in episode.refused_hosts:
        lines += _quote("refused by the sandbox's network: ", line)
    for line in episode.left_behind:
        lines += _quote("left behind: ", line)
    parts = ", ".join(f"{name} {value:.2f}" for name, value in episode.parts.items())
    lines += _quote(f"reward {episode.reward:.2f}", f" ({parts})" if parts else "")
    for votes in episode.judge_records:
        for line in votes.describe():
            lines += _quote("judge: ", line)
    if episode.detail:
        lines += _quote("", episode.detail)
    if results is not None:
        lines += _quote("the whole trajectory is in ", str(results))
    return "\n".join(lines)


def _quote_exchanges(exchanges: Sequence[Exchange], number: int) -> list[str]:
    """Return the lines of what the agent and the user said before a turn."""
    lines: list[str] = []
    for exchange in exchanges:
        lines += _quote(f"{number} said: ", exchange.message.strip())
        lines += _quote("the user: ", "(nothing)" if exchange.reply is None else exchange.reply)
    return lines


def _quote(label: str, text: str) -> list[str]:
    """Return the lines of a text after our label; all but the first are indented."""
    indented_text = indented(clipped(text, _MAX_TAIL_CHARACTERS), _MARGIN)
    return [label + indented_text[len(_MARGIN) :] if label else indented_text]
