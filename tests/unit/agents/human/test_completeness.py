"""Enter runs what is complete, and goes on where something is still to come."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from pytest_intercode.agents.human.completeness import describe_missing, is_command

SHELL = [
    ("ls -1", ""),
    ("echo 'a", "closing '"),
    ('echo "a', 'closing "'),
    ("echo $(ls", "closing )"),
    ("ls \\", "after the backslash"),
    ("ls \\\\", ""),
    ("ls |", "end of the command"),
    ("for f in *; do", "end of the command"),
    ("for f in *; do\necho $f\ndone", ""),
    ("cat <<END", "line END"),
    ("cat <<END\nbody\nEND", ""),
    (")", ""),  # wrong in itself: the sandbox says so
    (": > file", ""),
]
SQLITE = [
    ("SELECT 1;", ""),
    ("SELECT 1", "; at its end"),
    ("SELECT 1\n", ""),  # an empty line
    ("SELECT ';", "; at its end"),
    ("SELECT 1; -- two", ""),
    ("-- a comment", "; at its end"),
    ("CREATE TRIGGER t AFTER INSERT ON a BEGIN\nDELETE FROM b;", "; at its end"),
    ("CREATE TRIGGER t AFTER INSERT ON a BEGIN\nDELETE FROM b;\nEND;", ""),
    (".tables", ""),
    ("", ""),
]
MYSQL = [("SELECT 'it\\'s;", "; at its end"), ("SELECT 1; # two", ""), (".tables", "; at its end")]
PYTHON = [
    ("print(1)", ""),
    ("print(", "end of the statement"),
    ("text = '''one", "end of the statement"),
    ("def f():", "end of the statement"),
    ("def f():\n    return 1", "empty line"),
    ("def f():\n    return 1\n", ""),
    ("def f():\n    return 1\nprint(f())", ""),
    ("x = )", ""),
    ("x = 1 \\", "end of the statement"),
    ("'\\d'", ""),  # a warning of the compiler's is nobody's here
]
CASES = [
    *(("bash", "", text, lacks) for text, lacks in SHELL),
    *(("sql", "sqlite", text, lacks) for text, lacks in SQLITE),
    *(("sql", "mysql", text, lacks) for text, lacks in MYSQL),
    *(("python", "", text, lacks) for text, lacks in PYTHON),
]


@pytest.mark.parametrize(("env", "engine", "text", "lacks"), CASES)
def test_what_is_still_to_come(env: str, engine: str, text: str, lacks: str) -> None:
    found = describe_missing(text, env, engine)
    assert lacks in found
    assert bool(lacks) == bool(found)


@pytest.mark.parametrize("env", ["bash", "ctf", "sql", "python"])
@pytest.mark.parametrize("text", ["submit", "submit don't", "submit f(", ":help", " ", ""])
def test_submissions_commands_and_nothing_are_complete(env: str, text: str) -> None:
    assert describe_missing(text, env) == ""


def test_looking_at_a_shell_command_runs_nothing(tmp_path: Path) -> None:
    made = tmp_path / "made"
    assert describe_missing(f"touch {made}; echo $(touch {made}) <<END", "bash")
    assert not made.exists()


def test_without_bash_only_a_backslash_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert describe_missing("echo 'a", "bash") == ""
    assert describe_missing("echo \\", "bash")


def test_more_than_the_arguments_of_a_program_may_hold() -> None:
    assert describe_missing("echo '" + "a" * 300_000, "bash")


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        *((text, True) for text in (":help", ":give-up ", ":?")),
        *((text, False) for text in (": x", " :help", ":help\nls", ":", "ls :help")),
    ],
)
def test_commands_to_the_terminal(text: str, is_one: bool) -> None:
    assert is_command(text) is is_one
