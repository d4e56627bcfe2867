"""Parses shell text into its simple commands, in the order of the text. Pure: nothing is run.

The grammar is tree-sitter's for Bash. Commands are found everywhere: in lists, pipelines,
subshells, loops and substitutions, in text that is passed to a shell (``bash -c``, here-documents,
``eval``), and after programs that run another (``sudo``, ``env``, ``xargs``). The content of a
script file is not in the text.

The text is an agent's, so it may be anything: its length, its nesting and the number of its
commands are limited. What exceeds the limits is left out and reported (``ShellText.complete``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from pytest_intercode.errors import ConfigurationError
from pytest_intercode.projects.programs import RESERVED_WORDS, base_name, read_script, readings
from pytest_intercode.projects.shell_status import Place, ShellState, StatusLink
from pytest_intercode.projects.shell_words import ShellSource, Word, marks_translation, unescape
from pytest_intercode.system.extras import has_extra, need

if TYPE_CHECKING:
    from tree_sitter import Node, Parser, Tree

__all__ = ["ShellCommand", "ShellText", "Word", "parse_shell"]

MAX_TEXT = 256 * 1024  # bytes; much, as agents write files with here-documents
# The parser's memory is quadratic in a pipeline's length, its time in the number of closing signs.
_MAX_CHARACTERS = {b"|": 4_000, b")": 8_000}
_MAX_COMMANDS = 5_000
_MAX_DEPTH = 80  # of nested nodes; far below Python's own limit
_MAX_TEXTS = 8  # nested shell texts

# Unicode blanks beyond ASCII, which are blanks to the grammar but letters to Bash.
_UNICODE_BLANK = (
    rb"\xc2[\x85\xa0]|\xe1\x9a\x80|\xe2\x80[\x80-\x8a\xa8\xa9\xaf]|\xe2\x81\x9f|\xe3\x80\x80"
)
_MISREAD = re.compile(
    rb"\\(?:([\\ \t\r\v\f]|" + _UNICODE_BLANK + rb")|.)|(" + _UNICODE_BLANK + rb")", re.DOTALL
)
_DOCUMENT_ESCAPE = re.compile(r"\\([$`\\\n])")
_NOT_WORDS = frozenset(("variable_assignment", "herestring_redirect", "subshell", "comment"))
_OF_DOCUMENT = frozenset(
    (
        *("heredoc_start", "heredoc_body", "heredoc_end", "file_redirect", "herestring_redirect"),
        *("file_descriptor", "comment"),
    )
)
_STATEMENTS = frozenset(("program", "compound_statement", "ERROR"))
_SHELLS = frozenset(("subshell", "command_substitution", "process_substitution"))


class ShellCommand(NamedTuple):
    """A simple command of a text.

    Attributes:
        readings: its words, followed by those of the command that it runs, as ``sudo`` does, to the
            innermost. Leading assignments and redirections are left out.
        text: the command as it is written.
        link: what the exit status of the whole text says about it.
        function: the function in whose body it is, and with which it runs; empty for none.
    """

    readings: tuple[tuple[Word, ...], ...]
    text: str
    link: StatusLink
    function: str = ""

    @property
    def words(self) -> tuple[Word, ...]:
        """The words of the innermost command."""
        return self.readings[-1]


class ShellText(NamedTuple):
    """The commands of a text.

    Attributes:
        commands: the commands, in the order of the text.
        complete: whether these are all commands of the text; False if it could not be parsed, or
            exceeds the limits.
    """

    commands: tuple[ShellCommand, ...]
    complete: bool


def parse_shell(text: str) -> ShellText:
    """Return the commands of a shell's text, as far as it can be parsed.

    Raises:
        ConfigurationError: the parser is not installed.
    """
    reader = _Reader()
    reader.read_text(text, Place("equal", is_certain=True), ShellState())
    return ShellText(tuple(reader.commands), reader.complete)


def _end_of_readable(data: bytes) -> int:
    """Return how many bytes of a text are within the limits for parsing."""
    end = min(len(data), MAX_TEXT)
    for character, limit in _MAX_CHARACTERS.items():
        if data.count(character, 0, end) > limit:
            matches = re.finditer(re.escape(character), data[:end])
            end = next(islice(matches, limit, None)).start()
    return end


def _parse(data: bytes) -> Tree:
    """Return the tree of a text.

    The grammar misreads an escaped blank at the beginning of a word as blanks between words, the
    second of two backslashes at the end of ``$'...'`` as an escape of the quote, and every Unicode
    blank as a blank. So escaped blanks and backslashes, and these blanks, are replaced by other
    characters for the parser. Positions stay the same, and words are read from the text itself.
    """
    return _parser().parse(_MISREAD.sub(_without_blank, data))


def _without_blank(match: re.Match[bytes]) -> bytes:
    escaped, blank = match.groups()
    if escaped:
        return b"\\" + b"_" * len(escaped)
    return b"%" * len(blank) if blank else match[0]


@cache
def _parser() -> Parser:
    if not has_extra("project"):
        raise ConfigurationError(need("project", "reading what an agent ran"))
    import tree_sitter_bash
    from tree_sitter import Language, Parser

    return Parser(Language(tree_sitter_bash.language()))


class _Text(NamedTuple):
    text: str
    place: Place
    shell: ShellState


class _Reader:
    """Collects the commands of a text, and of the texts in it.

    Attributes:
        commands: the commands so far.
        complete: whether nothing was left out.
    """

    def __init__(self) -> None:
        self.commands: list[ShellCommand] = []
        self.complete = True
        self._source = ShellSource(b"")
        self._texts = 0  # how many texts are nested at this point
        self._depth = 0
        self._shell = ShellState()

    def read_text(self, text: str, place: Place, shell: ShellState) -> None:
        """Read a text to its end, for the shell that runs it."""
        if self._texts >= _MAX_TEXTS:
            self.complete = False
            return
        data = text.replace("\0", "").encode("utf-8", "backslashreplace")
        readable = data[: _end_of_readable(data)]
        self.complete = self.complete and len(readable) == len(data)
        data = readable
        outer = self._source, self._shell
        self._source, self._shell = ShellSource(data), shell
        self._texts += 1
        root = _parse(data).root_node
        self.complete = self.complete and not root.has_error
        self._visit(root, place)
        self._texts -= 1
        self._source, self._shell = outer

    @contextmanager
    def _own_shell(self) -> Iterator[None]:
        """Read, in this context, what a shell with its own options and its own end runs."""
        outer, self._shell = self._shell, self._shell.copy()
        yield
        self._shell = outer

    # -- nodes

    def _visit(self, node: Node, place: Place) -> None:
        if self._depth >= _MAX_DEPTH or len(self.commands) >= _MAX_COMMANDS:
            self.complete = False
            return
        self._depth += 1
        kind = node.type
        if kind in _SHELLS:
            with self._own_shell():
                place = place.in_subshell if kind == "subshell" else place.unknown
                self._visit_statements(node, replace(place, is_certain=True))
        elif kind in _STATEMENTS:
            self._visit_statements(node, place.unknown if kind == "ERROR" else place)
        elif kind == "list":
            self._visit_list(node, place)
        elif kind == "pipeline":
            self._visit_pipeline(node, place)
        elif kind == "redirected_statement":
            self._visit_redirected(node, place)
        elif kind == "command":
            self._visit_command(node, place)
        elif kind in ("declaration_command", "unset_command"):
            self._visit_declaration(node, place)
        elif kind == "function_definition":
            self._visit_function(node)
        else:
            for child in node.named_children:
                self._visit(child, place.unknown)
        self._depth -= 1

    def _visit_statements(self, node: Node, place: Place) -> None:
        """Visit consecutive statements; their status is that of the last one."""
        children = [child for child in node.children if child.type != "comment"]
        last = max((n for n, child in enumerate(children) if child.is_named), default=-1)
        for number, child in enumerate(children):
            if not child.is_named:
                continue
            in_background = number + 1 < len(children) and children[number + 1].type == "&"
            is_last = number == last
            child_place = self._shell.statement_place(
                place, is_last=is_last, in_background=in_background
            )
            with self._own_shell() if in_background else nullcontext():
                self._visit(child, child_place)

    def _visit_list(self, node: Node, place: Place) -> None:
        """Visit ``a && b || c``, which is ``(a && b) || c``; long lists are deeply nested."""
        parts: list[Node] = []
        all_and = True
        while node.type == "list":
            all_and = all_and and any(child.type == "&&" for child in node.children)
            *left_parts, right = node.named_children or [node]
            parts.append(right)
            if not left_parts or right is node:
                break
            parts += reversed(left_parts[1:])
            node = left_parts[0]
        if node.type != "list":
            parts.append(node)
        # If the list succeeded, so did all parts; if it failed, nothing says which one did. A list
        # that others follow may have failed: ``set -e`` heeds only its last part.
        link = place.weakened.link if all_and and not place.is_followed else "none"
        for number, part in enumerate(reversed(parts), 1):
            part_link: StatusLink = "none" if self._shell.may_end else link
            # The grammar assigns a redirection of the last part to the list.
            is_last = number == len(parts)
            part_place = replace(place if is_last else place.with_link(link), link=part_link)
            is_certain = place.is_certain and number == 1
            is_checked = place.is_checked or not is_last
            self._visit(part, replace(part_place, is_certain=is_certain, is_checked=is_checked))

    def _visit_pipeline(self, node: Node, place: Place) -> None:
        parts = node.named_children
        for number, part in enumerate(parts):
            is_last = number == len(parts) - 1
            link = self._shell.pipeline_link(place, is_last=is_last)
            part_place = replace(place, link=link) if is_last else place.with_link(link)
            with self._own_shell():
                self._visit(part, replace(part_place.in_subshell, is_certain=False))

    def _visit_redirected(self, node: Node, place: Place) -> None:
        body = node.child_by_field_name("body")
        redirects = [child for child in node.named_children if child != body]
        documents = [child for child in redirects if child.type == "heredoc_redirect"]
        words: list[Node] = []
        end, document = node.start_byte if body is None else body.end_byte, None
        for redirect in redirects:
            if redirect.type == "heredoc_redirect":
                document = self._document(redirect)
                start = next((c for c in redirect.children if c.type == "heredoc_start"), redirect)
                end = max(end, start.end_byte)
                words += redirect.children_by_field_name("argument")
            else:
                if redirect.type == "herestring_redirect":
                    document = self._here_string(redirect)
                end = max(end, redirect.end_byte)
                words += redirect.children_by_field_name("destination")[1:]
        # In ``cat <<EOF && b`` and ``cat <<EOF | b``, the redirection has the rest of the line.
        rest = [part for redirect in documents for part in self._after_document(redirect)]
        if body is not None:
            link: StatusLink = "none" if rest else place.link
            body_place = replace(place, link=link, document=document, end=end, words=tuple(words))
            self._visit(body, body_place)
        is_shown = body is not None and self._name_of(body) == "cat"
        for part in rest:
            self._visit(part, Place("none", place.function, document if is_shown else None))
        for redirect in redirects:
            for child in redirect.named_children:
                if child not in rest and child not in words:
                    self._visit(child, place.unknown)

    def _here_string(self, redirect: Node) -> str:
        return "".join(self._source.word(child) for child in redirect.named_children)

    def _document(self, redirect: Node) -> str:
        """Return a here-document as the command reads it, but with expansions as written."""
        start = next((c for c in redirect.children if c.type == "heredoc_start"), None)
        bodies = [child for child in redirect.children if child.type == "heredoc_body"]
        text = "".join(map(self._source.text, bodies))
        is_quoted = start is not None and set(self._source.text(start)) & set("'\"\\")
        return text if is_quoted else _DOCUMENT_ESCAPE.sub(unescape, text)

    @staticmethod
    def _after_document(redirect: Node) -> list[Node]:
        """Return the commands after the start of a here-document, which are in its node."""
        arguments = redirect.children_by_field_name("argument")
        return [
            child
            for child in redirect.named_children
            if child.type not in _OF_DOCUMENT and child not in arguments
        ]

    def _visit_declaration(self, node: Node, place: Place) -> None:
        """Visit ``export X=1``, ``local``, ``unset`` and others with nodes of their own kind."""
        words = tuple(Word(self._source.text(child)) for child in node.children)
        self._add((words,), node, place)
        for child in node.named_children:
            self._visit(child, place.unknown)

    def _visit_function(self, node: Node) -> None:
        name = node.child_by_field_name("name")
        body = node.child_by_field_name("body")
        if body is not None:
            self._visit(body, Place("none", "" if name is None else self._source.text(name)))

    # -- a command

    def _visit_command(self, node: Node, place: Place) -> None:
        """Add a simple command, and those in its words."""
        parts = self._parts(node, place.words)
        words = tuple(map(self._source.word, parts))
        for child in node.named_children:
            if child.type == "herestring_redirect":
                place = replace(place, document=self._here_string(child))
        texts: list[_Text] = []
        sources: set[int] = set()  # the identities of words that are shell text
        if words:
            all_readings = tuple(map(tuple, readings(words)))
            link = place.link
            programs = {base_name(reading[0]) for reading in all_readings[:-1]}
            if programs & RESERVED_WORDS:  # it is not known to which group it belongs
                place, link = place.unknown, "none"
                self._shell.note_unparsed()
            elif "find" in programs:  # it succeeds even if what it runs for a file fails
                link = "none"
            elif "xargs" in programs:
                link = place.weakened.link
            self._add(all_readings, node, replace(place, link=link))
            texts, sources = self._texts_of(all_readings[-1], replace(place, link=link))
            for reading in all_readings:
                self._shell.note(reading, place)
        for word, part in zip(words, parts, strict=True):
            if id(word) not in sources:
                self._visit(part, place.unknown)
        in_words = {part.id for part in parts}
        for child in node.named_children:
            if child.id not in in_words and child.type != "command_name":
                self._visit(child, place.unknown)
        for text in texts:
            self.read_text(*text)

    def _parts(self, node: Node, extra: Sequence[Node]) -> list[Node]:
        """Return the nodes of a command's words."""
        parts: list[Node] = []
        for child in node.children:
            if child.type == "command_name":
                parts += child.children or [child]
            elif child.type == "file_redirect":
                if parts:
                    parts += child.children_by_field_name("destination")[1:]
            elif child.type not in _NOT_WORDS and not marks_translation(child):
                parts.append(child)
        return [*parts, *extra]

    def _texts_of(self, words: tuple[Word, ...], place: Place) -> tuple[list[_Text], set[int]]:
        """Return the shell texts that a command runs, and the identities of their words.

        Args:
            words: the innermost reading.
            place: the place of the command.
        """
        if base_name(words[0]) == "eval":
            text_place = replace(place.with_link(place.link), is_certain=place.is_certain)
            return [_Text(" ".join(words[1:]), text_place, self._shell)], set(map(id, words[1:]))
        script = read_script(words)
        shell = ShellState(
            stops=script.stops,
            may_stop=script.stops,
            pipefail=script.pipefail,
            may_pipefail=script.pipefail,
        )
        text_place = Place(place.link, place.function, is_certain=True)
        if script.text is not None:
            return [_Text(script.text, text_place, shell)], {id(script.source)}
        if script.reads_input and place.document is not None:
            return [_Text(place.document, text_place, shell)], set()
        return [], set()

    def _add(self, all_readings: tuple[tuple[Word, ...], ...], node: Node, place: Place) -> None:
        end = place.end or node.end_byte
        text = self._source.data[node.start_byte : end].decode("utf-8", "replace")
        self.commands.append(ShellCommand(all_readings, text, place.link, place.function))

    def _name_of(self, node: Node) -> str:
        name = node.child_by_field_name("name") if node.type == "command" else None
        return "" if name is None else self._source.text(name)
