"""The table of options, from which command line, ini values, help, reference and settings derive.

Every pytest run with the plugin installed loads this module, so it imports nothing large.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from pytest_intercode.options.models import ModelOptions
from pytest_intercode.options.option import Option, Values
from pytest_intercode.options.runs import ClusterOptions, EpisodeOptions, GateOptions, ResultOptions
from pytest_intercode.options.sandboxes import KubernetesOptions, NetworkOptions, SandboxOptions
from pytest_intercode.options.tasks import AgentOptions, LimitOptions, TaskOptions

__all__ = ["GROUPS", "OPTIONS", "Group", "Options"]


class Options(
    AgentOptions,
    TaskOptions,
    EpisodeOptions,
    LimitOptions,
    ResultOptions,
    GateOptions,
    SandboxOptions,
    NetworkOptions,
    ModelOptions,
    KubernetesOptions,
    ClusterOptions,
):
    """All options."""


class Group(NamedTuple):
    """Options that are shown together, under a title."""

    title: str
    options: tuple[Option[Any], ...]


GROUPS = tuple(
    Group(cls.title, tuple(value for value in vars(cls).values() if isinstance(value, Option)))
    for cls in Options.__bases__
    if issubclass(cls, Values)
)
"""All options by topic, in the order in which help and reference show them."""

OPTIONS = tuple(option for group in GROUPS for option in group.options)
"""All options, in the same order."""
