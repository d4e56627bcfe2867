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
from pytest_intercode.environments.python.hidden_tests import entry_of, parse_code
from pytest_intercode.environments.swe.gold import gold_actions, is_patch

__all__ = [
    "MAX_ANSWERS",
    "changed_golds",
    "constants",
    "empty_answers",
    "idle_answers",
    "wrong_answers",
]

MAX_ANSWERS = 6
"""How many wrong answers are tried at one task."""

_MAX_SIBLINGS = 2  # golds of other tasks that are tried
_IDLE = {"bash": ":", "ctf": ":", "swe": ":", "python": "pass", "sql": "SELECT 1"}


def idle_answers(task: Task) -> Iterator[Answer]:
    """Yield what an agent may do that changes nothing."""
    yield Answer(description="a submission at once")
    action = _IDLE.get(task.env)
    if action is not None:
        yield Answer((action,), description=f"{action} and a submission")


def empty_answers(task: Task, gold: Played) -> Iterator[Answer]:
    """Yield answers that hold nothing, in as many columns as gold's rows have."""
    if task.env == "bash":
        yield Answer(("echo",), description="an empty line")
        yield Answer(submitted=" ", description="a blank")
    elif task.env == "ctf":
        flag, brace, _ = task.gold[0].partition("{")
        yield Answer(submitted=f"{flag}{{}}" if brace else " ", description="an empty flag")
    elif task.env == "python":
        yield _empty_python(task)
    elif task.env == "sql":
        width = gold.state.get("gold", {}).get("width", 1)
        yield Answer((_select_no_rows(max(width, 1)),), description="no rows")


def wrong_answers(task: Task, tasks: Sequence[Task]) -> list[Answer]:
    """Return wrong but plausible answers, at most :data:`MAX_ANSWERS` of them.

    Args:
        task: the task.
        tasks: the tasks of its suite, whose golds are wrong answers, too.
    """
    if task.env == "ctf":
        return _change_flag(task.gold[0])
    if task.env == "python":
        answers = itertools.chain(constants(task), changed_golds(task))
    else:
        changed = itertools.islice(changed_golds(task), MAX_ANSWERS - 1)
        answers = itertools.chain(changed, _find_sibling_golds(task, tasks))
    return list(itertools.islice(answers, MAX_ANSWERS))


def changed_golds(task: Task) -> Iterator[Answer]:
    """Yield gold with one part of it changed.

    A person has to judge each that solves the task: it may do the same in another way.
    """
    change = {
        "bash": _change_bash,
        "sql": _change_sql,
        "python": _change_python,
        "swe": _change_swe,
    }.get(task.env)
    return change(task) if change else iter(())


def _find_sibling_golds(task: Task, tasks: Sequence[Task]) -> Iterator[Answer]:
    """Yield the golds of other tasks on the same data, those that come next in the suite first."""
    if task.env not in ("bash", "sql"):
        return
    data, gold = data_of(task), normalised_gold(task)
    index = next((n for n, candidate in enumerate(tasks) if candidate.id == task.id), 0)
    count = 0
    for sibling in (*tasks[index + 1 :], *tasks[:index]):
        if count == _MAX_SIBLINGS:
            return
        if (
            sibling.env == task.env
            and data_of(sibling) == data
            and normalised_gold(sibling) != gold
        ):
            count += 1
            yield Answer(
                tuple(sibling.gold), description=f"the gold of {sibling.id}", certain=False
            )


def _change_flag(flag: str) -> list[Answer]:
    """Return flags of the same form, with letters changed."""
    inner = flag.find("{") + 1
    letters = [index for index in range(inner, len(flag)) if flag[index].isalnum()]
    flags = []
    for positions in (letters[-1:], letters[:2], letters):
        changed = list(flag)
        for position in positions:
            changed[position] = _next_letter(changed[position])
        flags.append("".join(changed))
    return [
        Answer(submitted=text, description="a flag with letters changed")
        for text in dict.fromkeys(flags)
        if text != flag
    ]


def _next_letter(letter: str) -> str:
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


def _change_bash(task: Task) -> Iterator[Answer]:
    for index in reversed(range(len(task.gold))):
        command = task.gold[index]
        changes = (
            ("gold with another number", _change_shell_number(command)),
            ("gold without an option", _cut(_OPTION, command)),
            ("gold without its last filter", _cut(_STAGE, command)),
            ("gold of another file", _change_file(task, command)),
        )
        for label, changed in changes:
            if changed and changed != command:
                actions = (*task.gold[:index], changed, *task.gold[index + 1 :])
                yield Answer(actions, description=label, certain=False)


def _change_shell_number(command: str) -> str:
    match = _NUMBER.search(command)
    if match is None:
        return ""
    number = str(int(match[0]) + 1).rjust(len(match[0]), "0")
    return command[: match.start()] + number + command[match.end() :]


def _cut(pattern: re.Pattern[str], command: str) -> str:
    match = pattern.search(command)
    return "" if match is None else command[: match.start()] + command[match.end() :]


def _change_file(task: Task, command: str) -> str:
    """Name another of the task's files where gold names one."""
    names = [path for path, spec in task.files.items() if spec.kind == "file"]
    for match in _PATH.finditer(command):
        if match[0] in names:
            candidates = [name for name in names if name != match[0]]
            of_same_type = [
                n for n in candidates if n.rpartition(".")[2] == match[0].rpartition(".")[2]
            ]
            for replacement in of_same_type or candidates:
                return command[: match.start()] + replacement + command[match.end() :]
    return ""


# -- swe

_FILE = re.compile(r"^diff --git ", re.MULTILINE)
_HUNK = re.compile(r"^@@ ", re.MULTILINE)


def _change_swe(task: Task) -> Iterator[Answer]:
    """Yield a patch without one of its files, and without the last hunk of one."""
    if len(task.gold) != 1 or not is_patch(task.gold[0]):
        return
    begins = [match.start() for match in _FILE.finditer(task.gold[0])]
    files = [task.gold[0][a:b] for a, b in itertools.pairwise([*begins, len(task.gold[0])])]
    for index, text in enumerate(files):
        hunks = [match.start() for match in _HUNK.finditer(text)]
        for part, remainder in (
            ("a hunk", text[: hunks[-1]] if len(hunks) > 1 else ""),
            ("a file", ""),
        ):
            changed = "".join((*files[:index], remainder, *files[index + 1 :]))
            if changed and (remainder or part == "a file"):
                actions = tuple(gold_actions(replace(task, gold=(changed,))))
                yield Answer(actions, description=f"gold without {part}", certain=False)


# -- sql

_CLAUSES = ("WHERE", "GROUP", "HAVING", "ORDER", "LIMIT", "UNION", "INTERSECT", "EXCEPT", "WINDOW")
_REMOVABLE_CLAUSES = ("WHERE", "HAVING", "LIMIT")


def _change_sql(task: Task) -> Iterator[Answer]:
    """Yield gold without its WHERE, HAVING, LIMIT and DISTINCT, in another order, and so on.

    Gold without ORDER BY is worth a note and no more: rows often come in the order of their keys.
    """
    *earlier, last = task.gold
    tokens = list(scan(last, dialect_of(task)))
    for word in _REMOVABLE_CLAUSES:
        text = _cut_clause(last, tokens, word)
        if text:
            yield Answer((*earlier, text), description=f"gold without {word}", certain=False)
    for token in tokens:
        if is_word(token, "DISTINCT"):
            text = last[: token.start] + last[token.end :]
            yield Answer((*earlier, text), description="gold without DISTINCT", certain=False)
            break
    for previous, token in itertools.pairwise(tokens):
        if token.kind == "number" and token.text.isdigit() and not is_word(previous, "SELECT"):
            text = f"{last[: token.start]}{int(token.text) + 1}{last[token.end :]}"
            yield Answer((*earlier, text), description="gold with another number", certain=False)
            break
    order = next(
        (index for index, t in enumerate(tokens) if not t.depth and is_word(t, "ORDER")), None
    )
    if order is not None:
        yield Answer(
            (*earlier, _reverse_order(last, tokens, order)),
            description="gold in reverse",
            certain=False,
        )
        text = _cut_clause(last, tokens, "ORDER")
        yield Answer(
            (*earlier, text), description="gold without ORDER BY", certain=False, note=True
        )


def _reverse_order(text: str, tokens: list[Token], order: int) -> str:
    """Turn the direction of the first key of ORDER BY."""
    end = len(text)
    for token in tokens[order + 2 :]:
        if is_word(token, "ASC", "DESC") and not token.depth:
            direction = "DESC" if is_word(token, "ASC") else "ASC"
            return f"{text[: token.start]}{direction}{text[token.end :]}"
        stops = token.text in {",", ";"} or is_word(token, "LIMIT", "NULLS", "COLLATE")
        if stops and not token.depth:
            end = token.start
            break
    return f"{text[:end].rstrip()} DESC {text[end:]}"


def _cut_clause(text: str, tokens: list[Token], word: str) -> str:
    """Cut the last clause of a kind that is not in parentheses."""
    starts = [index for index, t in enumerate(tokens) if t.depth == 0 and is_word(t, word)]
    if not starts:
        return ""
    begin = starts[-1]
    end = len(text)
    for token in tokens[begin + 1 :]:
        if token.depth == 0 and (is_word(token, *_CLAUSES) or token.text == ";"):
            end = token.start
            break
    return f"{text[: tokens[begin].start]}{text[end:]}".rstrip()


def _select_no_rows(width: int) -> str:
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
        return Answer(("pass",), description="an empty program")
    head, _, method = name.partition(".")
    if method:
        source = f"class {head}:\n    def {method}(self, *args, **kwargs):\n        pass"
    else:
        source = f"def {head}(*args, **kwargs):\n    pass"
    return Answer((source,), head, description="a body that does nothing")


def constants(task: Task) -> Iterator[Answer]:
    """Yield a function that returns, or a program that prints, what a test expects, always."""
    name = entry_of(task)
    expected = Counter(_find_expected(task))
    if not expected and name:
        expected = Counter(["True", "False"])  # asserts that compare nothing
    for value, _ in expected.most_common(2):
        if not name:
            yield Answer(
                (f"print({value}, end='')",), description="a program that always prints the same"
            )
        elif "." not in name:
            source = f"def {name}(*args, **kwargs):\n    return {value}"
            yield Answer((source,), name, description="a body that returns a constant")


def _find_expected(task: Task) -> Iterator[str]:
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
                    yield from _find_compared(node.test)


def _find_compared(node: ast.expr) -> Iterator[str]:
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


def _change_python(task: Task) -> Iterator[Answer]:
    name = entry_of(task).partition(".")[0]
    for label, change in _CHANGES:
        for index in reversed(range(len(task.gold))):
            tree = parse_code(task.gold[index])
            if tree is not None and any(map(change, ast.walk(tree))):
                actions = (*task.gold[:index], ast.unparse(tree), *task.gold[index + 1 :])
                yield Answer(actions, name, description=label, certain=False)
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
