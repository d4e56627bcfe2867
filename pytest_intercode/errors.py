"""The exception tree of pytest-intercode.

::

    IntercodeError
    ├── ConfigurationError       the user's input: an option, a suite, a dataset, an agent's name
    │   ├── SuiteError           a suite or dataset file, with the location
    │   │   └── MissingFile      a file that a suite names is missing
    │   ├── AgentLoadError       an agent that cannot be imported or has no known style
    │   └── NoAgent              a test needs an agent, and none is named
    ├── TaskError                the task's fault, never counted against the agent, never retried
    │   ├── SolvedAtFirst        tests that should fail pass before anything is done
    │   └── GoldError            gold fails, never ends, or leaves nothing to compare with
    │       ├── GoldRefused      the engine rejects gold
    │       └── MissingProgram   this machine lacks a program that gold uses
    ├── InfrastructureError      the machine's fault, never counted against the agent
    │   ├── EngineUnavailable    no Docker daemon, or no permission on its socket
    │   ├── ImageError           an image that cannot be built or found
    │   │   └── ImageMissing     ... which another task already reported; the task is skipped
    │   ├── SandboxError         a sandbox that did not start, or died
    │   │   ├── CommandFailed    one of our commands in it does not end, or prints too much
    │   │   └── UnpackFailed     files that cannot be written in it
    │   ├── FetchError           data that could not be fetched
    │   └── JudgeError           a judge's model does not give a verdict
    ├── SandboxBroken            an actor broke its sandbox, which counts against the actor
    ├── AgentError               the agent's fault: it raised, or its action is not a string
    ├── PatternTooSlow           a pattern of ``normalise`` takes too long on an output
    ├── UngradableState          an end state is too large to grade: the fault of who left it
    ├── RolloutCancelled         a rollout was cancelled, and its result is not needed any more
    ├── EpisodeStopped           the user stopped an episode, which says nothing about the agent
    └── BudgetExhausted          raised in the agent by ``env.step`` when its budget is used up

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
        test_output: the end of the output of the task's tests, if they ran before it. It is only
            for people, as it may quote hidden tests.
    """

    test_output = ""


class ConfigurationError(IntercodeError):
    """The user's input is wrong; the message says how to fix it."""


class SuiteError(ConfigurationError):
    """A suite, a dataset or one of its rows is wrong."""


class MissingFile(SuiteError):
    """A file that a suite or a dataset names is missing."""


class AgentLoadError(ConfigurationError):
    """The agent named by ``--intercode-agent`` cannot be used."""


class TaskError(IntercodeError):
    """The task cannot be set up or graded, whatever an agent does."""


class SolvedAtFirst(TaskError):
    """The tests of a task pass before anything is done, though some should fail."""


class GoldError(TaskError):
    """The gold of a task fails, never ends, or leaves nothing to compare with."""


class GoldRefused(GoldError):
    """The engine refused the gold of a task, with this message; the task is expected to fail."""


class MissingProgram(GoldError):
    """This machine lacks a program that the gold of a task uses; the task is skipped."""


class InfrastructureError(IntercodeError):
    """The machine broke; neither the agent nor the task is at fault."""


class EngineUnavailable(InfrastructureError):
    """No Docker engine answers, or there is no permission to open its socket."""


class ImageError(InfrastructureError):
    """An image could not be built or found; the message contains the last lines of the build.

    Attributes:
        image: the name of the missing image; empty if that is not known.
        cause: a cause that affects other images too, such as a registry that does not answer, so
            that one task reports the error for all of them; empty if only this image is affected.
    """

    def __init__(self, message: str, image: str = "", cause: str = "") -> None:
        super().__init__(message)
        self.image = image
        self.cause = cause


class ImageMissing(ImageError):
    """An image is missing, and another task reports the whole error; the task is skipped."""


class SandboxError(InfrastructureError):
    """A sandbox could not be started, or ended while it was in use."""


class CommandFailed(SandboxError):
    """One of our commands in a sandbox did not end in time, or printed too much.

    Attributes:
        acted: whether something had acted in the sandbox before.
    """

    acted = False


class UnpackFailed(SandboxError):
    """A sandbox cannot hold files at their paths; the message gives the reason."""


class SandboxBroken(IntercodeError):
    """A sandbox ended or stopped answering after something acted in it; no other cause is known.

    This is not a fault of the infrastructure: it is not retried, and counts against the actor.
    """


class FetchError(InfrastructureError):
    """A file could not be fetched, or has the wrong content; nothing of it was kept."""


class JudgeError(InfrastructureError):
    """A judge's model cannot be reached, or does not give a verdict, whatever it is shown.

    Attributes:
        record: the ``EpisodeRecord`` without the judge's share; None if there is none.
    """

    record: Any = None


class NoAgent(ConfigurationError):
    """A test needs an agent, and none is named."""


class AgentError(IntercodeError):
    """The agent raised, or returned something that is not an action."""


class PatternTooSlow(IntercodeError):
    """A pattern that a suite declares needs too much time or memory for an output."""


class UngradableState(IntercodeError):
    """The end state of an agent, gold or setup is too large to grade; the message names the limit.

    Environments turn it into a reward of 0, or into a :class:`TaskError` if the task caused it.
    """


class BudgetExhausted(IntercodeError):
    """The episode is over: no further action is run."""


class RolloutCancelled(IntercodeError):
    """A rollout was cancelled from another thread, and says nothing about the agent."""


class EpisodeStopped(IntercodeError):
    """The user stopped an episode while it ran; it says nothing about the agent.

    Attributes:
        record: its :class:`~pytest_intercode.core.record.EpisodeRecord`, with what is known of it.
    """

    def __init__(self, message: str, record: object) -> None:
        super().__init__(message)
        self.record = record


class LeftBehindWarning(UserWarning):
    """An agent changed the process that it shares with others, or left threads in it."""


class TruncatedResultsWarning(UserWarning):
    """A results file ends with an incomplete line, because its run was killed."""


class MissingTokensWarning(UserWarning):
    """A server did not give token ids or log-probabilities, though it was asked for them."""


def suggestion(value: str, allowed: Iterable[str]) -> str:
    """Return ``" Did you mean 'x'?"`` for the allowed value closest to ``value``, or empty."""
    near = difflib.get_close_matches(value, list(allowed), n=1)
    return f" Did you mean {near[0]!r}?" if near else ""
