"""Shell text as the simple commands in it, in the order of the text. Pure: nothing is run.

The grammar is tree-sitter's of Bash. A command is found wherever it stands: in lists, pipelines,
subshells, loops and substitutions, in the text that a shell is given (``bash -c``, here-documents,
``eval``), and behind programs that run another (``sudo``, ``env``, ``xargs``). What a script file
holds is not in the text.

The text is an agent's, so it may be anything: its length, its nesting and the number of its
commands have bounds, and what is beyond them is left out and said (``ShellText.complete``).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from pytest_intercode.errors import ConfigurationError
from pytest_intercode.projects.programs import base_name, read_script, readings
from pytest_intercode.projects.shell_words import ShellSource, Word, marks_translation, unescape
from pytest_intercode.system.extras import has_extra, need

if TYPE_CHECKING:
    from tree_sitter import Node, Parser, Tree

__all__ = ["ShellCommand", "ShellText", "Word", "parse_shell"]

MAX_TEXT = 256 * 1024  # bytes; agents write files by here-documents, so it is more than people type
# The parser takes memory by the square of a pipeline's length, and time by that of what it closes.
_MAX_CHARACTERS = {b"|": 4_000, b")": 8_000}
_MAX_COMMANDS = 5_000
_MAX_DEPTH = 80  # of nodes in each other; Python's own limit is far off
_MAX_TEXTS = 8  # shell texts in each other

StatusLink: TypeAlias = Literal["equal", "success", "none"]
"""What the exit status of a text says of one of its commands: it is the command's own; the command
succeeded if the text did; nothing."""

# Blanks to the grammar, and letters to Bash: those of Unicode beyond ASCII.
_UNICODE_BLANK = (
    rb"\xc2[\x85\xa0]|\xe1\x9a\x80|\xe2\x80[\x80-\x8a\xa8\xa9\xaf]|\xe2\x81\x9f|\xe3\x80\x80"
)
_MISREAD = re.compile(
    rb"\\(?:([\\ \t\r\v\f]|" + _UNICODE_BLANK + rb")|.)|(" + _UNICODE_BLANK + rb")", re.DOTALL
)
_DOCUMENT_ESCAPE = re.compile(r"\\([$`\\\n])")
_ENDS_TEXT = frozenset(("exit", "return", "exec"))
_NOT_WORDS = frozenset(("variable_assignment", "herestring_redirect", "subshell", "comment"))
_OF_DOCUMENT = frozenset(
    (
        *("heredoc_start", "heredoc_body", "heredoc_end", "file_redirect", "herestring_redirect"),
        *("file_descriptor", "comment"),
    )
)
_STATEMENTS = frozenset(("program", "compound_statement", "subshell", "ERROR"))


class ShellCommand(NamedTuple):
    """A simple command of a text.

    Attributes:
        readings: its words; behind them those of the command that it runs, as ``sudo`` does, to the
            innermost. Leading assignments and redirections are left out.
        text: as it is written.
        link: what the exit status of the whole text says of it.
        function: the function in whose body it stands; empty for none. It runs if that is called.
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
        commands: in the order of the text.
        complete: it is all that is in the text; False where Bash could not parse it, or it is
            beyond the bounds.
    """

    commands: tuple[ShellCommand, ...]
    complete: bool


def parse_shell(text: str) -> ShellText:
    """Return the commands of a shell's text, as far as it can be parsed.

    Raises:
        ConfigurationError: the parser is not installed.
    """
    reader = _Reader()
    reader.read_text(text, "equal")
    return ShellText(tuple(reader.commands), reader.complete)


def _end_of_readable(data: bytes) -> int:
    """Return how many bytes of a text are within the bounds of what is parsed."""
    end = min(len(data), MAX_TEXT)
    for character, limit in _MAX_CHARACTERS.items():
        if data.count(character, 0, end) > limit:
            matches = re.finditer(re.escape(character), data[:end])
            end = next(islice(matches, limit, None)).start()
    return end


def _parse(data: bytes) -> Tree:
    """Return the tree of a text.

    The grammar takes a backslash and a blank that begin a word for blanks between words, the second
    of two backslashes at the end of ``$'...'`` for an escape of the quote, and every blank of
    Unicode for a blank. So it is given other characters in place of an escaped blank or backslash,
    and of these blanks. Positions stay, and words are read from the text itself.
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


@dataclass(frozen=True)
class _Place:
    """Where a node stands.

    Attributes:
        link: what the exit status of the whole text says of it.
        function: the function in whose body it stands.
        document: what is on its standard input, as far as the text says it.
        end: where its text ends with its redirections; 0 if it has none.
        words: words of it that stand behind a redirection.
    """

    link: StatusLink
    function: str = ""
    document: str | None = None
    end: int = 0
    words: tuple[Node, ...] = ()

    def with_link(self, link: StatusLink) -> _Place:
        """Return the place of a part that has another link, and no redirections."""
        return _Place(link, self.function)

    @property
    def weakened(self) -> _Place:
        """The place of a command that has succeeded if the text has."""
        return self.with_link("none" if self.link == "none" else "success")

    @property
    def unknown(self) -> _Place:
        """The place of a command whose status the text's does not tell."""
        return self.with_link("none")


class _Reader:
    """Collects the commands of one text, and of those in it.

    Attributes:
        commands: those so far.
        complete: nothing was left out.
    """

    def __init__(self) -> None:
        self.commands: list[ShellCommand] = []
        self.complete = True
        self._source = ShellSource(b"")
        self._texts = 0  # in each other, now
        self._depth = 0
        self._stops = False  # set -e
        self._pipefail = False

    def read_text(
        self, text: str, link: StatusLink, function: str = "", *, stops: bool = False
    ) -> None:
        """Read a text to its end; one in another has options of its own."""
        if self._texts >= _MAX_TEXTS:
            self.complete = False
            return
        data = text.replace("\0", "").encode("utf-8", "backslashreplace")
        readable = data[: _end_of_readable(data)]
        self.complete = self.complete and len(readable) == len(data)
        data = readable
        outer = self._source, self._stops, self._pipefail
        self._source, self._stops, self._pipefail = ShellSource(data), stops, False
        self._texts += 1
        root = _parse(data).root_node
        self.complete = self.complete and not root.has_error
        self._visit(root, _Place(link, function))
        self._texts -= 1
        self._source, self._stops, self._pipefail = outer

    # -- nodes

    def _visit(self, node: Node, place: _Place) -> None:
        if self._depth >= _MAX_DEPTH or len(self.commands) >= _MAX_COMMANDS:
            self.complete = False
            return
        self._depth += 1
        kind = node.type
        if kind in _STATEMENTS:
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

    def _visit_statements(self, node: Node, place: _Place) -> None:
        """Visit statements that follow each other: the status is that of the last."""
        children = [child for child in node.children if child.type != "comment"]
        last = max((n for n, child in enumerate(children) if child.is_named), default=-1)
        text_ended = False
        for number, child in enumerate(children):
            if not child.is_named:
                continue
            in_background = number + 1 < len(children) and children[number + 1].type == "&"
            if text_ended or in_background:
                child_place = place.unknown
            elif self._stops:
                child_place = place.weakened
            else:
                child_place = place if number == last else place.unknown
            self._visit(child, child_place)
            text_ended = text_ended or self._name_of(child) in _ENDS_TEXT

    def _visit_list(self, node: Node, place: _Place) -> None:
        """Visit ``a && b || c``, which is ``(a && b) || c``; long ones are deep in the tree."""
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
        # All have succeeded if the list has; of a list that failed, nothing says which did.
        link = place.weakened.link if all_and else "none"
        for number, part in enumerate(reversed(parts), 1):
            # To the grammar, a redirection of the last one is the list's.
            is_last = number == len(parts)
            self._visit(part, replace(place, link=link) if is_last else place.with_link(link))

    def _visit_pipeline(self, node: Node, place: _Place) -> None:
        parts = node.named_children
        for number, part in enumerate(parts):
            is_last = number == len(parts) - 1
            part_place = place if is_last else place.unknown
            if self._pipefail:
                part_place = replace(part_place, link=place.weakened.link)
            self._visit(part, part_place)

    def _visit_redirected(self, node: Node, place: _Place) -> None:
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
        # ``cat <<EOF && b`` and ``cat <<EOF | b`` have the rest of the line in the redirection.
        rest = [part for redirect in documents for part in self._after_document(redirect)]
        if body is not None:
            link = "none" if rest else place.link
            self._visit(body, _Place(link, place.function, document, end, tuple(words)))
        is_shown = body is not None and self._name_of(body) == "cat"
        for part in rest:
            self._visit(part, _Place("none", place.function, document if is_shown else None))
        for redirect in redirects:
            for child in redirect.named_children:
                if child not in rest and child not in words:
                    self._visit(child, place.unknown)

    def _here_string(self, redirect: Node) -> str:
        return "".join(self._source.word(child) for child in redirect.named_children)

    def _document(self, redirect: Node) -> str:
        """Return a here-document as the command reads it, with its expansions as they are."""
        start = next((c for c in redirect.children if c.type == "heredoc_start"), None)
        bodies = [child for child in redirect.children if child.type == "heredoc_body"]
        text = "".join(map(self._source.text, bodies))
        is_quoted = start is not None and set(self._source.text(start)) & set("'\"\\")
        return text if is_quoted else _DOCUMENT_ESCAPE.sub(unescape, text)

    @staticmethod
    def _after_document(redirect: Node) -> list[Node]:
        """Return the commands behind the sign of a here-document, which are in its node."""
        arguments = redirect.children_by_field_name("argument")
        return [
            child
            for child in redirect.named_children
            if child.type not in _OF_DOCUMENT and child not in arguments
        ]

    def _visit_declaration(self, node: Node, place: _Place) -> None:
        """Visit ``export X=1``, ``local``, ``unset`` and the like, which the grammar sets apart."""
        words = tuple(Word(self._source.text(child)) for child in node.children)
        self._add((words,), node, place)
        for child in node.named_children:
            self._visit(child, place.unknown)

    def _visit_function(self, node: Node) -> None:
        name = node.child_by_field_name("name")
        body = node.child_by_field_name("body")
        if body is not None:
            self._visit(body, _Place("none", "" if name is None else self._source.text(name)))

    # -- a command

    def _visit_command(self, node: Node, place: _Place) -> None:
        """Add a simple command, and those in its words."""
        parts = self._parts(node, place.words)
        words = tuple(map(self._source.word, parts))
        for child in node.named_children:
            if child.type == "herestring_redirect":
                place = replace(place, document=self._here_string(child))
        texts: list[tuple[str, bool]] = []
        sources: set[int] = set()  # the identities of words that are shell text
        if words:
            all_readings = tuple(map(tuple, readings(words)))
            link = place.link
            programs = {base_name(reading[0]) for reading in all_readings[:-1]}
            if "coproc" in programs:  # runs in the background
                place, link = place.unknown, "none"
            elif "xargs" in programs:
                link = place.weakened.link
            self._add(all_readings, node, replace(place, link=link))
            texts, sources = self._texts_of(all_readings[-1], place)
        for word, part in zip(words, parts, strict=True):
            if id(word) not in sources:
                self._visit(part, place.unknown)
        in_words = {part.id for part in parts}
        for child in node.named_children:
            if child.id not in in_words and child.type != "command_name":
                self._visit(child, place.unknown)
        for text, stops in texts:
            self.read_text(text, place.link, place.function, stops=stops)

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

    def _texts_of(
        self, words: tuple[Word, ...], place: _Place
    ) -> tuple[list[tuple[str, bool]], set[int]]:
        """Return the shell texts that a command runs, and the identities of the words they are in.

        Args:
            words: the innermost reading.
            place: where it stands.
        """
        program = base_name(words[0])
        if program == "eval":
            return [(" ".join(words[1:]), False)], set(map(id, words[1:]))
        if program == "set":
            self._set_options(words)
        script = read_script(words)
        if script.text is not None:
            return [(script.text, script.stops)], {id(script.source)}
        if script.reads_input and place.document is not None:
            return [(place.document, script.stops)], set()
        return [], set()

    def _set_options(self, words: tuple[Word, ...]) -> None:
        """Note what ``set -e`` and ``set -o pipefail`` mean for the statuses that follow."""
        for index, word in enumerate(words):
            is_set = word.startswith("-")
            if not is_set and not word.startswith("+"):
                continue
            option = words[index + 1] if word.endswith("o") and index + 1 < len(words) else ""
            if "e" in word or option == "errexit":
                self._stops = is_set
            if option == "pipefail":
                self._pipefail = is_set

    def _add(self, all_readings: tuple[tuple[Word, ...], ...], node: Node, place: _Place) -> None:
        end = place.end or node.end_byte
        text = self._source.data[node.start_byte : end].decode("utf-8", "replace")
        self.commands.append(ShellCommand(all_readings, text, place.link, place.function))

    def _name_of(self, node: Node) -> str:
        name = node.child_by_field_name("name") if node.type == "command" else None
        return "" if name is None else self._source.text(name)
