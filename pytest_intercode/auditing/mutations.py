"""Wrong answers to a task, made from its gold, its tests or other tasks. Runs nothing."""

from __future__ import annotations

import ast
import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from pytest_intercode.auditing.duplicates import data_of, dialect_of, normalised_gold
from pytest_intercode.auditing.playing import Answer, Played
from pytest_intercode.core.task import CallTest, CodeTest, ProgramTest, Task
from pytest_intercode.databases.scan import Token, is_word, scan
from pytest_intercode.environments.swe.gold import gold_actions, is_patch
from pytest_intercode.suites.python_tests import entry_of, parse_code

__all__ = [
    "MOST",
    "changed_golds",
    "constants",
    "empty_answers",
    "idle_answers",
    "wrong_answers",
]

MOST = 6
"""How many wrong answers are tried at one task."""

_SIBLINGS = 2
_IDLE = {"bash": ":", "ctf": ":", "swe": ":", "python": "pass", "sql": "SELECT 1"}


def idle_answers(task: Task) -> Iterator[Answer]:
    """Yield what an agent may do that changes nothing."""
    yield Answer(what="a submission at once")
    action = _IDLE.get(task.env)
    if action is not None:
        yield Answer((action,), what=f"{action} and a submission")


def empty_answers(task: Task, gold: Played) -> Iterator[Answer]:
    """Yield answers that hold nothing, in as many columns as gold's rows have."""
    if task.env == "bash":
        yield Answer(("echo",), what="an empty line")
        yield Answer(submitted=" ", what="a blank")
    elif task.env == "ctf":
        flag, brace, _ = task.gold[0].partition("{")
        yield Answer(submitted=f"{flag}{{}}" if brace else " ", what="an empty flag")
    elif task.env == "python":
        yield _empty_python(task)
    elif task.env == "sql":
        width = gold.state.get("gold", {}).get("width", 1)
        yield Answer((_no_rows(max(width, 1)),), what="no rows")


def wrong_answers(task: Task, tasks: Sequence[Task]) -> list[Answer]:
    """Return wrong but plausible answers, at most :data:`MOST` of them.

    Args:
        task: the task.
        tasks: the tasks of its suite, whose golds are wrong answers, too.
    """
    if task.env == "ctf":
        return _changed_flags(task.gold[0])
    if task.env == "python":
        answers = itertools.chain(constants(task), changed_golds(task))
    else:
        changed = itertools.islice(changed_golds(task), MOST - 1)
        answers = itertools.chain(changed, _golds_of_others(task, tasks))
    return list(itertools.islice(answers, MOST))


def changed_golds(task: Task) -> Iterator[Answer]:
    """Yield gold with one part of it changed.

    A person has to judge each that solves the task: it may do the same in another way.
    """
    change = {
        "bash": _changed_bash,
        "sql": _changed_sql,
        "python": _changed_python,
        "swe": _changed_swe,
    }.get(task.env)
    return change(task) if change else iter(())


def _golds_of_others(task: Task, tasks: Sequence[Task]) -> Iterator[Answer]:
    """Yield the golds of other tasks on the same data, those that come next in the suite first."""
    if task.env not in ("bash", "sql"):
        return
    data, own = data_of(task), normalised_gold(task)
    at = next((n for n, other in enumerate(tasks) if other.id == task.id), 0)
    found = 0
    for other in (*tasks[at + 1 :], *tasks[:at]):
        if found == _SIBLINGS:
            return
        if other.env == task.env and data_of(other) == data and normalised_gold(other) != own:
            found += 1
            yield Answer(tuple(other.gold), what=f"the gold of {other.id}", certain=False)


def _changed_flags(flag: str) -> list[Answer]:
    """Return flags of the same form, with letters changed."""
    inner = flag.find("{") + 1
    letters = [at for at in range(inner, len(flag)) if flag[at].isalnum()]
    made = []
    for places in (letters[-1:], letters[:2], letters):
        changed = list(flag)
        for at in places:
            changed[at] = _next(changed[at])
        made.append("".join(changed))
    return [
        Answer(submitted=text, what="a flag with letters changed")
        for text in dict.fromkeys(made)
        if text != flag
    ]


def _next(letter: str) -> str:
    for first, last in ("az", "AZ", "09"):
        if first <= letter <= last:
            return first if letter == last else chr(ord(letter) + 1)
    return "x"


# -- bash

# A number that is a word, an option's value or awk's $N; not a part of a name, nor of `2>&1`.
_NUMBER = re.compile(r"(?<![\w.&>/-])\d+(?![\w.>]|&\d)")
# find's tests go with what they test for; what a number or a quote follows may need it.
_OPTION = re.compile(
    r"(?<=\s)(?<!read )(?:"
    r"-(?:type|i?name|i?path|i?regex|[acm]time|[acm]min|size|perm|user|group|newer|m(?:in|ax)depth)"
    r"\s+(?:'[^']*'|\"[^\"]*\"|\S+)"
    r"|-{1,2}[A-Za-z][\w-]*(?=\s)(?!\s+[+\d'\"]))"
)
_STAGE = re.compile(r"\s*\|\s*[^|&;()<>`\n]+$")
_PATH = re.compile(r"(?<![\w$/.*-])(?:[\w.-]+/)*[\w-]+\.[A-Za-z]\w*(?![\w/.])")


def _changed_bash(task: Task) -> Iterator[Answer]:
    for at in reversed(range(len(task.gold))):
        command = task.gold[at]
        changes = (
            ("gold with another number", _other_number(command)),
            ("gold without an option", _cut(_OPTION, command)),
            ("gold without its last filter", _cut(_STAGE, command)),
            ("gold of another file", _other_file(task, command)),
        )
        for what, changed in changes:
            if changed and changed != command:
                actions = (*task.gold[:at], changed, *task.gold[at + 1 :])
                yield Answer(actions, what=what, certain=False)


def _other_number(command: str) -> str:
    found = _NUMBER.search(command)
    if found is None:
        return ""
    more = str(int(found[0]) + 1).rjust(len(found[0]), "0")
    return command[: found.start()] + more + command[found.end() :]


def _cut(pattern: re.Pattern[str], command: str) -> str:
    found = pattern.search(command)
    return "" if found is None else command[: found.start()] + command[found.end() :]


def _other_file(task: Task, command: str) -> str:
    """Name another of the task's files where gold names one."""
    names = [path for path, spec in task.files.items() if spec.kind == "file"]
    for found in _PATH.finditer(command):
        if found[0] in names:
            others = [name for name in names if name != found[0]]
            near = [n for n in others if n.rpartition(".")[2] == found[0].rpartition(".")[2]]
            for other in near or others:
                return command[: found.start()] + other + command[found.end() :]
    return ""


# -- swe

_FILE = re.compile(r"^diff --git ", re.MULTILINE)
_HUNK = re.compile(r"^@@ ", re.MULTILINE)


def _changed_swe(task: Task) -> Iterator[Answer]:
    """Yield a patch without one of its files, and without the last hunk of one."""
    if len(task.gold) != 1 or not is_patch(task.gold[0]):
        return
    begins = [found.start() for found in _FILE.finditer(task.gold[0])]
    files = [task.gold[0][a:b] for a, b in itertools.pairwise([*begins, len(task.gold[0])])]
    for at, text in enumerate(files):
        hunks = [found.start() for found in _HUNK.finditer(text)]
        for what, kept in (("a hunk", text[: hunks[-1]] if len(hunks) > 1 else ""), ("a file", "")):
            changed = "".join((*files[:at], kept, *files[at + 1 :]))
            if changed and (kept or what == "a file"):
                actions = tuple(gold_actions(replace(task, gold=(changed,))))
                yield Answer(actions, what=f"gold without {what}", certain=False)


# -- sql

_CLAUSES = ("WHERE", "GROUP", "HAVING", "ORDER", "LIMIT", "UNION", "INTERSECT", "EXCEPT", "WINDOW")
_LEFT_OUT = ("WHERE", "HAVING", "LIMIT")


def _changed_sql(task: Task) -> Iterator[Answer]:
    """Yield gold without its WHERE, HAVING, LIMIT and DISTINCT, in another order, and so on.

    Gold without ORDER BY is worth a note and no more: rows often come in the order of their keys.
    """
    *before, last = task.gold
    tokens = list(scan(last, dialect_of(task)))
    for word in _LEFT_OUT:
        text = _without(last, tokens, word)
        if text:
            yield Answer((*before, text), what=f"gold without {word}", certain=False)
    for token in tokens:
        if is_word(token, "DISTINCT"):
            text = last[: token.start] + last[token.end :]
            yield Answer((*before, text), what="gold without DISTINCT", certain=False)
            break
    for previous, token in itertools.pairwise(tokens):
        if token.kind == "number" and token.text.isdigit() and not is_word(previous, "SELECT"):
            text = f"{last[: token.start]}{int(token.text) + 1}{last[token.end :]}"
            yield Answer((*before, text), what="gold with another number", certain=False)
            break
    order = next((at for at, t in enumerate(tokens) if not t.depth and is_word(t, "ORDER")), None)
    if order is not None:
        yield Answer(
            (*before, _reversed(last, tokens, order)), what="gold in reverse", certain=False
        )
        text = _without(last, tokens, "ORDER")
        yield Answer((*before, text), what="gold without ORDER BY", certain=False, note=True)


def _reversed(text: str, tokens: list[Token], order: int) -> str:
    """Turn the direction of the first key of ORDER BY."""
    end = len(text)
    for token in tokens[order + 2 :]:
        if is_word(token, "ASC", "DESC") and not token.depth:
            turned = "DESC" if is_word(token, "ASC") else "ASC"
            return f"{text[: token.start]}{turned}{text[token.end :]}"
        stops = token.text in {",", ";"} or is_word(token, "LIMIT", "NULLS", "COLLATE")
        if stops and not token.depth:
            end = token.start
            break
    return f"{text[:end].rstrip()} DESC {text[end:]}"


def _without(text: str, tokens: list[Token], word: str) -> str:
    """Cut the last clause of a kind that stands in no parentheses."""
    starts = [at for at, t in enumerate(tokens) if t.depth == 0 and is_word(t, word)]
    if not starts:
        return ""
    begin = starts[-1]
    end = len(text)
    for token in tokens[begin + 1 :]:
        if token.depth == 0 and (is_word(token, *_CLAUSES) or token.text == ";"):
            end = token.start
            break
    return f"{text[: tokens[begin].start]}{text[end:]}".rstrip()


def _no_rows(width: int) -> str:
    """Return a query that has so many columns, and no rows, in either dialect."""
    columns = ", ".join(f"1 AS c{number}" for number in range(1, width + 1))
    return f"SELECT * FROM (SELECT {columns}) AS e WHERE 1 = 0"


# -- python

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    **{ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt},
    **{ast.Eq: ast.NotEq, ast.NotEq: ast.Eq},
}
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    **{ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add},
    **{ast.FloorDiv: ast.Mult, ast.Div: ast.Mult},
}


def _empty_python(task: Task) -> Answer:
    """Return a function that does nothing, or an empty program."""
    name = entry_of(task)
    if not name:
        return Answer(("pass",), what="an empty program")
    head, _, method = name.partition(".")
    if method:
        source = f"class {head}:\n    def {method}(self, *args, **kwargs):\n        pass"
    else:
        source = f"def {head}(*args, **kwargs):\n    pass"
    return Answer((source,), head, what="a body that does nothing")


def constants(task: Task) -> Iterator[Answer]:
    """Yield a function that returns, or a program that prints, what a test expects, always."""
    name = entry_of(task)
    expected = Counter(_expected(task))
    if not expected and name:
        expected = Counter(["True", "False"])  # asserts that compare nothing
    for value, _ in expected.most_common(2):
        if not name:
            yield Answer((f"print({value}, end='')",), what="a program that always prints the same")
        elif "." not in name:
            source = f"def {name}(*args, **kwargs):\n    return {value}"
            yield Answer((source,), name, what="a body that returns a constant")


def _expected(task: Task) -> Iterator[str]:
    """Yield what tests expect of a call, as literals."""
    for test in task.tests:
        if isinstance(test, CallTest):
            yield repr(test.result)
        elif isinstance(test, ProgramTest):
            yield repr(test.output)
        elif isinstance(test, CodeTest):
            tree = parse_code(test.code)
            for node in ast.walk(tree) if tree else ():
                if isinstance(node, ast.Assert):
                    yield from _compared(node.test)


def _compared(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield "False"
    elif isinstance(node, ast.Call):
        yield "True"
    elif isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq | ast.Is):
        for side in (node.comparators[0], node.left):
            try:
                yield repr(ast.literal_eval(side))
                return
            except (ValueError, TypeError, MemoryError, RecursionError):
                continue


def _changed_python(task: Task) -> Iterator[Answer]:
    name = entry_of(task).partition(".")[0]
    for what, change in _CHANGES:
        for at in reversed(range(len(task.gold))):
            tree = parse_code(task.gold[at])
            if tree is not None and any(map(change, ast.walk(tree))):
                actions = (*task.gold[:at], ast.unparse(tree), *task.gold[at + 1 :])
                yield Answer(actions, name, what=what, certain=False)
                break


def _change_comparison(node: ast.AST) -> bool:
    if isinstance(node, ast.Compare) and type(node.ops[0]) in _COMPARISONS:
        node.ops[0] = _COMPARISONS[type(node.ops[0])]()
        return True
    return False


def _change_number(node: ast.AST) -> bool:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        node.value += 1
        return True
    return False


def _change_operator(node: ast.AST) -> bool:
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        node.op = _OPERATORS[type(node.op)]()
        return True
    return False


_CHANGES: tuple[tuple[str, Callable[[ast.AST], bool]], ...] = (
    ("gold with another comparison", _change_comparison),
    ("gold with a number off by one", _change_number),
    ("gold with another operator", _change_operator),
)
