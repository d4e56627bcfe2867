"""The judge of one episode, asked through a gateway in a session of its own.

So no key is in sight, answers are recorded and replayed as an agent's are, and the tokens are the
judge's own, which no budget of the agent's counts.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from pytest_intercode.agents.chat.arguments import ChatArguments
from pytest_intercode.agents.chat.client import Caller, ChatClient, RequestRefused
from pytest_intercode.agents.program.episode import episode_key
from pytest_intercode.core.judge import JudgeRecord, Verdict
from pytest_intercode.core.task import Task
from pytest_intercode.core.text import one_line
from pytest_intercode.core.usage import UNSPENT, Usage
from pytest_intercode.errors import AgentError, BudgetExhausted, JudgeError
from pytest_intercode.gateway.gateway import Gateway
from pytest_intercode.gateway.recording import EpisodeRecording
from pytest_intercode.judging.answer import read_verdict
from pytest_intercode.judging.question import NOTHING_DONE, Material, make_messages

__all__ = ["Hearing"]

_MARK_SIZE = 16  # bytes of a mark: nobody guesses it
_MAX_SERVER_FAILURES = 3  # on what an agent did, before they are for its texts
_MAX_LINE = 300  # characters of what a server says


class Hearing:
    """Asks the judge of one episode.

    Args:
        task: the task, which has a judge.
        gateway: leads to the model.
        purpose: what it is asked for.
        recording: what records or replays the votes; None for what the gateway's settings say.

    Attributes:
        usage: what was used up so far.
        unusable: the answers so far that were not a verdict, each in one line.
    """

    def __init__(
        self,
        task: Task,
        gateway: Gateway,
        purpose: str,
        recording: EpisodeRecording | None = None,
    ) -> None:
        assert task.judge is not None
        self._task = task
        self._judge = task.judge
        self.usage = UNSPENT
        self.unusable: list[str] = []
        self._faults: dict[Material, Verdict] = {}
        self._server_has_failed = False  # at the last request
        self._lock = threading.Lock()
        self._session = gateway.open(
            f"{episode_key(task)}-{purpose}", spend=self._spend, recording=recording
        )
        arguments = ChatArguments(
            self._judge.model, base_url=self._session.url("openai"), api_key=self._session.token
        )
        self._client = ChatClient(arguments)
        self._caller = Caller(self._client)

    def __enter__(self) -> Hearing:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def judge(self, material: Material, reward: float) -> tuple[JudgeRecord, JudgeError | None]:
        """Ask for all votes on what an agent did, and end the session.

        Args:
            material: what the judge is shown.
            reward: the environment's own reward.

        Returns:
            The record of what was asked, with all that was used up; and why there is no verdict,
            where the model gives none.
        """
        verdicts: Sequence[Verdict] = ()
        failure: JudgeError | None = None
        with self:
            try:
                verdicts = [self.vote(material) for _ in range(self._judge.votes)]
            except JudgeError as error:
                failure = error
        judge = self._judge
        record = JudgeRecord(
            *(judge.model, judge.digest, judge.share, reward),
            scores=tuple(verdict.score for verdict in verdicts),
            reasons=tuple(verdict.reason for verdict in verdicts),
            unusable=tuple(self.unusable),
            omitted=material.omitted,
            evidence=material.digest,
            usage=self.usage,
            product=judge.product,
        )
        return record, failure

    def vote(self, material: Material) -> Verdict:
        """Return one vote.

        Where an answer is not a verdict, it is asked once more, and then about an agent that did
        nothing. If that brings a verdict, it is this agent's texts that keep the judge from one,
        and the vote is 0; else the judge is at fault. A server may fail for other reasons: it has
        to fail on these texts three times, and each time to answer on as many harmless ones right
        after it. Then further votes are 0, too.

        Raises:
            JudgeError: the model cannot be reached, or gives no verdict whatever it is shown.
        """
        if material in self._faults:
            return self._faults[material]
        for _ in range(_MAX_SERVER_FAILURES):
            for _ in range(2):
                if (answer := self._ask(material)) is not None:
                    return answer
                if has_failed := self._server_has_failed:
                    break
            problem = self.unusable[-1]
            if self._ask(material.harmless() if has_failed else NOTHING_DONE) is None:
                raise JudgeError(
                    f"judge: the model {self._judge.model!r:.60} gives no verdict, also on an "
                    f"agent that did nothing: {self.unusable[-1]}"
                )
            verdict = Verdict(
                0.0, f"the judge gives a verdict on others, and none on this: {problem}"
            )
            if not has_failed:
                return verdict
        self._faults[material] = verdict
        return verdict

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
        self._server_has_failed = False
        mark = secrets.token_hex(_MARK_SIZE)
        request: Mapping[str, Any] = {"messages": make_messages(self._task, material, mark)}
        try:
            return read_verdict(self._caller.ask(request).text)
        except BudgetExhausted:
            raise JudgeError("judge: it was stopped") from None
        except AgentError as error:
            self._check_reached(error)
            self.unusable.append(one_line(str(error))[:_MAX_LINE])
        except ValueError as error:
            self.unusable.append(f"the answer: {error}")
        return None

    def _check_reached(self, error: AgentError) -> None:
        """See that it was the model that has refused, and for what it was shown.

        Raises:
            JudgeError: no model was reached, the key or a limit is why, or the recording lacks the
                request.
        """
        session = self._session
        if session.failure:
            raise JudgeError(f"judge: {session.failure}")
        if outage := session.outage():
            raise JudgeError(f"judge: no model could be reached: {outage}")
        if isinstance(error, RequestRefused):
            self._server_has_failed = error.status >= 500
            if not (error.may_be_for_content or self._server_has_failed):
                raise JudgeError(f"judge: {one_line(str(error))[:_MAX_LINE]}")

    def _spend(self, **usage: Any) -> None:
        with self._lock:
            self.usage += Usage(**usage)
