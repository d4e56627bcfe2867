"""The kind of an environment: one object with all that other parts of the package ask about it.

Code outside of this folder does not compare the names of environments. The defaults suit
third-party environments, so the smallest kind is a class without a body.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_intercode.core.task import TaskFields
from pytest_intercode.environments.answer import Answer
from pytest_intercode.errors import TaskError

if TYPE_CHECKING:
    from pytest_intercode.core.record import EpisodeRecord
    from pytest_intercode.core.reward import Reward
    from pytest_intercode.core.task import ImageSource, Task, TaskView
    from pytest_intercode.environments.recorded import RecordedEpisode
    from pytest_intercode.environments.sections import Section

__all__ = ["EnvironmentKind", "Tool"]


def _load(name: str) -> type[Any]:
    """Return the class that ``module:class`` names."""
    module, _, attribute = name.partition(":")
    cls: type[Any] = getattr(import_module(module), attribute)
    return cls


class Tool(NamedTuple):
    """How exported trajectories name the call that is an action.

    Attributes:
        name: the tool's name.
        argument: the name of its one argument, the action.
        description: a sentence for models about what the tool does.
    """

    name: str
    argument: str
    description: str


class EnvironmentKind:
    """One kind of environment.

    An environment's class names the class of its kind in ``kind``. If the kind leaves out
    ``fields``, ``language``, ``description`` or ``example``, the value comes from the attribute of
    the environment's class, or from its name.

    Args:
        environment: the environment's class, if the kind has no ``profiles`` of its own.
        name: the name, if the class has none.

    Attributes:
        name: the name of the environment in ``env:`` and ``--intercode-env``.
        profiles: the environment's class for each profile. A string is ``module:class``, which is
            imported when it is needed.
        suite: the suite that runs if only the environment is named.
        fields: the class of the fields that only tasks of this kind have. A string is
            ``module:class``, which is imported when it is needed. Suites, their messages, digests
            and JSON depend on it.
        has_verification: tasks may have verifications, which grade by running something.
        published_rows: rows of its tasks may have the form of a bundled dataset, which is
            recognised by their columns.
        language: the language of actions, for models.
        labels: the names of the language after the fence of a code block, ours first.
        suffix: the suffix of files in that language, by which an editor highlights.
        has_shell: an action is a shell command, so it can start programs.
        description: what a model is shown of an environment that has no prompt of its own.
        example: an action, for models.
        prompt: the template of the sentences that introduce the environment to a model; empty for
            the template that all other environments share.
        graded: a sentence for models about what is graded.
        submission: what follows ``submit`` in prompts, such as ``FLAG``.
        needs_answer: a submission without an answer cannot be right.
        answer: what is submitted, for the description of a tool's argument.
        answer_instruction: a sentence in prompts about what is submitted.
        answer_file_instruction: what a program in the sandbox is asked to write to the file
            ``{answer}``; empty for ``graded``.
        reads_answer: submit what such a program wrote to that file, or else its last message.
        graded_by_test: the only reward is the result of the test that ran the episode.
        prompts_alone: such a program is given only the query, without any text of ours.
        tool: how exports name an action.
        continuation: how a text continues on the next line, for a human.
        indents: the human's editor keeps the indent of the previous line.
        shows_workdir: the human is shown the directory in which the task starts.
        idle_action: an action that changes nothing, for the audit; empty for none.
        siblings_are_wrong: the golds of other tasks on the same data are wrong answers.
        secret_gold: gold is never quoted.
        intercode_dataset: the dataset of InterCode's files that do not name their dataset.
        unrecorded: the part of an end state that InterCode's files do not hold, for messages.
        scores_skipped: under the profile ``paper``, an episode that ended with ``skip`` is scored.
        not_on_nodes: why the nodes of a cluster cannot run it, as text that follows its name;
            empty if they can.
    """

    name: str = ""
    profiles: Mapping[str, str | type[Any]] = {}
    suite: Path | None = None
    fields: type[TaskFields] | str = TaskFields
    has_verification: bool = True
    published_rows: bool = False
    language: str = ""
    labels: tuple[str, ...] = ()
    suffix: str = ".txt"
    has_shell: bool = False
    description: str = ""
    example: str = ""
    prompt: str = ""
    graded: str = ""
    submission: str = ""
    needs_answer: bool = False
    answer: str = "what is graded in place of the last output"
    answer_instruction: str = "Leave the answer empty, unless the task asks for one."
    answer_file_instruction: str = ""
    reads_answer: bool = True
    graded_by_test: bool = False
    prompts_alone: bool = False
    tool: Tool = Tool("execute", "action", "Take an action in the task's environment.")
    continuation: str = "Enter runs it"
    indents: bool = False
    shows_workdir: bool = True
    idle_action: str = ""
    siblings_are_wrong: bool = False
    secret_gold: bool = False
    unrecorded: str = "the end state"
    scores_skipped: bool = False
    not_on_nodes: str = ""
    intercode_dataset: str = ""

    def __init__(self, environment: type[Any] | None = None, name: str = "") -> None:
        def attribute(key: str) -> str:
            return str(getattr(self, key) or getattr(environment, key, "")).strip()

        if environment is not None:
            self.profiles = self.profiles or {environment.profile: environment}
            self.suite = self.suite or environment.suite
            if self.fields is TaskFields:
                self.fields = environment.fields
        self.environment = environment
        self.name = attribute("name") or name
        language = attribute("language")
        self.language = language or self.name.replace("_", " ").capitalize()
        label = "-".join((language or self.name).lower().split())
        self.labels = self.labels or tuple(dict.fromkeys((label, self.name)))
        docstring = environment.__doc__ if environment is not None else None
        self.description = attribute("description") or inspect.cleandoc(docstring or "")
        self.example = attribute("example") or "..."

    def environment_class(self, profile: str) -> type[Any] | None:
        """Return the environment's class under a profile, or None."""
        cls = self.profiles.get(profile)
        return _load(cls) if isinstance(cls, str) else cls

    @cached_property
    def fields_class(self) -> type[TaskFields]:
        """The class of the fields that only tasks of this kind have."""
        return _load(self.fields) if isinstance(self.fields, str) else self.fields

    # -- tasks

    def check(self, task: Task) -> None:
        """Check conditions on several fields of a task, when a suite is read.

        Raises:
            SuiteError: the task is not valid for this kind.
        """

    def needs_sandbox(self, task: Task) -> bool:
        """Whether an episode needs a sandbox."""
        return True

    def images(self, task: Task) -> list[ImageSource]:
        """Return the sources of the images that a task names, also for verifications and services.

        The environment's own image, which a task without an image uses, is not among them.
        """
        images = [verification.image for verification in task.verifications]
        images += [machine.image for machine in task.services.machines]
        return [task.for_platform(image) for image in (task.image, *images) if image is not None]

    def extra(self, task: Task) -> str:
        """Return the extra of this package that a task requires; empty for none."""
        return ""

    def lacks_tests(self, task: Task) -> bool:
        """Whether a task cannot be graded because its tests are missing."""
        return False

    def golds(self, task: Task) -> tuple[tuple[str, ...], ...]:
        """Return gold and the other reference answers that are as good."""
        return (task.gold,)

    def can_share_verifier(self, task: Task) -> bool:
        """Whether a task's verification may run in the agent's own sandbox."""
        return True

    def gold_answer(self, task: Task) -> Answer:
        """Return gold as an agent plays it."""
        return Answer(tuple(task.gold))

    # -- agents

    def describe_code(self, task: TaskView) -> str:
        """Describe an action, for models: the end of the sentence "The code is ..."."""
        description = " ".join(self.description.split())
        return f"an action of the environment {self.name}" + (
            f" ({description})" if description else ""
        )

    def example_of(self, task: TaskView) -> str:
        """Return an action that a model is shown as an example."""
        return self.example

    def answer_in_words(self, words: str) -> str | None:
        """Return what a model's ``submit WORDS`` submits; None if the words are prose."""
        return None

    def missing_input(self, text: str, engine: str) -> str:
        """Return what a human's text still lacks, in a few words; empty if it can run.

        Args:
            text: what the human has typed so far.
            engine: the engine of the task's database; empty for a task without one.
        """
        return ""

    # -- the audit

    def empty_answers(self, task: Task, state: Mapping[str, Any]) -> Iterable[Answer]:
        """Return empty answers.

        Args:
            task: the task.
            state: the end state of an agent that played gold.
        """
        return ()

    def wrong_answers(self, task: Task) -> Iterable[Answer]:
        """Return wrong but plausible answers, the most plausible first."""
        return ()

    def data_of(self, task: Task) -> tuple[Any, ...]:
        """Return the data that a task works on: equal for tasks on the same data."""
        files = tuple(sorted(task.files.items()))  # paths are unique, so specs are not compared
        return (self.name, task.workdir, task.setup, task.archive, task.image, files)

    def normalise_gold(self, task: Task) -> str:
        """Return gold without its layout: equal for golds that differ only in blanks."""
        return " ".join("\n".join(task.gold).split())

    def file_actions(self, task: Task) -> Sequence[str]:
        """Return the actions whose file accesses show which files gold needs; none if unknown."""
        return ()

    def find_leftovers(self, task: Task, state: Mapping[str, Any]) -> list[str]:
        """Return the paths that gold leaves in places where an agent may leave anything."""
        return []

    def describe_unequal(self, state: Mapping[str, Any]) -> str:
        """Describe how the state of an agent that played gold differs from gold's own."""
        return ""

    def describe_changed(self, first: Mapping[str, Any], second: Mapping[str, Any]) -> str:
        """Describe how the end states of two runs of gold differ; empty if that does not help."""
        return ""

    # -- records

    def score(self, episode: RecordedEpisode) -> Reward:
        """Return the reward of a recorded episode, from its end state.

        Raises:
            NotRecorded: the record does not hold enough.
        """
        from pytest_intercode.environments.episode import call_method
        from pytest_intercode.environments.recorded import NotRecorded

        if self.environment is None:
            raise NotRecorded(
                f"{self.name}: its rewards are not known here; commands know the environments of "
                "installed packages, not those of a conftest.py"
            )
        if episode.profile not in self.profiles:
            raise NotRecorded(f"{self.name}: it has only the profile {', '.join(self.profiles)}")
        episode.check_same()
        graded_again: Callable[..., Reward | None] = self.environment.graded_again
        try:
            graded = call_method(self.name, graded_again, episode.state)
        except TaskError as error:
            raise NotRecorded(str(error)) from None
        if graded is None:
            raise NotRecorded(
                f"{self.name}: {self.environment.__name__}.graded_again does not say how it grades"
            )
        return graded

    def state_of_actions(self, record: EpisodeRecord, task: Task | None) -> Mapping[str, Any]:
        """Return the end state of an episode that did not record it, derived from its actions.

        Args:
            record: the episode.
            task: its task, if it was found.

        Raises:
            NotRecorded: the actions do not show it.
        """
        from pytest_intercode.environments.recorded import missing_state

        raise missing_state(record, self.unrecorded)

    def judged_state(self, state: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the parts of an end state that a judge is shown, by heading, without gold's.

        Args:
            state: the recorded end state of both sides.
        """
        return {name: state[name] for name in ("agent", "patch") if name in state}

    def end_state_sections(self, state: Mapping[str, Any], record: EpisodeRecord) -> list[Section]:
        """Return the end state next to gold's, as sections of the report page.

        Args:
            state: the recorded end state of both sides, which is untrusted.
            record: the episode.
        """
        from pytest_intercode.environments.sections import show_state

        return show_state(state)
