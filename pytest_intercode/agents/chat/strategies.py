"""The strategies: single-turn, try-again, react, plan-solve and tools.

Each takes one turn of the environment for one answer of the model at least, so all of them end with
the budget of turns. What a strategy asks is in its templates.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from pytest_intercode.agents.chat.answers import Answer, Call
from pytest_intercode.agents.chat.dialogue import Dialogue
from pytest_intercode.agents.chat.history import Message
from pytest_intercode.agents.chat.moves import Move, fenced, split_thought
from pytest_intercode.agents.chat.plans import steps_of
from pytest_intercode.agents.chat.react import react

__all__ = ["STRATEGIES"]


def single_turn(dialogue: Dialogue, env: str, refine: int) -> None:
    """Take one action, and submit."""
    answer = dialogue.ask()
    dialogue.take(fenced(answer.text, env, cut_off=answer.cut_off), answer, _block(dialogue))
    if not dialogue.over and env != "ctf":  # there is no flag to submit
        dialogue.submit("")


def try_again(dialogue: Dialogue, env: str, refine: int) -> None:
    """Take actions until the reward is 1."""
    while not dialogue.over:
        _turn(dialogue, env)


def react_(dialogue: Dialogue, env: str, refine: int) -> None:
    """Think, act and look, until the model submits."""
    form = f"Write `Action: execute[CODE]`, or `Action: {dialogue.submit_form}`."
    while not dialogue.over:
        answer = dialogue.ask()
        move = react(answer.text, env, cut_off=answer.cut_off)
        told = dialogue.take(move, answer, form)
        dialogue.history.add(_assistant(move.said), [_user(told)])


def plan_solve(dialogue: Dialogue, env: str, refine: int) -> None:
    """Make a plan, carry out its steps one by one, refine the result, and submit."""
    steps = _plan(dialogue)
    total = len(steps)
    if dialogue.over:
        return
    for number, step in enumerate(steps, 1):
        asked = dialogue.fill("step", number=number, total=total, step=step)
        if number == 1:
            dialogue.history.pin(_user(asked))
        else:
            dialogue.history.tell(asked)
        # An answer without an action has a second try; then it is the next step's turn.
        if _turn(dialogue, env).kind == "none" and not dialogue.over:
            dialogue.history.tell(asked)
            _turn(dialogue, env)
        if dialogue.over:
            return
    for _ in range(refine):
        dialogue.history.tell(dialogue.fill("refine"))
        _turn(dialogue, env)
        if dialogue.over:
            return
    if env != "ctf":
        dialogue.submit("")


def _plan(dialogue: Dialogue) -> list[str]:
    """Ask for a plan; an answer without one costs a turn, like one without an action."""
    while True:
        answer = dialogue.ask()
        steps = steps_of(answer.text)
        if steps:
            dialogue.env.think(answer.text.strip())
            dialogue.history.pin(_assistant(split_thought(answer.text)[1]))
            return steps
        form = "Write a numbered list of steps."
        problem = "the answer was cut off" if answer.cut_off else "the answer is empty"
        told = dialogue.pass_turn(answer.text, problem, form)
        if dialogue.over:
            return []
        dialogue.history.pin(_assistant(""), _user(told))


def tools(dialogue: Dialogue, env: str, refine: int) -> None:
    """Call the tools execute and submit."""
    described = _tools(dialogue, env)
    form = "Call one of the tools execute(code) and submit(answer)."
    while not dialogue.over:
        answer = dialogue.ask(tools=described)
        thought, text = split_thought(answer.text)
        for said in (thought, text):
            if said and answer.calls:
                dialogue.env.think(said)
        if not answer.calls:
            problem = "the answer calls no tool"
            if answer.cut_off:
                problem = "the answer was cut off at its limit of tokens"
            told = dialogue.pass_turn(answer.text, problem, form)
            dialogue.history.add(_assistant(text), [_user(told)])
            continue
        results: list[Message] = []
        for call in answer.calls:
            told = _call(dialogue, call, form, cut_off=answer.cut_off)
            results.append({"role": "tool", "tool_call_id": call.id, "content": told})
            if dialogue.over:
                return
        dialogue.history.add(_calling(text, answer), results)


def _call(dialogue: Dialogue, call: Call, form: str, *, cut_off: bool) -> str:
    """Do what one call asks for; return its result."""
    given, problem = _arguments(call.arguments)
    if call.name not in ("execute", "submit"):
        problem = f"there is no tool {call.name!r}"
    elif problem and cut_off:
        problem = f"the answer was cut off at its limit of tokens; {problem}"
    elif not problem and call.name == "execute":
        code = given.get("code")
        if isinstance(code, str) and code.strip():
            return dialogue.execute(code)
        problem = "execute needs the argument code, a text that is not empty"
    elif not problem:
        value = given.get("answer", "")
        if value is None or isinstance(value, (str, int, float)):
            return dialogue.submit("" if value is None else str(value).strip())
        problem = "the argument answer of submit is no text"
    return dialogue.pass_turn(f"{call.name}({call.arguments})", problem, form)


def _arguments(text: str) -> tuple[Mapping[str, Any], str]:
    """Return a call's arguments, and what is wrong with them."""
    try:
        given = json.loads(text) if text.strip() else {}
    except ValueError as error:
        return {}, f"the arguments of the call are not JSON ({error}): {text[:200]!r}"
    if not isinstance(given, dict):
        return {}, f"the arguments of the call are no JSON object: {text[:200]!r}"
    return given, ""


def _calling(text: str, answer: Answer) -> Message:
    """Return the message of the model with its calls, as servers take it back.

    Arguments that are no JSON object would be refused by some, and the model is told of them.
    """
    return {
        "role": "assistant",
        "content": text or None,
        "tool_calls": [
            {
                "id": call.id,
                "type": "function",
                "function": {
                    "name": call.name,
                    "arguments": "{}" if _arguments(call.arguments)[1] else call.arguments or "{}",
                },
            }
            for call in answer.calls
        ],
    }


def _tools(dialogue: Dialogue, env: str) -> list[dict[str, Any]]:
    def tool(name: str, argument: str, described: str, *, needed: bool) -> dict[str, Any]:
        parameters = {
            "type": "object",
            "properties": {argument: {"type": "string", "description": described}},
            "required": [argument] if needed else [],
            "additionalProperties": False,
        }
        function = {
            "name": name,
            "description": dialogue.fill(f"tool-{name}"),
            "parameters": parameters,
        }
        return {"type": "function", "function": function}

    language = dialogue.values["language"]
    return [
        tool("execute", "code", f"{language} code", needed=True),
        tool("submit", "answer", str(dialogue.values["answer"]), needed=env == "ctf"),
    ]


def _turn(dialogue: Dialogue, env: str) -> Move:
    """Ask for a code block, run it, and tell the model what came of it."""
    answer = dialogue.ask()
    move = fenced(answer.text, env, cut_off=answer.cut_off)
    told = dialogue.take(move, answer, _block(dialogue))
    dialogue.history.add(_assistant(move.said), [_user(told)])
    return move


def _block(dialogue: Dialogue) -> str:
    return f"Write one code block that begins with ```{dialogue.language}."


def _assistant(text: str) -> Message:
    # There are servers that refuse an empty message.
    return {"role": "assistant", "content": text.strip() or "(nothing)"}


def _user(text: str) -> Message:
    return {"role": "user", "content": text}


STRATEGIES: Mapping[str, Callable[[Dialogue, str, int], None]] = {
    "single-turn": single_turn,
    "try-again": try_again,
    "react": react_,
    "plan-solve": plan_solve,
    "tools": tools,
}
"""By the name that the agent is asked for with."""
