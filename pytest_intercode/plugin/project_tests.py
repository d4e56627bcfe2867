"""Project tests: the fixture ``intercode_project``, its items, and the outcome of its records.

A run is a rollout in its item's turn, like any other; its prompt is not known before the test calls
:meth:`Project.run`. The test's own result becomes the outcome of its records.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_intercode.agents.answers import Answers
from pytest_intercode.agents.users import choose_user_model
from pytest_intercode.core.call import shorten_calls
from pytest_intercode.core.conversation import Exchange
from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.core.servers import check_servers
from pytest_intercode.core.task import ImageSource, Limits, Task
from pytest_intercode.environments.base import Environment
from pytest_intercode.environments.project.environment import ProjectEnvironment
from pytest_intercode.environments.project.fields import ProjectFields
from pytest_intercode.environments.registry import PROJECT
from pytest_intercode.errors import ConfigurationError, suggestion
from pytest_intercode.plugin.errors import one_line_errors
from pytest_intercode.plugin.execution import new_handle
from pytest_intercode.plugin.hooks import Hooks
from pytest_intercode.plugin.marks import expect_failure
from pytest_intercode.plugin.masking import headline_of, masks_of
from pytest_intercode.plugin.project_cells import (
    OF_MARKS,
    RUN_OPTIONS,
    ProjectCell,
    RunOptions,
    check_forms,
    mark_arguments,
    name_test,
)
from pytest_intercode.plugin.project_digests import (
    digest_item,
    hidden_paths,
    name_project,
    reads_elsewhere,
)
from pytest_intercode.plugin.project_judges import RunJudge
from pytest_intercode.plugin.project_recordings import RunRecording
from pytest_intercode.plugin.reports import WITHOUT_AGENT, keep_episode
from pytest_intercode.plugin.run import Run, forget_spec, run_of, spec_of
from pytest_intercode.plugin.timeouts import cancel_on_timeout
from pytest_intercode.projects.copying import WORKDIR, ProjectCopy, copy_project
from pytest_intercode.projects.fakes import Fake
from pytest_intercode.projects.run import ProjectRun, RunSoFar
from pytest_intercode.projects.shim_programs import FakeLike
from pytest_intercode.projects.shims import Shims
from pytest_intercode.system.digest import file_digest
from pytest_intercode.system.files import bundled_folder

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["Project", "skip_without_agent"]

__tracebackhide__ = True  # a report shows the line of the test that asked

_LIMITS = Limits(memory=2 * 1024**3, cpus=2.0, pids=1024, file_size=1024**3)
_MAX_TURNS = 50
_ACTION_TIMEOUT = 120.0  # seconds: an action may be a project's tests
_INPUTS = ("watch", "answers", "user", "user_model")  # a recording depends on them and on the task


def skip_without_agent(request: pytest.FixtureRequest) -> ProjectCell:
    """Return which try an item is, or skip it where there is no agent to test."""
    if hasattr(request, "param"):
        cell: ProjectCell = request.param
        return cell
    request.node.stash[WITHOUT_AGENT] = True
    raise pytest.skip.Exception("no agent to test: give --intercode-agent=AGENT")


class Project:
    """The value of ``intercode_project``: runs the agent of its item in copies of a project.

    Args:
        request: the fixture's request.
        cell: which try the item is.
    """

    def __init__(self, request: pytest.FixtureRequest, cell: ProjectCell) -> None:
        self._item: pytest.Item = request.node
        self._run: Run = run_of(request.config)
        self._cell = cell
        self._count = 0
        self._digest: Mapping[str, str] = {}
        self._stack = contextlib.ExitStack()
        self._stack.callback(forget_spec, self._item)

    def run(self, prompt: str, **options: Unpack[RunOptions]) -> ProjectRun:
        """Run the agent on a prompt, in a fresh sandbox with a copy of the project.

        Args:
            prompt: what the agent is to do; it is given nothing else.
            options: see :class:`RunOptions`; they win over those of the test's mark.

        Returns:
            What the agent did, even if its turns or its time were used up (see ``run.outcome``).
            If the agent ended in an error, the test fails.

        Raises:
            InfrastructureError: two sandboxes broke.
        """
        with one_line_errors():
            _check_options(options)
            arguments = {**mark_arguments(self._item), **options}
            shims = self._shims(arguments)
            task = self._task(prompt, arguments, shims.variables)
            recording = self._recording(task, arguments)
            servers = ProjectFields.of(task).mcp
            played = recording.played()
            if played is not None:
                record = self._keep(played)
                judge = self._judge(task, record, recording, arguments)
                return ProjectRun(record, None, record.calls, judge, servers)
            answers = self._answers(arguments, task, recording.dialogue())
            record, environment = self._play(task, shims, answers, recording)
            Hooks(self._item.config).log_episode(task, record)
            recording.save(record)
        record = self._keep(record)
        shims.check()
        if record.outcome == "agent-error":
            pytest.fail(headline_of(record, self._item.config), pytrace=False)
        assert isinstance(environment, ProjectEnvironment)
        judge = self._judge(task, record, recording, arguments)
        return ProjectRun(record, environment, shims.calls, judge, servers)

    def _shims(self, arguments: Mapping[str, Any]) -> Shims:
        """Return the programs that a run fakes or watches."""
        return Shims(
            arguments.get("fake"),
            arguments.get("watch", ()),
            folder=self._item.path.parent,
            agent_programs=self._run.composition.factory(self._cell.agent).programs,
        )

    def _recording(self, task: Task, arguments: Mapping[str, Any]) -> RunRecording:
        """Return what a run does with its recording."""
        inputs = {name: arguments[name] for name in _INPUTS if name in arguments}
        folder = self._item.path.parent
        inputs |= {
            f"fake {name}": _content_of_fake(fake, folder)
            for name, fake in arguments.get("fake", {}).items()
        }
        spec, replay = spec_of(self._item, task), arguments.get("replay", "agent")
        return RunRecording(self._item, self._run, spec, self._count, replay, inputs)

    def _play(
        self, task: Task, shims: Shims, answers: Answers, recording: RunRecording
    ) -> tuple[EpisodeRecord, Environment]:
        """Play a task in a fresh sandbox; return its record, and the environment that it left."""
        item = self._item

        def equip(environment: Environment) -> None:
            if isinstance(environment, ProjectEnvironment):  # a user's hook may make another
                environment.equip(shims, answers)
                answers.run = RunSoFar(environment, answers)

        handle = new_handle(item, task, equip)
        self._stack.callback(handle.close)
        agent = handle.agent()
        with cancel_on_timeout(item, handle, acting=False):
            environment = handle.environment()
        recording.attach(environment)
        with cancel_on_timeout(item, handle, acting=True):
            record = handle.record(agent, environment)
        if calls := shims.calls:
            recorded_calls = shorten_calls(calls, masks_of(item.config).text)
            missing = len(calls) - len(recorded_calls) + shims.unrecorded
            record = replace(record, calls=recorded_calls, calls_left_out=missing)
        return record, environment

    def _judge(
        self,
        task: Task,
        record: EpisodeRecord,
        recording: RunRecording,
        arguments: Mapping[str, Any],
    ) -> RunJudge:
        """Return the object that asks models about a run."""
        judges = self._run.composition.judges
        model = str(arguments.get("judge_model", ""))
        return RunJudge(self._item, task, record, judges, recording, model)

    def _keep(self, record: EpisodeRecord) -> EpisodeRecord:
        """Keep the record of a run, and return it.

        From here on, the test may fail if the baseline's did. Not earlier, because a recording that
        is stale or damaged says nothing about the agent.
        """
        record = replace(record, test_digest=self._digest)
        keep_episode(self._item, record)
        expect_failure(self._item, self._run, record)
        return record

    def close(self) -> None:
        """End the sandboxes of the runs."""
        self._stack.close()  # ends all of them, even if one raises

    def _answers(
        self, options: Mapping[str, Any], task: Task, recorded: Sequence[Exchange] | None
    ) -> Answers:
        """Return the answers to the agent's messages.

        Args:
            options: the run's options.
            task: the run's task.
            recorded: the recorded exchanges, if the run is replayed: then no model plays the user.
        """
        if "user" not in options or "answers" in options:
            return Answers(options.get("answers"), options.get("user"))
        if recorded is not None:
            return Answers(list(filter(None, (exchange.answer for exchange in recorded))))
        arguments = self._cell.agent.arguments
        named_model = options.get("user_model") or self._run.settings.user_model or ""
        model = choose_user_model(str(named_model), arguments)
        user = self._run.composition.users.simulate(options["user"], model, task)
        self._stack.callback(user.close)
        return Answers(user=user)

    def _task(
        self, prompt: str, options: Mapping[str, Any], variables: Sequence[tuple[str, str]]
    ) -> Task:
        if not isinstance(prompt, str) or not prompt.strip():
            raise ConfigurationError(
                "intercode_project.run(): a prompt has to be a text that is not empty, found "
                f"{prompt!r:.60}"
            )
        _check_limits(options)
        self._count += 1
        suite, name = name_test(self._item, self._cell)
        treatment, folder = self._cell.treatment, self._item.path.parent
        overlays = treatment.overlays if treatment is not None else ()
        root = self._item.config.rootpath
        settings = self._run.settings
        project = options.get("project")
        hidden = hidden_paths(self._item, options)
        copy = copy_project(project, folder, root, overlays, hidden)
        self._digest = {}
        if settings.results is not None and not reads_elsewhere(self._item, options):
            digests = digest_item(self._item, self._cell)
            self._digest = {**digests, name_project(project): copy.digest} if digests else {}
        return Task(
            id=name if self._count == 1 else f"{name} #{self._count}",
            query=prompt,
            gold=(),
            env=PROJECT,
            suite=suite,
            dataset="",
            fields=ProjectFields(commit=copy.commit, mcp=_servers(options)),
            image=_image(options, copy, folder),
            setup=tuple(options.get("setup", ())),
            workdir=WORKDIR,
            variables=tuple(variables),
            limits=replace(_LIMITS, network=settings.network, hosts=settings.allow_host),
            max_turns=options.get("max_turns", _MAX_TURNS),
            action_timeout=_ACTION_TIMEOUT,
            timeout=options.get("timeout"),
            source=self._item.nodeid,
            repeat=self._cell.repeat,
            tries=self._cell.tries,
            pass_rate=self._cell.pass_rate,
            treatment=treatment.name if treatment is not None else "",
        )


def _check_options(options: Mapping[str, Any]) -> None:
    """Refuse options that a run does not have, even if a mark does, and values of wrong types."""
    unknown = next((name for name in options if name not in RUN_OPTIONS), None)
    if unknown is None:
        check_forms("intercode_project.run", options)
        return
    remedy = suggestion(unknown, RUN_OPTIONS)
    if unknown in OF_MARKS:
        remedy = f" Give it to the test's mark: @pytest.mark.intercode({unknown}=...)."
    raise ConfigurationError(
        f"intercode_project.run() has no argument {unknown!r}.{remedy} Allowed: "
        f"{', '.join(RUN_OPTIONS)}"
    )


def _check_limits(options: Mapping[str, Any]) -> None:
    """Refuse invalid limits."""
    turns, timeout = options.get("max_turns", _MAX_TURNS), options.get("timeout")
    if type(turns) is not int or turns < 1:
        raise ConfigurationError(
            "intercode_project.run(): max_turns: a number of turns from 1 is needed, found "
            f"{turns!r}"
        )
    if timeout is not None and not (type(timeout) in (int, float) and 0 < timeout < math.inf):
        raise ConfigurationError(
            "intercode_project.run(): timeout: a number of seconds above 0 is needed, found "
            f"{timeout!r}"
        )


def _content_of_fake(fake: FakeLike, folder: Path) -> object:
    """Return what determines the answers of a fake; its script has been read before."""
    if isinstance(fake, Fake):
        return [fake.answers, fake.default, fake.reads_input]
    return file_digest(folder / fake)


def _servers(options: Mapping[str, Any]) -> dict[str, str]:
    try:
        return check_servers(options.get("mcp", {}))
    except ValueError as error:
        raise ConfigurationError(str(error)) from None


def _image(options: Mapping[str, Any], copy: ProjectCopy, folder: Path) -> ImageSource:
    """Return the image of a run's sandbox, with the copy laid over it."""
    dockerfile, image = options.get("dockerfile"), options.get("image")
    if dockerfile is not None:
        path = folder / Path(dockerfile).expanduser()
        if not path.is_file():
            raise ConfigurationError(f"dockerfile={str(dockerfile)!r}: {path} is not a file")
        return ImageSource(path, image, layers=(copy.layer,))
    if image is not None:
        return ImageSource(image=image, layers=(copy.layer,))
    return ImageSource(bundled_folder("dockerfiles") / "bash.Dockerfile", layers=(copy.layer,))
