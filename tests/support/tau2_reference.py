"""Grades conversations with tau2-bench's own evaluator, which has to be installed.

It runs under the Python that has it (INTERCODE_TAU2), and imports nothing of ours. A line of its
input is a conversation: ``domain``, ``task`` as published, ``lines`` (calls, and what the two say),
``ending`` and the judge's ``verdict``. A line of its output is ``reward``, and what each call
returned, with whether it failed.
"""

from __future__ import annotations

import json
import pickle
import sys
from typing import Any

from loguru import logger  # type: ignore[import-not-found]
from tau2.data_model.message import (  # type: ignore[import-not-found]
    AssistantMessage,
    ToolCall,
    UserMessage,
)
from tau2.data_model.simulation import (  # type: ignore[import-not-found]
    NLAssertionCheck,
    SimulationRun,
)
from tau2.data_model.tasks import Task  # type: ignore[import-not-found]
from tau2.environment.db import DB  # type: ignore[import-not-found]
from tau2.evaluator.evaluator import (  # type: ignore[import-not-found]
    EvaluationType,
    evaluate_simulation,
)
from tau2.evaluator.evaluator_nl_assertions import (  # type: ignore[import-not-found]
    NLAssertionsEvaluator,
)
from tau2.registry import registry  # type: ignore[import-not-found]

logger.remove()
_databases: dict[str, bytes] = {}
_load = DB.load.__func__


def _load_once(cls: Any, path: Any) -> Any:
    """Read a database the first time, and copy it after that; each is as it was read."""
    if str(path) not in _databases:
        _databases[str(path)] = pickle.dumps(_load(cls, path))
    return pickle.loads(_databases[str(path)])


DB.load = classmethod(_load_once)


def grade(item: dict[str, Any]) -> dict[str, Any]:
    """Play a conversation in its environment, and have it evaluated."""
    task = Task.model_validate(item["task"])
    environment = registry.get_env_constructor(item["domain"])()
    initial = task.initial_state
    environment.set_state(
        initial.initialization_data if initial else None,
        initial.initialization_actions if initial else None,
        [],
    )
    messages, results = [], []
    for number, line in enumerate(item["lines"]):
        if "name" not in line:
            speaks = AssistantMessage if "agent" in line else UserMessage
            role = "assistant" if "agent" in line else "user"
            messages.append(speaks(role=role, content=line.get("agent", line.get("user"))))
            continue
        side = line["requestor"]
        call = ToolCall(
            id=str(number), requestor=side, name=line["name"], arguments=line["arguments"]
        )
        speaks = AssistantMessage if side == "assistant" else UserMessage
        messages.append(speaks(role=side, content=None, tool_calls=[call]))
        result = environment.get_response(call)
        messages.append(result)
        results.append([result.content, result.error])
    NLAssertionsEvaluator.evaluate_nl_assertions = lambda _, statements: [
        NLAssertionCheck(nl_assertion=text, met=item["verdict"], justification="")
        for text in statements
    ]
    run = SimulationRun(
        id="1",
        task_id=task.id,
        start_time="",
        end_time="",
        duration=0.0,
        termination_reason=item["ending"],
        messages=messages,
    )
    try:
        info = evaluate_simulation(run, task, EvaluationType.ALL, False, item["domain"])
    except Exception as error:
        return {"reward": f"{type(error).__name__}: {error}"[:300], "results": results}
    return {"reward": info.reward, "results": results}


def main() -> None:
    """Grade what is on the standard input."""
    for text in sys.stdin:
        print(json.dumps(grade(json.loads(text))), flush=True)


if __name__ == "__main__":
    main()
