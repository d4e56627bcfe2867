"""Episodes of the strict python environment: what is graded, and what gains nothing."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import pytest

from pytest_intercode.core.task import FileSpec, Task
from pytest_intercode.environments.base import Environment
from pytest_intercode.environments.fields import CallTest, CodeTest, ProgramTest, Test
from pytest_intercode.environments.python import grading
from pytest_intercode.environments.python.fields import PythonFields
from pytest_intercode.environments.python.hidden_tests import check_tests
from pytest_intercode.environments.python.paper import PaperPythonEnvironment
from pytest_intercode.environments.python.strict import PythonEnvironment
from pytest_intercode.errors import InfrastructureError
from pytest_intercode.sandboxes.bubblewrap.engine import Bubblewrap
from pytest_intercode.sandboxes.provider import SandboxProvider
from pytest_intercode.sandboxes.settings import SandboxSettings
from tests.support import puzzles

provider = puzzles.provider  # fixture: of each backend
quick_provider = puzzles.quick_provider

# Expected values that nobody meets by chance, and that no rule gives away.
SECRETS = {3: 7_919_003, 5: 1_299_709, 8: 15_485_863}
GOLD = f"def secret(n):\n    return {SECRETS}[n]\n"
TESTS = tuple(f"assert secret({n}) == {value}" for n, value in SECRETS.items())


def task(tests: tuple[str | Test, ...] = TESTS, gold: str = GOLD, **fields: Any) -> Task:
    made = tuple(CodeTest(test) if isinstance(test, str) else test for test in tests)
    own = PythonFields(made, fields.pop("test_setup", ""), fields.pop("entry", ""))
    fields = {"action_timeout": 5.0, "source": "here", **fields}
    made_task = Task("t", "q", (gold,), "python", "s", "s", fields=own, **fields)
    check_tests(made_task)
    return made_task


class Play:
    """Plays one episode and keeps what it gave."""

    def __init__(
        self, provider: SandboxProvider, made: Task, *actions: str, **options: Any
    ) -> None:
        environment: Environment = PythonEnvironment(provider, **options)
        try:
            environment.reset(task=made)
            self.observations = [str(environment.step(action)[0]) for action in actions]
            self.reward = environment.end("stopped")
            self.value = self.reward.value
            self.reason = self.reward.reason
            self.state = environment.end_state()
        finally:
            environment.close()


@pytest.fixture
def play(quick_provider: SandboxProvider) -> Callable[..., Play]:
    return lambda made, *actions, **options: Play(quick_provider, made, *actions, **options)


Player = Callable[..., Play]


# -- what is submitted


@pytest.mark.parametrize(
    "actions",
    [
        [GOLD, "submit secret"],
        [GOLD, "submit"],
        [GOLD],  # the budget ends; the state is graded as it is
        [GOLD.replace("secret", "mine"), "submit mine"],
        [GOLD.replace("secret", "mine"), "submit"],
        ["x = 1", f"submit {GOLD}"],
        [f"submit {GOLD.replace('secret', 'mine')}"],
        [f"values = {SECRETS}", "def secret(n):\n    return values[n]", "submit secret"],
        ["1 / 0", GOLD, "x = = 1", "submit secret"],
        [
            f"open('/work/f', 'w').write({str(SECRETS)!r})",
            "def secret(n):\n    return eval(open('/work/f').read())[n]",
            "submit",
        ],
        ["sum, list, secret = 1, 2, 3", GOLD, "submit"],
        [GOLD, "def other(): pass", "submit"],
        [
            f"class Table(dict):\n    __call__ = dict.__getitem__\nsecret = Table({SECRETS})",
            "submit",
        ],
        [f"secret = {SECRETS}.__getitem__", "submit secret"],
    ],
)
def test_gold_in_many_forms_is_solved(play: Player, actions: list[str]) -> None:
    played = play(task(workdir="/work"), *actions)
    assert (played.value, played.reason) == (1.0, "")
    assert dict(played.reward.parts) == {"tests": 1.0}
    assert played.state == {"tests": ["", "", ""]}


@pytest.mark.parametrize(
    ("actions", "reason"),
    [
        ([], "nothing was run"),
        (["submit"], "nothing was run"),
        (["submit secret"], "nothing was run"),
        (["1"], "no function or class is defined"),
        (["1", "submit"], "no function or class is defined"),
        (["def mine(n): pass", "submit secrett"], "no function or class is called secrett"),
        ([GOLD, "import os; os._exit(0)", "submit"], "no function or class is defined"),
        ([GOLD, "del secret", "submit"], "no function or class is defined"),
    ],
)
def test_nothing_earns_nothing(play: Player, actions: list[str], reason: str) -> None:
    played = play(task(), *actions)
    assert (played.value, played.reason) == (0.0, reason)


def test_a_share_of_the_tests(play: Player) -> None:
    played = play(task(), "def secret(n):\n    return 7919003 if n == 3 else {}[n]", "submit")
    assert played.value == 1 / 3
    assert played.reason == "1 of 3 tests passed; test 2 raised KeyError"
    assert not any(str(value) in played.reason for value in SECRETS.values())


def test_a_test_that_hangs_or_ends_the_interpreter_is_the_only_one_to_fail(play: Player) -> None:
    code = GOLD.replace("    return", "    {}\n    return")
    for bad, why in (
        ("while n == 5: pass", "timed out"),
        ("if n == 5: import re; re.match(r'(a+)+$', 'a' * 40 + 'b')", "timed out"),
        ("if n == 5: import os; os._exit(0)", "ended the interpreter"),
        ("if n == 5: import sys; sys.exit(0)", "raised SystemExit"),
        ("if n == 5: import ctypes; ctypes.string_at(0)", "ended the interpreter"),
    ):
        played = play(task(action_timeout=1.0), code.replace("{}", bad, 1), "submit")
        assert played.value == 2 / 3
        assert played.reason == f"2 of 3 tests passed; test 2 {why}"


def test_printing_in_tests_does_no_harm(play: Player) -> None:
    noisy = GOLD.replace("    return", "    for _ in range(70_000): print('x' * 1000)\n    return")
    assert play(task(), noisy, "submit").value == 1.0


def test_an_action_that_timed_out_is_cut_again(play: Player) -> None:
    count = "n = 0\nwhile True:\n    n += 1\n    secret = lambda x: 0"
    played = play(task(action_timeout=0.5), count, GOLD, "submit")
    assert (
        "[timed out after 0.5 s; KeyboardInterrupt was raised, and the names are kept]"
        in (played.observations[0])
    )
    assert played.value == 1.0


def test_notices(play: Player) -> None:
    played = play(
        *(task(action_timeout=0.5), "import os; os._exit(3)"),
        "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass",
        "while True: print('x' * 999)",
        "\0",
        "'\ud800'",
    )
    lost = "a new interpreter has none of the names from before"
    assert played.observations[0] == f"[the interpreter ended with status 3; {lost}]\n"
    assert played.observations[1] == f"[timed out after 0.5 s; {lost}]\n"
    assert played.observations[2].endswith("names are kept]\n")
    assert played.observations[3] == "[not run: an action cannot hold a NUL character]\n"
    assert "lone surrogate" in played.observations[4]


@pytest.mark.parametrize("source", ["def secret(n): return '\ud800'", "def secret(n): return 1\0"])
def test_source_that_cannot_be_sent_is_worth_nothing(play: Player, source: str) -> None:
    played = play(task(), f"submit {source}")
    assert played.value == 0.0
    assert played.reason.startswith("source cannot hold ")


def test_rewards_as_feedback_come_from_a_fresh_sandbox_each_time(play: Player) -> None:
    append = "open('/work/f', 'a').write('x')"
    check = "def secret(n):\n    return {} if len(open('/work/f').read()) == 1 else 0"
    table = "{3: 7919003, 5: 1299709, 8: 15485863}[n]"
    played = play(
        *(task(workdir="/work"), append, check.format("0"), check.format(table)),
        feedback="reward",
    )
    assert played.value == 1.0


def test_files_and_setup_are_there_when_it_is_graded(play: Player) -> None:
    made = task(
        files={"data.txt": FileSpec("file", str(SECRETS).encode())},
        setup=("cp data.txt copied.txt",),
        workdir="/work",
    )
    code = "def secret(n):\n    return eval(open('copied.txt').read())[n]"
    assert play(made, code, "submit").value == 1.0


# -- kinds of tests


def test_raises_and_statements(play: Player) -> None:
    made = task(
        (
            "with raises(ValueError):\n    secret(-1)",
            "for n in (-1, -2):\n    with raises((KeyError, ValueError)):\n        secret(n)",
            "x = [3, 5]\nsecret(x)\nassert x == [7919003, 1299709]",
            "got = [secret(n) for n in SECRETS]\nassert got == list(SECRETS.values())",
            "assert all(secret(n) == v for n, v in SECRETS.items())",
            "assert sorted(map(secret, SECRETS)) == sorted(SECRETS.values())",
        ),
        test_setup=f"SECRETS = {SECRETS}",
    )
    code = (
        "class Negative(ValueError): pass\n"
        "def secret(n):\n"
        f"    table = {SECRETS}\n"
        "    if isinstance(n, list):\n"
        "        n[:] = map(table.get, n)\n"
        "        return\n"
        "    if n < 0:\n"
        "        raise Negative\n"
        "    return table[n]\n"
    )
    assert play(made, code, "submit").reason == ""
    quiet = play(made, code.replace("raise Negative", "return 0"), "submit")
    assert quiet.value == 4 / 6
    assert quiet.reason.endswith("test 1 did not raise what it should")
    other = play(made, code.replace("(ValueError)", "(TypeError)"), "submit")
    assert other.value == 4 / 6


def test_setup_of_tests_is_there_for_the_agents_code(play: Player) -> None:
    made = task(
        ("assert total(Node(1, Node(2))) == 3",),
        "def total(node): return node.value + (total(node.next) if node.next else 0)",
        test_setup="class Node:\n    def __init__(self, value, next=None):\n"
        "        self.value, self.next = value, next",
    )
    code = (
        "def total(node):\n    assert isinstance(node, Node)\n"
        "    return node.value + (total(node.next) if node.next else 0)"
    )
    assert play(made, code, "submit total").value == 1.0


def test_values_that_are_no_data_are_looked_at_on_the_agents_side(play: Player) -> None:
    made = task(
        ("assert list(count(3)) == [0, 1, 2]", "assert len(list(count(2))) == 2"),
        "def count(n):\n    yield from range(n)",
    )
    assert play(made, "def count(n):\n    return (i for i in range(n))", "submit").value == 1.0


def test_calls(play: Player) -> None:
    made = task(
        (
            CallTest((2, "a"), ["a", "a"]),
            CallTest((1, {"k": [None, True, 1.5]}), [{"k": [None, True, 1.5]}]),
            CallTest((1, float("inf")), [float("inf")]),
        ),
        "def times(n, x): return [x] * n",
    )
    assert play(made, "def times(n, x): return (x,) * n", "submit times").value == 1.0
    assert play(made, "def times(n, x): return {x}", "submit times").value == 0.0


@pytest.mark.parametrize(
    "code",
    [
        "class Solution:\n    def twice(self, n):\n        return self.help(n)\n"
        "    def help(self, n):\n        return 2 * n",
        "def twice(n):\n    return 2 * n",
    ],
)
def test_methods_and_functions_in_their_place(play: Player, code: str) -> None:
    made = task((CallTest((4,), 8),), code, entry="Solution.twice")
    assert play(made, code, "submit").value == 1.0


PROGRAM = (
    "import sys\nfor line in sys.stdin:\n    print(sum(map(int, line.split())), end='  \\n')\n"
)
PROGRAM_TESTS = (ProgramTest("1 2\n3\n", "3\n3\n"), ProgramTest("", ""), ProgramTest("5", "5"))


@pytest.mark.parametrize(
    "actions", [[PROGRAM, "submit"], [PROGRAM], ["x = 1", f"submit {PROGRAM}"]]
)
def test_programs(play: Player, actions: list[str]) -> None:
    assert play(task(PROGRAM_TESTS, PROGRAM), *actions).reason == ""


def test_programs_that_fail(play: Player) -> None:
    made = task(PROGRAM_TESTS, PROGRAM, action_timeout=1.0)
    assert play(made, "submit print(3)").value == 0.0
    crash = play(made, f"submit {PROGRAM}\n1/0")
    assert (crash.value, crash.reason.rpartition("; ")[2]) == (0.0, "test 1 ended with status 1")
    slow = play(made, "submit import time\nprint(3)\ntime.sleep(9)")
    assert slow.reason.endswith("test 1 timed out")
    assert play(made, "submit").value == 0.0


# -- what gains nothing

CHEATS = {
    "equal to everything": """\
class Same:
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    __hash__ = None
    def __bool__(self): return True
def secret(n): return Same()
""",
    "an int that lies": """\
class Same(int):
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    __hash__ = int.__hash__
    def __index__(self): return 0
def secret(n): return Same(1)
""",
    "a str that lies": """\
class Same(str):
    def __eq__(self, other): return True
    __hash__ = str.__hash__
def secret(n): return Same('x')
""",
    "a metaclass that lies": """\
class Meta(type):
    def __eq__(cls, other): return True
    __hash__ = type.__hash__
    @property
    def __mro__(cls): return (int, object)
    def __instancecheck__(cls, instance): return True
class Same(metaclass=Meta):
    __class__ = int
def secret(n): return Same()
""",
    "patched builtins": """\
import builtins
for name in ('isinstance', 'len', 'all', 'any', 'set', 'print', 'bool', 'sum', 'type', 'eval'):
    setattr(builtins, name, lambda *a, **k: True)
def secret(n): return 1
""",
    "patched operator and json": """\
import json, operator, _operator
operator.eq = _operator.eq = lambda a, b: True
json.dumps = lambda *a, **k: '{"values": {"0": 1}, "raises": []}'
json.loads = lambda *a, **k: {}
def secret(n): return 1
""",
    "patched os": """\
import os
os.fork = lambda: 0
os.write = lambda fd, data: len(data)
def secret(n): return 1
""",
    "exit in the function": "import sys\ndef secret(n): sys.exit(0)",
    "_exit in the function": "import os\ndef secret(n): os._exit(0)",
    "exit of the module": "def secret(n): return 1\nimport sys\nsys.exit(0)",
    "_exit of the module": "def secret(n): return 1\nimport os\nos._exit(0)",
    "AssertionError": "def secret(n): raise AssertionError",
    "SystemExit": "def secret(n): raise SystemExit(0)",
    "KeyboardInterrupt": "def secret(n): raise KeyboardInterrupt",
    "GeneratorExit": "def secret(n): raise GeneratorExit",
    "a verdict on stdout": """\
def secret(n):
    for number in range(3):
        print(f'{number} ""', flush=True)
    print('passed', 'OK', '1.0', flush=True)
    return 1
""",
    "a verdict everywhere": """\
import os
def secret(n):
    line = b'\\n0 ""\\n1 ""\\n2 ""\\n{"values": {"0": true}, "raises": []}\\n"" \\n'
    for descriptor in range(0, 1024):
        try:
            os.write(descriptor, line)
        except OSError:
            pass
    return 1
""",
    "two answers by a fork": """\
import os
def secret(n):
    if os.fork() == 0:
        return 1
    return 2
""",
    "every value in reach": """\
import gc, sys
def secret(n):
    # Backwards, so that they are nowhere in the memory by themselves.
    wanted = {3: '3009197', 5: '9079921', 8: '36885451'}[n][::-1]
    frame = sys._getframe().f_back
    seen = gc.get_objects()
    while frame:
        seen += [*frame.f_locals.values(), *frame.f_globals.values(), *frame.f_code.co_consts]
        frame = frame.f_back
    for thing in seen:
        for each in [thing, *gc.get_referents(thing)]:
            if type(each) is int and each > 10**6 and str(each) == wanted:
                return each
            if type(each) is str and each is not wanted and wanted in each:
                return int(wanted)
    return 1
""",
    "every process's memory": """\
import glob, re
def secret(n):
    for maps in glob.glob('/proc/[0-9]*/maps'):
        try:
            regions = re.findall('^([0-9a-f]+)-([0-9a-f]+) rw', open(maps).read(), re.M)
            with open(maps[:-4] + 'mem', 'rb', 0) as memory:
                for start, end in regions:
                    memory.seek(int(start, 16))
                    text = memory.read(min(int(end, 16) - int(start, 16), 2**24)) or b''
                    found = re.search(rb'secret\\(%d\\) == ?\\(?([0-9]{6,9})' % n, text)
                    if found:
                        return int(found[1])
        except OSError:
            pass
    return 1
""",
    "atexit and threads": """\
import atexit, os, threading, time
atexit.register(lambda: os.write(1, b'0 ""\\n'))
def work():
    while True:
        time.sleep(0.01)
threading.Thread(target=work, daemon=True).start()
def secret(n): return 1
""",
    "a trace function": """\
import sys
def trace(frame, event, argument):
    for name in list(frame.f_locals):
        if name in ('status', 'opaque'):
            frame.f_locals[name] = 0
    return trace
sys.settrace(trace)
def secret(n): return 1
""",
    "the interpreter's own module": """\
import _intercode
_intercode.run = lambda *a: None
def secret(n): return 1
""",
    "names that look like ours": """\
__value__ = __side__ = __row__ = lambda *a: 1
__raises__ = None
def secret(n): return 1
""",
    "files of the standard library": """\
import ast, json, os, pickle
for module in (json, ast, pickle, os):
    with open(module.__file__, 'w') as file:
        file.write('def loads(*a, **k): return ""\\ndef dumps(*a, **k): return chr(34) * 2\\n')
def secret(n): return 1
""",
    "another python3": """\
import os, shutil, sys
os.rename('/usr/bin/python3', '/usr/bin/python3.away')
with open('/usr/bin/python3', 'w') as file:
    file.write('#!/bin/sh\\nexit 0\\n')
os.chmod('/usr/bin/python3', 0o755)
def secret(n): return 1
""",
    "no interpreter left": """\
import os
os.remove(os.path.realpath('/usr/bin/python3'))
os._exit(0)
""",
    "a flood of answers": """\
def secret(n): return 'x' * 10**8
""",
    "an endless value": """\
def secret(n):
    endless = []
    endless.append(endless)
    return endless
""",
    "a value that is slow to look at": """\
class Slow(list):
    def __iter__(self):
        while True:
            yield 1
def secret(n): return Slow()
""",
    "every exception at once": "def secret(n): raise type('E', (ValueError, KeyError), {})",
    "a hang that catches everything": """\
def secret(n):
    while True:
        try:
            while True: pass
        except BaseException: pass
""",
}


@pytest.mark.parametrize("name", CHEATS)
def test_cheats_score_nothing(play: Player, name: str) -> None:
    made = task(action_timeout=1.0)
    played = play(made, CHEATS[name], "submit secret")
    assert played.value == 0.0
    assert played.reason
    assert not any(str(value) in repr(played.state) + played.reason for value in SECRETS.values())


@pytest.mark.parametrize("name", ["every value in reach", "every process's memory"])
@pytest.mark.parametrize("form", ["x = {}", "def f():\n    return {}"])
def test_the_searches_would_find_what_is_there(play: Player, name: str, form: str) -> None:
    text = " ".join(f"secret({n}) == {value}" for n, value in SECRETS.items())
    # The memory of a process that has moved on may be written over in part.
    assert play(task(), form.format(repr(text)), CHEATS[name], "submit secret").value > 0


# -- comparisons that an object of the agent's could decide, and the rest of what it can do there

COMPARING = (
    "assert abs(secret(3) - 7919003.5) < 1",
    "d = abs(secret(3) - 7919003)\nassert d < 1e-9",
    "assert secret(3) - 7919003 == 0",
    "assert max(abs(a - b) for a, b in zip([secret(3)], [7919003])) < 1e-9",
    "assert all(abs(secret(n) - m) < 1 for n, m in [(3, 7919003), (5, 1299709)])",
    "assert max(secret(3), 7) == 7919003",
    "assert secret(3) * 2 // 2 == 7919003",
    "assert not secret(3) != 7919003",
    "with raises(KeyError):\n    secret(4)",
)
ALL_OPERATORS = """\
class Any:
    def __call__(self, *a, **k): return self
    def __bool__(self): return True
    def __int__(self): return 0
    __index__ = __len__ = __hash__ = __int__
    def __float__(self): return 0.0
    def __iter__(self): return iter([0])
for name in ('eq lt le gt ge add radd sub rsub mul rmul floordiv rfloordiv mod rmod pow '
             'contains getitem abs neg round trunc').split():
    setattr(Any, f'__{name}__', lambda self, *other: 0 if name in ('abs', 'sub') else self)
for name in 'eq lt le gt ge contains'.split():
    setattr(Any, f'__{name}__', lambda self, *other: True)
Any.__ne__ = lambda self, other: False
Any.__abs__ = Any.__sub__ = Any.__rsub__ = lambda self, *other: 0
"""
OPERATORS = {
    "zero from every operator": f"{ALL_OPERATORS}\ndef secret(n): return Any()",
    **{
        f"a subclass of {kind.partition('(')[0]}": f"{ALL_OPERATORS}\n"
        f"class Sub(Any, {kind.partition('(')[0]}): pass\n"
        f"def secret(n): return {kind.replace(kind.partition('(')[0], 'Sub')}"
        for kind in ("int(1)", "float(1)", "str(1)", "list()", "dict()", "set()", "tuple()")
    },
    "an exception of all kinds": "class All(ValueError, KeyError, TypeError, ArithmeticError): pass"
    "\ndef secret(n): raise All",
}


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_of_the_agents_objects_decide_nothing(play: Player, name: str) -> None:
    played = play(task(COMPARING), OPERATORS[name], "submit secret")
    assert played.reason.startswith("0 of 9 tests passed"), (played.reason, played.state)


def test_plain_data_pass_comparisons_of_every_kind(play: Player) -> None:
    gold = GOLD.replace("8: ", "4.5: ")
    assert play(task(COMPARING), gold, "submit secret").reason == ""


def test_iterators_and_operators_of_golds_own_classes_are_graded(play: Player) -> None:
    gold = (
        "class Pair:\n"
        "    def __init__(self, x, y): self.x, self.y = x, y\n"
        "    def __mul__(self, n): return Pair(self.x * n, self.y * n)\n"
        "    def __contains__(self, n): return n in (self.x, self.y)\n"
        "    def get(self, name): return getattr(self, name)\n"
        "    def __iter__(self): yield from (self.x, self.y)\n"
        "    def __str__(self): return f'<{self.x}>'\n"
        "def secret(n): return Pair(n, n + 1)\n"
        "def numbers(n):\n    while True:\n        yield n\n        n += 1\n"
    )
    made = task(
        (
            "assert (secret(1) * 3).y == 6",
            "there = 2 in secret(1)\nassert there is True",
            "assert secret(1).get('y') == 2",
            "assert list(secret(1)) == [1, 2] and str(secret(1)) == '<1>'",
            "assert sum(secret(1)) == 3",
            "assert [*map(secret, [1])][0].x == 1",
            "assert next(numbers(4)) == 4",
            "it = numbers(4)\nassert next(it) == 4\nassert next(it) == 5",
            "assert list(islice(numbers(4), 2)) == [4, 5]",
            "assert sum(islice(numbers(1), 3)) - 6 < 1e-9",
            "assert ''.join(map(str, islice(numbers(1), 3))) == '123'",
            "assert sorted([1, 2], key=lambda n: secret(n).x) == [1, 2]",
        ),
        gold,
        test_setup="from itertools import islice",
    )
    assert play(made, gold, "submit").reason == ""


FORGE = """\
import gc, os, sys
def token():
    frame = sys._getframe()
    while frame:
        for scope in (frame.f_locals, frame.f_globals):
            request = scope.get('request') or {}
            found = scope.get('token') or (request.get('token') if type(request) is dict else None)
            if type(found) is str and len(found) == 16:
                return found
        frame = frame.f_back
def secret(n):
    for descriptor in range(3, 300):
        try:
            os.write(descriptor, LINE(token()))
        except OSError:
            pass
    return 1
"""
LINES = {
    "a number of 5,000 digits": "(t + ' ' + '9' * 5000 + ' 1\\n').encode()",
    "a value of 5,000 digits": "(t + ' 0 {\"values\": {\"0\": ' + '9' * 5000 + '}}\\n').encode()",
    "deep nesting": "(t + ' 0 ' + '[' * 100_000 + '\\n').encode()",
    "a verdict": "(t + ' 0 \"\"\\n' + t + ' 1 \"\"\\n').encode()",
    "no text": "(t + ' 0 ').encode() + b'\\xff\\0\\n'",
    "the same line again": "(t + ' 0 1\\n').encode() * 1000",
    "nothing was submitted": "(t + ' -1 missing\\n').encode()",
}


@pytest.mark.parametrize("name", LINES)
def test_forged_answers_are_a_failed_grading(play: Player, name: str) -> None:
    code = FORGE.replace("LINE(token())", LINES[name].replace("(t ", "(token() "))
    code = code.replace(" + t + ", " + token() + ")
    played = play(task(), code, "submit secret")
    assert (played.value, played.reason) == (0.0, "something else than the tests wrote answers")


def test_a_cheat_leaves_the_next_grading_as_it_was(play: Player) -> None:
    play(task(action_timeout=1.0), CHEATS["files of the standard library"], "submit secret")
    play(task(action_timeout=1.0), CHEATS["a flood of answers"], "submit secret")
    assert play(task(), GOLD, "submit").value == 1.0


def test_what_is_expected_is_in_neither_of_the_agents_sandboxes(provider: SandboxProvider) -> None:
    environment = PythonEnvironment(provider)
    try:
        environment.reset(task=task())
        environment.step("x = 1")
        assert environment._gold is not None
        assert environment._sandbox is not None
        # So written that the search does not find itself.
        search = "grep -Ealr '79[1]9003|12[9]9709' /proc/[0-9]*/cmdline /work /tmp /dev/shm 2>&-"
        for sandbox in (environment._sandbox, environment._gold.result().sandbox):
            assert sandbox.admin(f"{search} | head -1", 60)[1] == b""
    finally:
        environment.close()


HUGE_TEST = "assert secret(1) == list(range(300_000))"


def test_large_values_and_large_tests(play: Player) -> None:
    made = task(
        (HUGE_TEST, "assert secret(" + repr("x" * 300_000) + ") == 1"),
        "def secret(n): ...",
    )
    code = "def secret(n):\n    return list(range(300_000)) if n == 1 else 1"
    assert play(made, code, "submit").value == 1.0


def test_the_judge_stands_a_test_that_breaks(play: Player) -> None:
    made = task(
        (
            "import os\nos.kill(os.getpid(), 9)\nassert secret(3) == 7919003",
            "import os\nos.system('kill -9 -1; rm -rf / 2>&-')\nassert secret(3) == 7919003",
            "x = [0] * 10**9\nassert secret(3) == len(x)",
            "while True: pass\nassert secret(3) == 7919003",
            TESTS[0],
        ),
        action_timeout=1.0,
    )
    wanting = play(made, GOLD, "submit")
    assert wanting.state["tests"][-1] == ""
    assert play(task(), GOLD, "submit").value == 1.0


def test_closing_stops_grading(quick_provider: SandboxProvider) -> None:
    import threading
    import time

    environment = PythonEnvironment(quick_provider)
    environment.reset(task=task(action_timeout=30.0))
    environment.step("def secret(n):\n    while True: pass")

    def submit() -> None:
        with contextlib.suppress(InfrastructureError):  # its sandbox ended while it was graded
            environment.step("submit")

    thread = threading.Thread(target=submit)
    thread.start()
    time.sleep(1.0)
    began = time.monotonic()
    environment.close()
    thread.join()
    assert time.monotonic() - began < 20


# -- answers, processes and values of the hostile kind

OTHERS = {
    "a number of 5,000 digits": "def secret(n): return 10**5000",
    "a number that takes long": "def secret(n): return 10**(10**8)",
    "a signaling NaN": "import decimal\ndef secret(n): return decimal.Decimal('sNaN')",
    "a decimal that takes long": "import decimal\n"
    "def secret(n): return decimal.Decimal('1e999999')",
    "recursion": "def secret(n): return secret(n)",
    "a generator without end": "def secret(n):\n    while True: yield n",
    "a repr that hangs": "class Slow:\n    def __repr__(self):\n        while True: pass\n"
    "    __bool__ = __str__ = __hash__ = __repr__\ndef secret(n): return Slow()",
    "SystemExit in a thread": "import sys, threading\ndef secret(n):\n"
    "    threading.Thread(target=sys.exit).start()\n    return 1",
    "a signal to the parent": "import os\ndef secret(n):\n"
    "    os.kill(os.getppid(), 9)\n    return 1",
    "signals to everybody": "import os\ndef secret(n):\n    os.kill(-1, 9)\n    return 1",
    "audit hooks": "import sys\nsys.addaudithook(lambda *a: None)\ndef secret(n): return 1",
    "a child that outlives": "import os, time\ndef secret(n):\n    if os.fork() == 0:\n"
    "        os.setsid()\n        time.sleep(60)\n        os._exit(0)\n    return 1",
    "start-up files": "import os, site, sys\nfor folder in filter(os.path.isdir, sys.path):\n"
    "    for name in ('sitecustomize.py', 'usercustomize.py', 'x.pth', 'json.py'):\n"
    "        try: open(folder + '/' + name, 'w').write('import os; os._exit(0)')\n"
    "        except OSError: pass\n"
    "os.environ['PYTHONPATH'] = os.environ['PYTHONSTARTUP'] = '/tmp'\ndef secret(n): return 1",
    "an interpreter changed by ctypes": "import ctypes\ndef secret(n):\n"
    "    ctypes.c_long.from_address(id(7919003 + n - 3) + 24).value = 1\n    return 1",
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_hostile_is_a_failed_grading(play: Player, name: str) -> None:
    tests = ("assert secret(3) == 7919003", "assert abs(secret(5) - 1299709) < 1e-9")
    played = play(task(tests, action_timeout=1.0), OTHERS[name], "submit secret")
    assert played.value == 0.0
    assert played.reason


# -- the paper profile, in which gold stays in the namespace once it was graded


def test_paper_a_passed_turn_does_not_come_upon_gold(quick_provider: SandboxProvider) -> None:
    environment = PaperPythonEnvironment(quick_provider, feedback="reward")
    try:
        environment.reset(task=task())
        assert environment.step("def secret(n):\n    return 0")[0].reward == 0.0
        observation, *_ = environment.pass_turn("I think.", "there is no action")
        assert (observation, observation.reward) == ("there is no action", 0.0)
        assert environment.end("stopped").value == 0.0
    finally:
        environment.close()


def test_paper_blanks_submit_what_was_defined(quick_provider: SandboxProvider) -> None:
    environment = PaperPythonEnvironment(quick_provider)
    try:
        environment.reset(task=task())
        environment.step(GOLD)
        assert environment.submit(" ")[1] == 1.0
    finally:
        environment.close()


def test_paper_time_that_is_up_between_actions_changes_nothing(
    quick_provider: SandboxProvider,
) -> None:
    environment = PaperPythonEnvironment(quick_provider)
    try:
        environment.reset(task=task())
        environment.step(GOLD)
        environment.stop_actions("timed out")
        assert environment.end("timed out").value == 1.0
    finally:
        environment.close()


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("""'["forged", true]'""", "forged"),
        *((each, "Error executing action: timed out") for each in ("'9' * 5000", "'[' * 100_000")),
        *((each, "Error executing action: timed out") for each in ("'[[], []]'", "'[null, true]'")),
    ],
)
def test_paper_forged_answers_are_the_agents_fault(
    quick_provider: SandboxProvider, line: str, shown: str
) -> None:
    """There they are as easy as ever, but no fault of the infrastructure."""
    code = FORGE.partition("def secret")[0] + (
        f"code = {line}\nos.write(1, ('\\n%s 0 %s\\n' % (token(), code)).encode())\nos._exit(0)"
    )
    environment = PaperPythonEnvironment(quick_provider)
    try:
        environment.reset(task=task())
        observation, *_ = environment.step(code)
        assert str(observation) == shown
        environment.step("submit secret")
        assert environment.end("stopped").value == 0.0
    finally:
        environment.close()


@pytest.mark.usefixtures("bubblewrap")
def test_an_ordinary_user_is_graded_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    ordinary = functools.partial(Bubblewrap, root=False)
    monkeypatch.setattr("pytest_intercode.sandboxes.bubblewrap.engine.Bubblewrap", ordinary)
    provider = SandboxProvider(SandboxSettings("bubblewrap"))
    try:
        assert Play(provider, task(), GOLD).value == 1.0
        assert Play(provider, task(), "def secret(n): return 1").value == 0.0
    finally:
        provider.close()


@pytest.mark.slow
def test_values_that_two_judges_have_no_time_for_are_wrong(
    play: Player, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grading, "_GRACE_PERIOD", -6.0)  # else it takes hundreds of tests
    tests = [f"assert secret({n}) == [{n}]" for n in range(40)]
    made = task(tuple(tests), "def secret(n):\n    return [n]\n")
    # What is quick to write, and slow to reduce.
    action = (
        "from fractions import Fraction\n"
        "class Long(Fraction):\n"
        "    numerator, denominator = 3 ** 300_000, 7 ** 170_000 + 2\n"
        "def secret(n):\n    return Long(1)"
    )
    played = play(made, action, action_timeout=0.3)
    assert played.value == 0.0
    assert "0 of 40" in played.reason
