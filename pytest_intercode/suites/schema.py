"""The schema of a suite file, checked by pydantic.

A model differs from the data in ``core/task.py`` that it becomes: each field may be left out, so
that layers can be laid over each other, and files are named by paths in the suite's folder. What is
the same in both is declared there alone. The fields that the tasks of an environment have and
others do not are those of its kind.
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
"""What ``pytest-intercode audit`` may find of the judges of tasks."""

AUDIT_CHECKS = (
    *("gold-runs", "gold-scores-1", "gold-deterministic", "noop-scores-0", "empty-answer-fails"),
    *("wrong-answer-fails", "weak-check", "files-used", "scratch-clean", "no-duplicates"),
    *JUDGE_CHECKS,
)
"""What ``pytest-intercode audit`` may find, and what a suite may acknowledge."""

_OTHER_PARSERS = ("reward", "status")
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def _moment(value: object) -> object:
    """Read a date as seconds since the epoch (UTC)."""
    if isinstance(value, datetime):
        return value.replace(tzinfo=value.tzinfo or timezone.utc).timestamp()
    if isinstance(value, date):
        return datetime.combine(value, time(), timezone.utc).timestamp()
    if isinstance(value, str):
        raise ValueError("a date like 2024-01-31 is needed, or seconds since the epoch")
    return value


def _environment(value: str) -> str:
    if not is_environment(value):  # reported as a wrong literal is
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
    """A normaliser that replaces what a regular expression matches, line by line.

    Attributes:
        pattern: the regular expression.
        replace: what is put in its place.
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
    """Read ``all`` as the names of all rules."""
    if isinstance(names, str) and names != "all":
        raise ValueError("either all, or a list of rules")
    return FORMAT_NAMES if names == "all" else names


class RewardModel(SuiteForm):
    """``reward``: how outputs and files are compared.

    Attributes:
        output: when the output counts; by default, where gold prints something, or has no effect.
        normalise: what is made equal before outputs are compared.
        lenient: formats that say the same as gold's; ``all`` for each of them.
        scratch: folders in which the agent may leave any files.
        rows: sql: whether the order of rows counts; by default, where gold orders them.
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
    """``verification``: how a task is graded by running something."""

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
        """Return the archive, with its place."""
        path = (folder / self.path).place()
        return Archive(path, self.at or "", self.keep_times_before, self.optional)


def _archive(value: str | ArchiveModel) -> ArchiveModel:
    return ArchiveModel(path=value) if isinstance(value, str) else value


class LayerModel(SuiteForm):
    """What a task and a suite's ``defaults`` have in common.

    Attributes:
        hardness: any word; tables have a line for each.
        tags: labels, which become marks.
        files: files that are there before the agent comes, by their paths, absolute or below
            ``workdir``; those of a task are added to those of ``defaults``.
        archive: a tar archive or a folder whose content is there before ``files``.
        setup: commands that run once the files are there; each must end with status 0.
        image: the sandbox's image; by default the environment's own.
        dockerfile: the Dockerfile of that image, in the suite's folder.
        platform: the platform of the image, such as ``linux/amd64``, where it is for one alone.
        workdir: where actions begin.
        limits: what the sandbox may use.
        network: hosts that it may reach; false for none, true where the task needs all of it.
        reward: how outputs and files are compared.
        judge: what of the reward a model grades.
        max_turns: actions that an episode has (10).
        repeat: tries at the task, each an item of its own (1).
        pass_rate: the share of the tries that must be solved.
        action_timeout: seconds that an action has (10).
        timeout: seconds that an episode has (600).
        xfail: why gold is known to fail, so that the item is expected to.
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
    """One task of a suite: it has all fields of ``defaults``, too.

    Attributes:
        id: letters, digits, ``.``, ``_`` and ``-``; unique in the suite.
        query: what the agent is asked for.
        gold: what does it: a command, several, or a file that has it; of ctf, the flag. No agent
            sees it.
    """

    id: StrictStr
    query: StrictStr = Field(min_length=1)
    gold: Texts | PathModel

    @field_validator("id")
    @classmethod
    def _pastable(cls, value: str) -> str:
        if not _ID.fullmatch(value):
            raise ValueError(
                "an id is letters, digits, '.', '_' and '-', and starts with one of the first two"
            )
        return value


class RowSource(SuiteForm):
    """``rows``: tasks that are read from a JSON, JSONL, CSV or TSV file, one a row.

    Attributes:
        path: the file, in the suite's folder.
        format: what a row is.
        dataset: the name of the dataset; by default that of the file.
        id: how ids are made, of the row's fields.
        query: how queries are made, of the row's fields.
        fields: the names of the row's fields that are fields of the task, by the latter.
        ignore: columns that are not read as fields.
        defaults: fields that all of these tasks have.
        each: fields of the task that are made of the row's.
        optional: the suite is read without the file, too.
        swebench: what the columns are, of rows of SWE-bench and its relatives.
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
            raise ValueError("format: swebench and swebench: (what the columns are) go together")
        return self


class SuiteModel(SuiteForm):
    """A whole suite file.

    Attributes:
        suite: its name; by default the file's.
        env: the environment of its tasks.
        description: for people.
        defaults: fields that all tasks have.
        tasks: its tasks.
        rows: files that have further tasks.
        overrides: fields of tasks that come from rows, by their ids.
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


# -- with the fields that an environment's tasks have and others do not

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
