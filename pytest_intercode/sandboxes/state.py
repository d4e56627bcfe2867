"""Tell from an action's text whether it leaves a shell's state unchanged, to save it less often.

A shell that is lost is replaced by one with its variables, options, functions and so on, which are
saved after each action that may have changed them. Saving them takes ten times as long as a short
action does. A line of programs, whose words bash does not expand except for names of files, changes
nothing of the kind, unless a function, an alias or a trap is behind one of the words.

An action that hides its effects does no harm: an agent deceives only itself, as its next shell
lacks what the last action changed.
"""

from __future__ import annotations

import re

__all__ = ["leaves_state", "may_define"]

_MAX_ACTION = 4000  # bytes
# bash's keywords and builtins that may change its state, or end it.
_CHANGING = (
    b". alias bg bind break builtin case cd command compgen complete compopt continue coproc "
    b"declare dirs disown do done elif else enable esac eval exec exit export fc fg fi for "
    b"function getopts hash history if in let local logout mapfile popd printf pushd read "
    b"readarray readonly return select set shift shopt source suspend then time times trap typeset "
    b"ulimit umask unalias unset until wait while"
)
_WORD = rb"""(?:[\w./,:+@%~*?=\]^-]|'[^'\n]*'|"[^"$`\\!\n]*")+"""
_REDIRECTION = rb"(?:[0-2]?>>? *[\w./-]+|< *[\w./-]+|[12]>&[12])"
_PROGRAM = rb"(?!(?:%b)(?![\w./+-]))(?:[\w./+-]+|:|\[)(?![=+\[])" % (
    _CHANGING.replace(b".", rb"\.").replace(b" ", b"|")
)
_COMMAND = rb"%b(?: +(?:%b|%b|\[))*" % (_PROGRAM, _REDIRECTION, _WORD)
_LINE = re.compile(rb" *%b *(?:(?:\|\|?|&&|;) *%b *)*" % (_COMMAND, _COMMAND))

_DEFINING = re.compile(
    rb"\(\s*\)|(?<![\w-])(?:function|alias|trap|eval|source|enable|BASH_\w+)(?![\w-])"
    rb"|(?:^|[\s;&|({!])\.\s"
)


def leaves_state(action: bytes) -> bool:
    """Whether an action surely leaves a shell's state unchanged, if its words are programs."""
    return len(action) <= _MAX_ACTION and _LINE.fullmatch(action) is not None


def may_define(action: bytes) -> bool:
    """Whether an action may define a word to mean something else than the program of its name."""
    return _DEFINING.search(action) is not None
