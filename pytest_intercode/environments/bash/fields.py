"""The fields of bash tasks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from pydantic import AfterValidator, StrictStr

from pytest_intercode.core.task import Task, TaskFields, in_suite
from pytest_intercode.environments.fields import Texts

__all__ = ["BashFields", "golds_of"]


def _alternatives(golds: str | list[tuple[str, ...]]) -> tuple[tuple[str, ...], ...]:
    """Read further golds: a single command, as a column of rows has it, or a list of golds."""
    return ((golds,),) if isinstance(golds, str) else tuple(golds)


@dataclass(frozen=True)
class BashFields(TaskFields):
    """The fields of bash tasks.

    Attributes:
        alternatives: further reference answers, each as good as gold. Each runs in a sandbox of its
            own, and the agent's whole end state has to equal that of one of them. The paper profile
            ignores them.
    """

    alternatives: tuple[tuple[str, ...], ...] = field(
        default=(),
        metadata=in_suite(
            Annotated[StrictStr | list[Texts], AfterValidator(_alternatives)],
            refusal="are for the env bash, where an end state is compared with gold's; a task of "
            "the env {env} has one gold",
        ),
    )


def golds_of(task: Task) -> tuple[tuple[str, ...], ...]:
    """Return gold and its alternatives, without duplicates."""
    return tuple(dict.fromkeys((task.gold, *BashFields.of(task).alternatives)))
