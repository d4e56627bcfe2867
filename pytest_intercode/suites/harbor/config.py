"""``task.toml``, as Harbor 0.20 reads it: schema 1.0 to 1.4, with the names of older versions.

Pure: takes text and returns values. Like Harbor, it ignores unknown keys, and refuses what Harbor
refuses. Fields have Harbor's own names and defaults, so that the result can be compared with
Harbor's.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Mapping
from importlib import import_module
from ipaddress import ip_address, ip_network
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from pytest_intercode.errors import SuiteError
from pytest_intercode.suites.mistakes import row_error
from pytest_intercode.system.beneath import check_name

__all__ = [
    "OLD_SIZES",
    "AgentConfig",
    "ArtifactConfig",
    "EnvironmentConfig",
    "HealthcheckConfig",
    "StepConfig",
    "TaskConfig",
    "VerifierConfig",
    "config_of",
    "read_config",
    "read_toml",
]

_MAX_CHARS = 2**20  # characters; the largest known file has about ten thousand
_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]*/[a-zA-Z0-9][a-zA-Z0-9._-]*")
_SERVICE = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]*")
_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_TOPOLOGY = re.compile(r"[1-9]\d*(?:x[1-9]\d*)+")
_MEGABYTES = {"G": 1024.0, "M": 1.0, "K": 1 / 1024}
OLD_SIZES = {"memory": "memory_mb", "storage": "storage_mb"}


def _host(entry: str) -> str:
    """Return the normal form of a host: a name, ``*.suffix``, an address or a CIDR range."""
    host = entry.strip().lower().rstrip(".")
    try:
        if "/" in host:
            return ip_network(host, strict=True).compressed
        if ":" in host and "%" not in host:
            return ip_address(host).compressed
    except ValueError:
        raise ValueError(f"{entry!r} is not a range of addresses") from None
    name = host.removeprefix("*.")
    if host != name:
        try:
            ip_address(name)
        except ValueError:
            pass
        else:
            raise ValueError(f"{entry!r}: a wildcard is for hosts' names, not addresses")
    if not all(_LABEL.fullmatch(label) for label in name.split(".")):
        raise ValueError(
            f"{entry!r} is not a host: a name, '*.' and a suffix, an address or a range of "
            "addresses is needed, without a scheme, a port or a path"
        )
    return host


def _service(name: str) -> str:
    if not _SERVICE.fullmatch(name.strip()):
        raise ValueError(f"{name!r} is not a name of a compose service")
    return name.strip()


def _size(size: str) -> int:
    """Return the megabytes of ``2G``, ``512M`` or ``100K``."""
    text = size.strip().upper()
    try:
        return int(float(text[:-1]) * _MEGABYTES[text[-1:]])
    except (KeyError, ValueError, OverflowError):
        raise ValueError(f"{size!r}: a size like 2G, 512M or 100K is needed") from None


Host = Annotated[str, AfterValidator(_host)]
Service = Annotated[str, AfterValidator(_service)]
NetworkMode = Literal["public", "no-network", "allowlist"]
User = str | int


def _check_hosts(mode: str | None, hosts: list[str] | None) -> None:
    # For the whole environment an empty list has no effect; for a phase even that needs the mode.
    if mode != "allowlist" and (hosts or (mode is None and hosts is not None)):
        raise ValueError("allowed_hosts is for network_mode = 'allowlist' only")


class _Phase(BaseModel):
    """The common fields of agent and verifier: each may have its own policy for the network."""

    network_mode: NetworkMode | None = None
    allowed_hosts: list[Host] | None = None

    @model_validator(mode="after")
    def _hosts_fit(self) -> _Phase:
        _check_hosts(self.network_mode, self.allowed_hosts)
        return self


class AuthorConfig(BaseModel):
    """One author."""

    name: str
    email: str | None = None


class PackageConfig(BaseModel):
    """``[task]``: the task's name in a registry."""

    name: str
    version: str | None = Field(None, min_length=1)
    description: str = ""
    authors: list[AuthorConfig] = []
    keywords: list[str] = []

    @field_validator("name")
    @classmethod
    def _has_owner(cls, value: str) -> str:
        if not _NAME.fullmatch(value) or ".." in value:
            raise ValueError("a name like owner/name is needed, of letters, digits, '.', '_', '-'")
        return value


class SolutionConfig(BaseModel):
    """``[solution]``."""

    env: dict[str, str] = {}


class AgentConfig(_Phase):
    """``[agent]``."""

    timeout_sec: float | None = None
    user: User | None = None


class HealthcheckConfig(BaseModel):
    """A command that must exit with 0 before the agent starts."""

    command: str
    interval_sec: float = 5.0
    timeout_sec: float = 30.0
    start_period_sec: float = 0.0
    start_interval_sec: float = 5.0
    retries: int = 3


class TpuConfig(BaseModel):
    """An accelerator."""

    type: str = Field(min_length=1)
    topology: str

    @field_validator("topology")
    @classmethod
    def _is_product(cls, value: str) -> str:
        if not _TOPOLOGY.fullmatch(value.strip()):
            raise ValueError("numbers with x between them are needed, like 2x4")
        return value.strip()


class McpServerConfig(BaseModel):
    """A tool server for the agent."""

    name: str
    transport: Annotated[
        Literal["stdio", "sse", "streamable-http"],
        BeforeValidator(lambda value: "streamable-http" if value == "http" else value),
    ] = "sse"
    url: str | None = None
    command: str | None = None
    args: list[str] = []

    @model_validator(mode="after")
    def _can_be_reached(self) -> McpServerConfig:
        required_field = "command" if self.transport == "stdio" else "url"
        if not getattr(self, required_field):
            raise ValueError(f"the transport {self.transport} needs {required_field}")
        return self

    @property
    def line(self) -> str:
        """Its command line for ``sh``, or its address, as :func:`check_servers` takes it."""
        if self.transport == "stdio":
            return shlex.join([self.command or "", *self.args])
        return f"{'sse+' if self.transport == 'sse' else ''}{self.url}"


class EnvironmentConfig(BaseModel):
    """``[environment]`` and ``[verifier.environment]``: the machine."""

    network_mode: NetworkMode = "public"
    allowed_hosts: list[Host] | None = None
    build_timeout_sec: float = 600.0
    docker_image: str | None = None
    os: Annotated[
        Literal["linux", "windows"],
        BeforeValidator(lambda value: value.lower() if isinstance(value, str) else value),
    ] = "linux"
    cpus: int | None = None
    memory_mb: int | None = None
    storage_mb: int | None = None
    gpus: int | None = None
    gpu_types: list[str] | None = None
    tpu: TpuConfig | None = None
    mcp_servers: list[McpServerConfig] = []
    env: dict[str, str] = {}
    skills_dir: str | None = None
    healthcheck: HealthcheckConfig | None = None
    workdir: str | None = None
    allow_internet: bool | None = Field(None, exclude=True)

    @model_validator(mode="before")
    @classmethod
    def _new_names(cls, data: Any) -> Any:
        """Convert the sizes of older versions, which include their unit."""
        if not isinstance(data, dict):
            return data
        data = dict(data)
        for old, new in OLD_SIZES.items():
            size_text = data.pop(old, None)
            if not isinstance(size_text, str):
                continue
            size = _size(size_text)
            if data.setdefault(new, size) != size:
                raise ValueError(f"{old} = {size_text!r} contradicts {new} = {data[new]!r}")
        return data

    @model_validator(mode="after")
    def _hosts_fit(self) -> EnvironmentConfig:
        _check_hosts(self.network_mode, self.allowed_hosts)
        old, has_mode = self.allow_internet, "network_mode" in self.model_fields_set
        if old is not None and not has_mode and self.allowed_hosts is None:
            self.network_mode = "public" if old else "no-network"
        return self


class CollectConfig(BaseModel):
    """A command that is run in the agent's machine when the agent is done."""

    command: str
    service: Service = "main"
    timeout_sec: float = 60.0
    user: User | None = None


class VerifierConfig(_Phase):
    """``[verifier]``."""

    timeout_sec: float = 600.0
    env: dict[str, str] = {}
    user: User | None = None
    environment_mode: Literal["shared", "separate"] | None = None
    environment: EnvironmentConfig | None = None
    collect: list[CollectConfig] = []

    @model_validator(mode="after")
    def _one_place(self) -> VerifierConfig:
        if self.environment_mode == "shared" and self.environment is not None:
            raise ValueError(
                "environment_mode = 'shared' excludes [verifier.environment]; remove one of them"
            )
        return self

    @property
    def mode(self) -> Literal["shared", "separate"] | None:
        """Where it runs; None if that is not given here."""
        return self.environment_mode or (None if self.environment is None else "separate")


class ArtifactConfig(BaseModel):
    """A path of the agent's machine that is kept."""

    source: str
    destination: str | None = None
    exclude: list[str] = []
    service: Service | None = None

    @field_validator("source")
    @classmethod
    def _stays(cls, value: str) -> str:
        if ".." in PurePosixPath(value).parts:
            raise ValueError(f"{value!r}: '..' is not allowed in it")
        return value

    @field_validator("destination")
    @classmethod
    def _stays_below(cls, value: str | None) -> str | None:
        if not value:
            return None
        path = PurePosixPath(value)
        if path.is_absolute() or not path.parts or ".." in path.parts or "\\" in value:
            raise ValueError(f"{value!r}: a relative path without '..' and '\\' is needed")
        if value.rstrip("/") == "manifest.json":
            raise ValueError("manifest.json is reserved for Harbor's own list of artifacts")
        return value

    @model_validator(mode="after")
    def _absolute_elsewhere(self) -> ArtifactConfig:
        rooted = self.source.startswith("/") or re.match(r"[A-Za-z]:[/\\]", self.source)
        if self.service not in (None, "main") and not rooted:
            raise ValueError(f"{self.source!r}: a path in another service must be absolute")
        return self


class StepConfig(BaseModel):
    """One of ``[[steps]]``."""

    name: Annotated[str, AfterValidator(check_name)]  # also the name of its folder
    agent: AgentConfig = AgentConfig()
    verifier: VerifierConfig = VerifierConfig()
    min_reward: float | dict[str, float] | None = None
    healthcheck: HealthcheckConfig | None = None
    artifacts: list[str | ArtifactConfig] = []


class TaskConfig(BaseModel):
    """A whole ``task.toml``."""

    schema_version: str = "1.4"
    task: PackageConfig | None = None
    metadata: dict[str, Any] = {}
    verifier: VerifierConfig = VerifierConfig()
    agent: AgentConfig = AgentConfig()
    environment: EnvironmentConfig = EnvironmentConfig()
    solution: SolutionConfig = SolutionConfig()
    source: str | None = None
    multi_step_reward_strategy: Literal["mean", "final"] | None = None
    steps: list[StepConfig] | None = None
    artifacts: list[str | ArtifactConfig] = []

    @model_validator(mode="before")
    @classmethod
    def _new_name(cls, data: Any) -> Any:
        """Convert the original name of ``schema_version``."""
        if isinstance(data, dict) and "version" in data:
            data = dict(data)
            data.setdefault("schema_version", data.pop("version"))
        return data


def read_toml(text: str, place: str) -> dict[str, Any]:
    """Parse TOML.

    Raises:
        SuiteError: the text is not TOML, or far larger than any known file.
    """
    if len(text) > _MAX_CHARS:
        raise SuiteError(f"{place}: larger than {_MAX_CHARS // 2**20} MiB; such files are not read")
    # Before Python 3.11, pytest itself needs tomli.
    toml = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    try:
        tables: dict[str, Any] = toml.loads(text)
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise SuiteError(f"{place}: not TOML: {reason}") from None
    return tables


def read_config(text: str, place: str) -> TaskConfig:
    """Parse a ``task.toml``.

    Args:
        text: its text.
        place: its location, for messages.

    Raises:
        SuiteError: it is not TOML, or does not fit the schema. Like Harbor, this does not check the
            version.
    """
    return config_of(read_toml(text, place), place)


def config_of(raw: Mapping[str, Any], place: str) -> TaskConfig:
    """Check the parsed content of a ``task.toml``; see :func:`read_config`."""
    try:
        return TaskConfig.model_validate(raw)
    except ValidationError as error:
        raise SuiteError(row_error(place, error, TaskConfig)) from None
