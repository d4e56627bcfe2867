"""Tasks and their parts, which every other part of the package uses.

Pure data, which can be pickled or written as JSON and sent to another machine. Nothing here reads a
file or runs a command.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeAlias, TypeVar, get_args

from pytest_intercode.core.conversation import Conversation
from pytest_intercode.core.judge import Judge
from pytest_intercode.core.machine import Archive as Archive
from pytest_intercode.core.machine import FileSpec as FileSpec
from pytest_intercode.core.machine import ImageSource as ImageSource
from pytest_intercode.core.machine import Limits as Limits
from pytest_intercode.core.machine import Services as Services
from pytest_intercode.core.platforms import Platform
from pytest_intercode.core.task_view import TaskView as TaskView
from pytest_intercode.errors import ConfigurationError, SuiteError

__all__ = [
    *("DATABASE_ENGINES", "FORMAT_NAMES", "Archive", "Artifact", "Database", "FileSpec"),
    *("FormatName", "Hook", "ImageSource", "Limits", "Normaliser", "Repository", "RewardOptions"),
    *("Services", "Step", "Task", "TaskFields", "TaskView", "Verification", "in_suite"),
]

DATABASE_ENGINES = {"sqlite": "SQLite", "mysql": "MySQL"}
"""The engines of databases, with their names for people."""

_Fields = TypeVar("_Fields", bound="TaskFields")


@dataclass(frozen=True)
class Database:
    """The database that an sql task is about.

    Attributes:
        engine: the database engine.
        name: the database that a session starts in.
        scripts: SQL files that create it, in order. Scripts for ``mysql`` may create several
            databases, and all tasks that name the same scripts share a server.
        file: an SQLite file, instead of scripts.
        writes: whether the task is to change the database, so that its end state is graded; None
            to decide by gold: a gold that does more than query writes.
        optional: skip a task whose scripts or file are missing; otherwise that is an error.
    """

    engine: Literal["sqlite", "mysql"]
    name: str
    scripts: tuple[Path, ...] = ()
    file: Path | None = None
    writes: bool | None = None
    optional: bool = False


@dataclass(frozen=True)
class Normaliser:
    """One declared relaxation of the comparison of outputs.

    Attributes:
        name: ``trailing-space``, ``line-order``, ``numbers`` or ``pattern``.
        pattern: the regular expression of ``pattern``.
        replace: the replacement for its matches.
    """

    name: Literal["trailing-space", "line-order", "numbers", "pattern"]
    pattern: str = ""
    replace: str = ""


FormatName: TypeAlias = Literal[
    "messages",
    "spaces",
    "words",
    "sizes",
    "dates",
    "digests",
    "counters",
    "paths",
    "line-order",
    "matches",
    "columns",
    "names",
]
"""A rule by which two outputs are equal except for their format; see ``rewards/formats.py``."""

FORMAT_NAMES: tuple[FormatName, ...] = get_args(FormatName)
"""All rules, in the order in which they are tried."""


@dataclass(frozen=True)
class RewardOptions:
    """How the end state of a task is compared with gold's.

    Attributes:
        output: when the last output counts: ``when-gold-prints``, ``always`` or ``never``. If gold
            changes nothing, the output always counts, because there is nothing else to compare.
        normalise: relaxations applied to both outputs, in order.
        scratch: paths (absolute, or relative to the working directory) below which the agent may
            leave any files, as long as gold does not change anything there.
        rows: when the order of a query's rows counts.
        columns: whether the order of a query's columns counts; their names never do.
        lenient: rules that are applied one after another if the outputs still differ, each to the
            result of the one before it, until both are equal.
    """

    output: Literal["when-gold-prints", "always", "never"] = "when-gold-prints"
    normalise: tuple[Normaliser, ...] = ()
    scratch: tuple[str, ...] = ()
    rows: Literal["when-gold-orders", "in-order", "any-order"] = "when-gold-orders"
    columns: Literal["in-order", "any-order"] = "in-order"
    lenient: tuple[FormatName, ...] = ()


@dataclass(frozen=True)
class Repository:
    """The git repository that a swe task is about.

    Attributes:
        at: its folder in the sandbox.
        source: where it comes from: a git bundle, a stream of ``git fast-export``, a tar archive or
            a folder on the host; None if the image already contains it.
        commit: the base commit; the sandbox contains nothing later.
    """

    at: str = "/repo"
    source: Path | None = None
    commit: str = "HEAD"


@dataclass(frozen=True)
class Artifact:
    """A file or a folder that is copied from the agent's sandbox into a verifier.

    Attributes:
        path: its path in both.
        exclude: patterns (as in ``tar --exclude``) of files that are not copied.
        service: the service that it is taken from, in place of the agent's sandbox.
    """

    path: str
    exclude: tuple[str, ...] = ()
    service: str = ""


@dataclass(frozen=True)
class Hook:
    """A command of a task that is run in the agent's sandbox when the agent is done.

    The agent's processes are still running, so that the command can ask a server to save its state.
    With ``service``, it is run in that service, after the agent's processes have ended.
    """

    command: str
    user: str = ""
    timeout: float = 60.0
    service: str = ""


@dataclass(frozen=True)
class Verification:
    """How an end state is graded by running a command.

    Attributes:
        command: a script for bash, run in the task's ``workdir``.
        parser: how the tests' results are read: the name of a parser of logs, ``junit`` for JUnit
            XML, ``reward`` for a file with a number or a JSON object, ``status`` for the exit
            status alone.
        report: the file that ``junit`` reads; the folder of ``reward.json`` or ``reward.txt``.
        sentinels: run our own tests among the task's to detect forged results, if the command can
            run them.
        fail_to_pass: tests that fail before gold and pass with it.
        pass_to_pass: tests that pass both before gold and with it.
        absent: the result of a test that is missing from the results.
        tolerance: how many of ``pass_to_pass`` may break before their part is 0.
        patch: a patch in git's format that is applied to the repository first.
        files: the tests' files, by path (absolute, or relative to ``workdir``).
        archives: folders and tar archives that are unpacked before ``files`` are written.
        collect: commands run in the agent's sandbox before its processes are ended.
        artifacts: the only files that are copied into the verifier; None for the whole end state.
        evidence: files that are copied from services.
        carried: paths that are copied too, even if programs of the verifier may load them.
        kit: the requirements of its tests (as pip writes them) that the command installs itself,
            and that the verifier kit must contain; None if it installs nothing.
        fetches: whether its tests install these from the network, as published, and not from the
            kit.
        image: the image of its sandbox; None for the task's own image.
        limits: the limits of its sandbox; None for the task's own.
        workdir: the directory in which the command runs; empty for the task's.
        user: the user that runs the command; empty for the sandbox's own user.
        variables: environment variables of the command, as pairs.
        timeout: seconds for the command.
        place: where it runs: ``fresh``, a sandbox that the agent never had access to; ``agents``,
            the agent's own sandbox, next to the processes that it started; ``shell``, the agent's
            own shell, with its variables. In the latter two an agent can forge results.
    """

    command: str
    parser: str = "pytest"
    report: str = ""
    sentinels: bool = True
    fail_to_pass: tuple[str, ...] = ()
    pass_to_pass: tuple[str, ...] = ()
    absent: Literal["failed", "passed"] = "failed"
    tolerance: int = 0
    patch: str = ""
    files: Mapping[str, FileSpec] = field(default_factory=dict, hash=False)
    archives: tuple[Archive, ...] = ()
    collect: tuple[Hook, ...] = ()
    artifacts: tuple[Artifact, ...] | None = None
    evidence: tuple[Artifact, ...] = ()
    carried: tuple[str, ...] = ()
    kit: tuple[str, ...] | None = None
    fetches: bool = False
    image: ImageSource | None = None
    limits: Limits | None = None
    workdir: str = ""
    user: str = ""
    variables: tuple[tuple[str, str], ...] = ()
    timeout: float = 600.0
    place: Literal["fresh", "agents", "shell"] = "fresh"


@dataclass(frozen=True)
class Step:
    """One step of a task that has several, each with its own query and reward.

    All steps are taken in one sandbox, one after the other: ``submit`` ends a step, and the
    observation that it returns is the next step's query.

    Attributes:
        name: its name, unique in the task.
        query: the instruction.
        verification: how it is graded.
        archive: an archive that is unpacked when the step begins.
        setup: commands run after that, as the step's user; each must exit with 0.
        least: names of parts of its reward (``reward`` for the reward itself), with the minimum
            values for the next step to begin.
        user: the agent's user; empty for the sandbox's own user.
        timeout: seconds that the step has; None for no limit of its own.
    """

    name: str
    query: str
    verification: Verification
    archive: Archive | None = None
    setup: tuple[str, ...] = ()
    least: tuple[tuple[str, float], ...] = ()
    user: str = ""
    timeout: float | None = None


# The fields of a view that an environment's own fields may fill in.
_OWN_VIEW = frozenset({"engine", "database", "mcp", "skills"})


@dataclass(frozen=True)
class TaskFields:
    """The fields of a task that only one environment has; this base class has none.

    An environment's own fields are a frozen dataclass that derives from this one; its kind names
    the class. The class determines the keys of suites and rows, how they are checked, the content
    of a task's digest, and the data that is sent to another machine. Each field has a default, and
    holds text, numbers, paths, or tuples, mappings of text and frozen dataclasses of these. A path
    is that of a file or a folder in the suite's folder. :func:`in_suite` declares further
    properties of a field.
    """

    __pydantic_config__: ClassVar[Mapping[str, str]] = {"extra": "forbid"}

    @classmethod
    def of(cls: type[_Fields], task: Task) -> _Fields:
        """Return a task's fields as this class; the defaults if the task has none.

        Raises:
            SuiteError: the task has the fields of another environment.
        """
        if isinstance(task.fields, cls):
            return task.fields
        if type(task.fields) is TaskFields:
            return cls()
        raise SuiteError(
            f"{task.source or 'a task of your own'}: task {task.id!r}: fields: {cls.__name__} are "
            f"needed, found {type(task.fields).__name__}, which are for another environment"
        )

    def view(self) -> Mapping[str, Any]:
        """Return the values that an agent may see, by fields of :class:`TaskView`."""
        return {}


def in_suite(form: Any = None, *, refusal: str = "", is_graded: bool = True) -> Mapping[str, Any]:
    """Return the metadata of a field of :class:`TaskFields`.

    Args:
        form: the type that pydantic reads from a suite, if it is not the field's own: a validator
            may make the value, or a method ``build`` that gets the suite's folder.
        refusal: the message if another environment's suite has the field; ``{env}`` is that
            environment's name. By default, it names the environment that has the field.
        is_graded: the agent gets it, or is graded by it, so it is part of the task's digest.
    """
    return {"form": form, "refusal": refusal, "is_graded": is_graded}


@dataclass(frozen=True)
class Task:
    """One task instance, including its gold.

    Attributes:
        gold: the reference answer: commands or statements that are run in order in one session,
            or the flag of a ctf task.
        fields: the fields that only its environment has; by default, the kind's defaults.
        files: the file tree, by path (absolute, or relative to ``workdir``).
        archive: a tar archive unpacked before ``files`` are written.
        mounts: folders that are mounted before that, each replacing all that the image has there.
        setup: commands run after the files are there and before the agent; each must exit with 0.
        image: its image; None for the environment's own image.
        max_turns: actions an episode has, unless ``--intercode-max-turns`` sets another number.
        action_timeout: seconds one action has.
        timeout: seconds an episode has; None for the run's default.
        xfail: why gold is known not to reach 1.0, or None.
        skip: why the task cannot be run here, or None.
        gold_skip: why its gold cannot be run here, though agents can play it; or None.
        needs_network: whether it cannot be run without a network.
        verification: how it is graded by running a command; None if it is graded another way.
        user: the agent's user in its sandbox; empty for the sandbox's own user.
        variables: environment variables of its sandbox, as pairs.
        steps: its steps, if it has several; then ``query`` and ``verification`` are the first
            step's, and gold has ``submit`` between the steps.
        overall: the reward of a task with several steps: the mean of the steps that were taken, or
            the last step's reward.
        conversation: who answers an agent that hands back to its user; None for nobody.
        source: the file and line that the task was read from, for messages.
        audit: why a finding of the audit is not a fault of the task, by the name of its check.
        decoys: patterns of files that gold does not need, and that are there on purpose.
        metadata: further columns of the task's row.
        repeat: which try at the task this is, from 1 (``--intercode-repeat``).
        tries: how many tries there are; None for one, and before a run has decided that.
        pass_rate: the share of these tries that must be solved; None if each try counts on its own.
        platform: the platform that its images are for; None for the run's, or the engine's own.
        treatment: the name of the treatment applied to its project; see ``TaskRecord``.
        judge: the judge of a part of its reward; None for no judge.
        services: its additional machines.
    """

    id: str
    query: str
    gold: tuple[str, ...]
    env: str
    suite: str
    dataset: str
    hardness: str = ""
    tags: tuple[str, ...] = ()
    fields: TaskFields = field(default=TaskFields(), hash=False)
    files: Mapping[str, FileSpec] = field(default_factory=dict, hash=False)
    archive: Archive | None = None
    mounts: tuple[Archive, ...] = ()
    setup: tuple[str, ...] = ()
    image: ImageSource | None = None
    workdir: str = "/"
    limits: Limits = field(default=Limits())
    reward: RewardOptions = RewardOptions()
    max_turns: int = 10
    action_timeout: float = 10.0
    timeout: float | None = None
    xfail: str | None = None
    skip: str | None = None
    gold_skip: str | None = None
    needs_network: bool = False
    verification: Verification | None = None
    user: str = ""
    variables: tuple[tuple[str, str], ...] = ()
    steps: tuple[Step, ...] = ()
    overall: Literal["mean", "final"] = "mean"
    conversation: Conversation | None = None
    source: str = ""
    audit: Mapping[str, str] = field(default_factory=dict, hash=False)
    decoys: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)
    repeat: int = 1
    platform: Platform | None = None
    treatment: str = ""
    tries: int | None = None
    pass_rate: float | None = None
    judge: Judge | None = None
    services: Services = field(default=Services())

    @property
    def suite_name(self) -> str:
        """The suite's name in keys and tables: its own, or the dataset's if it has none."""
        return self.suite or self.dataset

    @property
    def verifications(self) -> tuple[Verification, ...]:
        """The verifications of the task and of each of its steps; empty if it has none."""
        phases = (self.verification, *(step.verification for step in self.steps))
        return tuple(phase for phase in phases if phase is not None)

    def for_platform(self, source: ImageSource) -> ImageSource:
        """Return the source of one of its images, for the task's platform if it has one."""
        return source if self.platform is None else replace(source, platform=self.platform)

    def view(self, max_turns: int | None = None) -> TaskView:
        """Return the part of this task that the agent may see.

        Raises:
            ConfigurationError: its fields' view has names that :class:`TaskView` does not have.
        """
        own_view = self.fields.view()
        if unknown := own_view.keys() - _OWN_VIEW:
            name = f"{type(self.fields).__qualname__}.view()"
            allowed_names = ", ".join(sorted(_OWN_VIEW))
            raise ConfigurationError(
                f"{name} returns {', '.join(sorted(unknown))}; allowed are {allowed_names}"
            )
        return TaskView(
            id=self.id,
            query=self.query,
            env=self.env,
            suite=self.suite,
            dataset=self.dataset,
            hardness=self.hardness,
            tags=self.tags,
            workdir=self.workdir,
            max_turns=self.max_turns if max_turns is None else max_turns,
            **own_view,
        )
