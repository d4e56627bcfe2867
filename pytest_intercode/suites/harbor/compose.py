"""Reading of compose files, as Docker Compose reads them; nothing is built or started."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pytest_intercode.core.machine import (
    Archive,
    FileSpec,
    HealthCheck,
    ImageSource,
    Service,
    ServiceCondition,
    Services,
    in_order,
)
from pytest_intercode.core.platforms import Platform
from pytest_intercode.errors import SuiteError
from pytest_intercode.suites.harbor.compose_reader import (
    ComposeReader,
    Secrets,
    Unsupported,
    list_of,
)
from pytest_intercode.suites.harbor.compose_variables import (
    RequiredVariable,
    expand,
)
from pytest_intercode.suites.harbor.dockerfiles import read_image
from pytest_intercode.suites.harbor.parts import MissingVariable, make_limits
from pytest_intercode.suites.yaml_files import read_yaml
from pytest_intercode.system.suite_folder import SuitePath

__all__ = ["AgentMachine", "read_compose"]

_MAX_SERVICES = 12  # each has its own memory and processors
_TOP_KEYS = frozenset({"services", "version", "name", "volumes", "networks"})
_CONDITIONS: dict[str, ServiceCondition] = {
    "service_started": "started",
    "service_healthy": "healthy",
    "service_completed_successfully": "completed",
}
_RESTARTS = {"always": "always", "unless-stopped": "always", "on-failure": "on-failure"}


@dataclass(frozen=True)
class AgentMachine:
    """The agent's machine in a compose file.

    Attributes:
        dockerfile: the Dockerfile to build, or None.
        image: the image that is used if nothing is built; empty for none.
        variables: environment variables.
        workdir: the directory of its commands; empty for the image's.
        entrypoint: the words of its entry point; None for the image's.
        command: the words of its command; None if it only waits.
        user: the user that runs its commands; empty for the image's user.
        memory: bytes, or None for no limit.
        cpus: processors, or None for no limit.
        platform: the platform of its image; None if it is not given.
        offline: whether it must not have a network.
        folders: folders that must exist, each with its mode.
        mounts: copies of folders that it shares with the host.
        files: copies of files that it shares with the host, by their paths.
        tests: folders of the tests that it shares, which only its verifier gets.
        test_files: files of the tests, which only its verifier gets.
        health: the check whether it is ready; None if it is ready as soon as it runs.
        services: the other machines.
    """

    dockerfile: SuitePath | None
    image: str = ""
    variables: tuple[tuple[str, str], ...] = ()
    workdir: str = ""
    entrypoint: tuple[str, ...] | None = None
    command: tuple[str, ...] | None = None
    user: str = ""
    memory: int | None = None
    cpus: float | None = None
    platform: Platform | None = None
    offline: bool = False
    folders: tuple[tuple[str, str], ...] = ()
    mounts: tuple[Archive, ...] = ()
    files: Mapping[str, FileSpec] = field(default_factory=dict)
    tests: tuple[Archive, ...] = ()
    test_files: Mapping[str, FileSpec] = field(default_factory=dict)
    health: HealthCheck | None = None
    services: Services = field(default=Services())


def read_compose(
    path: SuitePath,
    name: str,
    variables: Mapping[str, str],
    logs: frozenset[str],
    secrets: Secrets,
    *,
    merged: bool = False,
) -> AgentMachine:
    """Read a compose file, and return the agent's machine with its services.

    Args:
        path: the file.
        name: the format's name of the agent's service; if there is no service of this name, it is
            the one with this ``container_name``, or the only one.
        variables: the values of ``${NAME}`` in the file.
        logs: folders inside that the format shares with the host, and that a sandbox has itself.
        secrets: files that no machine may have.
        merged: whether the format lays the file over its own one, which has this service, so that
            the file need not contain it. Then only its name identifies it.

    Raises:
        Unsupported: the file needs a feature that machines here do not have.
        SuiteError: it is not a compose file, or has no such service.
    """
    raw, _ = read_yaml(path, new=True)
    services = raw.get("services", {}) if isinstance(raw, dict) else None
    if not isinstance(services, dict) or not all(isinstance(s, dict) for s in services.values()):
        raise SuiteError(f"{path}: services: a mapping of services is needed")
    if not all(isinstance(raw.get(key) or {}, dict) for key in ("volumes", "networks")):
        raise SuiteError(f"{path}: volumes and networks must be mappings")
    reader = ComposeReader(path, raw, logs, secrets, variables)
    try:
        services = expand(services, reader.variables)
    except RequiredVariable as error:
        remedy = path.permissions.remedy("pass-env", error.name)
        raise MissingVariable(f"{path}: {error}; {remedy} passes on this machine's") from None
    except ValueError as error:
        raise SuiteError(f"{path}: services: {error}") from None
    if not merged and name not in services:
        matches = [n for n in services if services[n].get("container_name") == name]
        candidates = matches or list(services)
        if len(candidates) != 1:
            raise SuiteError(f"{path}: services: there is no {name}, in which the agent runs")
        [name] = candidates
    # A service with a profile is only started on request.
    names = [n for n in services if n != name and not services[n].get("profiles")]
    if len(names) > _MAX_SERVICES:
        raise Unsupported(f"{path.name} has more than {_MAX_SERVICES} services")
    other_keys = {str(key) for key in raw if not str(key).startswith("x-")} - _TOP_KEYS
    if other_keys:
        raise Unsupported(f"{path.name} uses {', '.join(sorted(other_keys))}")
    try:
        agent = _agent(reader, name, services.get(name, {}))
        return replace(agent, services=_services(reader, names, services, agent.services))
    except (AttributeError, LookupError, TypeError, ValueError):  # a list where a mapping is needed
        raise SuiteError(f"{path}: services: these are not services of a compose file") from None


def _agent(reader: ComposeReader, name: str, service: Mapping[str, Any]) -> AgentMachine:
    """Return the agent's machine with the folders that it shares, but without other machines."""
    reader.check_keys(name, service)
    dockerfile = reader.dockerfile(service.get("build"))
    cpus, memory = reader.limits(name, service)
    shared = reader.volumes(name, service)
    # Make tmpfs folders on disk, so that tests see the files that are left there.
    folders = [*shared.folders, *((path, "1777") for path in shared.tmpfs)]
    folders += [(path, "755") for _, path in shared.named]
    networks, offline = reader.networks(name, service)
    names = tuple(dict.fromkeys((name, *_names(service, networks))))
    user = str(service.get("user") or "").split(":")[0]
    return AgentMachine(
        dockerfile,
        "" if dockerfile is not None else str(service.get("image") or ""),
        tuple(reader.environment(name, service).items()),
        str(service.get("working_dir") or ""),
        reader.words(name, service, "entrypoint"),
        reader.words(name, service, "command"),
        "" if user in ("root", "0") else user,
        memory,
        cpus,
        reader.platform(service.get("platform")),
        offline,
        tuple(folders),
        tuple(shared.mounts),
        shared.files,
        tuple(shared.tests),
        shared.test_files,
        reader.health(name, service.get("healthcheck")),
        Services(
            *((), names, tuple(networks), tuple(shared.named)), read_only=tuple(shared.read_only)
        ),
    )


def _services(
    reader: ComposeReader, names: Sequence[str], services: Mapping[str, Any], own: Services
) -> Services:
    """Return the other machines, each after those that it depends on.

    Args:
        reader: reads a service.
        names: the names of the other services.
        services: all services of the file.
        own: how the agent's machine is connected to others; its first name is its service's.
    """
    main = own.names[0]
    machines = {name: _service(reader, main, name, services[name], names) for name in names}
    for service in services.values():
        for name, _, alias in (str(link).partition(":") for link in service.get("links") or ()):
            if alias and name in machines:
                machine = machines[name]
                machines[name] = replace(machine, aliases=(*machine.aliases, alias))
    depends_on = tuple(
        _dependencies(reader, main, main, services.get(main, {}).get("depends_on"), names)
    )
    try:
        ordered = in_order(machines.values())
    except ValueError as error:
        raise SuiteError(f"{reader.path}: services: {error}") from None
    if missing_names := sorted({name for name, _ in depends_on} - set(names)):
        raise SuiteError(f"{reader.path}: services: there is no {missing_names[0]}")
    if not names:
        return Services()
    shared = {volume for machine in machines.values() for volume, _ in machine.volumes}
    volumes = tuple((volume, path) for volume, path in own.volumes if volume in shared)
    return replace(own, machines=ordered, volumes=volumes, depends_on=depends_on)


def _service(
    reader: ComposeReader, main: str, name: str, service: Mapping[str, Any], names: Sequence[str]
) -> Service:
    reader.check_keys(name, service)
    dockerfile = reader.dockerfile(service.get("build"))
    if dockerfile is None and not service.get("image"):
        raise SuiteError(f"{reader.path}: services: {name}: build or image is needed")
    source = ImageSource(image=str(service.get("image") or ""))
    if dockerfile is not None:
        source, _ = read_image(dockerfile, "")
    cpus, memory = reader.limits(name, service)
    shared = reader.volumes(name, service)
    networks, _ = reader.networks(name, service)
    restart = str(service.get("restart") or "no").partition(":")[0]
    return Service(
        name,
        replace(source, platform=reader.platform(service.get("platform"))),
        reader.words(name, service, "entrypoint"),
        reader.words(name, service, "command"),
        tuple(reader.environment(name, service).items()),
        str(service.get("working_dir") or ""),
        str(service.get("user") or ""),
        tuple(dict.fromkeys(_names(service, networks))),
        tuple(networks),
        tuple(_dependencies(reader, main, name, service.get("depends_on"), names)),
        # If the file has no health check, the image's own one applies.
        reader.health(name, service["healthcheck"]) if "healthcheck" in service else HealthCheck(),
        tuple((volume, path) for volume, path in shared.named if volume),
        tuple(shared.tmpfs),
        tuple(shared.mounts),
        tuple(shared.files.items()),
        make_limits(cpus, memory),
        _RESTARTS.get(restart, "never"),  # type: ignore[arg-type]
        tuple(shared.read_only),
    )


def _names(service: Mapping[str, Any], networks: Mapping[str, list[str]]) -> Iterator[str]:
    """Yield the further names of a service, including its aliases in networks."""
    for key in ("container_name", "hostname"):
        if service.get(key):
            yield str(service[key])
    for aliases in networks.values():
        yield from aliases


def _dependencies(
    reader: ComposeReader, main: str, name: str, depends_on: Any, names: Sequence[str]
) -> Iterator[tuple[str, ServiceCondition]]:
    """Yield the services that a service waits for, except the agent's, which is always there."""
    details = dict.fromkeys(list_of(depends_on)) if not isinstance(depends_on, dict) else depends_on
    for other_name, setting in details.items():
        if not isinstance(setting or {}, dict):
            reader.fail(
                name, f"depends_on: {other_name}: a mapping is needed, found {setting!r:.40}"
            )
        condition = (setting or {}).get("condition", "service_started")
        if (setting or {}).get("required") is False and other_name not in names:
            continue
        if other_name == main and condition == "service_started":
            continue
        if other_name == main or condition not in _CONDITIONS:
            reader.refuse(name, f"waits for {other_name} ({condition})")
        yield other_name, _CONDITIONS[condition]
