"""One trivial agent in every form that Python has: it plays a plan, a list of actions per task.

The plan is a JSON file that the variable PLAN names.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

PLAN = json.loads(Path(os.environ["PLAN"]).read_text())


class Step:
    """Is asked for one action at a time."""

    def reset(self, task: Any) -> None:
        self.left = list(PLAN[task.id])

    def act(self, observation: str) -> str:
        return str(self.left.pop(0))


class AsyncStep(Step):
    """The same, and somewhere else in between."""

    async def act(self, observation: str) -> str:  # type: ignore[override]
        import asyncio

        await asyncio.sleep(0)
        return super().act(observation)


class Loop:
    """Drives the episode itself."""

    def run(self, task: Any, env: Any) -> None:
        for action in PLAN[task.id]:
            env.step(action)


async def coroutine(task: Any, env: Any) -> None:
    """Drives it, and is a coroutine."""
    for action in PLAN[task.id]:
        env.step(action)


def function(task: Any, env: Any) -> None:
    """Drives it, and is a function; submits by the method."""
    for action in PLAN[task.id]:
        word, _, answer = action.partition(" ")
        if word == "submit":
            env.submit(answer)
        else:
            env.step(action)
