"""One task folder in Terminal-Bench 1's format, as a task of the environment ``swe``.

It only reads the folder. A feature that sandboxes do not have is the reason of the task's ``skip``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

from pydantic import BaseModel, ValidationError

from pytest_intercode.core.task import Archive, FileSpec, Task, Verification
from pytest_intercode.errors import MissingFile, SuiteError
from pytest_intercode.suites.harbor.compose import AgentMachine, read_compose
from pytest_intercode.suites.harbor.compose_reader import Secrets, Unsupported
from pytest_intercode.suites.harbor.machine import machine_setup, read_machine_of
from pytest_intercode.suites.harbor.parts import (
    MAX_TURNS,
    find_requirements,
    make_gold,
    make_limits,
    make_tags,
    open_folder,
    passed_variables,
    read_text,
    task_id,
    without_canary,
)
from pytest_intercode.suites.mistakes import row_error
from pytest_intercode.suites.yaml_files import read_yaml
from pytest_intercode.system.suite_folder import SuitePath

__all__ = [
    "CONFIG",
    "PARSERS",
    "TerminalBenchConfig",
    "read_task",
    "service_of",
    "terminal_bench_task",
]

CONFIG = "task.yaml"
PARSERS = {"pytest": "terminal-bench", "swebench": "terminal-bench-swebench"}
"""Terminal-Bench's parsers of the screen that are supported, and their names here."""

_SCRIPT = "run-tests.sh"
_TESTS = "/tests"
_LOGS = ("/logs", "/agent-logs")
_VARIABLES = {
    "COMPOSE_PROJECT_NAME": "client",
    "T_BENCH_TASK_DOCKER_CLIENT_IMAGE_NAME": "",
    "T_BENCH_TASK_DOCKER_CLIENT_CONTAINER_NAME": "client",
    "T_BENCH_TASK_DOCKER_NAME_PREFIX": "task",
    "T_BENCH_TEST_DIR": _TESTS,
    "T_BENCH_TASK_LOGS_PATH": "./logs",
    "T_BENCH_CONTAINER_LOGS_PATH": _LOGS[0],
    "T_BENCH_TASK_AGENT_LOGS_PATH": "./agent-logs",
    "T_BENCH_CONTAINER_AGENT_LOGS_PATH": _LOGS[1],
}
_SAME_SHELL = (
    "its tests run in the agent's own shell (run_tests_in_same_shell), where an agent could forge "
    "their results: --intercode-verifier=shared runs them there"
)
_KEYS = ("C-", "M-", "Enter", "Escape", "Tab", "Up", "Down", "BSpace")


class TerminalBenchConfig(BaseModel):
    """``task.yaml``; further keys are ignored."""

    instruction: str
    difficulty: Literal["easy", "medium", "hard", "unknown"]
    author_name: str = "unknown"
    author_email: str = "unknown"
    category: str = "software_engineering"
    tags: list[str] = []
    parser_name: str = "pytest"
    max_agent_timeout_sec: float = 360.0
    max_test_timeout_sec: float = 60.0
    run_tests_in_same_shell: bool = False
    disable_asciinema: bool = False
    estimated_duration_sec: float | None = None
    expert_time_estimate_min: float | None = None
    junior_time_estimate_min: float | None = None


def read_task(folder: SuitePath) -> TerminalBenchConfig:
    """Read a folder's ``task.yaml``.

    Raises:
        SuiteError: the file is missing or wrong.
    """
    path = folder / CONFIG
    if not path.is_file():
        raise MissingFile(f"{folder}: the task's description is missing: there is no {CONFIG}")
    raw, _ = read_yaml(path)
    if not isinstance(raw, dict):
        raise SuiteError(f"{path}: a mapping with an instruction is needed, not {raw!r:.60}")
    try:
        return TerminalBenchConfig.model_validate(raw)
    except ValidationError as error:
        raise SuiteError(row_error(str(path), error, TerminalBenchConfig)) from None


def terminal_bench_task(folder: SuitePath, suite: str) -> Task:
    """Return the task of a folder.

    Args:
        folder: the folder with ``task.yaml``.
        suite: the name of its suite and dataset.

    Raises:
        SuiteError: a file is missing or wrong.
    """
    config = read_task(folder)
    blank = Task(
        id=task_id(folder.name),
        query=without_canary(config.instruction),
        gold=(),
        env="swe",
        suite=suite,
        dataset=suite,
        hardness=config.difficulty,
        tags=make_tags([*config.tags, config.category]),
        max_turns=MAX_TURNS,
        action_timeout=config.max_agent_timeout_sec,
        timeout=config.max_agent_timeout_sec,
        source=str(folder / CONFIG),
        metadata=config.model_dump(exclude={"instruction"}, exclude_none=True),
    )
    try:
        return _fill_task(blank, folder, config)
    except Unsupported as error:
        return replace(blank, skip=str(error))


def _fill_task(blank: Task, folder: SuitePath, config: TerminalBenchConfig) -> Task:
    parser = PARSERS.get(config.parser_name)
    if parser is None:
        names = ", ".join(PARSERS)
        raise Unsupported(f"its parser {config.parser_name!r} is not known; known are {names}")
    script = read_text(folder / _SCRIPT, "the tests' script")
    service = service_of(folder)
    if service.dockerfile is None and not service.image:
        place = folder / "docker-compose.yaml"
        raise SuiteError(f"{place}: services: client: build or image is needed")
    image, machine = read_machine_of(service, service.dockerfile, service.image)
    tests = folder / "tests"
    return replace(
        blank,
        image=image,
        workdir=machine.workdir,
        limits=replace(make_limits(service.cpus, service.memory), offline=service.offline),
        variables=service.variables,
        user=machine.user,
        platform=service.platform,
        files={
            **{path + "/": FileSpec("directory", mode=0o777) for path in _LOGS},
            **service.files,
        },
        mounts=service.mounts,
        services=service.services,
        setup=(
            *machine_setup(machine, service),
            *((open_folder("/oracle"),) if machine.user else ()),
        ),
        gold=_gold(folder, machine.workdir),
        skip=_SAME_SHELL if config.run_tests_in_same_shell else None,
        verification=Verification(
            command=f"bash {_TESTS}/{_SCRIPT}",
            place="shell" if config.run_tests_in_same_shell else "fresh",
            parser=parser,
            files={
                **service.test_files,
                f"{_TESTS}/{_SCRIPT}": FileSpec("file", script.encode(), mode=0o755),
            },
            archives=(
                *service.tests,
                *((Archive(tests.place(), _TESTS),) if tests.is_dir() else ()),
            ),
            kit=find_requirements([tests], [script]),
            variables=(("TEST_DIR", _TESTS), ("COLUMNS", "160")),
            timeout=config.max_test_timeout_sec,
        ),
    )


def service_of(folder: SuitePath) -> AgentMachine:
    """Return the machine of a task's compose file, or of its Dockerfile if it has no compose file.

    Raises:
        SuiteError: there is neither, or it is wrong.
        Unsupported: it needs a feature that sandboxes do not have.
    """
    compose = folder / "docker-compose.yaml"
    if compose.is_file():
        names = {**passed_variables(folder.permissions), **_VARIABLES}
        secrets = Secrets(
            tuple(folder / name for name in ("tests", _SCRIPT)),
            tuple(folder / name for name in ("solution.sh", "solution.yaml")),
        )
        return read_compose(compose, "client", names, frozenset(_LOGS), secrets)
    if not (folder / "Dockerfile").is_file():
        raise MissingFile(f"{folder}: the machine is missing: there is no docker-compose.yaml")
    return AgentMachine(folder / "Dockerfile")


def _gold(folder: SuitePath, workdir: str) -> tuple[str, ...]:
    """Return the solution: a script, or lines that are typed into the shell."""
    script, typed = folder / "solution.sh", folder / "solution.yaml"
    if script.is_file():
        return make_gold({"/oracle/solution.sh": script}, "bash /oracle/solution.sh", workdir)
    if not typed.is_file():
        return ()
    raw, _ = read_yaml(typed)
    if not isinstance(raw, list) or not all(isinstance(line, dict) for line in raw):
        raise SuiteError(f"{typed}: a list of commands is needed")
    return tuple(_line(typed, line) for line in raw)


def _line(path: SuitePath, line: dict[str, Any]) -> str:
    """Return a typed line as an action; keys for a full-screen program are not supported."""
    command = line.get("command")
    if not isinstance(command, str):
        raise SuiteError(f"{path}: command: a string is needed, found {command!r:.40}")
    if line.get("append_enter") is False or command.startswith(_KEYS):
        raise Unsupported(f"{path.name} types keys into a program ({command!r:.40})")
    return command
