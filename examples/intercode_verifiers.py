"""Tasks of pytest-intercode as an environment of verifiers (0.4, Prime Intellect's library).

    pip install pytest-intercode verifiers

With this file's folder on PYTHONPATH, ``intercode-verifiers`` is the id of a taskset for verifiers'
own commands and trainers. The model, its client and its tokens are theirs; the episode, with its
sandboxes, its budgets and its grading, is ours. Each reply of the model is one action, and what its
execution printed is the next message to it. The reward of the episode is recorded as ``intercode``.
"""

import asyncio
import re
from collections.abc import Iterable
from functools import cached_property

import verifiers.v1 as vf

import pytest_intercode

__all__ = ["IntercodeEnv", "IntercodeTaskset"]

_BLOCK = re.compile(r"```\w*\n(.*?)```", re.DOTALL)
_FIRST = """{query}

You act in a sandbox, in at most {turns} turns. Each of your replies is one {language} action, in a
block of code between lines of ```; you are then shown what it printed. When you are done, reply
with the word submit in such a block."""


class IntercodeConfig(vf.TasksetConfig):
    """What to play.

    Attributes:
        env: the environment: bash, sql, python, ctf or swe, or one of your own.
        dataset: a dataset or a suite's path; None for the environment's bundled suite.
        sandbox: ``docker``, ``bubblewrap`` or ``auto``.
        max_turns: actions in an episode; None for each task's own number.
    """

    env: str = "bash"
    dataset: str | None = None
    sandbox: str = "auto"
    max_turns: int | None = None


class IntercodeTask(vf.Task[vf.TaskData]):
    """A task by its id; it carries neither gold nor tests."""


class IntercodeTaskset(vf.Taskset[IntercodeTask, IntercodeConfig]):
    """The tasks that can be run here."""

    def load(self) -> Iterable[IntercodeTask]:
        """Return the tasks, in order."""
        for name in self.by_id:
            yield IntercodeTask(vf.TaskData(id=name, name=name), self.config.task)

    @cached_property
    def by_id(self) -> dict[str, pytest_intercode.Task]:
        """Our own tasks, by their ids."""
        found = pytest_intercode.make(self.config.env, dataset=self.config.dataset).tasks.tasks
        return {task.id: task for task in found}


class IntercodeEnvConfig(vf.EnvConfig):
    """The environment's one role, the player: a model that replies, and runs nothing itself."""

    player: vf.AgentConfig = vf.AgentConfig.model_validate(
        {"harness": {"id": "null"}, "runtime": {"type": "subprocess"}}
    )


class IntercodeEnv(vf.Env[IntercodeEnvConfig]):
    """Plays a task: verifiers asks the model, and a rollout of ours runs what it says."""

    async def start(self) -> None:
        """Prepare to start sandboxes."""
        self._sandboxes = pytest_intercode.SandboxProvider(
            pytest_intercode.SandboxSettings(self.taskset.config.sandbox)
        )

    async def stop(self) -> None:
        """End the sandboxes."""
        await asyncio.to_thread(self._sandboxes.close)

    async def run(self, task: IntercodeTask, agents: vf.Agents) -> None:
        """Play an episode, and record its reward."""
        loop = asyncio.get_running_loop()
        ours = self.taskset.by_id[task.data.id]
        async with agents.player.interaction(task) as interaction:

            async def play(
                view: pytest_intercode.TaskView, env: pytest_intercode.AgentEnvironment
            ) -> None:
                message = _FIRST.format(query=view.query, turns=view.max_turns, language=view.env)
                while not env.over:
                    asked = asyncio.run_coroutine_threadsafe(interaction.turn(message), loop)
                    segment = await asyncio.wrap_future(asked)
                    if segment.terminated:  # a limit of verifiers: grade what was done so far
                        return
                    message = str(env.step(_action(segment.last_reply))[0]) or "(no output)"

            async with pytest_intercode.run_rollouts(
                [ours],
                play,
                max_turns=self.taskset.config.max_turns,
                provider=self._sandboxes,
                raise_infrastructure_errors=True,
            ) as records:
                record = await anext(records)
        if not record.graded or record.outcome == "agent-error":
            raise RuntimeError(f"{record.outcome}: {record.reason}")  # not the model's fault
        trace = interaction.trace
        trace.record_reward("intercode", record.reward)
        trace.info["intercode"] = {
            "outcome": record.outcome,
            "parts": dict(record.parts),
            "reason": record.reason,
            "turns": len(record.turns),
        }


def _action(reply: str) -> str:
    """Return the last block of code in a reply, or the whole reply if there is none."""
    blocks = _BLOCK.findall(reply)
    return (blocks[-1] if blocks else reply).strip()
