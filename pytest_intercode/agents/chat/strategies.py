"""The strategies: single-turn, try-again, react, plan-solve and tools.

Each takes at least one turn of the environment per answer of the model, so all of them end when
the turn budget is used up. The prompts of a strategy are in its templates.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from pytest_intercode.agents.chat.calls import message_with_calls, parse_arguments
from pytest_intercode.agents.chat.client import Answer, Call
from pytest_intercode.agents.chat.conversation import Conversation
from pytest_intercode.agents.chat.history import Message
from pytest_intercode.agents.chat.parsing import (
    ParsedAnswer,
    parse_fenced,
    parse_plan,
    parse_react,
    split_thought,
)

__all__ = ["CONVERSATIONAL", "STRATEGIES"]


def single_turn(conversation: Conversation) -> None:
    """Take one action, which is graded; InterCode counts this as one turn."""
    answer = conversation.ask()
    _run_block(conversation, answer)


def try_again(conversation: Conversation) -> None:
    """Take actions until the reward is 1."""
    while not conversation.over:
        _take_turn(conversation)


def react(conversation: Conversation) -> None:
    """Think, act and observe until the model submits."""
    form = f"Write `Action: execute[CODE]`, or `Action: {conversation.submit_form}`."
    while not conversation.over:
        answer = conversation.ask()
        action = parse_react(answer.text, conversation.task.env, cut_off=answer.cut_off)
        observation = conversation.carry_out(action, answer, form)
        conversation.history.add(_assistant(action.excerpt), [_user(observation)])


def plan_solve(conversation: Conversation) -> None:
    """Make a plan, carry out its steps one by one, refine the result, and submit."""
    steps = _ask_plan(conversation)
    history = conversation.history
    for number, step in enumerate(steps, 1):
        prompt = conversation.fill("step", number=number, total=len(steps), step=step)
        if number == 1:
            history.pin(_user(prompt))
        else:
            history.extend(prompt)
        # After an answer without an action, ask once more, then continue with the next step.
        if _take_turn(conversation).kind == "none" and not conversation.over:
            history.extend(prompt)
            _take_turn(conversation)
        if conversation.over:
            return
    for _ in range(conversation.refine):
        if conversation.over:
            return
        history.extend(conversation.fill("refine"))
        _take_turn(conversation)
    _submit(conversation)


def _ask_plan(conversation: Conversation) -> list[str]:
    """Ask for a plan; an answer without one costs a turn, like one without an action."""
    form = "Write a numbered list of steps."
    while not conversation.over:
        answer = conversation.ask()
        steps = parse_plan(answer.text)
        if steps:
            conversation.env.think(answer.text.strip())
            conversation.history.pin(_assistant(split_thought(answer.text)[1]))
            return steps
        problem = "the answer was cut off" if answer.cut_off else "the answer is empty"
        observation = conversation.pass_turn(answer.text, problem, form)
        conversation.history.pin(_assistant(""), _user(observation))
    return []


def tools(conversation: Conversation) -> None:
    """Call the tools execute and submit; text without a call goes to the user, if there is one.

    If actions are calls of an environment's own tools, the model gets those tools instead.
    """
    descriptions = [*conversation.env.functions] or _describe_tools(conversation)
    form = "Call one of the tools execute(code) and submit(answer)."
    if conversation.env.functions:
        form = "Call a tool, or write to the user."
    while not conversation.over:
        answer = conversation.ask(tools=descriptions)
        thought, text = split_thought(answer.text)
        if not answer.calls and text and conversation.env.has_user:
            reply = conversation.env.ask(text)
            if reply is None:
                _submit(conversation)
                return
            conversation.history.add(_assistant(text), [_user(reply)])
            continue
        if not answer.calls:
            problem = "the answer calls no tool"
            if answer.cut_off:
                problem = "the answer was cut off at its limit of tokens"
            observation = conversation.pass_turn(answer.text, problem, form)
            conversation.history.add(_assistant(text), [_user(observation)])
            continue
        for part in filter(None, (thought, text)):
            conversation.env.think(part)
        results: list[Message] = []
        for call in answer.calls:
            observation = _carry_out(conversation, call, form, cut_off=answer.cut_off)
            results.append({"role": "tool", "tool_call_id": call.id, "content": observation})
            if conversation.over:
                return
        conversation.history.add(message_with_calls(text, answer), results)


def _carry_out(conversation: Conversation, call: Call, form: str, *, cut_off: bool) -> str:
    """Carry out one call; return its result."""
    arguments, problem = parse_arguments(call.arguments)
    has_functions = bool(conversation.env.functions)
    if not has_functions and call.name not in ("execute", "submit"):
        problem = f"there is no tool {call.name!r}"
    elif problem and cut_off:
        problem = f"the answer was cut off at its limit of tokens; {problem}"
    elif not problem and has_functions:
        return conversation.execute(json.dumps({"name": call.name, "arguments": arguments}))
    elif not problem and call.name == "execute":
        code = arguments.get("code")
        if isinstance(code, str) and code.strip():
            return conversation.execute(code)
        problem = "execute needs the argument code, a text that is not empty"
    elif not problem:
        value = arguments.get("answer", "")
        if value is None or isinstance(value, (str, int, float)):
            return conversation.submit("" if value is None else str(value).strip())
        problem = "the argument answer of submit is not a text"
    return conversation.pass_turn(f"{call.name}({call.arguments})", problem, form)


def _describe_tools(conversation: Conversation) -> list[dict[str, Any]]:
    def tool(name: str, argument: str, description: str, *, required: bool) -> dict[str, Any]:
        parameters = {
            "type": "object",
            "properties": {argument: {"type": "string", "description": description}},
            "required": [argument] if required else [],
            "additionalProperties": False,
        }
        function = {
            "name": name,
            "description": conversation.fill(f"tool-{name}"),
            "parameters": parameters,
        }
        return {"type": "function", "function": function}

    values = conversation.values
    return [
        tool("execute", "code", f"{values['language']} code", required=True),
        tool("submit", "answer", str(values["answer"]), required=conversation.kind.needs_answer),
    ]


def _take_turn(conversation: Conversation) -> ParsedAnswer:
    """Ask for a code block, run it, and show the model the result."""
    answer = conversation.ask()
    action, observation = _run_block(conversation, answer)
    conversation.history.add(_assistant(action.excerpt), [_user(observation)])
    return action


def _run_block(conversation: Conversation, answer: Answer) -> tuple[ParsedAnswer, str]:
    action = parse_fenced(answer.text, conversation.task.env, cut_off=answer.cut_off)
    form = f"Write one code block that begins with ```{conversation.language}."
    return action, conversation.carry_out(action, answer, form)


def _submit(conversation: Conversation) -> None:
    """Submit for the model if that does not need an answer."""
    if not conversation.over and not conversation.kind.needs_answer:
        conversation.submit("")


def _assistant(text: str) -> Message:
    # Some servers refuse an empty message.
    return {"role": "assistant", "content": text.strip() or "(nothing)"}


def _user(text: str) -> Message:
    return {"role": "user", "content": text}


STRATEGIES: Mapping[str, Callable[[Conversation], None]] = {
    "single-turn": single_turn,
    "try-again": try_again,
    "react": react,
    "plan-solve": plan_solve,
    "tools": tools,
}
"""The strategies by the names of their agents."""

CONVERSATIONAL = frozenset({"tools"})
"""The strategies that can talk to a user: a message without an action is for the user."""
