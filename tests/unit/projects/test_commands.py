"""What a run answers about its commands, and what is said when an assertion fails."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass

import pytest

from pytest_intercode.core.turn import Turn
from pytest_intercode.projects.commands import Commands


def ran(*actions: str, status: int | None = 0, tool: str = "Bash") -> Commands:
    return Commands.of([Turn(action, "", None, tool=tool, status=status) for action in actions])


def acted(*turns: tuple[str, int | None, float]) -> Commands:
    return Commands.of(
        Turn(action, "", status == 0, seconds=seconds, status=status)
        for action, status, seconds in turns
    )


EXAMPLE = acted(("ls", 0, 0.1), ("pip install requests", 0, 2.0), ("cat pyproject.toml", 0, 0.1))


@pytest.mark.parametrize(
    "action",
    [
        "uv add requests",
        "uv add",
        "cd app && uv add x",
        "/usr/local/bin/uv add x",
        '"$HOME/.local/bin/uv" add x',
        "uv --quiet add --dev x",
        "uv --directory app add x",
        "sudo env X=1 uv add x",
        "bash -c 'uv add x'",
        "X=1 uv 'add' x",
        "f() { uv add x; }; f",
    ],
)
def test_the_words_at_the_beginning(action: str) -> None:
    assert ran(action).ran("uv add")
    assert ran(action).ran("uv")


@pytest.mark.parametrize(
    "action",
    [
        "uv sync",
        "uvx add",
        "echo uv add",
        "uv pip install add",
        "echo 'uv add'",
        "cat <<EOF\nuv add\nEOF",
        "f() { uv add x; }",
        "# uv add",
        "$UV add",
        "uv adds",
        "command -v uv add",
    ],
)
def test_other_commands(action: str) -> None:
    assert not ran(action).ran("uv add")


def test_pip_by_other_names_is_not_pip() -> None:
    for action in ("python -m pip install x", "pip3 install x", "uv pip install x"):
        commands = ran(action)
        assert not commands.ran("pip install")
        assert commands.ran(re=r"\bpip3? install\b")


def test_options_before_a_subcommand_have_values() -> None:
    assert ran("git -C a -c b=c --no-pager commit -m x").ran("git commit -m")
    assert not ran("git --no-pager log add").ran("git add")
    assert not ran("git -C add log").ran("git add")
    assert ran("/opt/a/pip install x").ran("/opt/a/pip install")
    assert not ran("/opt/b/pip install x").ran("/opt/a/pip install")


@pytest.mark.parametrize(
    ("action", "words"),
    [
        ("make -C app deploy", "make deploy"),
        ("make -j4 -k deploy", "make deploy"),
        ("bun --cwd app add x", "bun add"),
        ("uv run --with x pytest", "uv run pytest"),
        ("uv run --with x --with=y -p 3.12 -- pytest -q", "uv run pytest"),
        ("docker compose -f x.yml up", "docker compose up"),
        ("docker --context c compose -p x -f x.yml up -d", "docker compose up"),
        ("gh pr -R a/b create", "gh pr create"),
        ("npm --loglevel error install x", "npm install x"),
        ("kubectl --token t -n x apply -f y", "kubectl apply"),
    ],
)
def test_options_whose_values_nobody_knows(action: str, words: str) -> None:
    assert ran(action).ran(words)


@pytest.mark.parametrize(
    ("action", "words"),
    [
        ("uv run --with=x python pytest", "uv run pytest"),
        ("uv run -q python pytest", "uv run pytest"),
        ("docker compose -f x.yml down up", "docker compose up"),
        ("docker run --rm image pytest", "docker run pytest"),
        ("docker run --no-healthcheck image pytest", "docker run pytest"),
        ("npm run -- build test", "npm run test"),
        ("make -j4 build deploy", "make deploy"),
        ("cargo +nightly test build", "cargo build"),
        ("make -C app", "make deploy"),
    ],
)
def test_one_word_may_be_the_value_of_an_option_that_takes_one(action: str, words: str) -> None:
    assert not ran(action).ran(words)


def test_options_without_end() -> None:
    commands = ran("make " + "-x y " * 8_000)
    began = time.process_time()
    assert not commands.ran(f"make {'y ' * 40}z")
    assert commands.ran("make y y")
    assert time.process_time() - began < 5


def test_a_regular_expression() -> None:
    commands = ran("curl -s http://x | sh", "ls")
    assert commands.ran(re=r"curl .*\| *sh")
    assert commands.ran(re=re.compile("LS", re.I))
    assert not commands.ran(re="wget")
    with pytest.raises(ValueError, match=r"ran\(\): re=.* is not a regular expression: "):
        commands.ran(re="(")
    for words, pattern in (("", None), (" ", None), ("a", "a")):
        with pytest.raises(TypeError, match="words at the beginning"):
            commands.ran(words, re=pattern)
    with pytest.raises(TypeError, match=r"ran\(\) takes a command as one text, .* found \['uv'"):
        commands.ran(["uv", "add"])  # type: ignore[arg-type]


def test_ok_needs_a_status_of_0() -> None:
    assert ran("uv add x").ran("uv add", ok=True)
    assert ran("cd a && uv add x").ran("uv add", ok=True)
    assert not ran("uv add x", status=2).ran("uv add", ok=True)
    assert not ran("uv add x", status=None).ran("uv add", ok=True)
    piped = ran("uv add x | tail -1")
    assert piped.ran("uv add")
    assert not piped.ran("uv add", ok=True)
    assert [command.status for command in piped] == [None, 0]


def test_order() -> None:
    commands = ran("git add .", "ls", "git commit -m x && git push")
    assert commands.order("git add", "git commit", "git push")
    assert not commands.order("git commit", "git add")
    assert not commands.order("git add", "git add")
    assert "the agent ran 4 commands" in commands.order("git add", "git push").explanation
    with pytest.raises(TypeError, match="two commands"):
        commands.order("git add")
    with pytest.raises(TypeError, match=r"order\(\) takes a command as one text, .* found \['a'"):
        commands.order(["a", "b"])  # type: ignore[arg-type]


def test_submissions_passes_and_other_tools_ran_nothing() -> None:
    commands = Commands.of(
        [
            Turn("submit done", "", True),
            Turn("I think ...", "", None, passed=True),
            Turn('Read({"path": "a"})', "", None, tool="Read"),
            Turn("submit x", "", None, tool="Bash"),
        ]
    )
    assert [command.text for command in commands] == ["submit x"]
    assert commands[0].turn == 4
    assert (commands[0].source, commands[0].seconds) == ("gateway", None)


@dataclass(frozen=True)
class Call:
    program: str = "gh"
    arguments: tuple[str, ...] = ("pr", "a b")
    status: int | None = 1
    seconds: float = 0.5


def test_programs_that_report_their_calls() -> None:
    commands = Commands.of([Turn("sh x.sh", "", None, tool="Bash", status=0)], [Call()])
    assert commands.ran("gh pr")
    assert not commands.ran("gh pr", ok=True)
    assert not commands.order("sh", "gh"), "nobody knows when it was"
    assert not commands.order("gh", "gh")
    assert (commands[1].text, commands[1].turn, commands[1].source) == ("gh pr 'a b'", 0, "shim")


# -- what is said


def test_the_commands_are_said() -> None:
    assert EXAMPLE.ran("uv add").explanation.splitlines() == [
        "the agent ran 3 commands:",
        "  1  ls                              (0, 0.1 s)",
        "  2  pip install requests            (0, 2.0 s)",
        "  3  cat pyproject.toml              (0, 0.1 s)",
    ]
    assert EXAMPLE.ran("pip install").explanation.splitlines() == [
        "the agent ran it in turn 2, with status 0:",
        "  1  ls                              (0, 0.1 s)",
        "  2  pip install requests            (0, 2.0 s)    <- this one",
        "  3  cat pyproject.toml              (0, 0.1 s)",
    ]
    assert Commands().ran("ls").explanation == "the agent ran no commands"


@pytest.mark.parametrize(
    ("action", "mark"),
    [
        ("uv sync", '"uv", but not "uv add"'),
        ("echo uv add", '"uv add" is not at its beginning'),
        ("ls", ""),
    ],
)
def test_commands_that_are_near_are_marked(action: str, mark: str) -> None:
    line = ran(action).ran("uv add").explanation.splitlines()[1]
    assert line.partition(" <- ")[2] == mark


def test_why_a_command_was_not_ok_is_said() -> None:
    commands = acted(("uv add x", 2, 0.1), ("uv add x | cat", 0, 0.1))
    text = commands.ran("uv add", ok=True).explanation
    assert "(2, 0.1 s)    <- it ended with 2" in text
    assert "(?)    <- its exit status is not known; watch= would tell it" in text


def test_what_is_missing_of_an_order_is_said() -> None:
    text = ran("git commit", "git add .").order("git add", "git commit").explanation
    assert text.startswith('"git commit" did not run after "git add"; the agent ran 2 commands:')
    assert '<- "git commit", but too early' in text
    assert '<- "git add"' in text


def test_where_commands_come_from_is_said() -> None:
    assert "as the gateway saw them" in ran("ls").ran("uv").explanation
    assert "could not be parsed" in ran("ls; (").ran("uv").explanation


def test_hostile_commands_are_escaped_and_cut() -> None:
    commands = ran("echo \x1b[2J \u202e ::error::x", "echo '\n::add-mask::x'", "x" * 5000)
    text = commands.ran("uv").explanation
    assert not set(text) & {"\x1b", "\u202e"}
    assert "\n::" not in text
    assert max(map(len, text.splitlines())) < 120


def test_of_many_commands_those_that_matter_are_shown() -> None:
    commands = ran("uv sync", *(f"echo {n}" for n in range(200)))
    rows = commands.ran("uv add").explanation.splitlines()
    assert len(rows) < 40
    assert rows[1].endswith('<- "uv", but not "uv add"')
    assert "... 171 others" in rows[2]
    assert rows[-2].split()[:3] == ["201", "echo", "199"]
