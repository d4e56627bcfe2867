"""One episode of a model in an environment: asks the model, runs actions, and shows the results.

The strategies determine the order of these steps.
"""

from __future__ import annotations

from typing import Any

from pytest_intercode.agents.agent_environment import AgentEnvironment
from pytest_intercode.agents.chat.arguments import ChatArguments
from pytest_intercode.agents.chat.client import Answer, Caller
from pytest_intercode.agents.chat.history import History, clip
from pytest_intercode.agents.chat.parsing import ParsedAnswer
from pytest_intercode.agents.chat.templates import Templates
from pytest_intercode.core.task import DATABASE_ENGINES, TaskView
from pytest_intercode.core.turn import StepResult
from pytest_intercode.core.usage import Usage
from pytest_intercode.environments.registry import kind_of
from pytest_intercode.errors import AgentError

__all__ = ["Conversation"]


class Conversation:
    """One episode.

    Args:
        strategy: the strategy's name.
        arguments: the user's arguments.
        templates: the texts for the model.
        caller: sends requests to the model.
        task: the task.
        env: the environment.

    Attributes:
        env: the environment.
        task: the task.
        kind: the kind of its environment.
        refine: the number of turns that plan-solve has after its plan.
        over: whether the environment has ended the episode.
        turns_left: the number of actions that remain.
        language: the label of the environment's language after a code fence.
        submit_form: how the model submits.
        values: the values of the placeholders of all templates.
        history: the messages.
    """

    def __init__(
        self,
        strategy: str,
        arguments: ChatArguments,
        templates: Templates,
        caller: Caller,
        task: TaskView,
        env: AgentEnvironment,
    ) -> None:
        self.env = env
        self.task = task
        self.refine = arguments.refine
        self.over = False
        self.turns_left = task.max_turns
        self.kind = kind_of(task.env)
        self.language = self.kind.labels[0]
        self._arguments = arguments
        self._templates = templates
        self._caller = caller
        self._missing_usage_logged = False
        kind = self.kind
        submitted = kind.submission
        self.submit_form = f"submit {submitted}".rstrip()
        if strategy == "tools":
            with_answer = f", with {submitted} as its answer" if submitted else ""
            self.submit_form = f"the tool submit{with_answer}"
        self.values: dict[str, object] = {
            "query": task.query,
            "workdir": task.workdir,
            "engine": DATABASE_ENGINES.get(task.engine, task.engine),
            "database": task.database,
            "language": kind.language,
            "fence": self.language,
            "example": kind.example_of(task),
            "environment": task.env,
            "description": kind.description,
            "submit": self.submit_form,
            "turns": task.max_turns,
            "answer": kind.answer_instruction,
        }
        self.values["setting"] = templates.introduce(kind, **self.values).strip()
        if templates.overrides:
            env.log(f"prompts of {arguments.prompts}: {', '.join(templates.overrides)}")
        template = "functions" if strategy == "tools" and env.functions else strategy
        parts = (template, "user") if env.has_user else (template,)
        system = {"role": "system", "content": "\n\n".join(map(self.fill, parts))}
        first = "plan" if strategy == "plan-solve" else "task"
        user = {"role": "user", "content": self.fill(first)}
        self.history = History(arguments.history, [system, user])

    def fill(self, name: str, **values: object) -> str:
        """Return the text of a template."""
        return self._templates.fill(
            name, **{**self.values, "turns_left": self.turns_left, **values}
        )

    def ask(self, **fields: Any) -> Answer:
        """Ask the model, and record the usage and the model's reasoning.

        Args:
            fields: further fields of the request.

        Raises:
            BudgetExhausted: a budget is used up, or the time is up.
            AgentError: there is no answer, or prices are given but no token counts.
        """
        answer = self._caller.ask({"messages": self.history.messages(), **fields})
        prices = self._arguments.prices
        input_tokens, output_tokens = answer.input_tokens, answer.output_tokens
        cost = None
        if input_tokens is None or output_tokens is None:
            if prices is not None:
                self.env.spend(input_tokens=input_tokens or 0, output_tokens=output_tokens or 0)
                raise AgentError(
                    "the chat server does not report how many tokens it used, so input_price and "
                    "output_price have no effect; leave them out to run without a cost"
                )
            if not self._missing_usage_logged:
                self._missing_usage_logged = True
                self.env.log("the chat server does not report how many tokens it used")
        elif prices is not None:
            usage = Usage(
                input_tokens=input_tokens,
                output_tokens=output_tokens,
                cached_tokens=answer.cached_tokens,
                cache_write_tokens=answer.cache_write_tokens,
            )
            cost = prices.cost(usage)
        self.env.spend(
            input_tokens=input_tokens or 0,
            output_tokens=output_tokens or 0,
            cost=cost,
            cached_tokens=answer.cached_tokens,
            cache_write_tokens=answer.cache_write_tokens,
            reasoning_tokens=answer.reasoning_tokens,
        )
        if answer.reasoning:
            self.env.think(answer.reasoning.strip())
        return answer

    def carry_out(self, action: ParsedAnswer, answer: Answer, form: str) -> str:
        """Carry out the action of an answer.

        Args:
            action: the action, or the reason why there is none.
            answer: the answer.
            form: how an answer should look, for a model whose answer contains no action.

        Returns:
            The text that the model is shown.
        """
        if action.thought:
            self.env.think(action.thought)
        if action.kind == "execute":
            observation = self.execute(action.text)
        elif action.kind == "submit":
            observation = self.submit(action.text)
        else:
            observation = self.pass_turn(answer.text, action.problem, form)
        return "\n".join(filter(None, (observation, action.note)))

    def execute(self, code: str) -> str:
        """Run code; return the result as the model is shown it."""
        return self._show(self.env.step(code))

    def submit(self, answer: str) -> str:
        """Submit; return the result as the model is shown it if the episode continues."""
        return self._show(self.env.submit(answer))

    def pass_turn(self, text: str, problem: str, form: str) -> str:
        """Take a turn for an answer without an action; return the text for the model."""
        notice = self._templates.fill("no-action", problem=problem, form=form)
        return self._show(self.env.pass_turn(text, notice))

    def _show(self, result: StepResult) -> str:
        observation, _, terminated, truncated, _ = result
        self.over = bool(terminated or truncated)
        self.turns_left = observation.turns_left
        text = clip(str(observation).rstrip("\n"), self._arguments.observation_limit)
        values: dict[str, object] = {"observation": text or "(no output)"}
        if observation.reward is None:
            return self.fill("observation", **values)
        return self.fill("reward", **values, reward=f"{observation.reward:g}")
