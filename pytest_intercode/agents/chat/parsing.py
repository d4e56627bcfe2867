"""Parses a model's answer: code to run, a submission, a plan, or none of these.

The rules, which are the same for every model:

- Text in thinking tags (``<think>...</think>``) is a thought and never an action.
- ``parse_fenced``: the first code block in the environment's language, or without a language, is
  run. A note says that further blocks are not run: they may be next steps or alternatives. A fence
  that is not closed ends with the answer. An answer that is only `` `code` `` is code.
- ``parse_react``: the text after the first ``Action:``, up to an observation that the model made
  up.
- An answer that was cut off at its token limit is not run, unless its action is complete.

Pure functions on text. The regular expressions visit each character a few times at most, whatever
a model writes.
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
    """The action of an answer.

    Attributes:
        kind: the kind of action.
        text: the code, or the submitted answer.
        thought: the model's text around it.
        excerpt: the part of the answer that the history keeps.
        problem: why there is no action.
        note: a text to add to the result that the model is shown.
    """

    kind: Literal["execute", "submit", "none"]
    text: str = ""
    thought: str = ""
    excerpt: str = ""
    problem: str = ""
    note: str = ""


_NOTHING = "(nothing)"  # some servers refuse an empty message
_TAGS = re.compile(r"\s*<(think|thinking|thought|reasoning)>(.*?)(?:</\1>|\Z)", re.DOTALL)
_END_TAG = re.compile(r"</(?:think|thinking|thought|reasoning)>")


def split_thought(answer: str) -> tuple[str, str]:
    """Return the text in thinking tags at the start of an answer, and the text after them."""
    answer = answer.replace("\r\n", "\n")
    match = _TAGS.match(answer)
    if match is not None:
        return match[2].strip(), answer[match.end() :].strip()
    end = _END_TAG.search(answer)
    if end is not None:  # the server's chat template has opened the tag
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
        label: the name of its language in lower case; empty if there is none.
        code: its content.
        begin: the position in the text where it begins.
        closed: whether its fence is closed before the text ends.
    """

    label: str
    code: str
    begin: int
    closed: bool = True


def find_blocks(text: str, env: str) -> list[Block]:
    """Return the code blocks of a text; if there are none, those within lines of prose.

    Args:
        text: the model's text.
        env: the environment's name, which determines the possible names of its language.
    """
    labels = kind_of(env).labels
    return list(_find_fences(text, labels)) or list(_find_one_liners(text, labels))


def _find_fences(text: str, language: tuple[str, ...]) -> Iterator[Block]:
    position = 0
    never_at_start: set[str] = set()  # fences with which no further line begins
    while (opening := _FENCE.search(text, position)) is not None:
        position = opening.end()
        prefix = text[text.rfind("\n", 0, opening.start()) + 1 : opening.start()]
        indent = prefix if not prefix.strip(" \t>") else ""
        if "`" in prefix or not (indent == prefix or prefix.endswith((" ", "\t", ":", "."))):
            continue  # prose may precede a fence, but this is not one
        fence, label, rest = opening.groups()
        # Closed by a line that begins with at least as many of the same characters, or, if there is
        # none, by a line that ends with them.
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
    """Remove the blank lines around code, and the common indent of its lines."""
    if not code.strip():
        return ""
    # If the first line is not indented, the indent of the others is significant.
    if code.lstrip("\n")[:1].isspace() and "\n" in code.strip():
        code = textwrap.dedent(code)
    lines = code.rstrip().split("\n")
    while not lines[0].strip():
        lines.pop(0)
    return "\n".join([lines[0].lstrip() if len(lines) == 1 else lines[0], *lines[1:]])


# -- submissions

_SUBMIT = re.compile(r"[ \t`*_>]*submit\b[ \t]*(.*)", re.I)


def _parse_submission(line: str, env: str) -> tuple[str, bool] | None:
    """Return a line's submission, and whether that is the whole line; None for other lines."""
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
        return "", False  # the words are prose, and this kind grades what the agent did
    return _unquote(answer), True


def _unquote(text: str) -> str:
    text = text.strip().strip("`").strip()
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    return text


def _find_submissions(region: str, env: str, *, whole_lines: bool) -> Iterator[tuple[int, str]]:
    """Yield the position and the answer of each line that submits.

    Args:
        region: a text.
        env: the environment's name.
        whole_lines: only lines that contain nothing else; otherwise the first line may have more.
    """
    position = 0
    for number, line in enumerate(region.split("\n")):
        submission = _parse_submission(line, env)
        if submission is not None and (submission[1] or (not whole_lines and not number)):
            yield position, submission[0]
        position += len(line) + 1


def _join(*parts: str) -> str:
    """Join the non-empty texts, each on its own lines."""
    return "\n".join(part.strip() for part in parts if part.strip())


# -- one code block


def parse_fenced(answer: str, env: str, *, cut_off: bool = False) -> ParsedAnswer:
    """Find the code block of an answer.

    Args:
        answer: the model's answer.
        env: the environment's name.
        cut_off: whether the answer ends because its token limit was reached.
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
# How a model continues if it is not stopped.
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
    next_label = _NEXT_LABEL.search(text[begin:])  # the slice begins like the start of a line
    end = begin + next_label.start() if next_label else len(text)
    action = _parse_react_action(text[begin:end], env, cut_off, anywhere=label is None)
    thought = _join(thinking, _THOUGHT.sub("", thought or action.thought))
    return replace(action, thought=thought, excerpt=text[:end].strip() or _NOTHING)


def _parse_react_action(region: str, env: str, cut_off: bool, *, anywhere: bool) -> ParsedAnswer:
    """Find the action in the text after its label, or in an answer without a label."""
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
    """Return the text before the bracket that closes ``execute[``, or None without one.

    Code contains brackets too. The closing bracket is the one without a partner, counting either
    all brackets or only those outside of quotes; the count by which it ends a line is right. The
    text after it is not code.
    """
    candidates = (_find_unpaired(text), _find_unpaired(text, quotes=True))
    positions = [position for position in candidates if position is not None]
    ends = [position for position in positions if _LINE_END.match(text, position + 1)]
    return text[: min(ends or positions)] if positions else None


def _find_unpaired(code: str, *, quotes: bool = False) -> int | None:
    """Return the position of the first closing bracket without a partner, or None."""
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
    """Return a plan's steps: its numbered lines, else its bullets, else the whole text as one."""
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
