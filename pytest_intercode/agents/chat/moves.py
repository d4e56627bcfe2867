"""What a model's answer comes to: code to run, a submission, or nothing that can be run.

The rules, which are the same for every model:

- What stands in thinking tags (``<think>...</think>``) is a thought and never an action.
- ``fenced``: the first code block in the environment's language, or with no language, is run. The
  model is told of further ones, which are not: they may be next steps as well as alternatives. A
  fence that is not closed ends with the answer. An answer that is nothing but `` `code` `` is code.
- ``react`` (``react.py``): what follows the first ``Action:``, up to an observation that the
  model made up.
- An answer that was cut off at its limit of tokens is not run, unless its action is whole.

Nothing here talks to a model or an environment.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from pytest_intercode.agents.chat.blocks import LANGUAGES, Block, blocks_of, tidy

__all__ = ["CUT_OFF", "Move", "fenced", "joined", "split_thought", "submissions"]

CUT_OFF = "the answer was cut off at its limit of tokens before its action was whole"
"""What is wrong with half an answer."""


@dataclass(frozen=True)
class Move:
    """What an answer comes to.

    Attributes:
        kind: what is to be done.
        text: the code, or what is submitted.
        thought: what the model said besides.
        said: the part of the answer that the model is reminded of later.
        problem: why there is nothing to do.
        note: what the model is told besides.
    """

    kind: Literal["execute", "submit", "none"]
    text: str = ""
    thought: str = ""
    said: str = ""
    problem: str = ""
    note: str = ""


_TAGS = re.compile(r"\s*<(think|thinking|thought|reasoning)>(.*?)(?:</\1>|\Z)", re.DOTALL)
_INLINE = re.compile(r"`([^`\n]+)`")
_END_TAG = re.compile(r"</(?:think|thinking|thought|reasoning)>")


def split_thought(answer: str) -> tuple[str, str]:
    """Return what stands in thinking tags at the start of an answer, and the rest."""
    answer = answer.replace("\r\n", "\n")
    found = _TAGS.match(answer)
    if found is not None:
        return found[2].strip(), answer[found.end() :].strip()
    end = _END_TAG.search(answer)
    if end is not None:  # the template of the model's server has opened the tag
        return answer[: end.start()].strip(), answer[end.end() :].strip()
    return "", answer.strip()


def fenced(answer: str, env: str, *, cut_off: bool = False) -> Move:
    """Find the code block of an answer.

    Args:
        answer: what the model said.
        env: the environment's name.
        cut_off: the answer ends where its limit of tokens was reached.
    """
    thought, text = split_thought(answer)
    found = blocks_of(text, env)
    usable = [block for block in found if block.label in ("", *LANGUAGES[env])]
    if usable:
        return _of_block(usable, text, thought, env, cut_off)
    inline = _INLINE.fullmatch(text)
    submitted = next(submissions(text, env, whole_lines=True), None)
    if submitted is not None:
        return Move("submit", submitted[1], joined(thought, text[: submitted[0]]), text)
    if inline is not None:
        return Move("execute", inline[1].strip(), thought, text)
    said = text or "(nothing)"  # there are servers that refuse an empty message
    if not text:
        problem = CUT_OFF if cut_off else "the answer is empty"
    elif cut_off:
        problem = CUT_OFF
    elif found:
        problem = f"the code block is marked as {found[0].label!r}, not as {LANGUAGES[env][0]}"
    else:
        problem = "there is no code block in the answer"
    return Move("none", "", thought, said, problem)


def _of_block(usable: list[Block], text: str, thought: str, env: str, cut_off: bool) -> Move:
    first = usable[0]
    thought = joined(thought, text[: first.begin])
    if cut_off and not first.closed:
        return Move("none", "", thought, text, CUT_OFF)
    code = tidy(first.code)
    if not code:
        return Move("none", "", thought, text, "the code block is empty")
    submitted = _submission(code, env)
    if submitted is not None and "\n" not in code:
        return Move("submit", submitted[0], thought, text)
    note = f"[only the first of {len(usable)} code blocks was run]" if len(usable) > 1 else ""
    return Move("execute", code, thought, text, note=note)


# -- submissions

_SUBMIT = re.compile(r"[ \t`*_>]*submit\b[ \t]*(.*)", re.I)


def _submission(line: str, env: str) -> tuple[str, bool] | None:
    """Return what a line submits, and whether it does nothing else; None for any other line."""
    found = _SUBMIT.fullmatch(line.rstrip())
    if found is None:
        return None
    rest = found[1].strip(" \t`*_")
    for opening, closing in ("[]", "()"):
        if rest.startswith(opening):
            inside, closed, after = rest[1:].rpartition(closing)
            return _unquoted(inside if closed else rest[1:]), not after.strip(" .`")
    if rest in ("", "."):
        return "", True
    if env == "ctf":
        return _unquoted(rest), True
    if env == "python" and re.fullmatch(r"[^\W\d][\w.]*?\.?", rest):
        return rest.rstrip("."), True
    return "", False  # prose: what is graded is what was done


def _unquoted(text: str) -> str:
    text = text.strip().strip("`").strip()
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    return text


def submissions(region: str, env: str, *, whole_lines: bool) -> Iterator[tuple[int, str]]:
    """Yield where a line submits, and what.

    Args:
        region: a text.
        env: the environment's name.
        whole_lines: only lines that do nothing else; otherwise the first may have more in it.
    """
    place = 0
    for number, line in enumerate(region.split("\n")):
        found = _submission(line, env)
        if found is not None and (found[1] or (not whole_lines and not number)):
            yield place, found[0]
        place += len(line) + 1


def joined(*parts: str) -> str:
    """Return those of some texts that are not empty, each on lines of its own."""
    return "\n".join(part.strip() for part in parts if part.strip())
