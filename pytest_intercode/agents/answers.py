"""Answers an agent that hands back: fixed replies, a function, or a model that plays the user."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from pytest_intercode.core.conversation import CallTool, Reply
from pytest_intercode.errors import (
    BudgetExhausted,
    ConfigurationError,
    InfrastructureError,
    TaskError,
)

if TYPE_CHECKING:
    from pytest_intercode.agents.simulated_user import SimulatedUser

__all__ = ["AnswerSource", "Answers", "Question"]

AnswerFunction: TypeAlias = Callable[[str, Any], "str | None"]
"""Takes the agent's message and the run; returns the user's reply, or None if nobody answers."""

AnswerSource: TypeAlias = (
    Sequence[str] | Mapping[Any, str] | AnswerFunction  # a mapping's keys are texts and patterns
)
"""What a test may pass as ``answers=``."""

Question: TypeAlias = "tuple[str, str | None]"
"""The agent's message and the user's reply; the reply is None if nobody answered."""

_FORMS = (
    'a list of replies (answers=["Yes."]), a mapping from a text or a compiled regular expression '
    "to a reply, or a function (message, run)"
)


class Answers:
    """The user of one episode: replies that a test gives, or a model that plays the user.

    - The replies of a list are used in order. When the list is used up, nobody answers.
    - A mapping is searched in its order; a reply may be used any number of times. A key that is a
      ``str`` matches if the message contains it, ignoring case; a key made by ``re.compile`` is
      a regular expression, which is searched for in the message.
    - A function is called with the message and the run, and returns the reply or None.

    If nobody answers, the agent is done and the run ends. This is not a failure, as an agent's last
    words look like any other message. :attr:`questions` shows it.

    Args:
        answers: the replies; None for none.
        user: the model that replies; it cannot be combined with ``answers``.

    Attributes:
        questions: the messages and replies so far, in order.
        run: the second argument of an answer function.

    Raises:
        ConfigurationError: the answers have none of these forms.
    """

    def __init__(
        self, answers: AnswerSource | None = None, user: SimulatedUser | None = None
    ) -> None:
        if answers is not None and user is not None:
            raise ConfigurationError("answers= and user= are both given; give only one of them")
        self.questions: list[Question] = []
        self.run: object = None
        self._user = user
        self._reply = _nobody if answers is None else self._read(answers)

    @property
    def has_user(self) -> bool:
        """Whether somebody may answer, so that the agent must be able to continue."""
        return self._user is not None or self._reply is not _nobody

    def answer(self, message: str) -> str | None:
        """Return the user's reply to a message of the agent, or None if nobody answers.

        Raises:
            TaskError: the test's function fails.
            InfrastructureError: the model that plays the user fails, or cannot be reached.
            AgentError: that model refuses the agent's messages, but accepts others.
            BudgetExhausted: the episode has ended in the meantime.
        """
        reply = self._reply(message) if self._user is None else self._user.reply(message)
        is_last = isinstance(reply, Reply) and reply.is_last
        self.questions.append((message, None if is_last else reply))
        return reply

    def give_tools(self, tools: Sequence[Mapping[str, Any]], call: CallTool) -> None:
        """Let a model that plays the user call tools; fixed replies do not need them.

        Args:
            tools: the tools, as OpenAI's API describes functions.
            call: calls a tool by its name and arguments, and returns its result.
        """
        if self._user is not None:
            self._user.give_tools(tools, call)

    def restart(self) -> None:
        """Start again with the first answer, as the episode starts again in a fresh sandbox."""
        self.questions.clear()
        if self._user is not None:
            self._user.restart()

    def stop(self) -> None:
        """Abort a running :meth:`answer` because time is up, from any thread."""
        if self._user is not None:
            self._user.stop()

    def close(self) -> None:
        """End the session of the model that plays the user; may be called twice."""
        if self._user is not None:
            self._user.close()

    def _read(self, answers: AnswerSource) -> Callable[[str], str | None]:
        if isinstance(answers, Mapping):
            return _read_mapping(answers)
        if callable(answers):
            _check_function(answers)
            return lambda message: self._call(answers, message)
        if isinstance(answers, str) or not isinstance(answers, Sequence):
            raise ConfigurationError(f"answers={answers!r:.60}: it has to be {_FORMS}")
        replies = [_check_reply(reply, f"number {n}") for n, reply in enumerate(answers, 1)]

        def next_reply(message: str) -> str | None:
            count = len(self.questions)
            return replies[count] if count < len(replies) else None

        return next_reply

    def _call(self, function: AnswerFunction, message: str) -> str | None:
        try:
            reply = function(message, self.run)
        except (BudgetExhausted, InfrastructureError):
            raise
        except Exception as error:
            text = " ".join(str(error).split())
            raise TaskError(
                f"answers=: {_name_of(function)} raised {type(error).__name__}"
                f"{': ' if text else ''}{text:.300}"
            ) from error
        if reply is not None and not isinstance(reply, str):
            if inspect.iscoroutine(reply):
                reply.close()
            raise TaskError(
                f"answers=: {_name_of(function)} returned {reply!r:.60}; it returns a str, or None "
                "where nobody answers"
            )
        return reply or None


def _nobody(message: str) -> None:
    return None


def _read_mapping(answers: Mapping[Any, str]) -> Callable[[str], str | None]:
    patterns: list[tuple[re.Pattern[str], str]] = []
    for key, reply in answers.items():
        if isinstance(key, str) and key:
            pattern = re.compile(re.escape(key), re.IGNORECASE)
        elif isinstance(key, re.Pattern) and isinstance(key.pattern, str):
            pattern = key
        else:
            raise ConfigurationError(
                f"answers={{{key!r:.60}: ...}}: a key has to be a text that is in the message, or "
                "a regular expression made by re.compile from a str"
            )
        patterns.append((pattern, _check_reply(reply, f"for {key!r:.60}")))

    def find_reply(message: str) -> str | None:
        return next((reply for pattern, reply in patterns if pattern.search(message)), None)

    return find_reply


def _check_reply(reply: object, place: str) -> str:
    if not isinstance(reply, str) or not reply.strip():
        raise ConfigurationError(
            f"answers=: the answer {place} is {reply!r:.60}; an answer has to be a text that is "
            "not empty"
        )
    return reply


def _check_function(function: AnswerFunction) -> None:
    try:
        inspect.signature(function).bind("message", None)
    except ValueError:
        pass  # there is no signature to check
    except TypeError as error:
        raise ConfigurationError(
            f"answers=: {_name_of(function)} has to accept (message, run): {error}"
        ) from None


def _name_of(function: object) -> str:
    return str(getattr(function, "__name__", type(function).__name__))
