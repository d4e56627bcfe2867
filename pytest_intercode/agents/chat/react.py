"""The format of the strategy react: a thought, and an action in brackets."""

from __future__ import annotations

import re

from pytest_intercode.agents.chat.blocks import blocks_of, tidy
from pytest_intercode.agents.chat.moves import (
    CUT_OFF,
    Move,
    fenced,
    joined,
    split_thought,
    submissions,
)

__all__ = ["react"]

_EMPTY = "there is no action in the answer"
_MARKUP = r"[ \t>*_#`-]*"
_AFTER = r"[ \t>*_]*"  # no backticks: they may open a fence
_ACTION = re.compile(rf"^(?:{_MARKUP}action(?:[ \t]*\d+)?{_MARKUP}:{_AFTER})+", re.MULTILINE | re.I)
_ACTION_WITHIN = re.compile(
    r"\baction(?:[ \t]*\d+)?[ \t]*:[ \t]*(?=(?:execute[ \t]*\[|submit\b))", re.I
)
_THOUGHT = re.compile(
    rf"^(?:{_MARKUP}thought(?:[ \t]*\d+)?{_MARKUP}:{_AFTER})+", re.MULTILINE | re.I
)
# What a model goes on with when nobody stops it.
_BEYOND = re.compile(
    rf"^{_MARKUP}(?:observation|thought|action)(?:[ \t]*\d+)?{_MARKUP}:", re.MULTILINE | re.I
)
_EXECUTE = re.compile(r"\bexecute[ \t]*\[", re.I)
_AT_LINE_START = re.compile(rf"^{_MARKUP}{_EXECUTE.pattern}", re.MULTILINE | re.I)
_LINE_END = re.compile(r"[ \t`*_.]*(?:\n|\Z)")


def react(answer: str, env: str, *, cut_off: bool = False) -> Move:
    """Find the thought and the action of an answer; arguments as for :func:`fenced`."""
    thinking, text = split_thought(answer)
    label = _ACTION.search(text) or _ACTION_WITHIN.search(text)
    begin = label.end() if label else 0
    thought = text[: label.start()] if label else ""
    if label is None and (lead := _THOUGHT.match(text)) is not None:
        begin = lead.end()
    beyond = _BEYOND.search(text[begin:])  # right behind the label is a line's start here
    end = begin + beyond.start() if beyond else len(text)
    move = _react_action(text[begin:end], env, cut_off, anywhere=label is None)
    said = text[:end].strip()
    thought = joined(thinking, _THOUGHT.sub("", thought or move.thought))
    return Move(move.kind, move.text, thought, said or "(nothing)", move.problem, move.note)


def _react_action(region: str, env: str, cut_off: bool, *, anywhere: bool) -> Move:
    """Find the action in what follows its label, or in an answer without one."""
    region = region.strip()
    execute = _AT_LINE_START.search(region)
    submit = next(submissions(region, env, whole_lines=anywhere), None)
    if submit is not None and (execute is None or submit[0] < execute.start()):
        return Move("submit", submit[1], region[: submit[0]])
    if execute is None:
        blocks = fenced(region, env, cut_off=cut_off)
        if blocks.kind != "none":
            return blocks
        execute = _EXECUTE.search(region)
    if execute is None:
        problem = CUT_OFF if cut_off else "there is neither execute[...] nor submit in the answer"
        return Move("none", "", region, problem=problem if region or cut_off else _EMPTY)
    inside = _inside(region[execute.end() :])
    thought = region[: execute.start()]
    if inside is None:
        problem = CUT_OFF if cut_off else "the bracket of execute[ is never closed"
        return Move("none", "", thought, problem=problem)
    marked = blocks_of(inside, env) if inside.strip().startswith(("```", "~~~")) else []
    code = tidy(marked[0].code if marked else inside)
    if not code:
        return Move("none", "", thought, problem="there is nothing between the brackets")
    return Move("execute", code, thought)


def _inside(text: str) -> str | None:
    """Return what stands before the bracket that closes ``execute[``, or None without one.

    Code has brackets of its own. The one that closes has no partner, among all brackets or among
    those outside of quotes, and the reading with which it ends a line is right. What follows it
    is no code.
    """
    places = [
        place for place in (_unpaired(text), _unpaired(text, quotes=True)) if place is not None
    ]
    ends = [place for place in places if _LINE_END.match(text, place + 1)]
    return text[: min(ends or places)] if places else None


def _unpaired(code: str, *, quotes: bool = False) -> int | None:
    """Return where the first closing bracket without a partner is."""
    depth, quote, escaped = 0, "", False
    for place, sign in enumerate(code):
        if escaped:
            escaped = False
        elif sign == "\\" and quotes:
            escaped = True
        elif quote:
            quote = "" if sign == quote else quote
        elif sign in "'\"" and quotes:
            quote = sign
        elif sign == "[":
            depth += 1
        elif sign == "]":
            depth -= 1
            if depth < 0:
                return place
    return None
