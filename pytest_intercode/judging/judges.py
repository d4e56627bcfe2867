"""The judges of a run: each episode's is asked through a gateway, in a session of its own.

So no key is in sight, answers are recorded and replayed as an agent's are, and the tokens are the
judge's own, which no budget of the agent's counts.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from types import TracebackType
from typing import Any, TypeAlias

from pytest_intercode.agents.chat.arguments import ChatArguments
from pytest_intercode.agents.chat.client import Caller, ChatClient
from pytest_intercode.agents.program.episode import episode_key
from pytest_intercode.core.judge import JudgeRecord, Verdict
from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.core.reward import Reward
from pytest_intercode.core.task import Task
from pytest_intercode.core.text import one_line
from pytest_intercode.core.usage import UNSPENT, Usage
from pytest_intercode.environments.recorded import outcome_with
from pytest_intercode.errors import (
    AgentError,
    BudgetExhausted,
    ConfigurationError,
    JudgeError,
)
from pytest_intercode.gateway.gateway import Gateway
from pytest_intercode.gateway.settings import GatewaySettings
from pytest_intercode.judging.answer import read_verdict
from pytest_intercode.judging.question import (
    NOTHING_DONE,
    Material,
    describe_episode,
    make_messages,
)
from pytest_intercode.results.recorded import had_feedback
from pytest_intercode.rewards.judged import judged_reward
from pytest_intercode.system.extras import has_extra, need

__all__ = ["Hearing", "Judges", "judged_record"]

_MARK_SIZE = 16  # bytes of a mark: nobody guesses it
_MAX_LINE = 300  # characters of what a server says


Reaching: TypeAlias = Callable[[Callable[[str], None]], AbstractContextManager[None]]


class Judges:
    """Asks the judges of tasks; light until the first is asked, and safe to use from threads.

    Args:
        settings: how models are reached; None for what the environment's variables say.
    """

    def __init__(self, settings: GatewaySettings | None = None) -> None:
        self._given_settings = settings
        self._lock = threading.Lock()
        self._gateway: Gateway | None = None

    @property
    def _settings(self) -> GatewaySettings:
        settings = self._given_settings or GatewaySettings.of_environment()
        return replace(settings, models=())  # they are for agents; the task names the judge's

    def check(self, task: Task) -> None:
        """See that a task's judge can be asked, before anything is started for it.

        Raises:
            ConfigurationError: something is missing.
        """
        if task.judge is None:
            return
        subject = f"{task.source or 'a task of your own'}: task {task.id!r}: judge"
        if problem := task.judge.find_problem():
            raise ConfigurationError(f"{subject}: {problem}")
        for extra in ("chat", "gateway"):
            if not has_extra(extra):
                raise ConfigurationError(need(extra, subject))
        settings = self._settings
        if settings.replay is None and not settings.reaches_models:
            raise ConfigurationError(
                f"{subject}: no model is within reach: set OPENAI_API_KEY, or OPENAI_BASE_URL for "
                "a server of your own, or replay answers with --intercode-gateway-replay"
            )

    def open(self, task: Task, purpose: str = "judge") -> Hearing:
        """Return what asks the judge of one episode; to be closed.

        Args:
            task: the task, which has a judge.
            purpose: what it is asked for: the end of its name in recordings.

        Raises:
            ConfigurationError: it cannot be asked.
        """
        self.check(task)
        with self._lock:
            if self._gateway is None:
                self._gateway = Gateway(self._settings)
            return Hearing(task, self._gateway, purpose)

    def judge(self, task: Task, record: EpisodeRecord, reaching: Reaching) -> EpisodeRecord:
        """Return the record of an episode with its judge's share in the reward.

        An agent that ended in an error has nothing to win, so nobody is asked, and the score is 0.

        Args:
            task: the task, which has a judge.
            record: the episode, graded by its environment alone.
            reaching: a context in which what it is given ends the requests when it is called.

        Raises:
            JudgeError: the model gives no verdict; ``record`` has what there is.
        """
        assert task.judge is not None
        if record.outcome == "agent-error":
            judge = task.judge
            votes = JudgeRecord(judge.model, judge.digest, judge.share, record.reward)
            return judged_record(record, votes)
        material = describe_episode(record)
        hearing = self.open(task)
        verdicts: Sequence[Verdict] = ()
        failure: JudgeError | None = None
        with hearing, reaching(hearing.stop):
            try:
                verdicts = hearing.votes(material)
            except JudgeError as error:
                failure = error
        votes = hearing.record(verdicts, record.reward, material)
        if failure is not None:
            failure.record = replace(record, judge=votes)
            raise failure
        return judged_record(record, votes)

    def close(self) -> None:
        """Close what was opened; may be called twice."""
        with self._lock:
            gateway, self._gateway = self._gateway, None
        if gateway is not None:
            gateway.close()


class Hearing:
    """Asks the judge of one episode.

    Args:
        task: the task, which has a judge.
        gateway: leads to the model.
        purpose: what it is asked for.

    Attributes:
        usage: what was used up so far.
        unusable: the answers so far that were not a verdict, each in one line.
    """

    def __init__(self, task: Task, gateway: Gateway, purpose: str) -> None:
        assert task.judge is not None
        self._task = task
        self._judge = task.judge
        self.usage = UNSPENT
        self.unusable: list[str] = []
        self._lock = threading.Lock()
        self._session = gateway.open(f"{episode_key(task)}-{purpose}", spend=self._spend)
        arguments = ChatArguments(
            self._judge.model, base_url=self._session.url("openai"), api_key=self._session.token
        )
        self._client = ChatClient(arguments)
        self._caller = Caller(self._client)

    def __enter__(self) -> Hearing:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def record(self, verdicts: Sequence[Verdict], reward: float, material: Material) -> JudgeRecord:
        """Return the record of what was asked; once it is closed, with all that was used up.

        Args:
            verdicts: the votes.
            reward: the environment's own reward.
            material: what the judge was shown.
        """
        judge = self._judge
        return JudgeRecord(
            *(judge.model, judge.digest, judge.share, reward),
            scores=tuple(verdict.score for verdict in verdicts),
            reasons=tuple(verdict.reason for verdict in verdicts),
            unusable=tuple(self.unusable),
            omitted=material.omitted,
            evidence=material.digest,
            usage=self.usage,
        )

    def votes(self, material: Material) -> list[Verdict]:
        """Return all votes on what an agent did.

        Raises:
            JudgeError: the model gives no verdict.
        """
        return [self.vote(material) for _ in range(self._judge.votes)]

    def vote(self, material: Material) -> Verdict:
        """Return one vote.

        Where an answer is not a verdict, it is asked once more, and then about an agent that did
        nothing. If that brings a verdict, it is this agent's texts that keep the judge from one,
        and the vote is 0; else the judge is at fault.

        Raises:
            JudgeError: the model cannot be reached, or gives no verdict whatever it is shown.
        """
        for _ in range(2):
            if (verdict := self._ask(material)) is not None:
                return verdict
        if self._ask(NOTHING_DONE) is None:
            raise JudgeError(
                f"judge: the model {self._judge.model!r:.60} gives no verdict, also on an agent "
                f"that did nothing: {self.unusable[-1]}"
            )
        return Verdict(
            0.0, f"the judge gives a verdict on others, and none on this: {self.unusable[-1]}"
        )

    def stop(self, reason: str = "") -> None:
        """End a request that runs, from any thread, and begin no other."""
        self._caller.abort()

    def close(self) -> None:
        """End the session; may be called twice."""
        self.stop()
        self._client.close()
        self._session.close()

    def _ask(self, material: Material) -> Verdict | None:
        """Ask once; return None for an answer that is not a verdict, and keep a line about it."""
        mark = secrets.token_hex(_MARK_SIZE)
        request: Mapping[str, Any] = {"messages": make_messages(self._task, material, mark)}
        try:
            return read_verdict(self._caller.ask(request).text)
        except BudgetExhausted:
            raise JudgeError("judge: it was stopped") from None
        except AgentError as error:
            self._check_reached()
            self.unusable.append(one_line(str(error))[:_MAX_LINE])
        except ValueError as error:
            self.unusable.append(f"the answer: {error}")
        return None

    def _check_reached(self) -> None:
        """See that it was the model that has refused.

        Raises:
            JudgeError: no model was reached, or the recording lacks the request.
        """
        session = self._session
        if session.failure:
            raise JudgeError(f"judge: {session.failure}")
        if outage := session.outage():
            raise JudgeError(f"judge: no model could be reached: {outage}")

    def _spend(self, **usage: Any) -> None:
        with self._lock:
            self.usage += Usage(**usage)


def judged_record(record: EpisodeRecord, votes: JudgeRecord) -> EpisodeRecord:
    """Return the record of an episode with its judge's share in the reward.

    Args:
        record: the episode, graded by its environment alone.
        votes: its judge's.
    """
    own_reward = Reward(record.reward, record.parts, record.reason, record.test_output)
    reward = judged_reward(own_reward, votes)
    outcome = outcome_with(record, reward.value)
    turns = record.turns
    if turns and not had_feedback(record):
        turns = (*turns[:-1], replace(turns[-1], reward=reward.value, parts=reward.parts))
    return replace(
        record,
        turns=turns,
        outcome=outcome,
        reward=reward.value,
        parts=reward.parts,
        reason=record.reason if outcome == "agent-error" else reward.reason,
        test_output=reward.test_output,
        judge=votes,
    )
