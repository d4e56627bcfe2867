"""How hidden tests are split between the agent's side and the judge."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import cast

import pytest

from pytest_intercode.agents.agent_environment import AgentEnvironment
from pytest_intercode.agents.oracle import make_oracle
from pytest_intercode.core.task import Task
from pytest_intercode.environments.fields import CallTest, CodeTest, ProgramTest
from pytest_intercode.environments.python.expressions import TestError as CannotSplit
from pytest_intercode.environments.python.fields import PythonFields
from pytest_intercode.environments.python.hidden_tests import entry_of, split_tests
from pytest_intercode.environments.python.split import Split, split_test
from pytest_intercode.errors import SuiteError
from pytest_intercode.suites.loader import load_suite


def split(code: str, setup: str = "", mine: tuple[str, ...] = ("f", "g")) -> Split:
    return split_test(setup, code, mine, "f")


def agents(made: Split) -> list[str]:
    """Return what the agent's side is sent."""
    return [str(step[2]) for step in made.steps]


def as_written_here(code: str) -> str:
    """Return source as this Python writes it: 3.10 puts brackets around the targets of loops."""
    return ast.unparse(ast.parse(code))


@pytest.mark.parametrize(
    ("code", "sent", "judged"),
    [
        ("assert f([1, 2]) == 3", ["f([1, 2])"], "assert __value__(0) == (3)"),
        ("assert 3 == f([1, 2])", ["f([1, 2])"], "assert 3 == __value__(0)"),
        ("assert f(1)", ["f(1)"], "assert __value__(0)"),
        ("assert not f(1)", ["f(1)"], "assert not __value__(0)"),
        ("assert f(1)[0].real == 2", ["f(1)[0].real"], "assert __value__(0) == 2"),
        ("assert f(1) == g(2)", ["f(1)", "g(2)"], "assert __value__(0) == __value__(1)"),
        ("assert f(1) in (1, 2)", ["f(1)"], "assert __value__(0) in (1, 2)"),
        ("assert f(g(1)) is None", ["f(g(1))"], "assert __value__(0) is None"),
        ("assert f(1) == 2 and f(2) == 3", ["f(1)", "f(2)"], None),
        ("assert (f(1) == 2) is True", ["f(1)"], "assert (__value__(0) == 2) is True"),
        ("assert isinstance(f(1), int)", ["f(1)"], "assert isinstance(__value__(0), int)"),
    ],
)
def test_chains_go_to_the_agents_side(code: str, sent: list[str], judged: str | None) -> None:
    made = split(code)
    assert agents(made) == sent
    if judged is not None:
        assert made.source == judged


@pytest.mark.parametrize(
    ("code", "sent"),
    [
        ("assert set(f(1)) == {1}", ["f(1)", "set(__value__(0))"]),
        ("assert list(map(f, [1, 2])) == [3]", ["map(f, [1, 2])", "list(__value__(0))"]),
        ("assert [*f(1)] == [1]", ["f(1)", "[*__value__(0)]"]),
        ("assert str(f(1)).upper() == 'X'", ["f(1)", "str(__value__(0)).upper()"]),
        (
            "from itertools import islice\nassert list(islice(f(1), 5)) == [1]",
            ["from itertools import islice", "f(1)", "list(islice(__value__(0), 5))"],
        ),
        (
            "assert next(f(1)) + next(f(2)) == 3",
            ["f(1)", "f(2)", "next(__value__(0)) + next(__value__(1))"],
        ),
        (
            "assert sorted(f(1), key=lambda each: each.name) == []",
            ["f(1)", "sorted(__value__(0), key=lambda each: each.name)"],
        ),
    ],
)
def test_what_is_made_of_the_agents_values_alone_may_be_worked_out_there(
    code: str, sent: list[str]
) -> None:
    """It is, where they are no data: an iterator, an object."""
    made = split(code)
    assert agents(made) == sent
    assert made.steps[-1][0] == "side"


@pytest.mark.parametrize(
    ("code", "sent"),
    [
        ("assert abs(f(2) - 3.0) < 1e-9", "f(2)"),
        ("assert f(2) - {1, 2} == set()", "f(2)"),
        ("assert round(f(2), 2) == 3.14", "f(2)"),
        ("assert max(f(2), 3.0) == 3.0", "f(2)"),
        ("assert max([f(2), 3.0]) == 3.0", "f(2)"),
        ("assert len({f(2), 3.0}) == 1", "f(2)"),
        ("assert f(2).startswith('wanted')", "f(2)"),
        ("assert f(2).replace('a', 'b')[0] == 'b'", "f(2)"),
        ("assert f(2).__eq__(3)", "f(2)"),
        ("assert ''.join(f(2)) == 'wanted'", "f(2)"),
        ("assert sorted(f(2), key=lambda n: abs(n - 3.0)) == [3.0]", "f(2)"),
        ("assert max(abs(a - b) for a, b in zip(f(2), [1.0, 2.0])) < 1e-9", "f(2)"),
        ("assert sum(f(n) - n for n in range(3)) == 0", "[(f(n),) for n in range(3)]"),
        ("d = abs(f(2) - 3.0)\nassert d < 1e-9", "f(2)"),
        ("d = f(2) - 3.0\ne = abs(d)\nassert e < 1e-9", "f(2)"),
        ("import math\nok = math.isclose(f(2), 3.0)\nassert ok", "f(2)"),
        ("def close(a, b):\n    return abs(a - b) < 1\nok = close(f(2), 3)\nassert ok", "f(2)"),
        ("there = 'wanted' in f(2)\nassert there", "f(2)"),
    ],
)
def test_the_judge_brings_values_together_with_what_is_expected(code: str, sent: str) -> None:
    """An operator of the agent's class has no part in it, and nothing expected is seen there."""
    assert agents(split(code)) == [sent]


@pytest.mark.parametrize(
    "code",
    [
        "x = f(2)\nx -= 3.0\nassert x == 0",
        "d = 0\nfor n in (1, 2):\n    d += abs(f(n) - n)\nassert d == 0",
        "ok = 1\nif f(2) == 3:\n    ok = 2\nassert ok == 2",
        "def check(n, wanted):\n    return f(n) == wanted\nassert check(2, 3)",
        "wanted = [3]\nfor n in (1, 2):\n    at = wanted.index(f(n))\nassert at == 0",
        "from operator import eq\nfor n in (1, 2):\n    ok = eq(f(n), 3)\nassert ok",
    ],
)
def test_a_statement_that_would_compare_on_the_agents_side_is_refused(code: str) -> None:
    with pytest.raises(CannotSplit, match="would be evaluated on the agent's side"):
        split(code)


@pytest.mark.parametrize(
    "code",
    [
        "total = 0\nfor n in (1, 2):\n    total += f(n)\nassert total == 3",
        "got = []\nfor n in (1, 2):\n    if n > 1:\n        got += [f(n + 1)]\nassert got == [3]",
        "calls = []\n@f\ndef g1():\n    calls.append(len(calls) + 1)\ng1()\nassert calls == [1]",
        "x = f(1) + 1\nassert g(x) == 3",
        "x = f(1)\nsame = x is None\nassert same",
        "links = f([1])\nlinks[0] = ('a', links[0][1])\nassert g(links) == 0",
        "assert f(lambda n: n + 1) == 3",
    ],
)
def test_arguments_are_worked_out_where_they_are_given(code: str) -> None:
    assert agents(split(code))


def test_operators_that_gold_defines_are_the_agents_code() -> None:
    for code, method in (
        ("assert (f(1) * 3).x == 3", "__mul__"),
        ("there = 'x' in f(1)\nassert there", "__contains__"),
        ("assert f(1).get('x', 2) == 3", "get"),
    ):
        mine = agents(split_test("", code, ("f",), "f", frozenset({method})))
        assert agents(split(code)) == ["f(1)"]
        assert mine != ["f(1)"]


def test_names_that_are_both_given_and_compared_are_refused() -> None:
    with pytest.raises(CannotSplit, match="'d' combines what the agent's code returned"):
        split("d = abs(f(2) - 3.0)\ng(d)\nassert d < 1e-9")


EXPECTED = "assert f(2) == 'the expected value'"


@pytest.mark.parametrize(
    "code",
    [
        EXPECTED,
        "wanted = 'the expected value'\nassert f(2) == wanted",
        "def wanted(n):\n    return 'the expected value'\nassert wanted(3) == f(2)",
        "def close(a, b):\n    return a == b\nassert close(f(2), 'the expected value')",
        "import math\nassert math.isclose(f(2), float('the expected value'))",
        "assert set(f(2)) == set('the expected value')",
        "assert all(f(n) == 'the expected value' for n in range(3))",
        "assert [f(n) == 'the expected value' for n in range(3)] == [True]",
        "x = [1]\nf(x)\nassert x == ['the expected value']",
        "x = f(1)\nwanted = {'a': 'the expected value'}\nassert x == wanted",
        "assert f(1) if f(2) == 'the expected value' else g(3)",
        "assert any([f(2) == 'the expected value', f(3)])",
        "assert sorted(f(2)) == sorted('the expected value')",
    ],
)
def test_what_is_expected_never_goes_to_the_agents_side(code: str) -> None:
    made = split(code)
    assert agents(made)
    assert "expected" not in repr(made.steps)
    assert "expected" in made.source


def test_comprehensions_that_compare_are_compared_by_the_judge() -> None:
    made = split("assert all(f(n) == 2 * n for n in range(5) if n)")
    assert agents(made) == ["[(f(n),) for n in range(5) if n]"]
    assert "__row_1__ == 2 * n" in made.source
    assert agents(split("assert sum(f(n) for n in range(5)) == 3"))[0] == (
        "[f(n) for n in range(5)]"
    )


@pytest.mark.parametrize(
    ("code", "sent"),
    [
        ("assert all(f(n) == v for n, v in [(1, 'wanted')])", "[(f(n),) for n, in [(1,)]]"),
        ("assert all(f(n) == v for n, v in {1: 'wanted'}.items())", "[(f(n),) for n, in [(1,)]]"),
        ("assert [f(n) for n in {1: 'wanted'}] == ['wanted']", "[f(n) for n in [1]]"),
        (
            "cases = {1: 'wanted', (2, 3): ''}\nassert all(f(n) == v for n, v in cases.items())",
            "[(f(n),) for n, in [(1,), ((2, 3),)]]",
        ),
        (
            "cases = [(1, 2, 'wanted')]\nassert all(f(a, b) == c for a, b, c in cases if a)",
            "[(f(a, b),) for a, b in [(1, 2)] if a]",
        ),
    ],
)
def test_what_stands_beside_arguments_is_left_out(code: str, sent: str) -> None:
    assert agents(split(code)) == [as_written_here(sent)]


@pytest.mark.parametrize(
    "cases", ["{1: 2, True: 3}", "{**{1: 2}}", "{x: 2}", "[(1, 2), *[(2, 3)]]"]
)
def test_loops_go_over_what_the_test_goes_over(cases: str) -> None:
    """Where that is not plainly written down, it is all sent."""
    items = f"{cases}.items()" if cases.startswith("{") else cases
    made = split(f"x = 1\nassert all(f(n) == v for n, v in {items})")
    assert agents(made)[-1] == as_written_here(f"[(f(n),) for n, v in {items}]")


def test_arguments_are_made_on_both_sides_and_stay_what_they_were() -> None:
    made = split("from datetime import date\nd = date(2024, 1, 1)\nassert f(d) == d")
    imports, value, chain = agents(made)
    assert (imports, value, chain) == ("from datetime import date", "d = date(2024, 1, 1)", "f(d)")
    assert made.source.splitlines()[:2] == [imports, value]
    assert "assert __value__(0) == d" in made.source


def test_an_argument_that_is_compared_alone_is_looked_at_as_it_was_left() -> None:
    made = split("x = [3, 1]\nf(x)\nassert x == [1, 3]")
    assert agents(made) == ["x = [3, 1]", "f(x)", "x"]
    assert made.source == "assert __value__(1) == [1, 3]"
    beside = split("x = [3, 1]\nassert f(x) == sorted(x)")
    assert agents(beside) == ["x = [3, 1]", "f(x)"]
    assert "x = [3, 1]" in beside.source


def test_setup_that_needs_the_agents_code_is_run_there() -> None:
    made = split_test("root = Node(1)\nroot.left = Node(2)", "assert f(root)", ["f", "Node"], "f")
    assert [step[0] for step in made.steps] == ["setup", "setup", "value"]
    assert made.source == "assert __value__(2)"


def test_an_entry_may_have_the_name_of_a_builtin() -> None:
    made = split_test("", "assert sum(10, 15) == 6", ["sum"], "sum")
    assert agents(made) == ["sum(10, 15)"]


def test_raises() -> None:
    made = split("with raises((ValueError, json.JSONDecodeError)):\n    f(1)")
    assert dict(made.raises) == {0: ("ValueError", "JSONDecodeError")}
    assert agents(made) == ["with __raises__(0):\n    f(1)"]
    assert made.source == ""
    loop = split("for n in (1, 2):\n    with raises(KeyError):\n        f(n)\nassert f(3) == 4")
    assert dict(loop.raises) == {0: ("KeyError",)}
    assert "KeyError" not in repr(loop.steps)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("assert f(1) ==", "it does not parse"),
        ("assert 1 == 1", "it calls none of the agent's"),
        ("for n in (1, 2):\n    assert f(n) == n", "line 2: an assert inside another statement"),
        ("def check(c):\n    assert c(1) == 2\ncheck(f)", "an assert inside another statement"),
        ("assert isclose(f(1), 2)", "it uses 'isclose', which neither gold nor the test defines"),
        ("import numpy\nassert numpy.allclose(f(1), 2)", "'numpy' is not of the standard library"),
        ("with raises(ValueError, match='x'):\n    f(1)", "raises() takes an exception"),
        ("with raises(kind()):\n    f(1)", "raises() takes an exception by its name"),
        ("assert all(map(lambda n: f(n) + 1, [1]))", "a lambda that calls the agent's code"),
        ("import np\nassert np.abs(f(1) - 2).max() < 1", "'np' is not of the standard library"),
        ("import np\nw = np.one(1)\nassert f(1) == w.one()", "'w' is not of the standard library"),
        ("assert all(n == 1 for m in [1] for n in f(m))", "the clauses of a comprehension"),
    ],
)
def test_what_cannot_be_split_says_why(code: str, message: str) -> None:
    with pytest.raises(CannotSplit) as raised:
        split(code)
    assert message in str(raised.value)


def test_every_part_is_python() -> None:
    made = split("x = f(1)\nassert [f(n) == n for n in range(3) if n] == [x, 2]\nassert g(x)")
    assert len(made.steps) > 2
    for source in (made.source, *(str(step[2]) for step in made.steps)):
        assert isinstance(ast.parse(source), ast.Module), source


# -- tasks


def task(tests: list[str], gold: str = "def f(n):\n    return n\n", entry: str = "") -> Task:
    fields = PythonFields(tuple(map(CodeTest, tests)), entry=entry)
    return Task("t", "q", (gold,), "python", "s", "s", fields=fields)


def test_the_entry_is_what_tests_call_and_gold_defines() -> None:
    gold = "def helper(n):\n    return n\ndef f(n):\n    return helper(n)\ndef last(): pass\n"
    assert entry_of(task(["assert sorted(f(1)) == [1]"], gold)) == "f"
    assert entry_of(task(["assert unknown(1) == 1"], gold)) == "last"
    assert entry_of(task(["assert f(1) == 1"], gold, entry="Other.method")) == "Other.method"
    program = Task(
        "t", "q", (gold,), "python", "s", "s", fields=PythonFields((ProgramTest("", ""),))
    )
    assert entry_of(program) == ""
    call = Task("t", "q", (gold,), "python", "s", "s", fields=PythonFields((CallTest((1,), 1),)))
    assert entry_of(call) == "last"


def test_splits_keep_the_order_of_tests() -> None:
    call, program = CallTest((1,), 2), ProgramTest("1", "2")
    mixed = Task(
        *("t", "q", ("def f(n): return n",), "python", "s", "s"),
        fields=PythonFields((call, CodeTest("assert f(1) == 1"), program)),
    )
    made = list(split_tests(mixed))
    assert (made[0], made[2]) == (call, program)
    assert isinstance(made[1], Split)


SUITE = "env: {env}\ntasks:\n  - {{id: t, query: q, gold: '{gold}', {rest}}}\n"


@pytest.mark.parametrize(
    ("env", "rest", "message"),
    [
        ("python", "max_turns: 3", "tests: a python task needs some"),
        (
            "python",
            "tests: ['assert f(1) ==']",
            "tests: test 1: it does not parse: line 1: invalid syntax",
        ),
        ("python", "tests: [assert f(1), assert 1]", "tests: test 2: it calls none"),
        ("bash", "tests: [assert f(1)]", "tests: they are for the env python, not bash"),
    ],
)
def test_a_wrong_test_is_told_when_the_suite_is_read(
    env: str, rest: str, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "suite.yaml"
    path.write_text(SUITE.format(env=env, rest=rest, gold="def f(n): return n"))
    with pytest.raises(SuiteError) as raised:
        load_suite(path)
    assert str(raised.value).startswith(f"{path}:3: task 't': {message}")
    assert "\n" not in str(raised.value)


def test_gold_that_is_not_python_is_named(tmp_path: Path) -> None:
    path = tmp_path / "suite.yaml"
    path.write_text(
        SUITE.format(env="python", rest="tests: [assert f(1) == 1]", gold="def f( pass")
    )
    with pytest.raises(SuiteError) as raised:
        load_suite(path)
    assert str(raised.value) == f"{path}:3: task 't': gold is not Python"


def test_calls_need_a_name_to_call(tmp_path: Path) -> None:
    path = tmp_path / "suite.yaml"
    rest = "tests: [{arguments: [1], result: 1}]"
    path.write_text(SUITE.format(env="python", rest=rest, gold="print(1)"))
    with pytest.raises(SuiteError, match="tests: what they call is missing"):
        load_suite(path)


def test_warnings_of_the_compiler_are_no_errors(tmp_path: Path) -> None:
    path = tmp_path / "suite.yaml"
    path.write_text(
        "env: python\ntasks:\n- id: t\n  query: q\n  gold: |\n    def f(n): return '\\d'\n"
        "  tests: [\"assert f(1) == '\\\\d'\"]\n"
    )
    assert len(load_suite(path).tasks) == 1


class Recorder:
    """Takes what an oracle does."""

    def __init__(self) -> None:
        self.actions: list[str] = []

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, object]]:
        self.actions.append(action)
        return "", 0.0, False, False, {}


@pytest.mark.parametrize(
    ("gold", "entry", "submitted"),
    [
        ("def f(n): ...", "", "submit f"),
        ("class Solution: ...", "Solution.add", "submit Solution"),
    ],
)
def test_the_oracle_submits_the_entry(gold: str, entry: str, submitted: str) -> None:
    made = task(["assert f(1) == 1"], gold, entry=entry)
    recorder = Recorder()
    make_oracle(made).run(made.view(), cast(AgentEnvironment, recorder))
    assert recorder.actions == [gold, submitted]


def test_the_oracle_submits_programs_without_a_name() -> None:
    program = Task(
        "t", "q", ("print(1)",), "python", "s", "s", fields=PythonFields((ProgramTest("", "1"),))
    )
    recorder = Recorder()
    make_oracle(program).run(program.view(), cast(AgentEnvironment, recorder))
    assert recorder.actions == ["print(1)", "submit"]
