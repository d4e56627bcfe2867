"""One episode between a model and an environment: what is asked, run, told and written down.

The strategies say in which order; here is what each of them needs for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pytest_intercode.agents.chat.answers import Answer
from pytest_intercode.agents.chat.arguments import ChatArguments
from pytest_intercode.agents.chat.blocks import LANGUAGES
from pytest_intercode.agents.chat.client import Caller
from pytest_intercode.agents.chat.history import History, clip
from pytest_intercode.agents.chat.moves import Move
from pytest_intercode.agents.chat.templates import Templates
from pytest_intercode.core.task import TaskView
from pytest_intercode.errors import AgentError

__all__ = ["ANSWERS", "Dialogue", "Kit"]

_ENGINES = {"sqlite": "SQLite", "mysql": "MySQL"}
_LANGUAGES = {"bash": "Bash", "sql": "SQL", "python": "Python", "ctf": "Bash"}
_EXAMPLES = {
    "bash": "ls -la",
    "sqlite": "SELECT sql FROM sqlite_master",
    "mysql": "SHOW TABLES",
    "python": "def double(x):\n    return 2 * x",
    "ctf": "ls -la",
}
_SUBMITTED = {"python": "NAME", "ctf": "FLAG"}

ANSWERS = {
    "bash": "Leave the answer empty: the files and your last output are graded.",
    "sql": "Leave the answer empty: your last result, or the data as you leave them, are graded.",
    "python": "The answer is the name of the function or class that solves the task.",
    "ctf": "The answer is the flag.",
}
"""What the answer of the tool ``submit`` is in each environment."""


@dataclass(frozen=True)
class Kit:
    """What all episodes of a run share.

    Attributes:
        name: the strategy.
        arguments: the user's arguments.
        templates: the texts.
    """

    name: str
    arguments: ChatArguments
    templates: Templates


class Dialogue:
    """One episode.

    Args:
        kit: what the run shares.
        caller: the way to the model.
        task: the task.
        env: the environment as a loop-style agent gets it.

    Attributes:
        over: the environment has ended the episode.
        turns_left: actions that are left.
        language: the name of the environment's language behind a fence.
    """

    def __init__(self, kit: Kit, caller: Caller, task: TaskView, env: Any) -> None:
        self.env = env
        self.over = False
        self.turns_left = task.max_turns
        self.language = LANGUAGES[task.env][0]
        self._kit = kit
        self._caller = caller
        self._uncounted = False
        submitted = _SUBMITTED.get(task.env, "")
        by_tool = f"the tool submit{f', with {submitted} as its answer' if submitted else ''}"
        self._submit = by_tool if kit.name == "tools" else f"submit {submitted}".rstrip()
        self.values: dict[str, object] = {
            "query": task.query,
            "workdir": task.workdir,
            "engine": _ENGINES.get(task.engine, task.engine),
            "database": task.database,
            "language": _LANGUAGES[task.env],
            "fence": self.language,
            "example": _EXAMPLES[task.engine or task.env],
            "submit": self._submit,
            "turns": task.max_turns,
            "answer": ANSWERS[task.env],
        }
        self.values["setting"] = self.fill(task.env)
        if kit.templates.own:
            env.log(f"prompts of {kit.arguments.prompts}: {', '.join(kit.templates.own)}")
        system = {"role": "system", "content": self.fill(kit.name)}
        first = "plan" if kit.name == "plan-solve" else "task"
        user = {"role": "user", "content": self.fill(first)}
        self.history = History(kit.arguments.history, [system, user])

    @property
    def submit_form(self) -> str:
        """How the model submits."""
        return self._submit

    def fill(self, name: str, **values: object) -> str:
        """Return the text of a template."""
        known = {**self.values, "turns_left": self.turns_left, **values}
        return self._kit.templates.fill(name, **known)

    def ask(self, **more: Any) -> Answer:
        """Ask the model, and write down what that took and what it thought.

        Raises:
            BudgetExhausted: that was the last that the budget allows, or the time is up.
            AgentError: there is no answer.
        """
        answer = self._caller.ask({"messages": self.history.messages(), **more})
        prices = self._kit.arguments.prices
        sent, got = answer.input_tokens, answer.output_tokens
        cost = None
        if sent is None or got is None:
            if prices is not None:
                self.env.spend(input_tokens=sent or 0, output_tokens=got or 0)
                raise AgentError(
                    "the chat server does not say how many tokens it used, so that input_price and "
                    "output_price come to nothing; leave them away to run without a cost"
                )
            if not self._uncounted:
                self._uncounted = True
                self.env.log("the chat server does not say how many tokens it used")
        elif prices is not None:
            cost = (sent * prices[0] + got * prices[1]) / 1e6
        self.env.spend(input_tokens=sent or 0, output_tokens=got or 0, cost=cost)
        if answer.reasoning:
            self.env.think(answer.reasoning.strip())
        return answer

    def take(self, move: Move, answer: Answer, form: str) -> str:
        """Do what an answer comes to.

        Args:
            move: what it comes to.
            answer: the answer.
            form: how an answer should look, for a model whose answer holds no action.

        Returns:
            What the model is told.
        """
        if move.thought:
            self.env.think(move.thought)
        if move.kind == "execute":
            told = self.execute(move.text)
        elif move.kind == "submit":
            told = self.submit(move.text)
        else:
            told = self.pass_turn(answer.text, move.problem, form)
        return "\n".join(filter(None, (told, move.note)))

    def execute(self, code: str) -> str:
        """Run code; return what the model is told of it."""
        return self._told(self.env.step(code))

    def submit(self, answer: str) -> str:
        """Submit; return what the model is told if the episode goes on."""
        return self._told(self.env.submit(answer))

    def pass_turn(self, said: str, problem: str, form: str) -> str:
        """Take a turn for an answer without an action; return what the model is told."""
        problem = self._kit.templates.fill("no-action", problem=problem, form=form)
        return self._told(self.env.pass_turn(said, problem))

    def _told(self, result: Any) -> str:
        observation, _, terminated, truncated, _ = result
        self.over = bool(terminated or truncated)
        self.turns_left = observation.turns_left
        shown = clip(str(observation).rstrip("\n"), self._kit.arguments.observation_limit)
        values: dict[str, object] = {"observation": shown or "(no output)"}
        if observation.reward is None:
            return self.fill("observation", **values)
        return self.fill("reward", **values, reward=f"{observation.reward:g}")
