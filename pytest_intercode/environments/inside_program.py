"""Programs of ours that run in a sandbox's interpreter: sending requests and reading answers."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from typing import Any

from pytest_intercode.core.task import FileSpec
from pytest_intercode.sandboxes.inside import text_of
from pytest_intercode.sandboxes.protocol import Execution, Sandbox
from pytest_intercode.system.archives import pack_files

__all__ = ["ForgedAnswers", "Program"]

_MAX_INLINE = 200_000  # characters; the keeper reads a line ten times slower than an archive
_FILE = "/tmp/.intercode-request"
_ANSWER = rb"%b ([^ \n]*) ([^\n]*)\n"  # a program's answer, after its token
_NUMBER = re.compile(rb"-1|0|[1-9][0-9]{0,5}")
_TEXT = re.compile(rb"[\x20-\x7e]*")


class ForgedAnswers(Exception):
    """A sandbox wrote what none of our programs writes, so the agent forged it and loses."""


class Program:
    """A program of ours in the interpreter of one sandbox; the first request sends its source.

    Args:
        sandbox: a sandbox with a Python worker.
        package: the package of its modules.
        modules: the modules that it consists of; the last one has ``main``.
    """

    def __init__(self, sandbox: Sandbox, package: str, *modules: str) -> None:
        self.sandbox = sandbox
        self._package = package
        self._modules = modules
        self._sent = False

    def ask(self, request: Mapping[str, Any], timeout: float) -> tuple[Execution, dict[int, str]]:
        """Send a request; return its execution, and the answers by their numbers.

        Any other output is dropped.

        Args:
            request: builtin values for the program's ``main``.
            timeout: seconds for the whole request; answers that were given by then count.

        Raises:
            ForgedAnswers: the answers are out of order, or not in the form that ``main`` writes.
        """
        token = secrets.token_hex(8)
        text = "" if self._sent else text_of(self._package, *self._modules)
        source = ascii({**request, "token": token})
        if len(source) > _MAX_INLINE:
            file = FileSpec("file", source.encode("ascii"))
            self.sandbox.unpack(pack_files({_FILE: file}, "/", 0.0))
            source = f"eval(open({_FILE!r}).read())"
        execution = self.sandbox.run(
            f"import _intercode\n_intercode.run({text!a}, {source!a})", timeout
        )
        # A new interpreter does not have the source that was sent to the last one.
        self._sent = not execution.restarted
        max_answers = len(request["tests"]) if "tests" in request else 1
        return execution, _read_answers(execution.output, token, max_answers)


def _read_answers(output: bytes, token: str, max_answers: int) -> dict[int, str]:
    """Return the answers in a sandbox's output, to which the agent's code may have written, too.

    A program writes each answer once, in order, in printable ASCII, or only the answer ``-1``.
    """
    answers: dict[int, str] = {}
    for match in re.finditer(_ANSWER % token.encode("ascii"), output):
        number, text = match.groups()
        if not (_NUMBER.fullmatch(number) and _TEXT.fullmatch(text)):
            raise ForgedAnswers
        index = int(number)
        if (
            -1 in answers
            or index != (-1 if index < 0 and not answers else len(answers))
            or index >= max_answers
        ):
            raise ForgedAnswers
        answers[index] = text.decode("ascii")
    return answers
