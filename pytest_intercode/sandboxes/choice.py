"""The backends that there are, by name, and the choice of the one that a run uses.

Further backends are entry points of installed packages. They are looked for when a name is not
built in, and loaded when their name is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from platform import machine

from pytest_intercode.core.facts import Fact
from pytest_intercode.core.platforms import Platform, platform_of_machine
from pytest_intercode.errors import ConfigurationError, suggestion
from pytest_intercode.sandboxes.added import AddedBackend
from pytest_intercode.sandboxes.backend import Backend, DescribedBackend
from pytest_intercode.sandboxes.images import DescribedImages
from pytest_intercode.sandboxes.settings import SandboxSettings
from pytest_intercode.system.imports import check_namesake
from pytest_intercode.system.platform import check_platform

__all__ = [
    *("AUTO", "GROUP", "Choice", "backend_names", "choose", "describe_backends"),
    *("find_platform", "make_backend", "only_with", "open_docker_images"),
]

AUTO = "auto"
GROUP = "pytest_intercode.sandboxes"
"""The group of entry points: each has its backend's name, and refers to what makes the backend."""

# Imported when they are needed.
_BUILT_IN = {
    "docker": "make_docker",
    "bubblewrap": "BubblewrapBackend",
    "kubernetes": "KubernetesBackend",
}
_AUTOMATIC = ("docker", "bubblewrap")  # in the order in which `auto` tries them


@dataclass(frozen=True)
class Choice:
    """The backend of a run.

    Attributes:
        backend: its name.
        reason: why this backend was chosen; empty when it was asked for, or is the usual one.
        label: its name, with other settings that the user wants to see.
    """

    backend: str
    reason: str = ""
    label: str = ""

    def __str__(self) -> str:
        label = self.label or self.backend
        return f"{label} ({self.reason})" if self.reason else label


def backend_names() -> tuple[str, ...]:
    """Return the names that may be asked for: `auto`, the built-in ones, and those of packages."""
    return (AUTO, *_BUILT_IN, *sorted(_entry_points().keys() - {AUTO, *_BUILT_IN}))


def make_backend(name: str, settings: SandboxSettings) -> Backend:
    """Make a backend, which starts nothing.

    Raises:
        ConfigurationError: there is no backend of this name, or its package cannot be used.
    """
    if name in _BUILT_IN:
        module = import_module(f"pytest_intercode.sandboxes.{name}.backend")
        make: Callable[[SandboxSettings], Backend] = getattr(module, _BUILT_IN[name])
        return make(settings)
    point = _entry_points().get(name)
    if point is None:
        names = backend_names()
        raise ConfigurationError(
            f"the sandbox backend {name!r} is not installed; allowed are {', '.join(names)}."
            f"{suggestion(name, names)}"
        )
    return AddedBackend(point, settings)


def choose(settings: SandboxSettings | None = None) -> tuple[Backend, Choice]:
    """Return the backend for some settings, without starting it.

    With ``auto``, that is the backend that one of the settings is for, else the first of this
    machine's own that can be used, else the first of all. A cluster, or an added backend, has to be
    asked for by its name.

    Raises:
        ConfigurationError: no backend has this name, or two have it, its package cannot be used,
            or this system has no sandboxes.
    """
    check_platform()
    settings = settings or SandboxSettings()
    if settings.backend != AUTO:
        _check_namesake(settings.backend)
        backend = make_backend(settings.backend, settings)
        return backend, Choice(backend.name, "", str(backend))
    return _choose_usable(
        [make_backend(name, settings) for name in _AUTOMATIC], lambda backend: backend.problem()
    )


def _choose_usable(
    backends: Sequence[Backend], find_problem: Callable[[Backend], str]
) -> tuple[Backend, Choice]:
    for backend in backends:
        reason = backend.requested()
        if reason is not None:
            return backend, Choice(backend.name, reason, str(backend))
    problems: list[str] = []
    for backend in backends:
        problem = find_problem(backend)
        if not problem:
            return backend, Choice(backend.name, "".join(problems[:1]), str(backend))
        problems.append(problem if not problems else problem.partition(":")[0])
    return backends[0], Choice(backends[0].name, ", and ".join(problems), str(backends[0]))


def find_platform(settings: SandboxSettings) -> Platform:
    """Return the platform of sandboxes whose task names none; this may ask an engine.

    Raises:
        ConfigurationError: there is no such backend.
        EngineUnavailable: the engine does not answer.
    """
    if settings.default_platform is not None:
        return settings.default_platform
    backend, _ = choose(settings)
    # Backends of other packages need not report it; most run programs of this machine's processor.
    ask: Callable[[], Platform] | None = getattr(backend, "platform", None)
    return platform_of_machine(machine()) if ask is None else ask()


def open_docker_images(settings: SandboxSettings) -> AbstractContextManager[DescribedImages]:
    """Return a context in which the Docker engine's images are available; it starts nothing.

    Raises:
        EngineUnavailable: inside the context, if the engine does not answer.
    """
    from pytest_intercode.sandboxes.docker.backend import open_images

    return open_images(settings)


def only_with(field: str) -> list[str]:
    """Return the names of those of our backends that support a setting."""
    backends = (make_backend(name, SandboxSettings()) for name in _BUILT_IN)
    return [backend.name for backend in backends if field in backend.takes]


def describe_backends(settings: SandboxSettings, *, needed: bool) -> list[Fact]:
    """Return facts about each backend, first about the one that runs with the settings use.

    It starts no sandbox; an engine that does not answer takes some seconds.

    Args:
        settings: where sandboxes come from.
        needed: something cannot be run without sandboxes; a backend that the settings ask for is
            needed in any case.
    """
    try:
        check_platform()
    except ConfigurationError as error:
        return [Fact("sandboxes", str(error), "problem").where(needed=needed)]
    backends: dict[str, Backend] = {}
    problems: dict[str, str] = {}
    for name in backend_names()[1:]:
        try:
            backends[name] = make_backend(name, settings)
            if name == settings.backend:
                _check_namesake(name)
            problems[name] = backends[name].problem()
        except ConfigurationError as error:
            problems[name] = str(error)
    if settings.backend == AUTO:
        backend, choice = _choose_usable(
            [backends[name] for name in _AUTOMATIC], lambda backend: problems[backend.name]
        )
        is_needed = needed or backend.requested() is not None
    else:
        label = str(backends.get(settings.backend, settings.backend))
        choice, is_needed = Choice(settings.backend, "", label), True
    facts = [_describe_choice(choice, problems).where(needed=is_needed)]
    for name in problems:
        described = _describe(backends.get(name), name, problems[name])
        is_asked = is_needed and name == choice.backend
        facts += [fact.where(needed=is_asked) for fact in described]
    return facts


def _describe_choice(choice: Choice, problems: Mapping[str, str]) -> Fact:
    if not problems[choice.backend]:
        return Fact("sandboxes", str(choice))
    # Whether the backends that `auto` never chooses can be used shows only when they are used.
    unprobed = _BUILT_IN.keys() - set(_AUTOMATIC)
    usable = [name for name, problem in problems.items() if not problem and name not in unprobed]
    hint = f"; {' and '.join(usable)} can be used" if usable else ""
    return Fact("sandboxes", f"none can be started with {choice.backend}{hint}", "problem")


def _describe(backend: Backend | None, name: str, problem: str) -> Iterable[Fact]:
    if isinstance(backend, DescribedBackend):
        try:
            return backend.describe(problem)
        except ConfigurationError as error:  # of another package
            problem = problem or str(error)
    return [Fact(name, problem, "problem") if problem else Fact(name, "can be used")]


@cache
def _entry_points() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=GROUP)}


def _check_namesake(name: str) -> None:
    if name in _BUILT_IN:
        check_namesake(_entry_points().get(name), f"the sandbox backend {name!r}")
