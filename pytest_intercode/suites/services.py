"""``services`` of a suite: additional machines of a task, and what its tests get from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, StrictStr, model_validator

from pytest_intercode.core.machine import (
    DEFAULT_NETWORK,
    HealthCheck,
    ImageSource,
    Limits,
    Service,
    ServiceCondition,
    Services,
    can_mount_at,
    in_order,
)
from pytest_intercode.core.platforms import parse_platform
from pytest_intercode.core.task import Artifact, Hook, Task
from pytest_intercode.environments.fields import AbsolutePath, FileForm, SuiteForm
from pytest_intercode.errors import SuiteError
from pytest_intercode.suites.forms import (
    Files,
    LimitsModel,
    Variable,
    build_forms,
    find_dockerfile,
)
from pytest_intercode.system.suite_folder import SuitePath

__all__ = [
    *("EvidenceModel", "HookModel", "ServiceModel", "ServiceName"),
    *("as_artifact", "as_hook", "find_missing_services", "lay_services", "sorted_services"),
]

_MAIN = "main"  # the name by which services reach the agent's machine

ServiceName = Annotated[StrictStr, Field(pattern=r"^[a-z0-9][a-z0-9_.-]{0,62}$")]


def _mount_path(path: str) -> str:
    if not can_mount_at(path):
        raise ValueError("/, paths in /proc, /sys or /dev, and those with ':' are not allowed")
    return path


MountPath = Annotated[AbsolutePath, AfterValidator(_mount_path)]


def _shell_words(command: str | tuple[str, ...]) -> tuple[str, ...]:
    """Return the words of a command; a text is run by a shell."""
    return ("/bin/sh", "-c", command) if isinstance(command, str) else command


Command = Annotated[StrictStr | tuple[StrictStr, ...], AfterValidator(_shell_words)]


class HealthModel(SuiteForm):
    """``health``: a command that exits with 0 once a service is ready."""

    command: Command
    interval: float = Field(HealthCheck.interval, gt=0, le=60)
    timeout: float = Field(HealthCheck.timeout, gt=0, le=600)
    retries: int = Field(HealthCheck.retries, ge=1, le=600)
    start_period: float = Field(HealthCheck.start_period, ge=0, le=600)


def _check(health: str | HealthModel) -> HealthCheck:
    model = HealthModel(command=health) if isinstance(health, str) else health
    return HealthCheck(**dict(model))


def _conditions(
    names: tuple[str, ...] | Mapping[str, ServiceCondition],
) -> tuple[tuple[str, ServiceCondition], ...]:
    """Return the conditions to wait for; the default for a service is ``healthy``."""
    if isinstance(names, Mapping):
        return tuple(names.items())
    return tuple((name, "healthy") for name in names)


class ServiceModel(FileForm):
    """One of ``services``: like ``Service``, except for these fields.

    Attributes:
        image: its image; it does not need bash.
        dockerfile: a Dockerfile in the suite's folder, which is built if there is no ``image``, or
            if the image is not available.
        platform: the platform of the image, if it is only for one.
        restart: when it is started again after its command ends.
    """

    image: StrictStr | None = None
    dockerfile: StrictStr | None = None
    platform: Annotated[StrictStr, AfterValidator(parse_platform)] | None = None
    entrypoint: Command | None = None
    command: Command | None = None
    variables: dict[Variable, StrictStr] = Field({})
    workdir: AbsolutePath = ""
    user: StrictStr = ""
    aliases: tuple[ServiceName, ...] = ()
    networks: tuple[ServiceName, ...] = (DEFAULT_NETWORK,)
    depends_on: Annotated[
        tuple[ServiceName, ...] | dict[ServiceName, ServiceCondition], AfterValidator(_conditions)
    ] = ()
    health: Annotated[StrictStr | HealthModel, AfterValidator(_check)] | None = None
    volumes: dict[ServiceName, MountPath] = Field({})
    tmpfs: tuple[MountPath, ...] = ()
    files: Files = Field({})
    limits: LimitsModel = Field(default_factory=LimitsModel)
    restart: Literal["never", "on-failure", "always"] = "never"

    @model_validator(mode="after")
    def _fits(self) -> ServiceModel:
        if not self.image and self.dockerfile is None:
            raise ValueError("image or dockerfile is needed")
        if self.limits.network is not None or self.limits.output is not None:
            raise ValueError("limits: a service has the network and output limits of its task")
        if relative_paths := [path for path in self.files if not path.startswith("/")]:
            raise ValueError(f"files: an absolute path is needed, found {relative_paths[0]!r}")
        return self

    def build(self, folder: SuitePath) -> Service:
        """Return the service, without its name."""
        values: dict[str, Any] = build_forms(dict(self), folder)
        image = ImageSource(image=values.pop("image"), platform=values.pop("platform"))
        name = values.pop("dockerfile")
        if name is not None:
            image = replace(image, dockerfile=find_dockerfile(folder, name))
        limits = dict(values.pop("limits"))
        limits = {name: value for name, value in limits.items() if value is not None}
        for name in ("variables", "volumes", "files"):
            values[name] = tuple(values[name].items())
        values["health"] = values["health"] or HealthCheck()
        values["restarts"] = values.pop("restart")
        return Service("", image, limits=Limits(**limits), **values)


class HookModel(SuiteForm):
    """One of ``collect``: a command that is run in the agent's sandbox, or in a service.

    Attributes:
        command: the command.
        service: the service; by default the agent's sandbox.
        user: the user that runs it; by default the sandbox's own user.
        timeout: seconds that it has.
    """

    command: StrictStr = Field(min_length=1)
    service: ServiceName = ""
    user: StrictStr = ""
    timeout: float = Field(60.0, gt=0, le=600)


class EvidenceModel(SuiteForm):
    """One of ``evidence``: a path of a service that the tests get at the same path."""

    service: ServiceName
    path: AbsolutePath
    exclude: tuple[StrictStr, ...] = ()


def as_hook(model: HookModel) -> Hook:
    """Return the hook for an entry of ``collect``."""
    return Hook(model.command, model.user, model.timeout, model.service)


def as_artifact(model: EvidenceModel) -> Artifact:
    """Return the artifact for an entry of ``evidence``."""
    return Artifact(model.path, model.exclude, model.service)


def lay_services(services: Services, machines: Mapping[str, Service]) -> Services:
    """Return services with others added, which replace those with the same names."""
    machines_by_name = {machine.name: machine for machine in services.machines}
    machines_by_name |= {name: replace(machine, name=name) for name, machine in machines.items()}
    return Services(tuple(machines_by_name.values()), (_MAIN,))


def sorted_services(task: Task) -> Task:
    """Return a task with its services sorted, each after those that it depends on.

    Raises:
        SuiteError: a service does not exist, or they wait for each other.
    """
    place = f"{task.source}: task {task.id!r}: services"
    if any(machine.name == _MAIN for machine in task.services.machines):
        raise SuiteError(f"{place}: {_MAIN} is the agent's own machine; choose another name")
    try:
        machines = in_order(task.services.machines)
    except ValueError as error:
        raise SuiteError(f"{place}: {error}") from None
    return replace(task, services=replace(task.services, machines=machines))


def find_missing_services(task: Task) -> list[str]:
    """Return the names of missing services that a task's verifications ask for."""
    verifications = [task.verification, *(step.verification for step in task.steps)]
    asked_names: set[str] = set()
    for verification in filter(None, verifications):
        asked_names |= {hook.service for hook in verification.collect}
        asked_names |= {artifact.service for artifact in verification.evidence}
    return sorted(asked_names - {"", *(machine.name for machine in task.services.machines)})
