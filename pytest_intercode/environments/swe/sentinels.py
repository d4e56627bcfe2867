"""Sentinels: two tests with random names among a task's own; one must pass and one must fail.

Code that lets every test pass, or that ends the run and prints forged results, gets one of them
wrong. Their file is written into the verifier just before the tests run there.
"""

from __future__ import annotations

import posixpath
import random
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from pytest_intercode.core.task import Verification

__all__ = ["Sentinels", "sentinels_for"]

_PLACE = re.compile(r"\{sentinels(?::(py|js|t))?\}")
_PYTEST = frozenset({"pytest", "pytest_options", "pytest_v2", "junit"})
_COMMAND = re.compile(r"\b(?:pytest|py\.test)\b(?!.*\s-[km])")  # -k and -m would leave them out
_CHOICE = re.compile(r"(?:\A|\s)-[km]")  # the same in PYTEST_ADDOPTS
_WORDS = "border carry chunk depth edge empty field group index join label merge nested order range"
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_SUFFIXES = {"pytest": ".py", "py": ".py", "js": ".js", "t": ".t"}
_HEADS = {
    "pytest": "",
    "py": "import unittest\n\n\nclass {title}(unittest.TestCase):\n",
    "js": "const test = require('node:test');\nconst assert = require('node:assert');\n\n",
    "t": "#!/bin/sh\necho 1..2\n",
}
_TESTS = {
    "pytest": "def test_{name}():\n    value = {value}\n    assert value == {wanted}\n\n\n",
    "py": "    def test_{name}(self):\n        value = {value}\n"
    "        self.assertEqual(value, {wanted})\n\n",
    "js": "test('test_{name}', () => {{\n  const value = {value};\n"
    "  assert.strictEqual(value, {wanted});\n}});\n\n",
    "t": "value={value}\n[ $value = {wanted} ] && said=ok || said='not ok'\n"
    'echo "$said {number} - test_{name}"\n',
}


@dataclass(frozen=True)
class Sentinels:
    """A file of two tests.

    Attributes:
        path: its path, relative to the working directory.
        text: its content.
        passes: the name of the test that passes.
        fails: the name of the test that fails.
        command: the task's command, including these tests.
        variables: environment variables that the command needs for these tests.
    """

    path: str
    text: str
    passes: str
    fails: str
    command: str
    variables: Mapping[str, str]


def sentinels_for(verification: Verification) -> Sentinels | None:
    """Return fresh sentinels for a task; None if its tests cannot have any.

    For pytest, they are added automatically. Any other command marks their place: ``{sentinels}``
    is the name of a module for unittest, ``{sentinels:js}`` a script for node, ``{sentinels:t}`` a
    shell script that prints TAP.
    """
    place = _PLACE.search(verification.command)
    kind = "pytest" if place is None else place[1] or "py"
    options = dict(verification.variables).get("PYTEST_ADDOPTS", "")
    uses_pytest = (
        verification.parser in _PYTEST
        and _COMMAND.search(verification.command) is not None
        and not _CHOICE.search(options)
    )
    if not verification.sentinels or not (place or uses_pytest):
        return None
    # Code under test must not be able to predict their names.
    chance = random.SystemRandom()
    words = chance.sample(_WORDS.split(), 5)
    passes, fails, module = (
        f"{word}_{''.join(chance.choices(_LETTERS, k=5))}" for word in words[:3]
    )
    texts = [
        (name, value, value + difference)
        for name, value, difference in ((passes, chance.randrange(99), 0), (fails, 7, 1))
    ]
    # Their order must not show which of them fails.
    chance.shuffle(texts)
    text = _HEADS[kind].format(title=words[3].title() + words[4].title())
    for number, (name, value, expected) in enumerate(texts, 1):
        text += _TESTS[kind].format(name=name, value=value, wanted=expected, number=number)
    folder = _folder(verification) if kind == "pytest" else ""
    path = posixpath.join(folder, f"test_{module}{_SUFFIXES[kind]}")
    test_path = f"test_{module}" if kind == "py" else path
    return Sentinels(
        path,
        text,
        passes,
        fails,
        _PLACE.sub(lambda _: test_path, verification.command),
        {"PYTEST_ADDOPTS": f"{options} {shlex.quote(path)}".lstrip()} if kind == "pytest" else {},
    )


def _folder(verification: Verification) -> str:
    """Return a folder of the task's tests; a file elsewhere could change pytest's root folder."""
    paths = [name.partition("::")[0] for name in verification.fail_to_pass if "::" in name]
    return posixpath.dirname(paths[0]) if paths else ""
