"""A model on loopback that knows some tasks, behind all APIs that agent frameworks speak.

What it says follows from the request alone: the task whose query is in it, and how many calls of
tools were made. So any number of episodes may ask at the same time::

    with ScriptedModel({query: ["SELECT 1"]}) as model:
        ...
    model.spent_on[query]  # what its requests came to
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tests.support.model_server import ModelServer, Request, Spent, Step, Tool

__all__ = ["ScriptedModel"]


class ScriptedModel(ModelServer):
    """The server; it runs between ``with`` and the end of the block.

    Args:
        actions: by query, what is executed before the submission.

    Attributes:
        asked: the query of each request, in order; empty for requests of no task.
        spent_on: tokens by query.
    """

    def __init__(self, actions: Mapping[str, Sequence[str]]) -> None:
        super().__init__(self._say)
        self.asked: list[str] = []
        self.spent_on: dict[str, Spent] = {}
        self._actions = actions

    def _say(self, request: Request) -> Step:
        text = "\n".join(_strings(request.body))
        query = max((each for each in self._actions if each in text), key=len, default="")
        done = len(request.results)
        if request.api == "chat":  # some clients send results in the user's name
            done = sum(each["role"] == "assistant" for each in request.body["messages"])
        spent = Spent(100 + done, 10 + done, 20, 10)
        self.asked.append(query)
        self.spent_on[query] = self.spent_on.get(query, Spent(0, 0, 0)) + spent
        names = {name.rpartition("__")[2]: name for name in _tools(request.body)}
        if not query or not names:
            return Step("done", spent=spent, pause=0.02)
        action = next(iter(self._actions[query][done:]), None)
        if "bash" in names:  # an agent that has this tool alone
            call = Tool("bash", {"command": "submit" if action is None else action})
        elif action is None:
            call = Tool(names["submit"], {"answer": ""})
        else:
            call = Tool(names["execute"], {"code": action})
        return Step(calls=[call], spent=spent, pause=0.02)


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list)):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _strings(each)


def _tools(body: dict[str, Any]) -> Iterator[str]:
    for tool in body.get("tools") or []:
        for each in tool.get("functionDeclarations", [tool.get("function", tool)]):
            yield each.get("name", "")
