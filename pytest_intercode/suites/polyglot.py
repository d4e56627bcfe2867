"""The exercises of Aider's polyglot benchmark, as rows with hidden tests.

An exercise is a folder from Exercism, whose ``.meta/config.json`` names its files. The agent gets
the files to work with, and the verifier gets the tests, all enabled. This module only reads files.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pytest_intercode.errors import SuiteError
from pytest_intercode.suites.harbor.parts import make_gold, read_text
from pytest_intercode.system.rows import Row, read_json
from pytest_intercode.system.suite_folder import SuitePath

__all__ = ["LANGUAGES", "exercises_folder", "read_polyglot"]

_WORKDIR = "/exercises"  # C++ exercises derive their name from their folder's
_TIMEOUT = 180.0  # seconds for the tests
_DOCS = ("introduction.md", "instructions.md", "instructions.append.md")
_TESTS = re.compile(
    r"(?:tests?|benches|src/test)/.*|.*_test\.(?:go|py|cpp)|.*\.spec\.js", re.DOTALL
)
# Java's build files are not needed, as there is no Gradle. Hidden files hold hints and examples.
_LEFT_OUT = re.compile(r"\..*|gradlew?(?:\.bat|/.*)?|LICENSE|build\.gradle", re.DOTALL)
_MANIFEST = "Cargo.toml"  # part of a solution that needs a crate
_BABEL = """module.exports = {
  plugins: ['/usr/share/nodejs/@babel/plugin-transform-modules-commonjs'],
};
"""
_ADVICE = """

Solve this exercise by changing {files} in the working directory. Keep the names of functions and
classes, which the tests use; you do not see these. Use the standard library alone.
"""


_REFACTORED = "its stub passes its tests as it is: it is there to be refactored"
_SKIPPED = {
    "go/counter": "it is a test suite to be written, and whatever compiles passes",
    "go/ledger": _REFACTORED,
    "go/markdown": _REFACTORED,
    "java/hangman": "its tests need RxJava 2, which Debian does not have",
    "java/ledger": _REFACTORED,
    "java/mazy-mice": "its tests need a newer AssertJ than Debian has",
    "java/tree-building": _REFACTORED,
    "javascript/ledger": _REFACTORED,
}
_CRATE = "its example needs the crate {}, which Debian does not have"
_NO_GOLD = {
    "go/dnd-character": "its example needs Go 1.21, and Debian's is 1.19",
    "rust/alphametics": _CRATE.format("itertools 0.5"),
    "rust/decimal": _CRATE.format("num-bigint 0.4.4"),
    "rust/pig-latin": _CRATE.format("regex 0.2"),
    "rust/poker": _CRATE.format("counter 0.5"),
    "rust/robot-name": _CRATE.format("rand 0.3"),
}


@dataclass(frozen=True)
class _Language:
    """How exercises of one language are tested.

    Attributes:
        command: the command that runs the tests, and builds in the folder ``$build``.
        passed: a pattern (of ``grep -E``) for a line that reports passed tests. A run that ends
            with status 0 must print one, because a solution could end the run early.
        count: a pattern in the tests' files, for each match of which such a line is needed; empty
            to need one line.
        disabled: a pattern for the code that disables a test.
        enabled: the replacement for that code.
    """

    command: str
    passed: str
    count: str = ""
    disabled: str = ""
    enabled: str = ""


_JARS = "/usr/share/java"
LANGUAGES = {
    "cpp": _Language(
        'cmake -S . -B "$build" -G "Unix Makefiles" -DEXERCISM_RUN_ALL_TESTS=1 && make -C "$build"',
        r"^All tests passed \([0-9]+ assertions? in [0-9]+ test cases?\)$",
    ),
    "go": _Language("go test -v ./...", "^--- PASS: ", r"^func Test"),
    "java": _Language(
        f"javac -encoding UTF-8 -d \"$build\" -cp '{_JARS}/*' $(find src -name '*.java') && "
        f'java -cp "$build:{_JARS}/*" org.junit.platform.console.ConsoleLauncher '
        '--scan-classpath="$build" --disable-banner --disable-ansi-colors --details=tree',
        r"^\[ +[1-9][0-9]* tests successful +\]$",
        disabled=r"@Disabled\([^)]*\)\s*\n",
    ),
    "javascript": _Language(
        "jest ./*", "^Tests: .*[1-9][0-9]* passed", disabled=r"\bxtest\(", enabled="test("
    ),
    "python": _Language("python3 -m pytest -rA -p no:cacheprovider", ""),
    "rust": _Language(
        'CARGO_TARGET_DIR="$build" cargo test -- --include-ignored', r"^test result: ok\. [1-9]"
    ),
}
"""The languages, by the names of their folders."""

# Earlier build results are not used, because an agent may have left them.
_CHECKED = """log=$(mktemp) build=$(mktemp -d)
({command}) >"$log" 2>&1
status=$?
cat "$log"
[ $status = 0 ] || exit $status
[ "$(grep -Ec {passed} "$log")" -ge {count} ] && exit
echo 'the tests did not run to their end'
exit 1
"""


def exercises_folder(language: SuitePath) -> SuitePath:
    """Return the folder of the exercises in a language's folder."""
    return language / "exercises" / "practice"


def read_polyglot(path: SuitePath) -> Iterator[tuple[str, Row]]:
    """Yield the place and the fields of each exercise of a language.

    Args:
        path: the folder of the language, with the layout of the benchmark's repository.

    Raises:
        SuiteError: a file is missing, or has another form.
    """
    language = LANGUAGES.get(path.name)
    if language is None:
        raise SuiteError(f"{path}: a folder of {', '.join(LANGUAGES)} is needed")
    folder = exercises_folder(path)
    contents: dict[str, dict[str, str]] = {}  # many exercises share a header of the tests
    for exercise in folder.iterdir():
        if (exercise / ".meta" / "config.json").is_file():
            yield str(exercise), _row(exercise, path.name, language, contents)


def _row(
    folder: SuitePath, name: str, language: _Language, contents: dict[str, dict[str, str]]
) -> Row:
    names = _read_config(folder)
    solution = [path for path in names["solution"] if path != _MANIFEST]
    agent_files: dict[str, Any] = {}
    tests_files: dict[str, Any] = {}
    test_texts = []
    for path, file in folder.files():
        if _LEFT_OUT.fullmatch(path):
            continue
        text = _BABEL if path == "babel.config.js" else read_text(file, "a file")
        is_test = path in names["test"] or _TESTS.fullmatch(path) is not None
        if path in names["test"]:
            text = re.sub(language.disabled, language.enabled, text) if language.disabled else text
        if is_test and path in (*names["test"], *names["editor"]):
            test_texts.append((path, text))
        content = contents.setdefault(text, {"text": text})
        if not is_test:
            agent_files[path] = content
        if path not in (*solution, _MANIFEST):
            tests_files[path] = content
    workdir = f"{_WORKDIR}/{folder.name}"
    name_of_both = f"{name}/{folder.name}"
    return {
        "exercise": folder.name,
        "language": name,
        "query": _query(folder, solution),
        "gold": make_gold(_gold(folder, names, workdir), "true", workdir)[0],
        "workdir": workdir,
        "skip": _SKIPPED.get(name_of_both),
        "gold_skip": _NO_GOLD.get(name_of_both),
        "files": agent_files,
        "verification": {"files": tests_files, **_tested(language, test_texts)},
    }


def _read_config(folder: SuitePath) -> dict[str, list[str]]:
    """Return the names of an exercise's files, by their roles."""
    path = folder / ".meta" / "config.json"
    try:
        files = read_json(path)["files"]
        names = {role: list(files.get(role, ())) for role in _ROLES}
    except (KeyError, TypeError, AttributeError):
        raise SuiteError(f"{path}: files: an object with lists of names is needed") from None
    if not names["solution"] or not names["test"] or not names["example"]:
        raise SuiteError(f"{path}: files: solution, test and example are needed")
    return names


_ROLES = ("solution", "test", "example", "editor")


def _query(folder: SuitePath, solution: list[str]) -> str:
    docs = [folder / ".docs" / name for name in _DOCS]
    texts = [read_text(path, "the instructions") for path in docs if path.is_file()]
    return "".join(texts).rstrip() + _ADVICE.format(files=" and ".join(solution))


def _gold(folder: SuitePath, names: dict[str, list[str]], workdir: str) -> dict[str, SuitePath]:
    """Return the files of an exercise's example, by the paths of the solution's files."""
    files = {}
    for example in names["example"]:
        _, is_java, path = example.partition(".meta/src/reference/java/")
        suffix = example.rpartition(".")[2]
        fitting = [name for name in names["solution"] if name.endswith(f".{suffix}")]
        target = f"src/main/java/{path}" if is_java else fitting[0]
        files[f"{workdir}/{target}"] = folder / example
    manifest = folder / ".meta" / "Cargo-example.toml"
    if manifest.is_file():
        files[f"{workdir}/{_MANIFEST}"] = manifest
    return files


def _test_names(path: str, text: str) -> list[str]:
    """Return the node ids of the tests in a Python file.

    Raises:
        SuiteError: it is not Python.
    """
    try:
        classes = [node for node in ast.parse(text).body if isinstance(node, ast.ClassDef)]
    except (SyntaxError, ValueError, RecursionError) as error:
        raise SuiteError(f"{path}: not Python: {error}") from None
    methods = ((cls.name, node) for cls in classes for node in cls.body)
    return [
        f"{path}::{name}::{node.name}"
        for name, node in methods
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test")
    ]


def _tested(language: _Language, tests: list[tuple[str, str]]) -> Row:
    """Return how an exercise is graded; Python's tests by their names, with sentinels."""
    if not language.passed:
        names = [name for path, text in tests for name in _test_names(path, text)]
        command = f"{language.command} {shlex.join(path for path, _ in tests)}"
        return {"command": command, "parser": "pytest", "fail_to_pass": names, "timeout": _TIMEOUT}
    count = 1
    if language.count:
        count = sum(len(re.findall(language.count, text, re.MULTILINE)) for _, text in tests)
    command = _CHECKED.format(
        command=language.command, passed=shlex.quote(language.passed), count=count
    )
    return {"command": command, "parser": "status", "timeout": _TIMEOUT}
