"""The schema of a suite file, checked by pydantic.

A model differs from the data in ``core/task.py`` that it becomes: each field may be left out, so
that layers can be laid over each other, and files are named by paths in the suite's folder. What is
the same in both is declared there alone.
"""

from __future__ import annotations

import base64
import binascii
import re
from datetime import date, datetime, time, timezone
from typing import Annotated, Any, Literal, TypeAlias, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    StrictStr,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from pytest_intercode.core.hosts import MAX_HOSTS, parse_host
from pytest_intercode.core.task import (
    FORMAT_NAMES,
    CallTest,
    CodeTest,
    FileSpec,
    FormatName,
    Normaliser,
    ProgramTest,
    Test,
)
from pytest_intercode.environments.registry import environment_names, is_environment
from pytest_intercode.errors import suggestion
from pytest_intercode.rewards.test_logs.registry import UNTIMED, parser_names
from pytest_intercode.suites.swebench.manifest import SwebenchModel

__all__ = ["AUDIT_CHECKS", "RowSource", "SuiteModel", "TaskFields", "TaskModel"]

AUDIT_CHECKS = (
    *("gold-runs", "gold-scores-1", "gold-deterministic", "noop-scores-0", "empty-answer-fails"),
    *("wrong-answer-fails", "weak-check", "files-used", "scratch-clean", "no-duplicates"),
)
"""What ``pytest-intercode audit`` may find, and what a suite may acknowledge."""

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmg]?)i?b?", re.IGNORECASE)
_OTHER_PARSERS = ("reward", "status")
_UNITS = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3}
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def _size(value: object) -> object:
    """Read ``512m`` as bytes."""
    if isinstance(value, str):
        match = _SIZE.fullmatch(value.strip())
        if not match:
            raise ValueError("a size is a number of bytes, or one like 512k, 256m, 2g")
        return int(float(match[1]) * _UNITS[match[2].lower()])
    return value


def _moment(value: object) -> object:
    """Read a date as seconds since the epoch (UTC)."""
    if isinstance(value, datetime):
        return value.replace(tzinfo=value.tzinfo or timezone.utc).timestamp()
    if isinstance(value, date):
        return datetime.combine(value, time(), timezone.utc).timestamp()
    if isinstance(value, str):
        raise ValueError("a date like 2024-01-31 is needed, or seconds since the epoch")
    return value


def _absolute(value: str) -> str:
    if not value.startswith("/"):
        raise ValueError("an absolute path is needed, one that starts with /")
    return value


def _hosts(names: tuple[str, ...]) -> tuple[str, ...]:
    if len(names) > MAX_HOSTS:
        raise ValueError(f"no more than {MAX_HOSTS} hosts, found {len(names)}")
    return tuple(dict.fromkeys(str(parse_host(host)) for host in names))


def _as_tuple(value: str | list[str]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


def _alternatives(golds: str | list[tuple[str, ...]]) -> tuple[tuple[str, ...], ...]:
    """Read further golds: one command alone, as a column of rows has it, or a list of golds."""
    return ((golds,),) if isinstance(golds, str) else tuple(golds)


def _environment(value: str) -> str:
    if not is_environment(value):  # reported as a wrong literal is
        context = {"expected": ", ".join(environment_names())}
        raise PydanticCustomError("literal_error", "there is no such environment", context)
    return value


def _audit(value: dict[str, str]) -> dict[str, str]:
    for name, reason in value.items():
        if name not in AUDIT_CHECKS:
            raise ValueError(
                f"the audit has no check {name!r}.{suggestion(name, AUDIT_CHECKS)} Allowed: "
                f"{', '.join(AUDIT_CHECKS)}"
            )
        if not reason.strip():
            raise ValueError(f"{name}: say why this is not a fault of the task")
    return value


Size = Annotated[int, BeforeValidator(_size), Field(gt=0)]
Moment = Annotated[float, BeforeValidator(_moment)]
AbsolutePath = Annotated[StrictStr, AfterValidator(_absolute)]
Mode = Annotated[int, Field(ge=0, le=0o7777)]
Network = StrictBool | Annotated[tuple[StrictStr, ...], AfterValidator(_hosts)]
Audit = Annotated[dict[StrictStr, StrictStr], AfterValidator(_audit)]
Hardness = Annotated[StrictStr, Field(max_length=40)]
Texts = Annotated[
    StrictStr | Annotated[list[StrictStr], Field(min_length=1)], AfterValidator(_as_tuple)
]
Variable = Annotated[StrictStr, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)


class PathModel(_Model):
    """A text that is in a file next to the suite."""

    path: StrictStr


class LimitsModel(_Model):
    """``limits``: what the sandbox may use."""

    memory: Size | None = None
    cpus: float | None = Field(None, gt=0, le=64)
    pids: int | None = Field(None, ge=8, le=65536)
    file_size: Size | None = None
    network: Network | None = None
    output: Size | None = None


class PatternModel(_Model):
    """A normaliser that replaces what a regular expression matches."""

    pattern: StrictStr
    replace: StrictStr = ""

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, value: str) -> str:
        try:
            re.compile(value)
        except re.error as error:
            raise ValueError(f"not a regular expression: {error}") from None
        return value

    @model_validator(mode="after")
    def _fits(self) -> PatternModel:
        try:
            re.sub(self.pattern, self.replace, "")
        except (re.error, IndexError) as error:
            raise ValueError(
                f"replace {self.replace!r} does not fit the pattern {self.pattern!r}: {error}"
            ) from None
        return self


NormaliserName: TypeAlias = Literal["trailing-space", "line-order", "numbers"]


def _normaliser(rule: str | PatternModel) -> Normaliser:
    if isinstance(rule, PatternModel):
        return Normaliser("pattern", rule.pattern, rule.replace)
    return Normaliser(cast("NormaliserName", rule))


def _rules(names: object) -> object:
    """Read ``all`` as the names of all rules."""
    if isinstance(names, str) and names != "all":
        raise ValueError("either all, or a list of rules")
    return FORMAT_NAMES if names == "all" else names


class RewardModel(_Model):
    """``reward``: how outputs and files are compared."""

    output: Literal["when-gold-prints", "always", "never"] | None = None
    normalise: (
        tuple[Annotated[NormaliserName | PatternModel, AfterValidator(_normaliser)], ...] | None
    ) = None
    lenient: Annotated[tuple[FormatName, ...], BeforeValidator(_rules)] | None = None
    scratch: tuple[StrictStr, ...] | None = None
    rows: Literal["when-gold-orders", "in-order", "any-order"] | None = None
    columns: Literal["in-order", "any-order"] | None = None


class FileModel(_Model):
    """One entry of ``files`` in its long form."""

    text: StrictStr | None = None
    base64: StrictStr | None = None
    link: StrictStr | None = None
    path: StrictStr | None = None
    mode: Mode | None = None

    @field_validator("mode", mode="before")
    @classmethod
    def _octal(cls, value: object) -> object:
        if isinstance(value, str):
            if not re.fullmatch(r"0?[0-7]{3,4}", value):
                raise ValueError("a mode is octal digits in quotes, like '0755'")
            return int(value, 8)
        if value is not None:
            raise ValueError(
                "a mode is written in quotes, like '0755', or YAML reads it as decimal"
            )
        return value

    @field_validator("base64")
    @classmethod
    def _decodes(cls, value: str | None) -> str | None:
        try:
            base64.b64decode(value or "", validate=True)
        except (binascii.Error, ValueError) as error:
            raise ValueError(f"not base64: {error}") from None
        return value

    @model_validator(mode="after")
    def _one_kind(self) -> FileModel:
        kinds = ("text", "base64", "link", "path")
        used_kinds = [name for name in kinds if getattr(self, name) is not None]
        if len(used_kinds) > 1:
            raise ValueError(f"only one of {', '.join(kinds)}, not {' and '.join(used_kinds)}")
        return self


def _files(files: dict[str, str | FileModel]) -> dict[str, FileSpec | FileModel]:
    return {path: _file(path, model) for path, model in files.items()}


def _file(path: str, content: str | FileModel) -> FileSpec | FileModel:
    model = FileModel(text=content) if isinstance(content, str) else content
    if path.endswith("/"):
        if isinstance(content, str) or model.text or model.base64 or model.link or model.path:
            raise ValueError(f"{path!r} ends with /, so it is a directory and holds no text")
        if model.text is None and model.base64 is None and model.link is None:
            return FileSpec("directory", mode=model.mode)
    if model.path is not None:
        return model  # read where the suite's folder is known
    if model.link is not None:
        return FileSpec("link", target=model.link)
    if model.base64 is not None:
        return FileSpec("file", base64.b64decode(model.base64), mode=model.mode)
    return FileSpec("file", (model.text or "").encode(), mode=model.mode)


Files = Annotated[dict[StrictStr, StrictStr | FileModel], AfterValidator(_files)]


class RepositoryModel(_Model):
    """``repository``: what a swe task is about."""

    source: StrictStr | None = None
    commit: StrictStr = "HEAD"
    at: AbsolutePath = "/repo"


class VerificationModel(_Model):
    """``verification``: how a swe task is graded."""

    command: StrictStr = Field(min_length=1)
    parser: StrictStr = "pytest"
    report: StrictStr = ""
    fail_to_pass: list[StrictStr] = []
    pass_to_pass: list[StrictStr] = []
    absent: Literal["failed", "passed"] = "failed"
    tolerance: int = Field(0, ge=0)
    patch: StrictStr | PathModel = ""
    files: Files = {}
    user: StrictStr = ""
    variables: dict[StrictStr, StrictStr] = {}
    timeout: float = Field(600.0, gt=0, allow_inf_nan=False)
    sentinels: StrictBool = True
    carried: list[AbsolutePath] = []

    @field_validator("parser")
    @classmethod
    def _known(cls, value: str) -> str:
        names = (*_OTHER_PARSERS, *parser_names())
        if value.removesuffix(UNTIMED) not in names:
            raise ValueError(f"there is no parser {value!r}.{suggestion(value, names)}")
        return value

    @model_validator(mode="after")
    def _has_report(self) -> VerificationModel:
        if self.parser in ("junit", "reward") and not self.report:
            raise ValueError(f"the parser {self.parser} needs report: the path of what it reads")
        return self


class ArchiveModel(_Model):
    """``archive``: a tar archive or a folder whose content the sandbox gets."""

    path: StrictStr
    at: AbsolutePath | None = None
    keep_times_before: Moment | None = None
    optional: StrictBool = False


class DatabaseModel(_Model):
    """``database``: what an sql task is about."""

    engine: Literal["sqlite", "mysql"] = "sqlite"
    name: StrictStr = Field(min_length=1, max_length=64)
    script: Texts | None = None
    file: StrictStr | None = None
    writes: StrictBool | None = None
    optional: StrictBool = False

    @model_validator(mode="after")
    def _one_source(self) -> DatabaseModel:
        if (self.script is None) == (self.file is None):
            raise ValueError("either script (SQL that makes the database) or file (SQLite's)")
        if self.file is not None and self.engine != "sqlite":
            raise ValueError(f"a file is for the engine sqlite; {self.engine} needs a script")
        return self


def _test(test: str | ProgramTest | CallTest) -> Test:
    return CodeTest(test) if isinstance(test, str) else test


class TaskFields(_Model):
    """What a task and a suite's ``defaults`` have in common."""

    hardness: Hardness | None = None
    tags: tuple[Annotated[StrictStr, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$")], ...] | None = (
        None
    )
    files: Files | None = None
    archive: StrictStr | ArchiveModel | None = None
    setup: tuple[StrictStr, ...] | None = None
    image: StrictStr | None = None
    dockerfile: StrictStr | None = None
    workdir: AbsolutePath | None = None
    limits: LimitsModel | None = None
    network: Network | None = None
    reward: RewardModel | None = None
    max_turns: int | None = Field(None, ge=1, le=100000)
    action_timeout: float | None = Field(None, gt=0, allow_inf_nan=False)
    timeout: float | None = Field(None, gt=0, allow_inf_nan=False)
    xfail: StrictStr | None = None
    skip: StrictStr | None = None
    database: DatabaseModel | None = None
    tests: (
        Annotated[
            list[Annotated[StrictStr | ProgramTest | CallTest, AfterValidator(_test)]],
            Field(min_length=1),
            AfterValidator(tuple),
        ]
        | None
    ) = None
    test_setup: StrictStr | None = None
    entry: Annotated[StrictStr, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.]*$")] | None = None
    repository: RepositoryModel | None = None
    verification: VerificationModel | None = None
    solution: Annotated[StrictStr | list[StrictStr], AfterValidator(_as_tuple)] | None = None
    variables: dict[Variable, StrictStr] | None = None
    audit: Audit | None = None
    decoys: tuple[StrictStr, ...] | None = None

    @model_validator(mode="after")
    def _one_image(self) -> TaskFields:
        if self.image is not None and self.dockerfile is not None:
            raise ValueError("either image or dockerfile, not both")
        return self

    @model_validator(mode="after")
    def _one_network(self) -> TaskFields:
        limited = self.limits is not None and self.limits.network is not None
        if self.network is not None and limited:
            raise ValueError("either network or limits.network, not both")
        return self


class TaskModel(TaskFields):
    """One task of a suite."""

    id: StrictStr
    query: StrictStr = Field(min_length=1)
    gold: Texts | PathModel
    alternatives: Annotated[StrictStr | list[Texts], AfterValidator(_alternatives)] | None = None

    @field_validator("id")
    @classmethod
    def _pastable(cls, value: str) -> str:
        if not _ID.fullmatch(value):
            raise ValueError(
                "an id is letters, digits, '.', '_' and '-', and starts with one of the first two"
            )
        return value


class RowSource(_Model):
    """``rows``: tasks that are read from a JSON, JSONL, CSV or TSV file, one a row."""

    path: StrictStr
    format: Literal["rows", "apps", "swebench"] = "rows"
    dataset: StrictStr | None = None
    id: StrictStr = "{dataset}-{index:05d}"
    query: StrictStr | None = None
    fields: dict[StrictStr, StrictStr] = {}
    ignore: list[StrictStr] = []
    defaults: TaskFields = TaskFields()
    each: dict[StrictStr, Any] = {}
    optional: StrictBool = False
    swebench: SwebenchModel | None = None

    @model_validator(mode="after")
    def _has_manifest(self) -> RowSource:
        if (self.format == "swebench") != (self.swebench is not None):
            raise ValueError("format: swebench and swebench: (what the columns are) go together")
        return self


class SuiteModel(_Model):
    """A whole suite file."""

    suite: StrictStr | None = None
    env: Annotated[StrictStr, AfterValidator(_environment)]
    description: StrictStr = ""
    defaults: TaskFields = TaskFields()
    tasks: list[TaskModel] = []
    rows: RowSource | list[RowSource] = []
    overrides: dict[StrictStr, TaskFields] = {}

    @model_validator(mode="after")
    def _has_tasks(self) -> SuiteModel:
        if not self.tasks and not self.rows:
            raise ValueError("a suite needs tasks, rows or both")
        return self
