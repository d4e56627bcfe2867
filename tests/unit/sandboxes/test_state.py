"""Which actions leave a shell's state as it is, by their text."""

from __future__ import annotations

import subprocess

import pytest

from pytest_intercode.sandboxes.state import _CHANGING, leaves_state, may_define

KEEPING = b"[ : echo false jobs kill pwd test true type caller help"
"""bash's builtins that change nothing of what a shell keeps."""


@pytest.mark.parametrize(
    "action",
    [
        b":",
        b"ls",
        b"ls -la /testbed | grep foo",
        b"cat 'x $y' > out.txt 2>&1",
        b"find /testbed -name '*.txt' | xargs wc -l",
        b"./run --a=b; test -f x || touch x",
        b'[ -e /x ] && echo "a b"',
        b"cdrom exec-thing",
    ],
)
def test_programs_leave_it(action: bytes) -> None:
    assert leaves_state(action)
    assert not may_define(action)


@pytest.mark.parametrize(
    "action",
    [
        *(b"", b"cd x", b"x=1", b"x=1 ls", b"x+=1", b"x[1]=2", b". x", b"exit", b"ls;exit 3"),
        *(b"ls|read x", b"ls\ncd x", b"echo $((x=1))", b"echo ${x:=1}", b"echo `cd`", b"! cd x"),
        *(b"\\cd /", b"'cd' /", b'"cd" /', b"time cd /", b"(ls)", b"{ cd /; }", b"2>x cd", b"%1"),
        *(b'echo "${x:=1}"', b"cat <<E\nE", b"ls & cd /", b"x='ls' y", b"ls " + b"x" * 4000),
    ],
)
def test_what_may_change_it(action: bytes) -> None:
    assert not leaves_state(action)


def test_every_builtin_and_keyword_is_known() -> None:
    done = subprocess.run(["bash", "-c", "compgen -bk"], capture_output=True, check=True)
    known, keeping = set(done.stdout.split()), set(KEEPING.split())
    # These are no words that a program's name can be.
    assert known - set(_CHANGING.split()) - keeping == {b"!", b"{", b"}", b"[[", b"]]"}
    assert {word for word in known if leaves_state(word)} <= keeping


@pytest.mark.parametrize(
    "action",
    [
        *(b"f() { :; }", b"f ( ) { :; }", b"function f { :; }", b"alias x=y", b"trap x ERR"),
        *(b". x", b"cd /; . x", b"if x; then . y; fi", b"source x", b"eval x", b"enable -f x ls"),
    ],
)
def test_what_may_define_words(action: bytes) -> None:
    assert may_define(action)


@pytest.mark.parametrize("action", [b"x=$(ls)", b"for f in *; do echo $f; done", b"cd ./a.b"])
def test_what_defines_no_words(action: bytes) -> None:
    assert not may_define(action)


@pytest.mark.parametrize("piece", [b"a ", b"'a'", b"a|", b"a 1>", b"a  ", b"a;", b"- 2>a"])
def test_no_text_takes_long(piece: bytes) -> None:
    text = piece * (3900 // len(piece)) + b"$"
    assert not leaves_state(text)
