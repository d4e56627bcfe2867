"""Asks the interpreter of a sandbox to run code of ours, and reads its answers."""

from __future__ import annotations

import io
import re
import secrets
import tarfile
from collections.abc import Mapping
from typing import Any

from pytest_intercode.sandboxes.inside import text_of
from pytest_intercode.sandboxes.protocol import Execution, Sandbox

__all__ = ["Program"]

_PACKAGE = "pytest_intercode.environments.python.inside"
_LONG = 200_000  # characters; the keeper reads a line ten times as slowly as an archive
_FILE = "/tmp/.intercode-request"


class Program:
    """A program of ours in the interpreter of one sandbox; its text is sent the first time.

    Args:
        sandbox: a sandbox with a Python worker.
        modules: the modules of ``environments.inside`` that it is made of; the last one has
            ``main``.
    """

    def __init__(self, sandbox: Sandbox, *modules: str) -> None:
        self.sandbox = sandbox
        self._modules = modules
        self._sent = False

    def ask(self, request: Mapping[str, Any], timeout: float) -> tuple[Execution, dict[int, str]]:
        """Send a request; return how it went, and the answers by their numbers.

        What else is printed meanwhile, by whomever, is not looked at.

        Args:
            request: builtin values for the program's ``main``.
            timeout: seconds for all of it; the answers given by then count.
        """
        token = secrets.token_hex(8)
        text = "" if self._sent else text_of(_PACKAGE, *self._modules)
        asked = ascii({**request, "token": token})
        if len(asked) > _LONG:
            self.sandbox.unpack(_archive(_FILE, asked.encode("ascii")))
            asked = f"eval(open({_FILE!r}).read())"
        execution = self.sandbox.run(
            f"import _intercode\n_intercode.run({text!a}, {asked!a})", timeout
        )
        self._sent = not execution.restarted
        lines = re.findall(rb"%b (-?\d+) (.*)\n" % token.encode(), execution.output)
        return execution, {int(at): line.decode("utf-8", "replace") for at, line in lines}


def _archive(path: str, data: bytes) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        entry = tarfile.TarInfo(path.lstrip("/"))
        entry.size = len(data)
        archive.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()
