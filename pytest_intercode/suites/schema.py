"""The schema of a suite file, checked by pydantic.

A model differs from the data in ``core/task.py`` that is built from it: each field may be left out,
so that layers can be laid over each other, and files are named by paths in the suite's folder.
Everything that is the same in both is only declared there. The fields that only one environment has
come from its kind.
"""

from __future__ import annotations

import re
from datetime import date, datetime, time, timezone
from functools import cache
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, cast

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    StrictBool,
    StrictStr,
    create_model,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from pytest_intercode.core.platforms import parse_platform
from pytest_intercode.core.task import (
    FORMAT_NAMES,
    Archive,
    FormatName,
    Normaliser,
    Verification,
)
from pytest_intercode.environments.fields import (
    AbsolutePath,
    FileForm,
    SuiteForm,
    Texts,
    forms_of,
)
from pytest_intercode.environments.kind import EnvironmentKind
from pytest_intercode.environments.registry import (
    environment_names,
    environment_suggestion,
    is_environment,
)
from pytest_intercode.errors import suggestion
from pytest_intercode.rewards.test_logs.registry import UNTIMED, parser_names
from pytest_intercode.suites.conversations import UserModel
from pytest_intercode.suites.forms import (
    Files,
    JudgeModel,
    LimitsModel,
    Network,
    PathModel,
    Variable,
    build_forms,
)
from pytest_intercode.suites.services import (
    EvidenceModel,
    HookModel,
    ServiceModel,
    ServiceName,
    as_artifact,
    as_hook,
)
from pytest_intercode.suites.swebench.manifest import SwebenchModel
from pytest_intercode.system.suite_folder import SuitePath

__all__ = [
    *("AUDIT_CHECKS", "JUDGE_CHECKS", "LayerModel", "RowSource", "SuiteModel", "TaskModel"),
    *("suite_model", "task_model"),
]

JUDGE_CHECKS = ("judge-consistent", "judge-labels", "judge-firm")
"""The checks of ``pytest-intercode audit`` for the judges of tasks."""

AUDIT_CHECKS = (
    *("gold-runs", "gold-scores-1", "gold-deterministic", "noop-scores-0", "empty-answer-fails"),
    *("wrong-answer-fails", "weak-check", "files-used", "scratch-clean", "no-duplicates"),
    *JUDGE_CHECKS,
)
"""All checks of ``pytest-intercode audit``, whose findings a suite may acknowledge."""

_OTHER_PARSERS = ("reward", "status")
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def _moment(value: object) -> object:
    """Convert a date to seconds since the epoch (UTC)."""
    if isinstance(value, datetime):
        return value.replace(tzinfo=value.tzinfo or timezone.utc).timestamp()
    if isinstance(value, date):
        return datetime.combine(value, time(), timezone.utc).timestamp()
    if isinstance(value, str):
        raise ValueError("a date like 2024-01-31 is needed, or seconds since the epoch")
    return value


def _environment(value: str) -> str:
    if not is_environment(value):  # reported like a wrong literal
        context = {
            "expected": ", ".join(environment_names()),
            "hint": environment_suggestion(value),
        }
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


Moment = Annotated[float, BeforeValidator(_moment)]
Audit = Annotated[dict[StrictStr, StrictStr], AfterValidator(_audit)]
Hardness = Annotated[StrictStr, Field(max_length=40)]


class PatternModel(SuiteForm):
    """A normaliser that replaces matches of a regular expression, line by line.

    Attributes:
        pattern: the regular expression.
        replace: the replacement.
    """

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
    """Replace ``all`` by the names of all rules."""
    if isinstance(names, str) and names != "all":
        raise ValueError("'all' or a list of rules is needed")
    return FORMAT_NAMES if names == "all" else names


class RewardModel(SuiteForm):
    """``reward``: how outputs and files are compared.

    Attributes:
        output: when the output counts; by default, if gold prints something, or has no effect.
        normalise: differences that are removed before outputs are compared.
        lenient: differences in format that are accepted; ``all`` for every rule.
        scratch: folders in which the agent may leave any files.
        rows: sql: whether the order of rows counts; by default, if gold orders them.
        columns: sql: whether the order of columns counts.
    """

    output: Literal["when-gold-prints", "always", "never"] | None = None
    normalise: (
        tuple[Annotated[NormaliserName | PatternModel, AfterValidator(_normaliser)], ...] | None
    ) = None
    lenient: Annotated[tuple[FormatName, ...], BeforeValidator(_rules)] | None = None
    scratch: tuple[StrictStr, ...] | None = None
    rows: Literal["when-gold-orders", "in-order", "any-order"] | None = None
    columns: Literal["in-order", "any-order"] | None = None


class VerificationModel(FileForm):
    """``verification``: how a task is graded by running a command."""

    command: StrictStr = Field(min_length=1)
    parser: StrictStr = "pytest"
    report: StrictStr = ""
    fail_to_pass: tuple[StrictStr, ...] = ()
    pass_to_pass: tuple[StrictStr, ...] = ()
    absent: Literal["failed", "passed"] = "failed"
    tolerance: int = Field(0, ge=0)
    patch: StrictStr | PathModel = ""
    files: Files = Field({})
    user: StrictStr = ""
    variables: dict[StrictStr, StrictStr] = Field({})
    timeout: float = Field(600.0, gt=0, allow_inf_nan=False)
    sentinels: StrictBool = True
    carried: tuple[AbsolutePath, ...] = ()
    collect: tuple[Annotated[HookModel, AfterValidator(as_hook)], ...] = ()
    evidence: tuple[Annotated[EvidenceModel, AfterValidator(as_artifact)], ...] = ()

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

    def build(self, folder: SuitePath) -> Verification:
        """Return the verification, with the content of its files."""
        values = build_forms(dict(self), folder)
        values["variables"] = tuple(self.variables.items())
        return Verification(**values)


class ArchiveModel(FileForm):
    """``archive``: a tar archive or a folder whose content the sandbox gets."""

    path: StrictStr
    at: AbsolutePath | None = None
    keep_times_before: Moment | None = None
    optional: StrictBool = False

    def build(self, folder: SuitePath) -> Archive:
        """Return the archive, with its path resolved."""
        path = (folder / self.path).place()
        return Archive(path, self.at or "", self.keep_times_before, self.optional)


def _archive(value: str | ArchiveModel) -> ArchiveModel:
    return ArchiveModel(path=value) if isinstance(value, str) else value


class LayerModel(SuiteForm):
    """The fields that a task and a suite's ``defaults`` share.

    Attributes:
        hardness: any word; tables have a line for each.
        tags: labels, which become marks.
        files: files that are created before the agent starts, by their paths, absolute or below
            ``workdir``; those of a task are added to those of ``defaults``.
        archive: a tar archive or a folder that is unpacked before ``files``.
        setup: commands that run after the files are created; each must exit with status 0.
        image: the sandbox's image; by default the environment's own.
        dockerfile: the Dockerfile of that image, in the suite's folder.
        platform: the platform of the image, such as ``linux/amd64``, if it is only for one.
        workdir: the directory in which actions begin.
        limits: the limits of the sandbox.
        network: hosts that it may reach; false for none, true if the task needs the whole network.
        reward: how outputs and files are compared.
        judge: how a model grades a part of the reward.
        max_turns: maximum actions of an episode (10).
        repeat: tries at the task, each as a separate item (1).
        pass_rate: the share of the tries that must be solved.
        action_timeout: seconds that an action has (10).
        timeout: seconds that an episode has (600).
        xfail: why gold is known to fail, so that the item is expected to fail.
        skip: why the task cannot be run here.
        gold_skip: why gold cannot be run here, though agents can play the task.
        variables: environment variables of the sandbox.
        user: who answers the agent.
        audit: why a finding of the audit is not a fault, by the name of its check.
        decoys: patterns of files that are there to mislead.
    """

    hardness: Hardness | None = None
    tags: tuple[Annotated[StrictStr, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$")], ...] | None = (
        None
    )
    files: Files | None = None
    archive: Annotated[StrictStr | ArchiveModel, AfterValidator(_archive)] | None = None
    setup: tuple[StrictStr, ...] | None = None
    image: Annotated[StrictStr, Field(min_length=1)] | None = None
    dockerfile: StrictStr | None = None
    platform: Annotated[StrictStr, AfterValidator(parse_platform)] | None = None
    workdir: AbsolutePath | None = None
    limits: LimitsModel | None = None
    network: Network | None = None
    reward: RewardModel | None = None
    judge: JudgeModel | None = None
    max_turns: int | None = Field(None, ge=1, le=100000)
    repeat: int | None = Field(None, ge=1, le=10000)
    pass_rate: float | None = Field(None, gt=0, le=1)
    action_timeout: float | None = Field(None, gt=0, allow_inf_nan=False)
    timeout: float | None = Field(None, gt=0, allow_inf_nan=False)
    xfail: StrictStr | None = None
    skip: StrictStr | None = None
    gold_skip: StrictStr | None = None
    variables: dict[Variable, StrictStr] | None = None
    user: UserModel | None = None
    audit: Audit | None = None
    decoys: tuple[StrictStr, ...] | None = None

    @model_validator(mode="after")
    def _one_image(self) -> LayerModel:
        if self.image is not None and self.dockerfile is not None:
            raise ValueError("either image or dockerfile, not both")
        return self

    @model_validator(mode="after")
    def _one_network(self) -> LayerModel:
        limited = self.limits is not None and self.limits.network is not None
        if self.network is not None and limited:
            raise ValueError("either network or limits.network, not both")
        return self


class TaskModel(LayerModel):
    """One task of a suite; it may also have all fields of ``defaults``.

    Attributes:
        id: letters, digits, ``.``, ``_`` and ``-``; unique in the suite.
        query: the instruction for the agent.
        gold: the reference solution: a command, several, or a file with it; for ctf, the flag. No
            agent sees it.
    """

    id: StrictStr
    query: StrictStr = Field(min_length=1)
    gold: Texts | PathModel

    @field_validator("id")
    @classmethod
    def _pastable(cls, value: str) -> str:
        if not _ID.fullmatch(value):
            raise ValueError(
                "an id has letters, digits, '.', '_' and '-', and starts with a letter or a digit"
            )
        return value


class RowSource(SuiteForm):
    """``rows``: tasks that are read from a JSON, JSONL, CSV or TSV file, one per row.

    Attributes:
        path: the file, in the suite's folder.
        format: the format of the file.
        dataset: the name of the dataset; by default that of the file.
        id: a pattern for ids, with the row's fields.
        query: a pattern for queries, with the row's fields.
        fields: the names of the row's fields for fields of the task, by the latter.
        ignore: columns that are not read as fields.
        defaults: fields that all of these tasks have.
        each: fields of the task as patterns with the row's fields.
        optional: whether the suite can be read without the file.
        swebench: the meaning of the columns, for rows of SWE-bench and its relatives.
    """

    path: StrictStr
    format: Literal[
        "rows",
        "agentbench-db",
        "agentbench-os",
        "apps",
        "cybench",
        "nyu-ctf",
        "polyglot",
        "swebench",
        "tau2",
    ] = "rows"
    dataset: StrictStr | None = None
    id: StrictStr = "{dataset}-{index:05d}"
    query: StrictStr | None = None
    fields: dict[StrictStr, StrictStr] = Field({})
    ignore: list[StrictStr] = Field([])
    defaults: LayerModel = Field(default_factory=LayerModel)
    each: dict[StrictStr, Any] = Field({})
    optional: StrictBool = False
    swebench: SwebenchModel | None = None

    @model_validator(mode="after")
    def _has_manifest(self) -> RowSource:
        if (self.format == "swebench") != (self.swebench is not None):
            raise ValueError(
                "format: swebench and swebench: (what the columns are) need each other"
            )
        return self


class SuiteModel(SuiteForm):
    """A whole suite file.

    Attributes:
        suite: its name; by default the file's.
        env: the environment of its tasks.
        description: for people.
        defaults: fields that all tasks have.
        tasks: its tasks.
        rows: files with further tasks.
        overrides: fields for tasks, such as those from rows, by the tasks' ids.
    """

    suite: StrictStr | None = None
    env: Annotated[StrictStr, AfterValidator(_environment)]
    description: StrictStr = ""
    defaults: LayerModel = Field(default_factory=LayerModel)
    tasks: list[TaskModel] = Field([])
    rows: RowSource | list[RowSource] = Field([])
    overrides: dict[StrictStr, LayerModel] = Field({})

    @model_validator(mode="after")
    def _has_tasks(self) -> SuiteModel:
        if not self.tasks and not self.rows:
            raise ValueError("a suite needs tasks, rows or both")
        return self


# -- models with the fields that only one environment has

_Layer = TypeVar("_Layer", bound=LayerModel)


def _add_fields(base: type[_Layer], kind: EnvironmentKind) -> type[_Layer]:
    forms = forms_of(kind.fields_class)
    if kind.has_verification:
        forms["verification"] = VerificationModel
    if kind.has_shell:
        forms["services"] = dict[ServiceName, ServiceModel]
    annotations: Any = {name: (form | None, None) for name, form in forms.items()}
    return create_model(base.__name__, __base__=base, **annotations)


@cache
def task_model(kind: EnvironmentKind) -> type[TaskModel]:
    """Return the model of a task of one environment."""
    return _add_fields(TaskModel, kind)


@cache
def suite_model(kind: EnvironmentKind) -> type[SuiteModel]:
    """Return the model of a suite for one environment."""
    layer: Any = _add_fields(LayerModel, kind)
    task: Any = task_model(kind)
    rows: Any = create_model(
        "RowSource", __base__=RowSource, defaults=(layer, Field(default_factory=layer))
    )
    return create_model(
        "SuiteModel",
        __base__=SuiteModel,
        defaults=(layer, Field(default_factory=layer)),
        tasks=(list[task], []),
        rows=(rows | list[rows], []),
        overrides=(dict[StrictStr, layer], {}),
    )
