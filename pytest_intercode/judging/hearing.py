"""The judge of one episode, asked through a gateway in a separate session.

So no key is visible, answers are recorded and replayed like an agent's, and the judge's tokens do
not count toward any budget of the agent.
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

_MARK_SIZE = 16  # bytes of a mark, so that it cannot be guessed
_MAX_SERVER_FAILURES = 3  # on an agent's texts, before these are taken as the cause
_MAX_LINE = 300  # characters of a server's message


class Hearing:
    """Asks the judge of one episode.

    Args:
        task: the task, which has a judge.
        gateway: leads to the model.
        purpose: the purpose of the votes, the end of the session's key.
        recording: records or replays the votes; None if the gateway's settings apply.

    Attributes:
        usage: the usage so far.
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
        self._server_has_failed = False  # on the last request
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
        """Ask for all votes on an agent's work, and end the session.

        Args:
            material: the material that the judge is shown.
            reward: the environment's own reward.

        Returns:
            The record of the votes, with the whole usage; and the error if the model gives no
            verdict, else None.
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

        If an answer is not a verdict, the model is asked once more, and then about an agent that
        did nothing. If it gives a verdict on that, this agent's texts are the cause, and the vote
        is 0; otherwise the judge is at fault. A server error may have other causes: the server must
        fail on these texts three times, and each time answer a harmless text of the same length
        right after it. Then all further votes are 0 as well.

        Raises:
            JudgeError: the model cannot be reached, or never gives a verdict.
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
        """Abort a running request, from any thread, and start no other."""
        self._caller.abort()

    def close(self) -> None:
        """End the session; may be called twice."""
        self.stop()
        self._client.close()
        self._session.close()

    def _ask(self, material: Material) -> Verdict | None:
        """Ask once; if the answer is not a verdict, note that in ``unusable`` and return None."""
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
        """Check that an error may be due to the content of the request.

        Raises:
            JudgeError: no model was reached, the cause is the key or a limit, or the recording
                lacks the request.
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
