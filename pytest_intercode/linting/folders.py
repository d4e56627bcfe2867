"""The checks of one task folder, of Harbor or of Terminal-Bench 1."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from pytest_intercode.core.text import first_names
from pytest_intercode.errors import SuiteError, suggestion
from pytest_intercode.linting.rules import Finding
from pytest_intercode.linting.texts import (
    copied_names,
    find_line,
    kept_reward_line,
    unreached_reward_line,
)
from pytest_intercode.suites.harbor import folder as harbor
from pytest_intercode.suites.harbor.config import (
    OLD_SIZES,
    EnvironmentConfig,
    TaskConfig,
    config_of,
    read_toml,
)
from pytest_intercode.system.archives import context_files
from pytest_intercode.system.suite_folder import SuitePath

__all__ = ["check_folder"]

_MIN_BYTES = 64  # of a file that is recognised by its content
_MAX_BYTES = 2**20  # bytes of a file that are read
_TEST_CODE = re.compile(r"(?:test.*|.*_test)\.(?:py|sh|js|ts)|run-tests\.sh")
# Other files of a solution may be copies of files that the agent gets.
_SOLUTION_CODE = re.compile(
    r".*\.(?:sh|py|js|ts|patch|diff|c|cc|cpp|h|rs|go|java|rb|pl|php|sql|R|jl|v|lean|ml|hs)"
)
# For Terminal-Bench 1, whose images are built from the task's folder.
_HIDDEN_NAMES = re.compile(
    r"run-tests\.sh|solution\.(?:sh|yaml)|tests/(?:.*/)?test[^/]*\.(?:py|sh)"
)
_OLD_NAMES = {TaskConfig: ("version",), EnvironmentConfig: tuple(OLD_SIZES)}
_OPEN_TABLES = ("metadata", "env")  # tables whose keys a task chooses


@dataclass(frozen=True)
class _Folder:
    """A task folder.

    Attributes:
        path: the folder.
        task: the task's id.
    """

    path: SuitePath
    task: str

    @cached_property
    def is_harbor(self) -> bool:
        """Whether it is in Harbor's format, rather than in Terminal-Bench's."""
        return (self.path / harbor.CONFIG).is_file()

    def finding(self, rule: str, path: SuitePath, line: int, message: str) -> Finding:
        """Return a finding of a rule in a file."""
        return Finding(rule, self.task, str(path), line, message)

    @cached_property
    def parts(self) -> list[SuitePath]:
        """The folder itself, and those of its steps."""
        steps = self.path / "steps"
        return [self.path, *(steps.iterdir() if steps.is_dir() else ())]

    def part_folders(self, name: str) -> list[SuitePath]:
        """Return the folders with a name in the task and in its steps."""
        return [part / name for part in self.parts if (part / name).is_dir()]

    @cached_property
    def scripts(self) -> list[SuitePath]:
        """The scripts that grade the task."""
        if not self.is_harbor:
            paths = [self.path / "run-tests.sh"]
        else:
            paths = [folder / "test.sh" for folder in self.part_folders("tests")]
        return [path for path in paths if path.is_file()]

    @cached_property
    def secrets(self) -> Mapping[bytes, str]:
        """The names of the files of code in tests and solution, by the files' content."""
        files: dict[bytes, str] = {}

        def add(name: str, path: SuitePath) -> None:
            data = path.read_beginning(_MAX_BYTES + 1)
            if _MIN_BYTES <= len(data) <= _MAX_BYTES:
                files.setdefault(data, name)

        for folder in self.part_folders("tests"):
            for name, path in folder.files():
                if _TEST_CODE.fullmatch(path.name):
                    add(f"tests/{name}", path)
        for folder in self.part_folders("solution"):
            for name, path in folder.files():
                if _SOLUTION_CODE.fullmatch(path.name):
                    add(f"solution/{name}", path)
        return files

    def secret_of(self, path: Path) -> str | None:
        """Return the name of the tests' or solution's file that a file is, or None.

        Args:
            path: a file of the image's context.
        """
        if not self.is_harbor:
            name = path.relative_to(self.path.place()).as_posix()
            if _HIDDEN_NAMES.fullmatch(name):
                return name
        if not _MIN_BYTES <= path.stat().st_size <= _MAX_BYTES:
            return None
        return self.secrets.get(path.read_bytes())


def check_folder(path: SuitePath, task: str, dockerfile: Path | None) -> Iterator[Finding]:
    """Yield the findings of rules in the files of a task folder.

    Args:
        path: the folder.
        task: the task's id.
        dockerfile: the Dockerfile of the agent's image; None if it is not known.
    """
    folder = _Folder(path, task)
    yield from _check_image(folder, dockerfile)
    yield from _check_instruction(folder)
    yield from _check_scripts(folder)
    if folder.is_harbor:
        yield from _check_description(folder)


def _check_image(folder: _Folder, place: Path | None) -> Iterator[Finding]:
    """Look for the answer in the files that the agent's image copies."""
    dockerfile = folder.path / ("environment/Dockerfile" if folder.is_harbor else "Dockerfile")
    if place is not None and place.is_relative_to(folder.path.place()):
        dockerfile = folder.path / place.relative_to(folder.path.place()).as_posix()
    if not dockerfile.is_file():
        return
    text = _read(dockerfile)
    try:
        files = dict(context_files(dockerfile.place()))
    except (OSError, SuiteError):
        return  # the build reports it
    ignored = dockerfile.parent / ".dockerignore"
    names = _without_ignored(list(files), _read(ignored) if ignored.is_file() else "")
    by_line: dict[int, list[str]] = {}
    for name, line in copied_names(text, names):
        secret = folder.secret_of(files[name])
        if secret is not None and secret not in by_line.setdefault(line, []):
            by_line[line].append(secret)
    for line, secrets in by_line.items():
        if secrets:
            message = f"copies {first_names(secrets)}"
            yield folder.finding("answer-in-image", dockerfile, line, message)


def _without_ignored(names: list[str], patterns: str) -> list[str]:
    """Return the files of a context that ``.dockerignore`` does not exclude.

    Its patterns are only approximated, and lines with ``!`` are ignored: a missing finding is
    better than a wrong one.
    """
    from fnmatch import fnmatch

    lines = [line.strip().strip("/") for line in patterns.splitlines()]
    lines = [line.removeprefix("./") for line in lines if line and not line.startswith(("#", "!"))]
    return [
        name
        for name in names
        if not any(fnmatch(name, line) or fnmatch(name, f"{line}/*") for line in lines)
    ]


def _check_instruction(folder: _Folder) -> Iterator[Finding]:
    """Look for names of the tests' and the solution's files in the agent's instruction."""
    paths = [part / "instruction.md" for part in folder.parts]
    if not folder.is_harbor:
        paths = [folder.path / "task.yaml"]
    hidden = [f"/tests/{name}" for part in folder.part_folders("tests") for name, _ in part.files()]
    hidden += [
        f"/solution/{name}" for part in folder.part_folders("solution") for name, _ in part.files()
    ]
    for path in filter(SuitePath.is_file, paths):
        text = _read(path)
        for name in sorted({name for name in hidden if name in text}):
            pattern = rf"(?<![\w.-]){re.escape(name)}(?![\w-])"
            if line := find_line(text, pattern):
                yield folder.finding("instruction-names-tests", path, line, f"names {name}")


def _check_scripts(folder: _Folder) -> Iterator[Finding]:
    for path in [*folder.scripts, *_solution_scripts(folder)]:
        if b"\r\n" in path.read_beginning(_MAX_BYTES):
            yield folder.finding("windows-line-ends", path, 1, "its lines end with CR LF")
    if not folder.is_harbor:
        return  # Terminal-Bench reads the tests' output instead of a reward
    for path in folder.scripts:
        script = _read(path)
        # The tests of a step are added to the task's own.
        tests = [
            item
            for part in {str(one): one for one in (folder.path / "tests", path.parent)}.values()
            if part.is_dir()
            for _, item in part.files()
        ]
        if not any("reward" in _read(item) for item in tests):
            message = "nothing in its folder writes reward.txt or reward.json"
            yield folder.finding("no-reward", path, 1, message)
        if line := unreached_reward_line(script):
            message = "ends the script where the tests fail, before it writes their reward"
            yield folder.finding("reward-not-reached", path, line, message)
        if line := kept_reward_line(script):
            message = "is the only reward, and is written where the tests pass alone"
            yield folder.finding("reward-kept", path, line, message)


def _solution_scripts(folder: _Folder) -> Iterator[SuitePath]:
    paths = [part / "solve.sh" for part in folder.part_folders("solution")]
    return (path for path in [*paths, folder.path / "solution.sh"] if path.is_file())


def _check_description(folder: _Folder) -> Iterator[Finding]:
    path = folder.path / harbor.CONFIG
    text = _read(path)
    try:
        raw = read_toml(text, str(path))
        config = config_of(raw, str(path))
    except SuiteError:
        return  # reported by cannot-load
    for key, name in _unknown_keys(raw, TaskConfig):
        message = f"{name} is not a key of the format.{suggestion(key[0], key[1])}".rstrip(".")
        yield folder.finding("unknown-key", path, find_line(text, rf"\b{key[0]}\s*="), message)
    phases = [step.agent for step in config.steps or ()] or [config.agent]
    if config.agent.timeout_sec is None and any(phase.timeout_sec is None for phase in phases):
        line = find_line(text, r"^\[agent\]")
        yield folder.finding("no-timeout", path, line, "the agent has no limit of time")
    verifiers = [step.verifier for step in config.steps or ()] or [config.verifier]
    if any((one.mode or config.verifier.mode or "shared") == "shared" for one in verifiers):
        line = find_line(text, r"^\[verifier\]")
        message = "tests run where the agent was, and trust what it left there"
        yield folder.finding("shared-verifier", path, line, message)
    missing = list(_missing_metadata(config))
    if missing:
        line = find_line(text, r"^\[metadata\]")
        message = f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing"
        yield folder.finding("no-metadata", path, line, message)


def _missing_metadata(config: TaskConfig) -> Iterator[str]:
    metadata = config.metadata
    authors = ("author_name", "authors", "author", "author_email")
    if not (config.task and config.task.authors) and not any(map(metadata.get, authors)):
        yield "author_name"
    yield from (name for name in ("difficulty", "category") if not metadata.get(name))


Key = tuple[str, list[str]]


def _unknown_keys(
    table: Mapping[str, Any], model: type[BaseModel], prefix: str = ""
) -> Iterator[tuple[Key, str]]:
    """Yield the keys of a table that its model lacks, with the model's keys, and in full."""
    keys = [*model.model_fields, *_OLD_NAMES.get(model, ())]
    for key, value in table.items():
        name = f"{prefix}{key}"
        if key not in keys:
            yield (key, keys), name
            continue
        if key in _OPEN_TABLES:
            continue
        inner = _inner_model(model, key)
        rows = value if isinstance(value, list) else [value]
        for row in rows if inner is not None else ():
            if isinstance(row, dict) and inner is not None:
                yield from _unknown_keys(row, inner, f"{name}.")


def _inner_model(model: type[BaseModel], key: str) -> type[BaseModel] | None:
    """Return the model of a nested table, or of the rows of a nested list."""
    from typing import get_args

    field = model.model_fields.get(key)
    pending = [field.annotation if field is not None else None]
    while pending:
        annotation = pending.pop()
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            return annotation
        pending += get_args(annotation)
    return None


def _read(path: SuitePath) -> str:
    """Return the beginning of a file as text, even if it is not text."""
    text = path.read_beginning(_MAX_BYTES).decode("utf-8", "replace")
    return text.replace("\r\n", "\n")
