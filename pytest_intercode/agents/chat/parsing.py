"""What an answer of a model comes to: code to run, a submission, a plan, or nothing of it.

The rules, which are the same for every model:

- What is in thinking tags (``<think>...</think>``) is a thought and never an action.
- ``parse_fenced``: the first code block in the environment's language, or with no language, is
  run. A note says that further ones are not: they may be next steps as well as alternatives. A
  fence that is not closed ends with the answer. An answer that is nothing but `` `code` `` is code.
- ``parse_react``: what follows the first ``Action:``, up to an observation that the model made up.
- An answer that was cut off at its limit of tokens is not run, unless its action is whole.

Pure text. The expressions look at each character a few times at most, whatever a model writes.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

from pytest_intercode.environments.registry import builtin_kinds, kind_of

__all__ = [
    "Block",
    "ParsedAnswer",
    "find_blocks",
    "parse_fenced",
    "parse_plan",
    "parse_react",
    "split_thought",
]

_CUT_OFF = "the answer was cut off at its limit of tokens before its action was whole"


@dataclass(frozen=True)
class ParsedAnswer:
    """What an answer comes to.

    Attributes:
        kind: what is to be done.
        text: the code, or what is submitted.
        thought: the words of the model around it.
        excerpt: the part of the answer that the history keeps.
        problem: why there is nothing to do.
        note: added to what the model is shown of the result.
    """

    kind: Literal["execute", "submit", "none"]
    text: str = ""
    thought: str = ""
    excerpt: str = ""
    problem: str = ""
    note: str = ""


_NOTHING = "(nothing)"  # there are servers that refuse an empty message
_TAGS = re.compile(r"\s*<(think|thinking|thought|reasoning)>(.*?)(?:</\1>|\Z)", re.DOTALL)
_END_TAG = re.compile(r"</(?:think|thinking|thought|reasoning)>")


def split_thought(answer: str) -> tuple[str, str]:
    """Return what is in thinking tags at the start of an answer, and what follows them."""
    answer = answer.replace("\r\n", "\n")
    match = _TAGS.match(answer)
    if match is not None:
        return match[2].strip(), answer[match.end() :].strip()
    end = _END_TAG.search(answer)
    if end is not None:  # the template of the model's server has opened the tag
        return answer[: end.start()].strip(), answer[end.end() :].strip()
    return "", answer.strip()


# -- code blocks

_FENCE = re.compile(r"((?<!`)`{3,}(?!`)|(?<!~)~{3,}(?!~))[ \t]*([^\s`]*)([^\n`]*)$", re.MULTILINE)
_INLINE = re.compile(r"`([^`\n]+)`")
_ONE_LINE = re.compile(r"```([^\n`]+)```")


@cache
def _known_labels() -> frozenset[str]:
    return frozenset(label for kind in builtin_kinds() for label in kind.labels)


@dataclass(frozen=True)
class Block:
    """One code block.

    Attributes:
        label: the name of its language, in small letters, or nothing.
        code: what is in it.
        begin: where in the text it begins.
        closed: the text does not end in it.
    """

    label: str
    code: str
    begin: int
    closed: bool = True


def find_blocks(text: str, env: str) -> list[Block]:
    """Return the code blocks of a text, or those on a line of prose where there are no others.

    Args:
        text: what a model wrote.
        env: the environment's name, which says what a language may be called.
    """
    labels = kind_of(env).labels
    return list(_find_fences(text, labels)) or list(_find_one_liners(text, labels))


def _find_fences(text: str, language: tuple[str, ...]) -> Iterator[Block]:
    position = 0
    never_at_start: set[str] = set()  # fences that no line begins with any more
    while (opening := _FENCE.search(text, position)) is not None:
        position = opening.end()
        prefix = text[text.rfind("\n", 0, opening.start()) + 1 : opening.start()]
        indent = prefix if not prefix.strip(" \t>") else ""
        if "`" in prefix or not (indent == prefix or prefix.endswith((" ", "\t", ":", "."))):
            continue  # prose may stand before a fence, but this is none
        fence, label, rest = opening.groups()
        # Closed by a line that begins with as many of the same characters, or by one that ends so.
        mark = f"(?<!{fence[0]}){fence[0]}{{{len(fence)},}}(?!{fence[0]})"
        closing = None
        if mark not in never_at_start:
            closing = re.compile(rf"^[ \t>]*{mark}(?=\s|\Z)", re.MULTILINE).search(text, position)
        if closing is None:
            never_at_start.add(mark)
            closing = re.compile(rf"{mark}[ \t]*$", re.MULTILINE).search(text, position)
        end = len(text) if closing is None else closing.start()
        lines = text[opening.end() + 1 : end].rstrip().split("\n")
        code = "\n".join(line.removeprefix(indent) for line in lines)
        if not code.strip() and rest.strip():  # the code is on the fence's own line
            is_label = label.lower() in language or label.lower() in _known_labels()
            code = rest.strip() if is_label else f"{label}{rest}"
            label = label if is_label else ""
        yield Block(label.lower(), code, opening.start(), closing is not None)
        position = len(text) if closing is None else closing.end()


def _find_one_liners(text: str, language: tuple[str, ...]) -> Iterator[Block]:
    for match in _ONE_LINE.finditer(text):
        first, _, rest = match[1].strip().partition(" ")
        if first.lower() in language and rest.strip():
            yield Block(first.lower(), rest.strip(), match.start())
        else:
            yield Block("", match[1], match.start())


def _tidy(code: str) -> str:
    """Take away what surrounds code, and the indent of all of its lines."""
    if not code.strip():
        return ""
    # Where the first line is not indented, the indent of the others means something.
    if code.lstrip("\n")[:1].isspace() and "\n" in code.strip():
        code = textwrap.dedent(code)
    lines = code.rstrip().split("\n")
    while not lines[0].strip():
        lines.pop(0)
    return "\n".join([lines[0].lstrip() if len(lines) == 1 else lines[0], *lines[1:]])


# -- submissions

_SUBMIT = re.compile(r"[ \t`*_>]*submit\b[ \t]*(.*)", re.I)


def _parse_submission(line: str, env: str) -> tuple[str, bool] | None:
    """Return what a line submits, and whether it does nothing else; None for any other line."""
    match = _SUBMIT.fullmatch(line.rstrip())
    if match is None:
        return None
    rest = match[1].strip(" \t`*_")
    for opening, closing in ("[]", "()"):
        if rest.startswith(opening):
            inside, closed, remainder = rest[1:].rpartition(closing)
            return _unquote(inside if closed else rest[1:]), not remainder.strip(" .`")
    if rest in ("", "."):
        return "", True
    answer = kind_of(env).answer_in_words(rest)
    if answer is None:
        return "", False  # prose: what is graded is what was done
    return _unquote(answer), True


def _unquote(text: str) -> str:
    text = text.strip().strip("`").strip()
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    return text


def _find_submissions(region: str, env: str, *, whole_lines: bool) -> Iterator[tuple[int, str]]:
    """Yield where a line submits, and what.

    Args:
        region: a text.
        env: the environment's name.
        whole_lines: only lines that do nothing else; otherwise the first may have more in it.
    """
    position = 0
    for number, line in enumerate(region.split("\n")):
        submission = _parse_submission(line, env)
        if submission is not None and (submission[1] or (not whole_lines and not number)):
            yield position, submission[0]
        position += len(line) + 1


def _join(*parts: str) -> str:
    """Return those of some texts that are not empty, each on lines of its own."""
    return "\n".join(part.strip() for part in parts if part.strip())


# -- one code block


def parse_fenced(answer: str, env: str, *, cut_off: bool = False) -> ParsedAnswer:
    """Find the code block of an answer.

    Args:
        answer: what the model said.
        env: the environment's name.
        cut_off: the answer ends where its limit of tokens was reached.
    """
    thought, text = split_thought(answer)
    blocks = find_blocks(text, env)
    usable = [block for block in blocks if block.label in ("", *kind_of(env).labels)]
    if usable:
        return _parse_block(usable, text, thought, env, cut_off)
    submission = next(_find_submissions(text, env, whole_lines=True), None)
    if submission is not None:
        return ParsedAnswer("submit", submission[1], _join(thought, text[: submission[0]]), text)
    inline = _INLINE.fullmatch(text)
    if inline is not None:
        return ParsedAnswer("execute", inline[1].strip(), thought, text)
    if cut_off:
        problem = _CUT_OFF
    elif not text:
        problem = "the answer is empty"
    elif blocks:
        problem = (
            f"the code block is marked as {blocks[0].label!r}, not as {kind_of(env).labels[0]}"
        )
    else:
        problem = "there is no code block in the answer"
    return ParsedAnswer("none", "", thought, text or _NOTHING, problem)


def _parse_block(
    usable: list[Block], text: str, thought: str, env: str, cut_off: bool
) -> ParsedAnswer:
    first = usable[0]
    thought = _join(thought, text[: first.begin])
    if cut_off and not first.closed:
        return ParsedAnswer("none", "", thought, text, _CUT_OFF)
    code = _tidy(first.code)
    if not code:
        return ParsedAnswer("none", "", thought, text, "the code block is empty")
    submission = _parse_submission(code, env)
    if submission is not None and "\n" not in code:
        return ParsedAnswer("submit", submission[0], thought, text)
    note = f"[only the first of {len(usable)} code blocks was run]" if len(usable) > 1 else ""
    return ParsedAnswer("execute", code, thought, text, note=note)


# -- the format of the strategy react

_MARKUP = r"[ \t>*_#`-]*"
_LABEL_END = r"[ \t>*_]*"  # no backticks: they may open a fence
_ACTION = re.compile(
    rf"^(?:{_MARKUP}action(?:[ \t]*\d+)?{_MARKUP}:{_LABEL_END})+", re.MULTILINE | re.I
)
_ACTION_WITHIN = re.compile(
    r"\baction(?:[ \t]*\d+)?[ \t]*:[ \t]*(?=(?:execute[ \t]*\[|submit\b))", re.I
)
_THOUGHT = re.compile(
    rf"^(?:{_MARKUP}thought(?:[ \t]*\d+)?{_MARKUP}:{_LABEL_END})+", re.MULTILINE | re.I
)
# What a model goes on with that is not stopped.
_NEXT_LABEL = re.compile(
    rf"^{_MARKUP}(?:observation|thought|action)(?:[ \t]*\d+)?{_MARKUP}:", re.MULTILINE | re.I
)
_EXECUTE = re.compile(r"\bexecute[ \t]*\[", re.I)
_AT_LINE_START = re.compile(rf"^{_MARKUP}{_EXECUTE.pattern}", re.MULTILINE | re.I)
_LINE_END = re.compile(r"[ \t`*_.]*(?:\n|\Z)")


def parse_react(answer: str, env: str, *, cut_off: bool = False) -> ParsedAnswer:
    """Find the thought and the action of an answer; arguments as for :func:`parse_fenced`."""
    thinking, text = split_thought(answer)
    label = _ACTION.search(text) or _ACTION_WITHIN.search(text)
    begin = label.end() if label else 0
    thought = text[: label.start()] if label else ""
    if label is None and (lead := _THOUGHT.match(text)) is not None:
        begin = lead.end()
    next_label = _NEXT_LABEL.search(text[begin:])  # right behind the label is a line's start here
    end = begin + next_label.start() if next_label else len(text)
    action = _parse_react_action(text[begin:end], env, cut_off, anywhere=label is None)
    thought = _join(thinking, _THOUGHT.sub("", thought or action.thought))
    return replace(action, thought=thought, excerpt=text[:end].strip() or _NOTHING)


def _parse_react_action(region: str, env: str, cut_off: bool, *, anywhere: bool) -> ParsedAnswer:
    """Find the action in what follows its label, or in an answer without one."""
    region = region.strip()
    execute = _AT_LINE_START.search(region)
    submit = next(_find_submissions(region, env, whole_lines=anywhere), None)
    if submit is not None and (execute is None or submit[0] < execute.start()):
        return ParsedAnswer("submit", submit[1], region[: submit[0]])
    if execute is None:
        blocks = parse_fenced(region, env, cut_off=cut_off)
        if blocks.kind != "none":
            return blocks
        execute = _EXECUTE.search(region)
    if execute is None:
        problem = "there is no action in the answer"
        if cut_off:
            problem = _CUT_OFF
        elif region:
            problem = "there is neither execute[...] nor submit in the answer"
        return ParsedAnswer("none", "", region, problem=problem)
    inside = _find_bracketed(region[execute.end() :])
    thought = region[: execute.start()]
    if inside is None:
        problem = _CUT_OFF if cut_off else "the bracket of execute[ is never closed"
        return ParsedAnswer("none", "", thought, problem=problem)
    marked = find_blocks(inside, env) if inside.strip().startswith(("```", "~~~")) else []
    code = _tidy(marked[0].code if marked else inside)
    if not code:
        return ParsedAnswer("none", "", thought, problem="there is nothing between the brackets")
    return ParsedAnswer("execute", code, thought)


def _find_bracketed(text: str) -> str | None:
    """Return what is before the bracket that closes ``execute[``, or None without one.

    Code has brackets of its own. The one that closes has no partner, among all brackets or among
    those outside of quotes, and the reading with which it ends a line is right. What follows it
    is not code.
    """
    candidates = (_find_unpaired(text), _find_unpaired(text, quotes=True))
    positions = [position for position in candidates if position is not None]
    ends = [position for position in positions if _LINE_END.match(text, position + 1)]
    return text[: min(ends or positions)] if positions else None


def _find_unpaired(code: str, *, quotes: bool = False) -> int | None:
    """Return where the first closing bracket without a partner is."""
    depth, quote, escaped = 0, "", False
    for position, character in enumerate(code):
        if escaped:
            escaped = False
        elif character == "\\" and quotes:
            escaped = True
        elif quote:
            quote = "" if character == quote else quote
        elif character in "'\"" and quotes:
            quote = character
        elif character == "[":
            depth += 1
        elif character == "]":
            depth -= 1
            if depth < 0:
                return position
    return None


# -- plans

_STEP = re.compile(
    r"^([ \t>]*)(?:[*_#-]+[ \t]*)?(?:step[ \t]*)?\d+[*_]*[ \t]*[.):][*_]*[ \t]*", re.I
)
_BULLET = re.compile(r"^([ \t>]*)[-*•+][ \t]+")


def parse_plan(answer: str) -> list[str]:
    """Return the steps of a plan: its numbered lines, else its bullets, else all of it as one."""
    _, text = split_thought(answer)
    for mark in (_STEP, _BULLET):
        steps: list[list[str]] = []
        indent = None
        for line in text.split("\n"):
            match = mark.match(line)
            if match is not None and (indent is None or len(match[1]) <= indent):
                indent = len(match[1])
                steps.append([line[match.end() :].strip()])
            elif steps:
                steps[-1].append(line.rstrip())
        whole = [step for step in ("\n".join(lines).strip() for lines in steps) if step]
        if whole:
            return whole
    return [text] if text else []
