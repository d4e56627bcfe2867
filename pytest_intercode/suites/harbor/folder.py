"""One task folder in Harbor's format, as a task of the environment ``swe``.

It only reads the folder. A task that needs an unsupported feature is made nevertheless, with the
reason as its ``skip``.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from pytest_intercode.core.hosts import check_hosts
from pytest_intercode.core.platforms import Platform
from pytest_intercode.core.servers import address_of, check_servers
from pytest_intercode.core.task import (
    Archive,
    Artifact,
    FileSpec,
    Hook,
    ImageSource,
    Limits,
    Step,
    Task,
    Verification,
)
from pytest_intercode.environments.swe.fields import SweFields
from pytest_intercode.errors import MissingFile, SuiteError
from pytest_intercode.suites.harbor.compose import AgentMachine, read_compose
from pytest_intercode.suites.harbor.compose_reader import Secrets, Unsupported
from pytest_intercode.suites.harbor.config import (
    AgentConfig,
    ArtifactConfig,
    EnvironmentConfig,
    StepConfig,
    TaskConfig,
    VerifierConfig,
    read_config,
)
from pytest_intercode.suites.harbor.dockerfiles import Machine, read_machine
from pytest_intercode.suites.harbor.machine import machine_setup, read_machine_of
from pytest_intercode.suites.harbor.parts import (
    DEFAULT_ACTION_TIMEOUT,
    LOG_FOLDERS,
    LOGS,
    MAX_TURNS,
    find_requirements,
    healthcheck_setup,
    make_gold,
    make_limits,
    make_tags,
    open_folder,
    passed_variables,
    read_text,
    resolve_variables,
    solution_files,
    task_id,
    without_canary,
)
from pytest_intercode.suites.services import find_missing_services
from pytest_intercode.system.suite_folder import SuitePath

__all__ = ["CONFIG", "harbor_task", "task_id"]

CONFIG = "task.toml"
_SCRIPT = "test.sh"
_MEGABYTE = 1024**2
_COMPOSE = "docker-compose.yaml"
# Only the verifier gets tests, from these; the description contains the solution's variables.
_SECRETS = ("tests", "steps", "solution", CONFIG)
_MAIN = "main"  # the agent's service
# The variables that Harbor's own compose file gives to a task's; older ones name log folders.
_COMPOSE_VARIABLES = {
    "CONTEXT_DIR": ".",
    "MAIN_IMAGE_NAME": "",
    "TEST_DIR": "/tests",
    **{f"ENV_{path.rpartition('/')[2].upper()}_LOGS_PATH": path for path in LOG_FOLDERS},
    **{f"HOST_{path.rpartition('/')[2].upper()}_LOGS_PATH": path for path in LOG_FOLDERS},
    "ENV_ARTIFACTS_PATH": "/logs/artifacts",
    "HOST_ARTIFACTS_PATH": "/logs/artifacts",
}


@dataclass(frozen=True)
class _Box:
    """The machine of a task or of its verifier: its image and its settings."""

    image: ImageSource
    machine: Machine
    limits: Limits
    variables: tuple[tuple[str, str], ...]
    files: Archive | None
    platform: Platform | None
    service: AgentMachine


def harbor_task(folder: SuitePath, suite: str) -> Task:
    """Return the task of a folder.

    Args:
        folder: the folder with ``task.toml``.
        suite: the name of its suite and dataset.

    Raises:
        SuiteError: a file is missing or wrong.
    """
    place = folder / CONFIG
    config = read_config(read_text(place, "the task's description"), str(place))
    name = config.task.name if config.task else folder.name
    metadata = config.metadata
    tags = metadata.get("tags")
    blank = Task(
        id=task_id(name.rpartition("/")[2]),
        query="",
        gold=(),
        env="swe",
        suite=suite,
        dataset=suite,
        hardness=str(metadata.get("difficulty") or "")[:40],
        tags=make_tags([*(tags if isinstance(tags, list) else ()), metadata.get("category") or ""]),
        max_turns=MAX_TURNS,
        source=str(place),
        metadata=_plain({**metadata, **_harbor_metadata(config, name)}),
    )
    try:
        return _fill_task(blank, folder, config)
    except Unsupported as error:
        query = "\n".join(path.name for path in folder.iterdir())
        return replace(blank, query=query, skip=str(error))


def _harbor_metadata(config: TaskConfig, name: str) -> dict[str, Any]:
    task = config.task.model_dump(exclude_none=True) if config.task else {}
    details = {"schema_version": config.schema_version, "source": config.source}
    return {"harbor": {**task, "name": name, **{k: v for k, v in details.items() if v}}}


def _plain(value: Any) -> Any:
    """Return metadata as JSON values; TOML may also contain dates."""
    if isinstance(value, dict):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_plain(part) for part in value]
    return value if value is None or isinstance(value, (str, int, float, bool)) else str(value)


def _fill_task(blank: Task, folder: SuitePath, config: TaskConfig) -> Task:
    environment = config.environment
    _check_support(environment)
    context = (folder / "environment").place()
    for secret in [(folder / name).place() for name in _SECRETS]:
        if secret in (context, *context.parents) or context in secret.parents:
            raise SuiteError(
                f"{folder}/environment: leads to {secret.name}, which the agent must not see"
            )
    box = _box(environment, folder / "environment", "the environment")
    agent = _user(config.agent.user, box.machine.user)
    setup = [*machine_setup(box.machine, box.service)]
    if environment.healthcheck is not None:
        setup.append(healthcheck_setup(environment.healthcheck))
    users = {_user(step.agent.user, agent) for step in config.steps or ()} or {agent}
    if users != {""}:  # the agent's user writes the solution
        setup.append(open_folder("/solution"))
    timeout = config.agent.timeout_sec
    task = replace(
        blank,
        image=box.image,
        workdir=box.machine.workdir,
        limits=_agents_limits(box, config),
        variables=box.variables,
        archive=box.files,
        files={
            **{path + "/": FileSpec("directory", mode=0o777) for path in LOG_FOLDERS},
            **box.service.files,
        },
        mounts=box.service.mounts,
        services=box.service.services,
        setup=tuple(setup),
        user=agent,
        timeout=timeout,
        action_timeout=timeout or DEFAULT_ACTION_TIMEOUT,
        platform=box.platform,
        fields=SweFields(
            mcp=_servers(environment, folder / CONFIG), skills=environment.skills_dir or ""
        ),
    )
    variables: tuple[tuple[str, str], ...] | None
    try:
        place = f"{folder / CONFIG}: [solution].env"
        variables = resolve_variables(config.solution.env, place, folder.permissions)
    except MissingFile as error:  # only gold needs these variables
        variables = None
        task = replace(task, gold_skip=str(error))
    if config.steps:
        return _check_services(_with_steps(task, folder, config, variables))
    instruction = read_text(folder / "instruction.md", "the instruction")
    solution = solution_files(folder / "solution")
    return _check_services(
        replace(
            task,
            query=without_canary(instruction),
            gold=_gold(solution, task.workdir, variables),
            verification=_verification(folder, config, None, task),
        )
    )


def _connect(
    limits: Limits, baseline: EnvironmentConfig, *phases: AgentConfig | VerifierConfig
) -> Limits:
    """Return limits with the network access of a phase.

    A phase's own policy takes precedence over its machine's. Only the user can allow a public
    network (``--intercode-network``); by default a sandbox has none.

    Args:
        limits: the limits.
        baseline: the machine, which has a policy.
        phases: the phase, and those that contain it; each may have a policy.

    Raises:
        Unsupported: a host is not supported, or there are too many.
    """
    policy = next((phase for phase in phases if phase.network_mode), baseline)
    allowed_hosts = policy.allowed_hosts or () if policy.network_mode == "allowlist" else ()
    try:
        hosts = check_hosts(allowed_hosts)
    except ValueError as error:
        raise Unsupported(f"allowed_hosts: {error}") from None
    return replace(limits, hosts=hosts, offline=policy.network_mode != "public" and not hosts)


def _agents_limits(box: _Box, config: TaskConfig) -> Limits:
    """Return the limits of the agent's sandbox, which is the same for all steps."""
    environment = config.environment
    phases = [step.agent for step in config.steps or ()] or [config.agent]
    all_limits = {_connect(box.limits, environment, phase, config.agent) for phase in phases}
    if box.service.offline:
        return replace(box.limits, offline=True)
    if len(all_limits) > 1 and any(phase_limits.hosts for phase_limits in all_limits):
        raise Unsupported("its agent may reach other hosts in each step, and has one sandbox")
    # If one step must not have a network, no step gets one.
    return max(all_limits, key=lambda phase_limits: phase_limits.offline)


def _check_support(environment: EnvironmentConfig) -> None:
    """Raise Unsupported for features that sandboxes do not have."""
    if environment.os != "linux":
        raise Unsupported(f"it needs a machine with {environment.os}")
    if environment.gpus or environment.tpu:
        raise Unsupported("it needs an accelerator (gpus or tpu in task.toml)")
    for server in environment.mcp_servers:
        if server.transport != "stdio" and address_of(server.line) is None:
            raise Unsupported(
                f"its agent needs the tool server {server.name!r} at {server.url!r:.60}, which is "
                "not an address of HTTP without a user"
            )


def _servers(environment: EnvironmentConfig, place: SuitePath) -> dict[str, str]:
    """Return the command lines or addresses of the agent's tool servers, by name.

    Raises:
        SuiteError: a server's name is invalid, or two servers have the same.
    """
    servers = environment.mcp_servers
    lines = {server.name: server.line for server in servers}
    try:
        if len(lines) < len(servers):
            raise ValueError("two have one name")
        return check_servers(lines)
    except ValueError as error:
        raise SuiteError(f"{place}: mcp_servers: {error}") from None


def _box(environment: EnvironmentConfig, folder: SuitePath, label: str) -> _Box:
    """Return the machine of a table in ``task.toml``, whose image is built in a folder."""
    dockerfile = folder / "Dockerfile"
    place = f"{folder.parent / CONFIG}: env"
    variables = resolve_variables(environment.env, place, folder.permissions)
    compose = folder / _COMPOSE
    service = AgentMachine(None)
    if compose.is_file():
        names = {**passed_variables(folder.permissions), **dict(variables), **_COMPOSE_VARIABLES}
        secrets = Secrets(solution=tuple(folder.parent / name for name in _SECRETS))
        logs = frozenset(LOG_FOLDERS)
        service = read_compose(compose, _MAIN, names, logs, secrets, merged=True)
        dockerfile = service.dockerfile or dockerfile
    has_dockerfile = dockerfile.is_file()
    image = environment.docker_image or service.image
    if not has_dockerfile and not image:
        raise MissingFile(
            f"{folder.parent}: {label} is missing: there is neither {folder.name}/Dockerfile nor "
            "docker_image in task.toml"
        )
    source, machine = read_machine_of(service, dockerfile if has_dockerfile else None, image)
    machine = replace(machine, workdir=environment.workdir or machine.workdir)
    files = None
    bare = not has_dockerfile and not compose.is_file() and folder.is_dir()
    if bare and any(path.name != ".gitkeep" for path in folder.iterdir()):
        files = Archive(folder.place(), machine.workdir)
    memory = environment.memory_mb and environment.memory_mb * _MEGABYTE
    storage = environment.storage_mb and environment.storage_mb * _MEGABYTE
    return _Box(
        source,
        machine,
        make_limits(environment.cpus or service.cpus, memory or service.memory, storage),
        (*service.variables, *variables),
        files,
        service.platform,
        service,
    )


def _user(user: str | int | None, default: str = "") -> str:
    if user is None:
        return default
    return "" if user in ("root", "0", 0) else str(user)


def _gold(
    files: dict[str, SuitePath], workdir: str, variables: Iterable[tuple[str, str]] | None
) -> tuple[str, ...]:
    if variables is None or "/solution/solve.sh" not in files:
        return ()
    return make_gold(files, "/solution/solve.sh", workdir, variables)


def _verification(
    folder: SuitePath, config: TaskConfig, step: StepConfig | None, task: Task
) -> Verification:
    """Return how a task, or a step of it, is graded."""
    task_verifier, verifier = config.verifier, step.verifier if step else config.verifier
    folders = [folder / "tests"]
    if step is not None:
        folders.append(folder / "steps" / step.name / "tests")
    mode = verifier.mode or task_verifier.mode or "shared"
    timed = verifier if "timeout_sec" in verifier.model_fields_set else task_verifier
    place = f"{folder / CONFIG}: [verifier].env"
    variables = resolve_variables({**task_verifier.env, **verifier.env}, place, folder.permissions)
    common = Verification(
        command=f"/tests/{_SCRIPT}",
        parser="reward",
        report=LOGS,
        files={f"{LOGS}/": FileSpec("directory", mode=0o777)},
        collect=tuple(_hooks(verifier if verifier.collect else task_verifier)),
        user=_user(
            verifier.user if verifier.user is not None else task_verifier.user, _user_of_image(task)
        ),
        variables=variables,
        timeout=timed.timeout_sec,
    )
    if mode == "separate":
        return _separate(common, folders, config, step)
    test_folders = [path for path in folders if path.is_dir()]
    script = next(
        (path / _SCRIPT for path in reversed(test_folders) if (path / _SCRIPT).is_file()), None
    )
    if script is None:
        raise MissingFile(f"{folders[-1]}: the tests are missing: there is no {_SCRIPT}")
    text = read_text(script, "the tests' script")
    return replace(
        common,
        archives=tuple(Archive(path.place(), "/tests") for path in test_folders),
        files={**common.files, f"/tests/{_SCRIPT}": FileSpec("file", text.encode(), mode=0o755)},
        carried=tuple(
            posixpath.normpath(posixpath.join(task.workdir, artifact.source))
            for artifact in _declared_artifacts(config, step)
            if not _other_service(artifact.service)
        ),
        kit=find_requirements(test_folders),
        limits=_phase_limits(task, config, verifier, task_verifier),
    )


def _phase_limits(
    task: Task, config: TaskConfig, verifier: VerifierConfig, task_verifier: VerifierConfig
) -> Limits | None:
    """Return the limits of a verifier if they differ from the agent's in the network, else None."""
    limits = _connect(task.limits, config.environment, verifier, task_verifier)
    return None if limits == task.limits else limits


def _user_of_image(task: Task) -> str:
    text = task.image.text if task.image else ""
    path = task.image.dockerfile if task.image else None
    return read_machine(text or (read_text(path, "the Dockerfile") if path else "")).user


def _other_service(name: str | None) -> str:
    """Return the name of a service; empty for the agent's service."""
    return "" if name is None or name == _MAIN else name


def _check_services(task: Task) -> Task:
    """Check that a task has the services that its verifiers ask for, and return it."""
    if missing_names := find_missing_services(task):
        raise Unsupported(f"its verifier asks for the service {missing_names[0]!r}")
    return task


def _hooks(verifier: VerifierConfig) -> Iterator[Hook]:
    for collect in verifier.collect:
        service = _other_service(collect.service)
        user = _user(collect.user) if not service else str(collect.user or "")
        yield Hook(collect.command, user, collect.timeout_sec, service)


def _declared_artifacts(config: TaskConfig, step: StepConfig | None) -> list[ArtifactConfig]:
    """Return the artifacts of a task, or of the task and a step."""
    artifacts = [*config.artifacts, *(step.artifacts if step else ())]
    return [ArtifactConfig(source=one) if isinstance(one, str) else one for one in artifacts]


def _separate(
    common: Verification, folders: list[SuitePath], config: TaskConfig, step: StepConfig | None
) -> Verification:
    """Return a verifier with its own image, which only gets the declared paths."""
    task_verifier, verifier = config.verifier, step.verifier if step else config.verifier
    environment = verifier.environment or task_verifier.environment or config.environment
    _check_support(environment)
    context = next(
        (folder for folder in reversed(folders) if (folder / "Dockerfile").is_file()), None
    )
    box = _box(environment, context or folders[0], "the verifier's image")
    if box.service.services:
        raise Unsupported("its verifier has services of its own")
    declared = _declared_artifacts(config, step)
    artifacts = [
        Artifact(one.source, tuple(one.exclude), _other_service(one.service)) for one in declared
    ]
    paths = {one.path.rstrip("/"): one for one in artifacts if not one.service}
    paths.setdefault("/logs/artifacts", Artifact("/logs/artifacts"))
    return replace(
        common,
        artifacts=tuple(paths.values()),
        evidence=tuple(artifact for artifact in artifacts if artifact.service),
        image=box.image,
        limits=_connect(box.limits, environment, verifier, task_verifier),
        workdir=box.machine.workdir,
        user=_user(
            verifier.user if verifier.user is not None else task_verifier.user, box.machine.user
        ),
        variables=(*box.variables, *common.variables),
        kit=find_requirements([context]) if context else None,
    )


def _with_steps(
    task: Task,
    folder: SuitePath,
    config: TaskConfig,
    variables: Iterable[tuple[str, str]] | None,
) -> Task:
    """Return a task with several steps; its query and verification are those of the first."""
    steps, gold = [], []
    for step in config.steps or ():
        place = folder / "steps" / step.name
        if not place.is_dir():
            raise MissingFile(f"{folder / CONFIG}: steps: {step.name!r}: there is no {place}")
        solution = solution_files(place / "solution")
        if "/solution/solve.sh" not in solution:
            solution = solution_files(folder / "solution")
        gold += [*_gold(solution, task.workdir, variables), "submit"]
        workdir = place / "workdir"
        setup = []
        if (workdir / "setup.sh").is_file():
            setup.append(f"bash {task.workdir.rstrip('/')}/setup.sh")
        if step.healthcheck is not None:
            setup.append(healthcheck_setup(step.healthcheck))
        least = step.min_reward
        pairs = least if isinstance(least, dict) else {} if least is None else {"reward": least}
        text = read_text(place / "instruction.md", "the step's instruction")
        steps.append(
            Step(
                name=step.name,
                query=without_canary(text),
                verification=_verification(folder, config, step, task),
                archive=Archive(workdir.place(), task.workdir) if workdir.is_dir() else None,
                setup=tuple(setup),
                least=tuple(pairs.items()),
                user=_user(step.agent.user, task.user),
                timeout=step.agent.timeout_sec or config.agent.timeout_sec,
            )
        )
    times = [step.timeout for step in steps]
    total_timeout = None if None in times else sum(time or 0.0 for time in times)
    return replace(
        task,
        query=steps[0].query,
        gold=tuple(gold[:-1]) if any(command != "submit" for command in gold) else (),
        verification=steps[0].verification,
        steps=tuple(steps),
        overall=config.multi_step_reward_strategy or "mean",
        timeout=total_timeout,
        action_timeout=max((time or DEFAULT_ACTION_TIMEOUT) for time in times),
    )
