"""Names say what they hold, and what an environment or a backend is lies in one folder.

The rules are those of CONTRIBUTING.md, "Names". They are read from the sources, as nobody keeps
them by heart: a local that is called ``each`` or ``found`` costs every reader of its function.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache

import pytest

from tests.support.architecture import MODULES, top

# Function words of English: they have no meaning by themselves, so as names they hold anything.
_FUNCTION_WORDS = (
    "me my mine we our ours you your yours he him his she her hers it its they them their theirs "
    "what which who whom whoever whatever this that these those is are was were be been being have "
    "has had do does did an the and but if or because as until while of at by for with about "
    "against between into through during before after above below to from up down in out on off "
    "over under again further then once here there when where why how all any both each few more "
    "most other others some such no nor not only own same so than too very can will just should "
    "now"
)
# Participles without their noun: "found" may be a match, a list, a file or a record.
_PARTICIPLES = (
    "found made said told asked given kept left shown known taken begun written sent seen got came "
    "meant built done ended begged named listed wanted needed used read heard spent lost held "
    "bound counted checked added parsed allowed put looked tried met cut drawn chosen thrown "
    "fallen"
)
_VAGUE = frozenset((*_FUNCTION_WORDS.split(), *_PARTICIPLES.split()))

# Words for which Python's own documentation has a usual one (CONTRIBUTING.md has the list).
_UNUSUAL = re.compile(
    r"\b(?:spoil\w*|mend(?:s|ed|ing)?|anew|farewells?|patien(?:t|ce)|blam(?:e[ds]?|ing))\b"
    r"|\b(?:is|are) no (?!longer\b|more than\b|fewer\b|less\b|such\b|other\b|one\b)"
    r"(?<!there is no )(?<!there are no )",
    re.IGNORECASE,
)

_ENVIRONMENTS = frozenset(("bash", "sql", "python", "ctf", "swe"))
_BACKENDS = frozenset(("docker", "bubblewrap"))

_MAX_MODULE = 500  # lines
_MAX_CLASS = 300  # lines


@cache
def _tree(module: str) -> ast.Module:
    return ast.parse(MODULES[module].read_text(encoding="utf-8"))


def _names_of(tree: ast.AST) -> Iterator[ast.Name]:
    """Yield the names that are bound, without those of one letter and fields of classes.

    Fields are read behind a noun (``change.before``), and many are keys that files have.
    """
    fields = {
        statement.target
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for statement in node.body
        if isinstance(statement, ast.AnnAssign)
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Name) or node in fields or len(node.id) == 1:
            continue
        if isinstance(node.ctx, ast.Store):
            yield node


def _literals(node: ast.expr) -> set[str]:
    values = node.elts if isinstance(node, (ast.Tuple, ast.List, ast.Set)) else [node]
    constants = (value.value for value in values if isinstance(value, ast.Constant))
    return {value for value in constants if isinstance(value, str)}


def _compared(tree: ast.AST, names: frozenset[str]) -> Iterator[int]:
    """Yield the lines where something is compared with a name, or looked up by names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            if names & set().union(*map(_literals, (node.left, *node.comparators))):
                yield node.lineno
        elif isinstance(node, ast.Dict):
            keys = set().union(*(_literals(key) for key in node.keys if key is not None))
            if len(names & keys) > 1:  # one alone may be an option, or a program's name
                yield node.lineno


def test_a_local_is_a_noun_that_says_what_it_holds() -> None:
    assert not [
        f"{path}:{node.lineno}: {node.id}"
        for module, path in MODULES.items()
        for node in _names_of(_tree(module))
        if node.id in _VAGUE
    ]


def test_words_are_the_usual_ones() -> None:
    assert not [
        f"{path}:{number}: {line.strip()}"
        for path in MODULES.values()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if _UNUSUAL.search(line)
    ]


@pytest.mark.parametrize(
    ("folder", "names"), [("environments", _ENVIRONMENTS), ("sandboxes", _BACKENDS)]
)
def test_one_folder_knows_the_names(folder: str, names: frozenset[str]) -> None:
    assert not [
        f"{path}:{line}"
        for module, path in MODULES.items()
        if top(module) != folder
        for line in _compared(_tree(module), names)
    ]


def test_modules_and_classes_can_be_read_in_one_go() -> None:
    lengths = {
        str(path): len(path.read_text(encoding="utf-8").splitlines()) for path in MODULES.values()
    }
    assert not {name: length for name, length in lengths.items() if length > _MAX_MODULE}
    classes = {
        f"{path}: {node.name}": (node.end_lineno or 0) - node.lineno + 1
        for module, path in MODULES.items()
        for node in ast.walk(_tree(module))
        if isinstance(node, ast.ClassDef)
    }
    assert not {name: length for name, length in classes.items() if length > _MAX_CLASS}


def test_the_rules_see_what_they_should() -> None:
    tree = ast.parse(
        "class C:\n    at: str\nfor each in found:\n    said = x == 'sql' or {'bash': 1, 'swe': 2}"
    )
    assert [node.id for node in _names_of(tree)] == ["each", "said"]
    assert list(_compared(tree, _ENVIRONMENTS)) == [4, 4]
    assert not list(_compared(tree, _BACKENDS))
    for text in ("it is no JSON", "run anew", "what it spoiled", "these are no rows"):
        assert _UNUSUAL.search(text), text
    for text in ("there is no file", "it is no longer there", "amend", "recommend", "not a file"):
        assert not _UNUSUAL.search(text), text
