"""Plain marks of items, such as ``codex``, ``sql`` or a task's tag: ``-m`` selects by them."""

from __future__ import annotations

import re

import pytest

from pytest_intercode.agents.choice import AgentChoice
from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.core.text import one_line
from pytest_intercode.environments.registry import is_environment
from pytest_intercode.plugin.run import Run, agent_of
from pytest_intercode.results.cells import make_cell
from pytest_intercode.results.tries import key_of

__all__ = ["expect_failure", "make_agent_marks", "make_mark", "may_be_mark"]

# Names that pytest accepts for marks; other tags and labels do not become marks.
_MARK_NAME = re.compile(r"[^\W_][\w-]*")
# Marks that pytest and its usual plugins act on: a tag of such a name does not become a mark.
_RESERVED_MARKS = frozenset(
    (
        *("intercode", "skip", "skipif", "xfail", "usefixtures", "parametrize", "filterwarnings"),
        *("tryfirst", "trylast", "flaky", "timeout", "xdist_group", "anyio", "asyncio", "trio"),
        *("vcr", "repeat", "dependency", "order", "benchmark", "no_cover"),
    )
)
_REGISTERED = pytest.StashKey[set[str]]()


def may_be_mark(name: str) -> bool:
    """Whether a tag or a label may be the name of a mark.

    The name of an environment may not: as a mark, it selects only the environment's own tasks.
    """
    return bool(
        _MARK_NAME.fullmatch(name) and name not in _RESERVED_MARKS and not is_environment(name)
    )


def make_mark(config: pytest.Config, name: str, meaning: str) -> pytest.MarkDecorator:
    """Return a plain mark, registered so that ``--strict-markers`` accepts it.

    Args:
        config: pytest's.
        name: the name of the mark.
        meaning: its description in ``--markers``.
    """
    registered = config.stash.setdefault(_REGISTERED, set())
    if name not in registered:
        registered.add(name)
        config.addinivalue_line("markers", f"{name}: {meaning}")
    mark: pytest.MarkDecorator = getattr(pytest.mark, name)
    return mark


def make_agent_marks(config: pytest.Config, agent: AgentChoice) -> list[pytest.MarkDecorator]:
    """Return the mark of an agent's items: its label, if that may be a mark."""
    if not may_be_mark(agent.label):
        return []
    return [make_mark(config, agent.label, "items that this agent of intercode plays")]


def expect_failure(item: pytest.Item, run: Run, record: EpisodeRecord) -> None:
    """Mark a project test as an expected failure, if the baseline says that it may fail.

    Args:
        item: the test.
        run: the run, which has the baseline.
        record: a record of the test, which names it as the baseline does.
    """
    baseline, agent = run.baseline, agent_of(item)
    if baseline is None or agent is None:
        return
    cell = make_cell(agent.name, agent.arguments, record.task.treatment)
    has_one = len(run.settings.agents) == 1
    reason = baseline.explain(key_of(record), cell, is_only_agent=has_one)
    if reason is not None:
        item.add_marker(pytest.mark.xfail(reason=one_line(reason), strict=False))
