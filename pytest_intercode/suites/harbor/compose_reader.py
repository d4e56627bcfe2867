"""What a compose file says of one service, as Docker Compose reads it.

What a file shares of the task's own folder comes as a copy, without the solution and the tests.
What a machine here cannot be, such as one with the host's network, is a reason to skip the task,
and the reason names it.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from pytest_intercode.core.machine import (
    DEFAULT_NETWORK,
    Archive,
    FileSpec,
    HealthCheck,
)
from pytest_intercode.core.platforms import Platform, parse_platform
from pytest_intercode.core.values import size
from pytest_intercode.errors import IntercodeError, SuiteError
from pytest_intercode.suites.harbor.parts import read_text
from pytest_intercode.system.suite_folder import SuitePath

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    *("ComposeReader", "Secrets", "SharedFolders", "Unsupported"),
    *("expand", "list_of", "mapping_of", "words_of"),
]

_REFERENCE = re.compile(r"\$\$|\$(?:(\w+)|\{(\w+)(?::?-([^}]*))?\})")
_TIME = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s)?(?:(\d+)ms)?(?:\d+us)?")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_MAX_FILE_BYTES = 16 * 1024**2  # bytes of a file that is shared by itself
# What makes no difference: names on the host, the terminal, ports that only the host would use, and
# logs, which are not kept.
_IGNORED = frozenset(
    {
        *("tty", "stdin_open", "init", "expose", "ports", "logging", "labels", "annotations"),
        *("stop_grace_period", "stop_signal", "pull_policy", "shm_size", "profiles"),
    }
)
_READ = frozenset(
    {
        *("image", "build", "container_name", "hostname", "command", "entrypoint", "environment"),
        *("env_file", "working_dir", "user", "volumes", "tmpfs", "depends_on", "healthcheck"),
        *("networks", "network_mode", "links", "platform", "deploy", "mem_limit", "cpus"),
        "restart",
    }
)


class Unsupported(IntercodeError):
    """A task needs what its machines cannot be; the message says what."""


@dataclass(frozen=True)
class Secrets:
    """What of a task's folder no machine of the agent's may have.

    Attributes:
        tests: what its verifier gets where the file shares it.
        solution: what nobody gets by the file.
    """

    tests: tuple[SuitePath, ...] = ()
    solution: tuple[SuitePath, ...] = ()


class ComposeReader:
    """Reads the services of a file."""

    def __init__(
        self,
        path: SuitePath,
        raw: Mapping[str, Any],
        logs: frozenset[str],
        secrets: Secrets,
        variables: Mapping[str, str],
    ) -> None:
        self.path = path
        self.logs = logs
        self.variables = variables
        self._tests = {one.place(): one for one in secrets.tests}
        self._secret = {*self._tests, *(one.place() for one in secrets.solution)}
        self._networks = mapping_of(raw.get("networks"))

    def refuse(self, name: str, problem: str) -> NoReturn:
        """Refuse a service; the problem follows its name."""
        raise Unsupported(f"{self.path.name}: {name} {problem}")

    def check_keys(self, name: str, service: Mapping[str, Any]) -> None:
        """Refuse a service that uses what a machine here does not have."""
        unknown = sorted(
            key for key in service.keys() - _IGNORED - _READ if not str(key).startswith("x-")
        )
        # What is turned off is not used.
        if unknown := [key for key in unknown if service[key] not in (None, False, [], {})]:
            self.refuse(name, f"uses {', '.join(unknown)}")

    def dockerfile(self, build: Any) -> SuitePath | None:
        """Return what is built; None for nothing."""
        if build is None:
            return None
        build = {"context": build} if isinstance(build, str) else build
        unknown = sorted(build.keys() - {"context", "dockerfile"})
        if unknown:
            raise Unsupported(f"{self.path.name}: build uses {', '.join(unknown)}")
        context = posixpath.normpath(str(build.get("context") or "."))
        name = str(build.get("dockerfile") or "Dockerfile")
        if context.startswith(("..", "/")) or "/" in name.removeprefix("./"):
            raise Unsupported(
                f"{self.path.name}: build: context {context!r} with dockerfile {name!r}"
            )
        return self.path.parent / context / name.removeprefix("./")

    def environment(self, service: Mapping[str, Any]) -> dict[str, str]:
        """Return the variables of a service, those of its files first."""
        pairs: dict[str, str | None] = {}
        for name in list_of(service.get("env_file")):
            details = name if isinstance(name, dict) else {"path": name}
            file = self.path.parent / str(details["path"])
            if details.get("required", True) or file.is_file():
                lines = map(str.strip, read_text(file, "a file of variables").splitlines())
                pairs |= _pairs([line for line in lines if line and not line.startswith("#")])
        pairs |= _pairs(service.get("environment"))
        # One without a value is that of who runs it, if it is passed on.
        pairs = {n: self.variables.get(n) if v is None else v for n, v in pairs.items()}
        return {name: value for name, value in pairs.items() if value is not None}

    def limits(self, name: str, service: Mapping[str, Any]) -> tuple[float | None, int | None]:
        """Return the processors and the bytes of memory that a service may use."""
        deploy = mapping_of(service.get("deploy"))
        if deploy.get("replicas", 1) != 1:
            self.refuse(name, "uses several replicas")
        limits = mapping_of(mapping_of(deploy.get("resources")).get("limits"))
        return (
            self._cpus(service.get("cpus", limits.get("cpus"))),
            self._memory(service.get("mem_limit", limits.get("memory"))),
        )

    def networks(self, name: str, service: Mapping[str, Any]) -> tuple[dict[str, list[str]], bool]:
        """Return the networks of a service with its names there, and whether it is to have none."""
        mode = str(service.get("network_mode") or "bridge")
        if mode not in ("bridge", "default", "none"):
            self.refuse(name, f"uses network_mode {mode}")
        memberships: Any = service.get("networks") or ([DEFAULT_NETWORK] if mode != "none" else [])
        is_plain = not isinstance(memberships, dict)
        settings: dict[str, Any] = dict.fromkeys(memberships) if is_plain else memberships
        internal = []
        for network, endpoint in settings.items():
            general = mapping_of(self._networks.get(network))
            internal.append(bool(general.get("internal")))
            unknown = (mapping_of(endpoint).keys() - {"aliases", "priority"}) | (
                general.keys() - {"driver", "internal", "name", "attachable", "labels"}
            )
            if unknown or general.get("driver", "bridge") != "bridge":
                self.refuse(name, f"uses the network {network} with settings of its own")
        aliases = {n: list_of(mapping_of(point).get("aliases")) for n, point in settings.items()}
        return aliases, mode == "none" or (bool(internal) and all(internal))

    def volumes(self, name: str, service: Mapping[str, Any]) -> SharedFolders:
        """Return what a service shares with the host and with other services."""
        shared = SharedFolders(self, name)
        for target in list_of(service.get("tmpfs")):
            shared.tmpfs.append(str(target).partition(":")[0])
        for volume in service.get("volumes") or ():
            shared.add(volume)
        return shared

    def health(self, name: str, check: Any) -> HealthCheck | None:
        """Return how a service is known to be ready."""
        if check is None or check.get("disable") or check.get("test") in (["NONE"], "NONE"):
            return None
        test = check.get("test")
        if isinstance(test, list) and test[:1] in (["CMD"], ["CMD-SHELL"]):
            shell = test[0] == "CMD-SHELL"
            command = ("/bin/sh", "-c", str(test[1])) if shell else tuple(map(str, test[1:]))
        elif test is None:
            command = ()
        elif isinstance(test, str):
            command = ("/bin/sh", "-c", test)
        else:
            self.refuse(name, f"has the health check {test!r:.60}")
        default = HealthCheck(interval=30.0, retries=3)  # those of compose
        return HealthCheck(
            command,
            self._seconds(check.get("interval"), default.interval),
            self._seconds(check.get("timeout"), default.timeout),
            int(check.get("retries") or default.retries),
            self._seconds(check.get("start_period"), default.start_period),
        )

    def platform(self, name: Any) -> Platform | None:
        """Return the platform of an image; None where nothing is said."""
        if name in (None, ""):
            return None
        try:
            return parse_platform(str(name))
        except ValueError as error:
            raise Unsupported(f"{self.path.name}: platform {name!r:.60}: {error}") from None

    def is_secret(self, place: Path) -> bool:
        """Whether a path is in what no machine may have."""
        return any(place == secret or secret in place.parents for secret in self._secret)

    def secrets_below(self, place: Path) -> Iterator[str]:
        """Yield what in a folder no machine may have, by paths below it."""
        for secret in self._secret:
            if place in secret.parents:
                yield secret.relative_to(place).as_posix()

    def tests_at(self, place: Path) -> Iterator[tuple[str, SuitePath]]:
        """Yield the tests that are at a path or below it, each by its path below."""
        for test, path in self._tests.items():
            if place == test or place in test.parents:
                yield test.relative_to(place).as_posix(), path

    def _memory(self, memory: Any) -> int | None:
        if memory in (None, ""):
            return None
        try:
            return size(str(memory))
        except ValueError:
            raise SuiteError(
                f"{self.path}: {memory!r:.40} is not a memory size (use 2g or 512m)"
            ) from None

    def _cpus(self, count: Any) -> float | None:
        if count in (None, ""):
            return None
        try:
            return float(count)
        except (TypeError, ValueError):
            raise SuiteError(f"{self.path}: cpus: {count!r:.40} is not a number") from None

    def _seconds(self, time: Any, default: float) -> float:
        if time in (None, ""):
            return default
        match = _TIME.fullmatch(str(time).strip())
        if match is None:
            raise SuiteError(f"{self.path}: {time!r:.40} is not a time (use 30s or 1m30s)")
        hours, minutes, seconds, thousandths = (float(part or 0) for part in match.groups())
        return hours * 3600 + minutes * 60 + seconds + thousandths / 1000


class SharedFolders:
    """What one service shares: with the host, by copies; and with other services."""

    def __init__(self, reader: ComposeReader, name: str) -> None:
        self._reader = reader
        self._name = name
        self.named: list[tuple[str, str]] = []
        self.tmpfs: list[str] = []
        self.folders: list[tuple[str, str]] = []
        self.mounts: list[Archive] = []
        self.files: dict[str, FileSpec] = {}
        self.tests: list[Archive] = []
        self.test_files: dict[str, FileSpec] = {}

    def add(self, volume: Any) -> None:
        """Add one of ``volumes``, in either form."""
        if isinstance(volume, dict):
            kind = volume.get("type", "volume")
            source, target = str(volume.get("source") or ""), str(volume.get("target") or "")
        else:
            source, sign, remainder = str(volume).partition(":")
            if not sign:
                source, remainder = "", source
            target = remainder.partition(":")[0]
            kind = "bind" if sign and not _NAME.fullmatch(source) else "volume"
        if target in self._reader.logs:
            return
        target = posixpath.normpath(target)
        if not target.startswith("/") or target == "/":
            self._reader.refuse(self._name, f"shares the volume {volume!r:.80}")
        if kind == "tmpfs":
            self.tmpfs.append(target)
        elif kind == "volume":
            self.named.append((source, target))
        elif kind == "bind" and source.startswith("."):
            self._copy(self._reader.path.parent / source, target)
        else:
            self._reader.refuse(self._name, f"shares the volume {volume!r:.80} with the host")

    def _copy(self, source: SuitePath, target: str) -> None:
        """Have a copy of what is shared of the task's own folder."""
        place = source.place()
        for name, path in self._reader.tests_at(place):
            test_target = posixpath.normpath(posixpath.join(target, name))
            if path.is_dir():
                self.tests.append(Archive(path.place(), test_target))
            elif path.is_file():
                self.test_files[test_target] = self._file(path)
        if source.is_file():
            if not self._reader.is_secret(place):
                self.files[target] = self._file(source)
        elif not source.is_dir() or self._reader.is_secret(place):  # the engine makes it
            self.folders.append((target, "755"))
        else:
            exclude = tuple(sorted(self._reader.secrets_below(place)))
            self.mounts.append(Archive(place, target, exclude=exclude))

    def _file(self, path: SuitePath) -> FileSpec:
        content = path.read_bytes()
        if len(content) > _MAX_FILE_BYTES:
            raise SuiteError(f"{path}: has more than {_MAX_FILE_BYTES // 2**20} MiB")
        return FileSpec("file", content, mode=path.stat().st_mode & 0o777)


def expand(value: Any, variables: Mapping[str, str]) -> Any:
    """Replace ``${NAME}`` and ``${NAME:-default}``; a name that is not known is empty."""
    if isinstance(value, str):
        return _REFERENCE.sub(
            lambda match: (
                "$" if match[0] == "$$" else variables.get(match[1] or match[2], match[3] or "")
            ),
            value,
        )
    if isinstance(value, dict):
        return {str(key): expand(part, variables) for key, part in value.items()}
    if isinstance(value, list):
        return [expand(part, variables) for part in value]
    return value


def mapping_of(value: Any) -> dict[str, Any]:
    """Return a mapping, which may be left out."""
    return dict(value or {})


def list_of(value: Any) -> list[Any]:
    """Return what may be one thing or a list of them."""
    return value if isinstance(value, list) else [] if value in (None, "") else [value]


def _pairs(settings: Any) -> dict[str, str | None]:
    if isinstance(settings, dict):
        return {key: None if value is None else _text(value) for key, value in settings.items()}
    pairs = (str(pair).partition("=") for pair in settings or ())
    return {name: value if sign else None for name, sign, value in pairs}


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def words_of(command: Any) -> tuple[str, ...] | None:
    """Return the words of a command, which a text is split into as a shell does."""
    if command is None:
        return None
    return tuple(map(str, command)) if isinstance(command, list) else tuple(shlex.split(command))
