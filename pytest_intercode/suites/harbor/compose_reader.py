"""Reading of one service of a compose file, as Docker Compose reads it.

Folders and files of the task's own folder that a service shares are copied, without the solution
and the tests. If a service needs a feature that machines here do not have, such as the host's
network, the task is skipped, and the reason names the feature.
"""

from __future__ import annotations

import math
import posixpath
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any, NoReturn

from pytest_intercode.core.machine import (
    DEFAULT_NETWORK,
    Archive,
    FileSpec,
    HealthCheck,
    can_mount_at,
)
from pytest_intercode.core.platforms import Platform, parse_platform
from pytest_intercode.core.values import size
from pytest_intercode.errors import IntercodeError, SuiteError
from pytest_intercode.suites.harbor.compose_variables import parse_env_file
from pytest_intercode.suites.harbor.parts import read_text
from pytest_intercode.system.suite_folder import SuitePath

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    *("ComposeReader", "Secrets", "SharedFolders", "Unsupported"),
    *("list_of", "mapping_of", "words_of"),
]

_TIME = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s)?(?:(\d+)ms)?(?:\d+us)?")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_MAX_NAME = 63  # characters of a service's name, which is also its machine's host name
_MIN_MEMORY, _MAX_MEMORY = 6 * 1024**2, 2**50  # bytes that engines accept
_MAX_FILE_BYTES = 16 * 1024**2  # bytes of a single file that is shared
# Keys without an effect here: names on the host, the terminal, ports that only the host would use,
# and logs, which are not kept.
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
_SCALAR = (str, int, float)
# The types of keys' values; all other keys have scalars.
_KINDS: Mapping[str, tuple[type, ...]] = {
    **dict.fromkeys(("build",), (str, dict)),
    **dict.fromkeys(("command", "entrypoint", "tmpfs"), (str, list)),
    **dict.fromkeys(("environment", "depends_on", "networks"), (list, dict)),
    **dict.fromkeys(("volumes", "links"), (list,)),
    **dict.fromkeys(("healthcheck", "deploy"), (dict,)),
    "env_file": (str, list, dict),
}
_KIND_NAMES = {str: "a text", list: "a list", dict: "a mapping"}
_RESTARTS = ("no", "always", "unless-stopped", "on-failure")
_HEALTH_KEYS = frozenset(
    {"test", "interval", "timeout", "retries", "start_period", "start_interval", "disable"}
)
# Only the limits of a deployment are read; the other keys have no effect on one machine.
_DEPLOY_KEYS = frozenset(
    {
        *("replicas", "resources", "labels", "restart_policy", "update_config"),
        *("rollback_config", "placement", "endpoint_mode"),
    }
)


class Unsupported(IntercodeError):
    """A task needs a feature that machines here do not have; the message names it."""


@dataclass(frozen=True)
class Secrets:
    """The parts of a task's folder that no machine of the agent may have.

    Attributes:
        tests: parts that the verifier gets if the file shares them.
        solution: parts that nobody gets, even if the file shares them.
    """

    tests: tuple[SuitePath, ...] = ()
    solution: tuple[SuitePath, ...] = ()


class ComposeReader:
    """Reads the services of a file.

    Attributes:
        variables: the values of references in texts, including the ``.env`` next to the file.
    """

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
        self._tests = {one.place(): one for one in secrets.tests}
        self._secret = {*self._tests, *(one.place() for one in secrets.solution)}
        self._networks = mapping_of(raw.get("networks"))
        self._volumes = mapping_of(raw.get("volumes"))
        self.variables = variables
        own_file = path.parent / ".env"
        if own_file.is_file():
            own_variables = self._read_variables(own_file, {})
            pairs = {name: value for name, value in own_variables.items() if value is not None}
            self.variables = {**pairs, **variables}

    def refuse(self, name: str, problem: str) -> NoReturn:
        """Raise Unsupported for a service; the message is its name and the problem."""
        raise Unsupported(f"{self.path.name}: {name} {problem}")

    def fail(self, name: str, problem: str) -> NoReturn:
        """Raise an error for a service that is invalid in any case."""
        raise SuiteError(f"{self.path}: services: {name}: {problem}")

    def check_keys(self, name: str, service: Mapping[str, Any]) -> None:
        """Refuse a service with unsupported keys, or with invalid values."""
        if not _NAME.fullmatch(name) or len(name) > _MAX_NAME:
            raise SuiteError(
                f"{self.path}: services: {name!r:.80} is not a valid name: at most {_MAX_NAME} "
                f"letters, digits, '_', '.' and '-' are allowed"
            )
        unknown = sorted(
            key for key in service.keys() - _IGNORED - _READ if not str(key).startswith("x-")
        )
        # A key whose feature is turned off is not used.
        if unknown := [key for key in unknown if service[key] not in (None, False, [], {})]:
            self.refuse(name, f"uses {', '.join(unknown)}")
        for key in _READ & service.keys():
            kinds = _KINDS.get(key, _SCALAR)
            if service[key] is not None and not isinstance(service[key], kinds):
                names = " or ".join(_KIND_NAMES[kind] for kind in kinds if kind in _KIND_NAMES)
                self.fail(name, f"{key}: {names} is needed, found {service[key]!r:.60}")
        for key in ("command", "entrypoint", "environment", "tmpfs", "links"):
            for item in service.get(key) or () if isinstance(service.get(key), list) else ():
                if not isinstance(item, _SCALAR):
                    self.fail(name, f"{key}: a list of texts is needed, found {item!r:.60}")
        restart = service.get("restart") or "no"
        if str(restart).partition(":")[0] not in _RESTARTS:
            self.fail(name, f"restart: {restart!r:.40} is not one of {', '.join(_RESTARTS)}")
        workdir = service.get("working_dir")
        if workdir and not str(workdir).startswith("/"):
            self.fail(name, f"working_dir: an absolute path is needed, found {workdir!r:.60}")

    def words(self, name: str, service: Mapping[str, Any], key: str) -> tuple[str, ...] | None:
        """Return the words of a service's command under a key."""
        try:
            return words_of(service.get(key))
        except ValueError as error:
            self.fail(name, f"{key}: {str(error).lower()}: {service[key]!r:.60}")

    def dockerfile(self, build: Any) -> SuitePath | None:
        """Return the Dockerfile to build; None if nothing is built."""
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
        file = self.path.parent / context / name.removeprefix("./")
        if self.is_secret(file.place()):
            raise Unsupported(
                f"{self.path.name}: build: {context!r} is of the solution or the tests"
            )
        return file

    def environment(self, name: str, service: Mapping[str, Any]) -> dict[str, str]:
        """Return the variables of a service, first those of its files."""
        pairs: dict[str, str | None] = {}
        for item in list_of(service.get("env_file")):
            pairs |= self._variables_of(name, item if isinstance(item, dict) else {"path": item})
        settings = service.get("environment") or {}
        if isinstance(settings, list):
            lines = [str(line).partition("=") for line in settings]
            settings = {key: value if sign else None for key, sign, value in lines}
        for key, value in settings.items():
            if not key or "=" in key or "\0" in f"{key}{value}":
                self.fail(name, f"environment: {key!r:.60} is not a variable with a value")
            if value is not None and not isinstance(value, (*_SCALAR, date)):
                self.fail(name, f"environment: {key}: a text is needed, found {value!r:.60}")
            pairs[key] = None if value is None else _text(value)
        # A variable without a value gets that of the caller's environment, if it is passed on.
        pairs = {n: self.variables.get(n) if v is None else v for n, v in pairs.items()}
        return {key: value for key, value in pairs.items() if value is not None}

    def _variables_of(self, name: str, details: Mapping[str, Any]) -> dict[str, str | None]:
        """Return the variables in one of the ``env_file`` entries of a service."""
        if details.keys() - {"path", "required", "format"} or not details.get("path"):
            self.fail(
                name, f"env_file: a path is needed, with required and format: {details!r:.60}"
            )
        file = self.path.parent / str(details["path"])
        if not details.get("required", True) and not file.is_file():
            return {}
        return self._read_variables(file, details)

    def _read_variables(self, file: SuitePath, details: Mapping[str, Any]) -> dict[str, str | None]:
        """Return the variables in a file."""
        if self.is_secret(file.place()):
            raise Unsupported(f"{self.path.name}: {file.name} is of the solution or the tests")
        text = read_text(file, "a file of variables")
        if details.get("format") == "raw":
            lines = [line.partition("=") for line in text.splitlines() if line[:1] not in ("", "#")]
            return {key: value if sign else None for key, sign, value in lines}
        try:
            return parse_env_file(text, self.variables)
        except ValueError as error:
            raise SuiteError(f"{file}: {error}") from None

    def limits(self, name: str, service: Mapping[str, Any]) -> tuple[float | None, int | None]:
        """Return the processors and the bytes of memory that a service may use."""
        deploy = mapping_of(service.get("deploy"))
        if deploy.get("replicas", 1) != 1:
            self.refuse(name, f"uses {deploy['replicas']!r:.20} replicas")
        resources = mapping_of(deploy.get("resources"))
        limits = mapping_of(resources.get("limits"))
        is_usual = deploy.get("mode", "replicated") == "replicated"
        unknown = {
            *(deploy.keys() - _DEPLOY_KEYS - {"mode" if is_usual else ""}),
            *(resources.keys() - {"limits", "reservations"}),
            *(limits.keys() - {"cpus", "memory", "pids"}),
            *(mapping_of(resources.get("reservations")).keys() - {"cpus", "memory"}),
        }
        if unknown:
            self.refuse(name, f"uses {', '.join(sorted(unknown))} of deploy")
        return (
            self._cpus(name, service.get("cpus", limits.get("cpus"))),
            self._memory(name, service.get("mem_limit", limits.get("memory"))),
        )

    def networks(self, name: str, service: Mapping[str, Any]) -> tuple[dict[str, list[str]], bool]:
        """Return a service's networks with its aliases there, and whether it must be offline."""
        mode = str(service.get("network_mode") or "bridge")
        if mode not in ("bridge", "default", "none"):
            self.refuse(name, f"uses network_mode {mode}")
        memberships: Any = service.get("networks") or ([DEFAULT_NETWORK] if mode != "none" else [])
        is_plain = not isinstance(memberships, dict)
        settings: dict[str, Any] = dict.fromkeys(memberships) if is_plain else memberships
        internal = []
        for network, endpoint in settings.items():
            if network not in self._networks and network != DEFAULT_NETWORK:
                self.fail(name, f"networks: there is no network {network!r:.60}")
            general = mapping_of(self._networks.get(network))
            internal.append(bool(general.get("internal")))
            unknown = (mapping_of(endpoint).keys() - {"aliases", "priority"}) | (
                general.keys() - {"driver", "internal", "name", "attachable", "labels"}
            )
            if unknown or general.get("driver", "bridge") != "bridge":
                self.refuse(name, f"uses the network {network} with settings of its own")
        aliases = {n: list_of(mapping_of(point).get("aliases")) for n, point in settings.items()}
        return aliases, mode == "none" or (bool(internal) and all(internal))

    def check_volume(self, name: str, volume: str) -> None:
        """Refuse a volume that has another driver, or is external."""
        settings = mapping_of(self._volumes.get(volume))
        unknown = settings.keys() - {"driver", "name", "labels"}
        if unknown or settings.get("driver", "local") != "local":
            self.refuse(name, f"uses the volume {volume} with settings of its own")

    def volumes(self, name: str, service: Mapping[str, Any]) -> SharedFolders:
        """Return the folders that a service shares with the host and with other services."""
        shared = SharedFolders(self, name)
        for target in list_of(service.get("tmpfs")):
            shared.add({"type": "tmpfs", "target": str(target).partition(":")[0]})
        for volume in service.get("volumes") or ():
            shared.add(volume)
        return shared

    def health(self, name: str, check: Any) -> HealthCheck | None:
        """Return the health check of a service; None if it has none."""
        if check is None or check.get("disable") or check.get("test") in (["NONE"], "NONE"):
            return None
        if unknown := sorted(check.keys() - _HEALTH_KEYS):
            self.fail(name, f"healthcheck: there is no {unknown[0]!r:.40}")
        test = check.get("test")
        if isinstance(test, list) and len(test) > 1 and test[0] in ("CMD", "CMD-SHELL"):
            shell = test[0] == "CMD-SHELL"
            command = ("/bin/sh", "-c", str(test[1])) if shell else tuple(map(str, test[1:]))
        elif test is None:
            command = ()
        elif isinstance(test, str):
            command = ("/bin/sh", "-c", test)
        else:
            self.refuse(name, f"has the health check {test!r:.60}")
        default = HealthCheck(interval=30.0, retries=3)  # defaults of compose, also used for 0
        retries = str(check.get("retries") or default.retries)
        if not re.fullmatch("[0-9]{1,6}", retries):
            self.fail(name, f"healthcheck: retries: {retries!r:.40} is not a whole number")
        return HealthCheck(
            command,
            self._seconds(name, check.get("interval")) or default.interval,
            self._seconds(name, check.get("timeout")) or default.timeout,
            int(retries) or default.retries,
            self._seconds(name, check.get("start_period")),
        )

    def platform(self, name: Any) -> Platform | None:
        """Return the platform of an image; None if it is not given."""
        if name in (None, ""):
            return None
        try:
            return parse_platform(str(name))
        except ValueError as error:
            raise Unsupported(f"{self.path.name}: platform {name!r:.60}: {error}") from None

    def is_secret(self, place: Path) -> bool:
        """Whether a path is in a part that no machine may have."""
        return any(place == secret or secret in place.parents for secret in self._secret)

    def secrets_below(self, place: Path) -> Iterator[str]:
        """Yield the parts of a folder that no machine may have, by paths below it."""
        for secret in self._secret:
            if place in secret.parents:
                yield secret.relative_to(place).as_posix()

    def tests_at(self, place: Path) -> Iterator[tuple[str, SuitePath]]:
        """Yield the tests that are at a path or below it, each with its relative path."""
        for test, path in self._tests.items():
            if place == test or place in test.parents:
                yield test.relative_to(place).as_posix(), path

    def _memory(self, name: str, memory: Any) -> int | None:
        if memory in (None, ""):
            return None
        try:
            number = size(str(memory))
        except (ValueError, OverflowError):
            number = -1
        if number and not _MIN_MEMORY <= number <= _MAX_MEMORY:
            self.fail(name, f"{memory!r:.40} is not a memory size (use 2g or 512m; 6m at least)")
        return number

    def _cpus(self, name: str, count: Any) -> float | None:
        if count in (None, ""):
            return None
        try:
            number = float(count)
        except (TypeError, ValueError):
            number = math.nan
        if not 0 <= number < math.inf:
            self.fail(name, f"cpus: {count!r:.40} is not a number of processors")
        return number

    def _seconds(self, name: str, time: Any) -> float:
        if time in (None, ""):
            return 0.0
        match = _TIME.fullmatch(str(time).strip())
        if match is None:
            self.fail(name, f"healthcheck: {time!r:.40} is not a time (use 30s or 1m30s)")
        hours, minutes, seconds, thousandths = (float(part or 0) for part in match.groups())
        return hours * 3600 + minutes * 60 + seconds + thousandths / 1000


class SharedFolders:
    """The folders that one service shares: with the host, as copies; and with other services."""

    def __init__(self, reader: ComposeReader, name: str) -> None:
        self._reader = reader
        self._name = name
        self.named: list[tuple[str, str]] = []
        self.read_only: list[str] = []  # paths of named volumes
        self.tmpfs: list[str] = []
        self.folders: list[tuple[str, str]] = []
        self.mounts: list[Archive] = []
        self.files: dict[str, FileSpec] = {}
        self.tests: list[Archive] = []
        self.test_files: dict[str, FileSpec] = {}

    def add(self, volume: Any) -> None:
        """Add an entry of ``volumes``, in its short or its long form."""
        options: list[str] = []
        if isinstance(volume, dict):
            kind = volume.get("type", "volume")
            source, target = str(volume.get("source") or ""), str(volume.get("target") or "")
            options = ["ro"] if volume.get("read_only") else []
            if mapping_of(volume.get("volume")).get("subpath"):
                self._reader.refuse(self._name, f"shares a subpath of the volume {source}")
        else:
            source, sign, remainder = str(volume).partition(":")
            if not sign:
                source, remainder = "", source
            target, _, modes = remainder.partition(":")
            options = modes.split(",")
            kind = "bind" if sign and not _NAME.fullmatch(source) else "volume"
        target = posixpath.normpath(target)
        if target in self._reader.logs:
            return
        if not can_mount_at(target):
            self._reader.refuse(self._name, f"shares the volume {volume!r:.80}")
        if kind == "tmpfs":
            self.tmpfs.append(target)
        elif kind == "volume":
            self._reader.check_volume(self._name, source)
            self.named.append((source, target))
            if "ro" in options:
                self.read_only.append(target)
        elif kind == "bind" and source.startswith("."):
            self._copy(self._reader.path.parent / source, target)
        else:
            self._reader.refuse(self._name, f"shares the volume {volume!r:.80} with the host")

    def _copy(self, source: SuitePath, target: str) -> None:
        """Add copies of files and folders of the task's own folder that are shared."""
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
        elif not source.is_dir() or self._reader.is_secret(place):  # engines create missing folders
            self.folders.append((target, "755"))
        else:
            exclude = tuple(sorted(self._reader.secrets_below(place)))
            self.mounts.append(Archive(place, target, exclude=exclude))

    def _file(self, path: SuitePath) -> FileSpec:
        try:
            content = path.read_bytes(_MAX_FILE_BYTES)
        except OSError as error:
            raise SuiteError(f"{path}: cannot be read: {error.strerror}") from None
        return FileSpec("file", content, mode=path.stat().st_mode & 0o777)


def mapping_of(value: Any) -> dict[str, Any]:
    """Return a mapping; empty if it is left out."""
    return dict(value or {})


def list_of(value: Any) -> list[Any]:
    """Return a list for a value that may be a single item or a list."""
    return value if isinstance(value, list) else [] if value in (None, "") else [value]


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def words_of(command: Any) -> tuple[str, ...] | None:
    """Return the words of a command; a text is split as by a shell."""
    if command is None:
        return None
    return tuple(map(_text, command)) if isinstance(command, list) else tuple(shlex.split(command))
