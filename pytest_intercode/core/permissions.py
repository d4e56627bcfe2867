"""Permissions of a suite on this machine, beyond its own folder: only those that the user gives.

The suite may come from a third party. By default it can read the files of its own folder, gets no
environment variable of the host, and can reach the public hosts that it lists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from pytest_intercode.core.hosts import is_private, parse_host
from pytest_intercode.core.task import Limits, Task, Verification
from pytest_intercode.errors import SuiteError

__all__ = [
    *("EVERYTHING", "NOTHING", "Permissions"),
    *("change_limits", "change_verifications", "requested_hosts"),
]


@dataclass(frozen=True)
class Permissions:
    """The permissions that the user gives to suites.

    Attributes:
        paths: folders that suites may read, as :option:`--intercode-allow-path` names them.
        variables: environment variables of the host whose values suites may have.
        network: whether sandboxes may reach every host if their task asks for it.
        hosts: hosts of this machine or of a private network that suites may reach, each as
            :func:`~pytest_intercode.core.hosts.parse_host` reads it.
        prefix: the prefix of the options that give more permissions; empty for Python arguments.
        trusted: whether the suites are part of this package, or of another installed one.
    """

    paths: tuple[Path, ...] = ()
    variables: tuple[str, ...] = ()
    network: bool = False
    hosts: tuple[str, ...] = ()
    prefix: str = "--intercode-"
    trusted: bool = False

    def remedy(self, option: str, value: str) -> str:
        """Return how the user can allow it: ``--intercode-allow-path=DIR``, or an argument."""
        if self.prefix:
            return f"{self.prefix}{option}={value}" if value else f"{self.prefix}{option}"
        name = "network" if option in ("allow-host", "network") else option.replace("-", "_")
        return f"{name}=[{value!r}]" if value else f"{name}=True"

    def limit(self, task: Task) -> Task:
        """Return a task with the network that it may have.

        A task that asks for the whole network needs it, and only the user can allow it.

        Raises:
            SuiteError: the task asks for a host of this machine or of a private network that the
                user has not allowed.
        """
        limits = task.limits
        nothing = not (limits.hosts or limits.network or task.verification)  # the usual case
        if nothing or self.trusted or self.network:
            return task
        refused = [host for host in requested_hosts(task) if self._is_refused(host)]
        if refused:
            raise SuiteError(
                f"{task.source}: task {task.id!r}: network: {refused[0]} is of this machine or of "
                "a private network, which a suite cannot open by itself; to allow it: "
                f"{self.remedy('allow-host', refused[0])}"
            )
        if not any(limits.network for limits in _limits(task)):
            return task
        task = change_limits(task, lambda limits: replace(limits, network=False))
        return replace(task, needs_network=True)

    def _is_refused(self, name: str) -> bool:
        host = parse_host(name)
        return is_private(host) and not any(
            parse_host(permission).covers(host) for permission in self.hosts
        )


NOTHING = Permissions()
"""For suites that a user names without giving permissions."""

EVERYTHING = Permissions(paths=(Path("/"),), trusted=True)
"""For suites of this package, whose code runs on this machine anyway."""


def requested_hosts(task: Task) -> Iterator[str]:
    """Yield the hosts that a task requests for its sandboxes, without duplicates."""
    yield from dict.fromkeys(host for limits in _limits(task) for host in limits.hosts)


def change_verifications(task: Task, change: Callable[[Verification], Verification]) -> Task:
    """Return the task with its verifications changed, including those of its steps."""
    if task.verification is None:
        return task
    steps = tuple(replace(step, verification=change(step.verification)) for step in task.steps)
    return replace(task, verification=change(task.verification), steps=steps)


def change_limits(task: Task, change: Callable[[Limits], Limits]) -> Task:
    """Return the task with the limits of its sandboxes changed, including its verifiers'."""

    def limit_verifier(verification: Verification) -> Verification:
        own_limits = verification.limits
        return replace(verification, limits=own_limits and change(own_limits))

    return change_verifications(replace(task, limits=change(task.limits)), limit_verifier)


def _limits(task: Task) -> Iterable[Limits]:
    all_limits = [verification.limits for verification in task.verifications]
    return [task.limits, *(limits for limits in all_limits if limits is not None)]
