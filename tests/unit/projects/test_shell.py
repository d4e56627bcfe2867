"""Shell text as the simple commands in it: where they stand, their words, and hostile texts."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_intercode.projects.shell import MAX_TEXT, parse_shell


def words(text: str) -> list[list[str]]:
    return [list(command.words) for command in parse_shell(text).commands]


def lines(text: str) -> list[str]:
    return [" ".join(command) for command in words(text)]


@pytest.mark.parametrize(
    ("text", "commands"),
    [
        ("ls -l", ["ls -l"]),
        (
            "cd app && uv add x || echo no; ls & wait",
            ["cd app", "uv add x", "echo no", "ls", "wait"],
        ),
        ("a\nb # c\n\nd", ["a", "b", "d"]),
        ("a | b |& c", ["a", "b", "c"]),
        ("cd a && b > x <<EOF\ntext\nEOF\nc", ["cd a", "b", "c"]),
        ("(a; b) && { c; d; }", ["a", "b", "c", "d"]),
        ("! a", ["a"]),
        ("if a; then b; elif c; then d; else e; fi", ["a", "b", "c", "d", "e"]),
        ("for x in 1 2; do a $x; done; while b; do c; done", ["a $x", "b", "c"]),
        ("case $x in a) b;; *) c;; esac", ["b", "c"]),
        ("X=1 Y=$(a) b", ["b", "a"]),
        ('X=$(a); echo `b` "$(c)" <(d)', ["a", "echo `b` $(c) <(d)", "b", "c", "d"]),
        ("[ -f x ] && [[ -d y ]] && a", ["a"]),
        ("export X=1; a", ["export X=1", "a"]),
        ("a > out 2>&1 < in; b >>log", ["a", "b"]),
        ("> out a b", ["a b"]),
        ("a > out b", ["a b"]),
        ("cat > f <<'EOF'\nrm -rf /\nEOF\nb", ["cat", "b"]),
        ("cat <<EOF && b\ntext\nEOF", ["cat", "b"]),
        ("time a; command b; exec c", ["a", "b", "c"]),
    ],
)
def test_commands_wherever_they_stand(text: str, commands: list[str]) -> None:
    assert lines(text) == commands
    assert parse_shell(text).complete


@pytest.mark.parametrize(
    ("text", "readings"),
    [
        ("sudo -u bob pip install x", ["sudo -u bob pip install x", "pip install x"]),
        ("sudo --user=bob A=1 b", ["sudo --user=bob A=1 b", "b"]),
        ("env -i -u X A=1 B='2 3' b c", ["env -i -u X A=1 B=2 3 b c", "b c"]),
        ("/usr/bin/env b", ["/usr/bin/env b", "b"]),
        ("timeout -k 5 -s9 10m b", ["timeout -k 5 -s9 10m b", "b"]),
        ("nohup nice -n5 b", ["nohup nice -n5 b", "nice -n5 b", "b"]),
        ("time -p b", ["time -p b", "b"]),
        ("xargs -0 -n 1 -P4 b c", ["xargs -0 -n 1 -P4 b c", "b c"]),
        ("find . -name x -exec rm -f {} \\;", ["find . -name x -exec rm -f {} ;", "rm -f {}"]),
        ("command -v uv", ["command -v uv"]),
        ("sudo -l", ["sudo -l"]),
        ("sudo", ["sudo"]),
        ("exec -a n b", ["exec -a n b", "b"]),
        ("sudo -ualice b", ["sudo -ualice b", "b"]),
        ("sudo -nulevi b", ["sudo -nulevi b", "b"]),
        ("sudo -k b", ["sudo -k b", "b"]),
        ("sudo -k", ["sudo -k"]),
        ("sudo -nl b", ["sudo -nl b"]),
        ("sudo --role r --type t b", ["sudo --role r --type t b", "b"]),
        ("env - X=1 b", ["env - X=1 b", "b"]),
        ("env -i - b", ["env -i - b", "b"]),
        ("env -S 'X=1 b \"c  d\"' e", ['env -S X=1 b "c  d" e', "b c  d e"]),
        ("env -vS'-i b' c", ["env -vS-i b c", "b c"]),
        ("env --split-string=b -S c", ["env --split-string=b -S c", "b -S c"]),
        ("env -S 'b \"c'", ['env -S b "c', 'b "c']),
        ("env -S 'sudo -k b' c", ["env -S sudo -k b c", "sudo -k b c", "b c"]),
        ("flock -w 5 f b c", ["flock -w 5 f b c", "b c"]),
        ("coproc b c", ["coproc b c", "b c"]),
        ("time ! b", ["time ! b", "! b", "b"]),
    ],
)
def test_what_runs_another_command(text: str, readings: list[str]) -> None:
    [command] = parse_shell(text).commands
    assert [" ".join(reading) for reading in command.readings] == readings


@pytest.mark.parametrize(
    ("text", "commands"),
    [
        ("bash -c 'a && b \"c d\"'", ["a", "b c d"]),
        ("bash -lc \"a 'b'; c\"", ["a b", "c"]),
        ("/bin/sh -e -c 'a' name arg", ["a"]),
        ("bash -o pipefail -c a", ["a"]),
        ("bash -oe pipefail -c a", ["a"]),
        ("bash --rcfile f +O extglob -c a", ["a"]),
        ("bash - <<EOF\na\nEOF", ["a"]),
        ("sudo -n bash -c 'a'", ["a"]),
        ("bash -c \"bash -c 'a'\"", ["bash -c a", "a"]),
        ('bash -c "a $(b)"', ["a $(b)", "b"]),
        ("eval 'a;' b", ["a", "b"]),
        ("bash <<EOF\na\nb c\nEOF", ["a", "b c"]),
        ("bash -s -- x <<'EOF'\na\nEOF", ["a"]),
        ("cat <<'EOF' | sh\na\nEOF", ["sh", "a"]),
        ("cd x && sh <<EOF\na\nEOF", ["sh", "a"]),
        ("b | sh -e <<EOF\na\nEOF", ["sh -e", "a"]),
        ("sh <<< 'a b'", ["a b"]),
        ("su -c 'a; b'", ["a", "b"]),
        ("su - bob -c 'a'", ["a"]),
        ("su bob -lc a", ["a"]),
        ("su --command='a $(b)'", ["a $(b)", "b"]),
        ("su -s /bin/sh -ca bob", ["a"]),
        ("su -c a -c b", ["b"]),
        ("su bob <<EOF\na\nEOF", ["a"]),
        ("su bob", []),
        ("flock f -c 'a; b'", ["a", "b"]),
        ("sudo flock -w 5 f --command 'a'", ["a"]),
        ("flock f", []),
        ("flock f -c", []),
        ("env -S 'bash -c \"a $(b)\"' c", ["a $(b)", "b"]),
        ("find . -exec bash -c 'a $(b)' \\;", ["a $(b)", "b"]),
        ("sh script.sh a", []),
        ("bash", []),
        ("bash script.sh <<EOF\na\nEOF", []),
        ("echo -c a", []),
    ],
)
def test_text_that_a_shell_is_given(text: str, commands: list[str]) -> None:
    assert lines(text)[1:] == commands


def test_the_text_of_a_command_has_its_redirections() -> None:
    text = "X=1 a 'b' 2>&1 >x | c; cat > f <<EOF\nlong\nEOF"
    assert [command.text for command in parse_shell(text).commands] == [
        "X=1 a 'b' 2>&1 >x",
        "c",
        "cat > f <<EOF",
    ]


@pytest.mark.parametrize(
    ("text", "links"),
    [
        ("a", ["equal"]),
        ("a; b", ["none", "equal"]),
        ("a && b && c", ["success"] * 3),
        ("a && b || c", ["none"] * 3),
        ("a | b", ["none", "equal"]),
        ("a &", ["none"]),
        ("! a", ["none"]),
        ("if a; then b; fi", ["none", "none"]),
        ("(a; b)", ["none", "equal"]),
        ("a > x", ["equal"]),
        ("bash -c 'a; b'", ["equal", "none", "equal"]),
        ("set -e; a; b", ["none", "success", "success"]),
        ("set -euo pipefail\na | b", ["none", "success", "success"]),
        ("exit 0; a", ["none", "none"]),
        ("set -e; a && b; c", ["none", "none", "none", "success"]),
        ("set -e; a && b >x; c", ["none", "none", "none", "success"]),
        ("set -e; a; b && c", ["none", "success", "success", "success"]),
        ("set -e; { a; b && c; }; d", ["none", "success", "none", "none", "success"]),
        ("set -e; (a; b && c); d", ["none", *["success"] * 4]),
        ("set -e; { a; b; } && c", ["none", "none", "success", "success"]),
        ("set -e && a; b", ["none", "none", "success"]),
        ("(set -e; a); b; c", ["none", "none", "none", "equal"]),
        ("set -e; a; set +e; b; c", ["none", "success", "success", "none", "success"]),
        ("set -e; (set +e; a; b); c; d", ["none", "success", "none", *["success"] * 3]),
        ("set -e; $(set +e; a); b; c", ["none", "success", "none", "none", "success", "success"]),
        ("set -e; set +e & b; c", ["none", "none", "success", "success"]),
        ("x || set -e; a; b", ["none", "none", "none", "success"]),
        ("if x; then set +e; fi; a; b", ["none", "none", "none", "equal"]),
        ("set -e; if x; then set +e; fi; a; b", [*["none"] * 4, "success"]),
        ("f() { set -e; }; a; b", ["none", "none", "success"]),
        ("f() { set +e; }; set -e; f; a; b", [*["none"] * 4, "success"]),
        ("set -e; eval 'a; b && c'; d", ["none", *["success"] * 5]),
        ("set -e; eval 'set +e'; a; b", ["none", "success", "success", "none", "success"]),
        ("set -e; set -- +e; a; b", ["none", *["success"] * 3]),
        ("set -e; set $X; a; b", ["none", "success", "none", "success"]),
        ("set -o pipefail -e; a | b", ["none", "success", "success"]),
        ("if x; then set -o pipefail; fi; a | b", ["none", "none", "none", "success"]),
        ("(set -o pipefail); a | b", ["none", "none", "equal"]),
        ("bash -ec 'a && b; c'", ["equal", "none", "none", "success"]),
        ("bash -o errexit -c 'a; b'", ["equal", "success", "success"]),
        ("bash -e +e -c 'a; b'", ["equal", "none", "equal"]),
        ("bash -o pipefail -c 'a | b'", ["equal", "success", "success"]),
        ("bash -euo pipefail -c 'a | b; c'", ["equal", *["success"] * 3]),
        ("set -e; bash -c 'a; b'; c", ["none", "success", "none", "success", "success"]),
        ("a || exit 1; b", ["none", "none", "success"]),
        ("a || exit 0; b", ["none", "none", "none"]),
        ("a || exit; b", ["none", "none", "none"]),
        ("(exit 0); a", ["none", "equal"]),
        ("f() { exit 0; }; f; a", ["none", "none", "none"]),
        ("f() { return 0; }; f; a", ["none", "none", "equal"]),
        ("exec >x; a", ["none", "equal"]),
        ("[ -x a ] && exec a; b", ["none", "none"]),
        ("find . -exec a \\;", ["none"]),
        ("time ! a", ["none"]),
        ("! while a; do exit 0; done; b", ["none"] * 4),
        ("! ! exit 0; a", ["none", "none"]),
        ("set -e; coproc { a; b; }; c", [*["none"] * 4, "success"]),
        ("timeout 5 a", ["equal"]),
        ("xargs a", ["success"]),
        ("echo $(a)", ["equal", "none"]),
        ("su -c 'a; b'", ["equal", "none", "equal"]),
        ("coproc a", ["none"]),
        ("set -e; { set +e; a; }; b", ["none", "success", "none", "success"]),
        ("set -e; { a; set +e; }; b", ["none", "success", "success", "success"]),
        ("set -e; ( set +e; a ); b", ["none", "success", "success", "success"]),
        ("set -e; eval 'set +e; a'; b", ["none", "success", "success", "none", "success"]),
        (
            "set -e; eval '{ set +e; a; } && b'; c",
            ["none", "success", "none", "none", "success", "success"],
        ),
    ],
)
def test_what_a_status_says_of_a_command(text: str, links: list[str]) -> None:
    assert [command.link for command in parse_shell(text).commands] == links


LEAVES = ["yes", "no", "set -e", "set +e", "set -o pipefail", "f", "exit 0", "exit 3", "return"]
COMPOUNDS = """\
{}; {}
{} && {}
{} || {}
{} | no
{} | {{ {}; }}
{} & {}
! {}; {}
( {} ); {}
{{ {}; {}; }}
{{ {}; {}; }}; yes
eval '{}; {}'; yes
{{ {}; }} && {}
( {} ) || {}
{} && {}; no
( {}; {} )
if {}; then {}; fi
f() {{ {}; }}; {}
f() ( {} ); {}
eval '{}'; {}
x=$( {} ); {}
bash -ec '{}'; {}
bash -o pipefail -c '{} | {}'
bash -o errexit -c '{}; {}'
set -e; {}; {}
for i in 1 2; do {}; {}; done
eval '{}' && {}
""".splitlines()


def join_texts(texts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    def fill(form: str, first: str, second: str) -> str:
        if "f()" in form:  # nothing calls itself
            first = re.sub(r"\bf\b(?!\()", "yes", first)
        parts = [first, second]
        for index in range("".join(form.split("'")[1:2]).count("{}")):  # those within quotes
            parts[index] = "no" if "'" in parts[index] else parts[index]
        return form.format(*parts)

    return st.builds(fill, st.sampled_from(COMPOUNDS), texts, texts)


SCRIPTS = st.recursive(st.sampled_from(LEAVES), join_texts, max_leaves=8)


def run_in_bash(text: str) -> tuple[int, dict[str, list[int]]]:
    """Return the status of a text, and those of its commands that begin with y and n."""
    names = re.findall(r"\b(?:yes|no)\d+", text)
    functions = "".join(
        f"{name}() {{ echo {name} >&9; return {int(name[0] == 'n')}; }}; export -f {name}\n"
        for name in names
    )
    reader, writer = os.pipe()
    with os.fdopen(reader) as log:
        script = f"exec 9>&{writer}\nf() {{ :; }}\n{functions}{text}"
        command = ["bash", "-c", script]
        try:
            process = subprocess.run(
                command, stderr=subprocess.DEVNULL, pass_fds=[writer], timeout=20
            )
        finally:
            os.close(writer)
        statuses: dict[str, list[int]] = {}
        for line in log:
            statuses.setdefault(line.strip(), []).append(int(line[0] == "n"))
    return process.returncode, statuses


@given(SCRIPTS)
@settings(max_examples=250, deadline=None)
def test_what_a_status_says_of_a_command_is_so_in_bash(text: str) -> None:
    numbers = itertools.count()
    text = re.sub(r"\b(?:yes|no)\b", lambda match: f"{match[0]}{next(numbers)}", text)
    status, statuses = run_in_bash(text)
    for command in parse_shell(text).commands:
        is_told = command.link == "equal" or (command.link == "success" and status == 0)
        if is_told and command.words[0].startswith(("yes", "no")):
            assert statuses.get(command.words[0]) == [status], command


def test_what_a_function_would_run_is_marked() -> None:
    commands = parse_shell("build() { a; b; }; function other { c; }; build").commands
    assert [(command.words[0], command.function) for command in commands] == [
        ("a", "build"),
        ("b", "build"),
        ("c", "other"),
        ("build", ""),
    ]


@pytest.mark.parametrize(
    ("text", "word", "expands"),
    [
        ("'a b'", "a b", False),
        (r"a\ b\"c", 'a b"c', False),
        ("\\ ", " ", False),
        (r"\ y", " y", False),
        (r"\\", "\\", False),
        ("\\\t'\\ '", "\t\\ ", False),
        ('"a \\" \\$x \\n"', 'a " $x \\n', False),
        ('""', "", False),
        ('" "', " ", False),
        ("a'b'\"c\"", "abc", False),
        (r"$'a\n\x41\u00e9\101\''", "a\nA\u00e9A'", False),
        (r"$'a\\'", "a\\", False),
        (r"$'a\\''b c'", "a\\b c", False),
        ('$"a"', "a", False),
        ("$X", "$X", True),
        ('"a${X:-b}c"', "a${X:-b}c", True),
        ('"a$X"', "a$X", True),
        ("a/$X/b", "a/$X/b", True),
        ("*.py", "*.py", True),
        ("'*.py'", "*.py", False),
        ("~/x", "~/x", True),
        ("{a,b}", "{a,b}", True),
        ("$((1 + 2))", "$((1 + 2))", True),
        ("12", "12", False),
        ("é", "é", False),
        ("\u2003a\xa0\\\u3000b", "\u2003a\xa0\u3000b", False),
    ],
)
def test_words_lose_their_quotes(text: str, word: str, expands: bool) -> None:
    [command] = parse_shell(f"x {text} end").commands
    assert [(found, found.expands) for found in command.words[1:]] == [
        (word, expands),
        ("end", False),
    ]


QUOTED = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)


@given(st.lists(QUOTED, min_size=1, max_size=4))
@settings(max_examples=30, deadline=None)
def test_words_are_those_that_bash_gives_a_program(arguments: list[str]) -> None:
    """What ``printf %q`` quotes is read as it was; it is Bash that quotes."""
    script = 'printf " %q" "$@"'
    command = ["bash", "-c", script, "bash", *arguments]
    quoted = subprocess.run(command, capture_output=True, check=True).stdout
    text = f"x{quoted.decode('utf-8', 'surrogateescape')}"
    [shown] = parse_shell(text).commands
    assert list(shown.words) == ["x", *arguments]


@pytest.mark.parametrize(
    ("text", "commands"),
    [
        ("a; (b", ["a", "b"]),
        ("a && && b", ["a", "b"]),
        ("a 'b", ["a"]),
        ("if a; then b c", ["a", "b c"]),
        ("bash -c 'a; (b'", ["bash -c a; (b", "a", "b"]),
    ],
)
def test_what_cannot_be_parsed_gives_what_can_be_had(text: str, commands: list[str]) -> None:
    parsed = parse_shell(text)
    assert not parsed.complete
    found = [" ".join(command.words) for command in parsed.commands]
    assert [command for command in found if command in commands] == commands


@pytest.mark.parametrize(
    "text",
    [
        "",
        " \n\t",
        "\0a\0",
        "\ud800 a",
        "$(" * 5000,
        "(" * 5000 + "a",
        "{ " * 5000,
        "`" * 5000,
        "if " * 3000,
        "a && " * 5000 + "a",
        "a | " * 5000 + "a",
        "<<A " * 200,
        "<<" + "A" * 5000 + "\n",
        "bash -c " * 5000 + "a",
        "sudo " * 5000 + "a",
        "env -S x " * 5000 + "a",
        f"env -S '{'a ' * 100_000}'",
        "su -c a " * 5000,
        "\\" * 5000,
        "'" * 4999,
        '"$(' * 2000,
        "${" * 3000,
        "a\n" * 20_000,
        "x" * (MAX_TEXT * 3),
    ],
)
def test_hostile_texts_are_read_in_time(text: str) -> None:
    began = time.process_time()
    parse_shell(text)
    assert time.process_time() - began < 5


def test_texts_in_texts_have_a_bound() -> None:
    text = "a"
    for _ in range(12):
        text = "bash -c '" + text.replace("'", "'\\''") + "'"
    parsed = parse_shell(text)
    assert not parsed.complete


def test_a_list_as_long_as_you_like() -> None:
    assert lines(" && ".join(f"a{n}" for n in range(300))) == [f"a{n}" for n in range(300)]


def test_what_is_beyond_the_bounds_is_said() -> None:
    assert not parse_shell("a " + "x" * MAX_TEXT).complete
    assert not parse_shell("a\n" * 10_000).complete


@given(st.text(alphabet=list("ab '\"\\$(){}|&;<>`\n#![]=*"), max_size=60))
@settings(max_examples=300, deadline=None)
def test_any_text_is_read(text: str) -> None:
    for command in parse_shell(text).commands:
        assert command.words or command.readings == ()
