"""The exception tree of pytest-intercode.

::

    IntercodeError
    ├── ConfigurationError       the user's input: an option, a suite, a dataset, an agent's name
    │   ├── SuiteError           a suite or dataset file, with its place
    │   │   └── MissingFile      a file that a suite names is not there
    │   └── AgentLoadError       an agent that cannot be imported or has no known style
    ├── TaskError                the task's fault, never counted against the agent, never retried
    │   └── GoldError            gold fails, never ends, or leaves nothing to compare with
    │       ├── GoldRefused      the engine says that gold is wrong
    │       └── MissingProgram   this machine lacks a program that gold uses
    ├── InfrastructureError      the machine's fault, never counted against the agent
    │   ├── EngineUnavailable    no Docker daemon, or no permission on its socket
    │   ├── ImageError           an image that cannot be built or found
    │   │   └── ImageMissing     ... as another task has met before; the task is skipped
    │   ├── SandboxError         a sandbox that did not start, or died
    │   │   ├── CommandFailed    one of our commands in it does not end, or floods
    │   │   └── UnpackFailed     files that cannot be written in it
    │   ├── FetchError           data that could not be fetched
    │   └── JudgeError           a model that is to judge gives no verdict
    ├── SandboxBroken            what ran in a sandbox broke it: the fault of who acted there
    ├── AgentError               the agent's fault: it raised, or its action is not a string
    ├── PatternTooSlow           a pattern of ``normalise`` takes too long on an output
    ├── UngradableState          what was left is more than grading reads: the fault of who left it
    ├── RolloutCancelled         a rollout was cancelled: its result is not wanted any more
    ├── EpisodeStopped           the user stopped an episode, which says nothing about the agent
    └── BudgetExhausted          raised at the agent by ``env.step`` when its turns are used up

Messages of the first three are one line that says what, where, what is allowed and how to fix it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

__all__ = [
    "AgentError",
    "AgentLoadError",
    "BudgetExhausted",
    "CommandFailed",
    "ConfigurationError",
    "EngineUnavailable",
    "EpisodeStopped",
    "FetchError",
    "GoldError",
    "GoldRefused",
    "ImageError",
    "ImageMissing",
    "InfrastructureError",
    "IntercodeError",
    "JudgeError",
    "MissingFile",
    "MissingProgram",
    "PatternTooSlow",
    "RolloutCancelled",
    "SandboxBroken",
    "SandboxError",
    "SolvedAtFirst",
    "SuiteError",
    "TaskError",
    "UngradableState",
    "UnpackFailed",
]


class IntercodeError(Exception):
    """Base of every exception that this package raises on purpose.

    Attributes:
        test_output: the end of what the task's tests printed, where they ran before it; for people
            alone, as it may quote hidden tests.
    """

    test_output = ""


class ConfigurationError(IntercodeError):
    """The user's input is wrong; the message says how to fix it."""


class SuiteError(ConfigurationError):
    """A suite, a dataset or one of its rows is wrong."""


class MissingFile(SuiteError):
    """A file that a suite or a dataset names is not there."""


class AgentLoadError(ConfigurationError):
    """The agent named by ``--intercode-agent`` cannot be used."""


class TaskError(IntercodeError):
    """The task cannot be set up or graded, whatever an agent does."""


class SolvedAtFirst(TaskError):
    """The tests of a task pass before anything is done, though it says that some fail."""


class GoldError(TaskError):
    """The gold of a task fails, never ends, or leaves nothing to compare with."""


class GoldRefused(GoldError):
    """The engine refused the gold of a task, with these words; the task is expected to fail."""


class MissingProgram(GoldError):
    """This machine lacks a program that the gold of a task uses; the task is skipped."""


class InfrastructureError(IntercodeError):
    """The machine broke; neither the agent nor the task is at fault."""


class EngineUnavailable(InfrastructureError):
    """No Docker engine answers, or its socket may not be opened."""


class ImageError(InfrastructureError):
    """An image could not be built or found; holds the last lines of the build.

    Attributes:
        image: the name of the image that is missing; empty where that is not known.
        cause: what other images are missing for, too, such as a registry that does not answer, so
            that one task has the error for all of them; empty for the image alone.
    """

    def __init__(self, message: str, image: str = "", cause: str = "") -> None:
        super().__init__(message)
        self.image = image
        self.cause = cause


class ImageMissing(ImageError):
    """An image is missing, and another task has the whole error; the task is skipped."""


class SandboxError(InfrastructureError):
    """A sandbox could not be started, or ended while it was in use."""


class CommandFailed(SandboxError):
    """One of our commands in a sandbox did not end in its time, or printed more than it may.

    Attributes:
        acted: something had acted in the sandbox before.
    """

    acted = False


class UnpackFailed(SandboxError):
    """A sandbox cannot hold files at the places that they are to have; it says why."""


class SandboxBroken(IntercodeError):
    """A sandbox ended or does not answer since something acted in it, and no other cause is known.

    Not a fault of the infrastructure: it is not tried again, and counts against who acted there.
    """


class FetchError(InfrastructureError):
    """A file could not be fetched, or is not what it should be; nothing of it was kept."""


class JudgeError(InfrastructureError):
    """A model that is to judge cannot be reached, or gives no verdict, whatever it is shown.

    Attributes:
        record: what there is of the episode, as an ``EpisodeRecord``; None for nothing.
    """

    record: Any = None


class NoAgent(ConfigurationError):
    """A test needs an agent, and none is named."""


class AgentError(IntercodeError):
    """The agent raised, or returned something that is not an action."""


class PatternTooSlow(IntercodeError):
    """A pattern that a suite declares needs more time or memory for an output than it has."""


class UngradableState(IntercodeError):
    """What an agent, gold or setup left is more than grading reads; the message names the limit.

    Environments turn it into a reward of 0, or into a :class:`TaskError` where the task did it.
    """


class BudgetExhausted(IntercodeError):
    """The episode is over: no further action is run."""


class RolloutCancelled(IntercodeError):
    """A rollout was cancelled from another thread, and says nothing about the agent."""


class EpisodeStopped(IntercodeError):
    """The user stopped an episode while it ran; it says nothing about the agent.

    Attributes:
        record: its :class:`~pytest_intercode.core.record.EpisodeRecord`, as far as it came.
    """

    def __init__(self, message: str, record: object) -> None:
        super().__init__(message)
        self.record = record


class LeftBehindWarning(UserWarning):
    """An agent changed the process that it shares with others, or left threads in it."""


class TruncatedResultsWarning(UserWarning):
    """A results file ends with a line that is only begun, as its run was killed."""


class MissingTokensWarning(UserWarning):
    """A server gave no token ids or log-probabilities, though it was asked for them."""


def suggestion(value: str, allowed: Iterable[str]) -> str:
    """Return ``" Did you mean 'x'?"`` for the allowed value nearest to ``value``, or nothing."""
    near = difflib.get_close_matches(value, list(allowed), n=1)
    return f" Did you mean {near[0]!r}?" if near else ""
