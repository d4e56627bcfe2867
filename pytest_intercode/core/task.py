"""What a task is: the records that every other part of the package passes around.

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
"""What runs a database, and what people call that."""

_Fields = TypeVar("_Fields", bound="TaskFields")


@dataclass(frozen=True)
class Database:
    """The database that an sql task is about.

    Attributes:
        engine: what runs it.
        name: the database that a session starts in.
        scripts: SQL files that make it, in order. Those of ``mysql`` may make several databases,
            and all tasks that name the same scripts share a server.
        file: an SQLite file, instead of scripts.
        writes: the task is there to change the database, and its end state is graded; None to go
            by gold: a gold that does more than query writes.
        optional: a task without its scripts or file is skipped; else that is an error.
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
        replace: what its matches become.
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
"""A rule by which two outputs say the same in another format; see ``rewards/formats.py``."""

FORMAT_NAMES: tuple[FormatName, ...] = get_args(FormatName)
"""All of them, in the order in which they are tried."""


@dataclass(frozen=True)
class RewardOptions:
    """How the end state of a task is compared with gold's.

    Attributes:
        output: when the last output counts: ``when-gold-prints``, ``always`` or ``never``. Where
            gold changes nothing it always counts, as there is nothing else to go by.
        normalise: relaxations applied to both outputs, in order.
        scratch: paths (absolute, or relative to the working directory) below which the agent may
            leave what it likes, as long as gold leaves them alone.
        rows: when the order of a query's rows counts.
        columns: whether the order of a query's columns counts; their names never do.
        lenient: rules that are tried where the outputs still differ, one after another, each on
            what those before it made, until both are equal.
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
            a folder on the host; None where the image has it already.
        commit: the base commit; nothing later than it is in the sandbox.
    """

    at: str = "/repo"
    source: Path | None = None
    commit: str = "HEAD"


@dataclass(frozen=True)
class Artifact:
    """A file or a folder that is carried from the agent's sandbox into a verifier.

    Attributes:
        path: where it is, in both.
        exclude: patterns (of ``tar --exclude``) of what stays behind.
        service: the service that it is taken from, in place of the agent's sandbox.
    """

    path: str
    exclude: tuple[str, ...] = ()
    service: str = ""


@dataclass(frozen=True)
class Hook:
    """A command of a task that is run in the agent's sandbox when the agent is done.

    Its processes are still there, so that a server can be asked to write down its state. With
    ``service``, it is run there, after the agent's processes have ended.
    """

    command: str
    user: str = ""
    timeout: float = 60.0
    service: str = ""


@dataclass(frozen=True)
class Verification:
    """How an end state is graded by running something.

    Attributes:
        command: a script for bash, run in the task's ``workdir``.
        parser: how the tests' results are read: the name of a parser of logs, ``junit`` for JUnit
            XML, ``reward`` for a file with a number or a JSON object, ``status`` for the exit
            status alone.
        report: the file that ``junit`` reads; the folder of ``reward.json`` or ``reward.txt``.
        sentinels: run our own tests among the task's, to see that results are honest, where the
            command can take them.
        fail_to_pass: tests that fail before gold and pass with it.
        pass_to_pass: tests that pass before and with it.
        absent: what a test counts as that the results do not name.
        tolerance: how many of ``pass_to_pass`` may break before their part is 0.
        patch: a patch in git's format that is applied to the repository before.
        files: the tests' files, by path (absolute, or relative to ``workdir``).
        archives: folders and tar archives that are unpacked before ``files`` are written.
        collect: what is run in the agent's sandbox before its processes are ended.
        artifacts: what alone is carried into the verifier; None for the whole end state.
        evidence: what is carried from services.
        carried: paths that are carried with it even where programs of the verifier may load them.
        kit: the requirements of its tests (as pip writes them) that it installs itself, and that
            the verifier kit has to hold; None where it installs nothing.
        fetches: its tests install that from the network, as published, and not from the kit.
        image: None for the task's own image.
        limits: what its sandbox may use; None for the task's own.
        workdir: where the command runs; empty for the task's.
        user: who runs the command; empty for the sandbox's own user.
        variables: environment variables of the command, as pairs.
        timeout: seconds for the command.
        place: where it runs: ``fresh``, a sandbox that the agent never had; ``agents``, the
            agent's own, next to what it started; ``shell``, the agent's own shell, with its
            variables. In the latter two an agent can forge results.
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
    """One part of a task that has several, each with a query and a reward of its own.

    All are taken in one sandbox, one after the other: ``submit`` ends a step, and the answer to it
    is the next step's query.

    Attributes:
        name: its name, unique in the task.
        query: what is to be done.
        verification: how it is graded.
        archive: what is unpacked when the step begins.
        setup: commands run after that, as the step's user; each must exit with 0.
        least: names of parts of its reward (``reward`` for the reward itself), with the values
            that they need for the next step to begin.
        user: who the agent is; empty for the sandbox's own user.
        timeout: seconds that it has; None for no limit of its own.
    """

    name: str
    query: str
    verification: Verification
    archive: Archive | None = None
    setup: tuple[str, ...] = ()
    least: tuple[tuple[str, float], ...] = ()
    user: str = ""
    timeout: float | None = None


# What an environment's fields fill in.
_OWN_VIEW = frozenset({"engine", "database", "mcp", "skills"})


@dataclass(frozen=True)
class TaskFields:
    """The fields of a task that not every environment has; these are none.

    An environment's own are a frozen dataclass that derives from this one; its kind names the
    class. From the class come what suites and rows may say, how it is checked, what a task's digest
    holds and what is sent to another machine. Each field has a default, and holds text, numbers,
    paths, or tuples, mappings of text and frozen dataclasses of these. A path is that of a file or
    a folder in the suite's folder. :func:`in_suite` says what else there is to say of a field.
    """

    __pydantic_config__: ClassVar[Mapping[str, str]] = {"extra": "forbid"}

    @classmethod
    def of(cls: type[_Fields], task: Task) -> _Fields:
        """Return a task's fields, as this class; its defaults for a task that was given none.

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
        """Return what of them an agent may see: fields of :class:`TaskView`."""
        return {}


def in_suite(form: Any = None, *, refusal: str = "", is_graded: bool = True) -> Mapping[str, Any]:
    """Return the metadata of a field of :class:`TaskFields`.

    Args:
        form: the type that pydantic reads from a suite, if it is not the field's own: a validator
            may make the value, or a method ``build`` that is given the suite's folder.
        refusal: what is said where another environment's suite has the field; ``{env}`` is its
            name. By default, whose field it is.
        is_graded: the agent gets it, or is graded by it, so that it is part of the task's digest.
    """
    return {"form": form, "refusal": refusal, "is_graded": is_graded}


@dataclass(frozen=True)
class Task:
    """One task instance, gold included.

    Attributes:
        gold: the reference answer: commands or statements that are run in order in one session,
            or the flag of a ctf task.
        fields: what tasks of its environment alone have; by default, the kind's defaults.
        files: the file tree, by path (absolute, or relative to ``workdir``).
        archive: a tar archive unpacked before ``files`` are written.
        mounts: folders that come before it, each instead of all that the image has at its place.
        setup: commands run after the files are there and before the agent; each must exit with 0.
        image: None for the environment's own image.
        max_turns: actions an episode has, unless ``--intercode-max-turns`` says otherwise.
        action_timeout: seconds one action has.
        timeout: seconds an episode has; None for the run's default.
        xfail: why gold is known not to reach 1.0, or None.
        skip: why the task cannot be run here, or None.
        gold_skip: why its gold cannot be run here, though agents can play it; or None.
        needs_network: it cannot be run without a network.
        verification: how it is graded by running something; None where that is not so.
        user: who the agent is in its sandbox; empty for the sandbox's own user.
        variables: environment variables of its sandbox, as pairs.
        steps: its parts, if it has several; then ``query`` and ``verification`` are the first's,
            and gold has ``submit`` between theirs.
        overall: which reward a task of several steps has: the mean of those that were taken, or
            the last one's.
        conversation: who answers an agent that hands back; None for nobody.
        source: the file and line that the task was read from, for messages.
        audit: why a finding of the audit is not a fault of the task, by the name of its check.
        decoys: patterns of files that gold does not need, and that are there on purpose.
        metadata: further columns of the task's row.
        repeat: which try at the task this is, from 1 (``--intercode-repeat``).
        tries: how many tries there are; None for one, and before a run has decided that.
        pass_rate: the share of these tries that must be solved; None where each counts for itself.
        platform: the platform that its images are for; None for the run's, or the engine's own.
        treatment: the name of what is laid over its project; see ``TaskRecord``.
        judge: what of its reward a model grades; None for nothing.
        services: its further machines.
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
        """The suite's name in keys and tables: its own, or the dataset's where it has none."""
        return self.suite or self.dataset

    @property
    def verifications(self) -> tuple[Verification, ...]:
        """How it is graded, itself and each of its steps; empty where no tests do it."""
        phases = (self.verification, *(step.verification for step in self.steps))
        return tuple(phase for phase in phases if phase is not None)

    def for_platform(self, source: ImageSource) -> ImageSource:
        """Return where one of its images comes from, for the platform that it names."""
        return source if self.platform is None else replace(source, platform=self.platform)

    def view(self, max_turns: int | None = None) -> TaskView:
        """Return what the agent may see of this task.

        Raises:
            ConfigurationError: its fields show what a :class:`TaskView` does not have.
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
