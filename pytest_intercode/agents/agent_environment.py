"""The environment as an agent sees it that drives its episode itself: its turns and its ledger."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from pytest_intercode.agents.ledger import Ledger
from pytest_intercode.core.task import TaskView
from pytest_intercode.core.turn import StepResult

__all__ = ["AgentEnvironment"]


class AgentEnvironment:
    """What ``run(task, env)`` gets as ``env``.

    The methods may be called from any thread of the agent; actions run one at a time.

    Attributes:
        task: what the agent may know of its task.
    """

    __slots__ = ("_is_over", "_ledger", "_pass_turn", "_step", "_submit", "task")

    task: TaskView

    def __init__(
        self,
        task: TaskView,
        step: Callable[[str], StepResult],
        submit: Callable[[str], StepResult],
        pass_turn: Callable[[str, str], StepResult],
        ledger: Ledger,
        is_over: Callable[[], bool],
    ) -> None:
        self.task = task
        self._step = step
        self._submit = submit
        self._pass_turn = pass_turn
        self._ledger = ledger
        self._is_over = is_over

    @property
    def over(self) -> bool:
        """Whether the episode is over: every action would be refused."""
        return self._is_over()

    @property
    def prompt(self) -> str:
        """The task as a first message for a model with the tools of :meth:`tools`.

        It has the query, and says what an action is, what is graded and how many turns there are.
        """
        from pytest_intercode.agents.texts import describe_task

        return describe_task(
            self.task, "Solve the task below in its sandbox, with the tools execute and submit."
        )

    def tools(self) -> tuple[Callable[..., str], Callable[..., str]]:
        """Return two functions for an agent framework to make tools from.

        ``execute(code)`` takes a turn, ``submit(answer="")`` ends the episode. They have
        annotations and a docstring for this task, return the observation and a note on how the
        action ended, and may be called from any thread.

        Both raise :class:`BudgetExhausted` as soon as the episode is over, by whatever, so that the
        framework ends without asking its model again.
        """
        from pytest_intercode.agents.tools import make_tools

        return make_tools(self.task, self.step, self.submit)

    def async_tools(self) -> tuple[Callable[..., Awaitable[str]], Callable[..., Awaitable[str]]]:
        """Return the functions of :meth:`tools` as coroutine functions.

        Actions run on another thread, so that other episodes of the event loop go on, and one at a
        time, in the order of the calls.
        """
        from pytest_intercode.agents.tools import make_async_tools

        return make_async_tools(self.task, self.step, self.submit)

    def step(self, action: str) -> StepResult:
        """Run one action.

        Returns:
            ``observation, reward, terminated, truncated, info``; the reward is 0.0 until the
            episode ends, unless the run gives rewards as feedback.

        Raises:
            BudgetExhausted: the episode is over.
        """
        return self._step(action)

    def submit(self, answer: str = "") -> StepResult:
        """End the episode; an ``answer`` is graded in place of the last output.

        Raises:
            BudgetExhausted: the episode is over.
        """
        return self._submit(answer)

    def pass_turn(self, action: str, observation: str) -> StepResult:
        """Take a turn that runs nothing, for an answer of a model that holds no action.

        Args:
            action: the answer, for the trajectory.
            observation: what the agent is shown in return.

        Raises:
            BudgetExhausted: the episode is over.
        """
        return self._pass_turn(action, observation)

    def spend(
        self,
        *,
        input_tokens: int = 0,
        output_tokens: int = 0,
        cost: float | None = None,
        requests: int = 1,
    ) -> None:
        """Record what a request to a model used up; see :meth:`Ledger.spend`.

        Raises:
            BudgetExhausted: a budget is used up.
            AgentError: a number is negative or malformed.
        """
        self._ledger.spend(
            input_tokens=input_tokens, output_tokens=output_tokens, cost=cost, requests=requests
        )

    def think(self, text: str) -> None:
        """Record a thought that goes with the next action."""
        self._ledger.think(text)

    def log(self, text: str) -> None:
        """Record output of the agent that is no action."""
        self._ledger.log(text)
