"""Dockerfiles as text: their instructions, the images that they name, and what a build reads. Pure.

An instruction records the position of each of its characters in the text, so that the name of an
image can be replaced in place even if it continues over several lines.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

__all__ = [
    "ImageName",
    "Instruction",
    "base_names",
    "expand_variables",
    "find_images",
    "find_substitutes",
    "parse_pairs",
    "plain_base",
    "read_instructions",
    "reads_context",
    "replace_bases",
    "replace_spans",
    "write_platforms",
]

_DIRECTIVE = re.compile(r"#[ \t]*(\w+)[ \t]*=[ \t]*(\S+)[ \t\r]*$")
_INSTRUCTION = re.compile(r"\s*([A-Za-z]+)(?:\s+|$)")
_WORD = re.compile(r"""(?:[^\s"'\\]|\\.|"(?:\\.|[^"\\])*"|'[^']*'|["'\\])+""", re.DOTALL)
_HEREDOC = re.compile(r"""\d*<<(-?)(["']?)([A-Za-z_]\w*)\2""")
_FLAG = re.compile(r"\s*--([a-z-]+)(?:=(\S*))?(?=\s|$)")
_FROM = re.compile(r"\s*(\S+)(?:\s+AS\s+(\S+))?\s*", re.IGNORECASE)
_VARIABLE = re.compile(r"\\(\$)|\$(?:(\w+)|\{(\w+)(?:(:?[-+])([^}]*))?\})")
_PLATFORM_VARIABLE = re.compile(r"\$(?:(BUILD|TARGET)PLATFORM|\{(BUILD|TARGET)PLATFORM\})")
_WHOLE_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)\})")
_PAIR = re.compile(r"""([A-Za-z_]\w*)=("(?:\\.|[^"\\])*"|'[^']*'|\S*)""")
_MAX_VALUES = 4096  # characters of all values in a text; each variable may double the one before
_CONTEXT_READERS = ("COPY", "ADD")
_WITH_HEREDOCS = ("RUN", *_CONTEXT_READERS)


# The base images of Terminal-Bench 1 are these with tmux, asciinema and a directory.
_TERMINAL_BENCH_BASES = {
    r"(?:^|/)t-bench/ubuntu-24-04(?:[:@]|$)": "ubuntu:24.04",
    r"(?:^|/)t-bench/python-3-13(?:[:@]|$)": "python:3.13-slim-bookworm",
}


@dataclass(frozen=True)
class Instruction:
    """One instruction, with its continued lines joined, and without comments between them.

    Attributes:
        name: its name in capitals.
        rest: the text after the name, on one line.
        places: the position in the text of each character of ``rest``.
    """

    name: str
    rest: str
    places: tuple[int, ...]

    def flags(self) -> Iterator[tuple[str, str, int]]:
        """Yield the flags that the instruction begins with: name, value, and the value's index."""
        index = 0
        while flag := _FLAG.match(self.rest, index):
            yield flag[1], flag[2] or "", max(flag.start(2), 0)
            index = flag.end()

    @property
    def arguments_index(self) -> int:
        """The index in ``rest`` at which the flags end."""
        index = 0
        while flag := _FLAG.match(self.rest, index):
            index = flag.end()
        return index

    def span(self, start: int, end: int) -> tuple[int, int]:
        """Convert a span of ``rest`` to a span of the text."""
        return self.places[start], self.places[end - 1] + 1


@dataclass(frozen=True)
class ImageName:
    """An image that a Dockerfile names but does not build itself.

    Attributes:
        name: the name, with build arguments in it replaced by their defaults.
        span: the position of the name in the text.
        argument: the build argument, if the name is written as a single one; else empty.
        platform: the value of ``FROM --platform``, with the same defaults; empty without one.
    """

    name: str
    span: tuple[int, int]
    argument: str = ""
    platform: str = ""


def read_instructions(text: str) -> Iterator[Instruction]:
    """Yield the instructions of a Dockerfile, without comments and here-documents."""
    lines = _Lines(text)
    escape = lines.escape()
    while lines.more:
        joined = _join_lines(lines, escape)
        word = _INSTRUCTION.match(joined[0])
        if word is None:
            continue
        whole, places = joined
        instruction = Instruction(
            word[1].upper(), whole[word.end() :], tuple(places[word.end() : len(whole)])
        )
        heredocs = instruction
        while heredocs.name == "ONBUILD" and (nested := _nested(heredocs)) is not None:
            heredocs = nested
        if heredocs.name in _WITH_HEREDOCS:
            lines.skip_heredocs(heredocs.rest)
        yield instruction


class _Lines:
    """The lines of a text, taken one after the other."""

    def __init__(self, text: str) -> None:
        # Replace it with a character of the same length, so that positions stay correct.
        text = text.replace("\ufeff", " ", 1) if text.startswith("\ufeff") else text
        self._lines = re.findall(r"[^\n]*\n|[^\n]+", text)  # as builders take lines
        self._next = 0
        self._place = 0

    @property
    def more(self) -> bool:
        return self._next < len(self._lines)

    def take(self) -> tuple[str, int]:
        """Return the next line and its place in the text."""
        line, place = self._lines[self._next], self._place
        self._next += 1
        self._place += len(line)
        return line, place

    def escape(self) -> str:
        """Return the character that continues a line; a directive in the first lines may set it."""
        for line in self._lines:
            directive = _DIRECTIVE.match(line.strip())
            if directive is None:
                break
            if directive[1].lower() == "escape" and directive[2] in ("\\", "`"):
                return directive[2]
        return "\\"

    def skip_heredocs(self, rest: str) -> None:
        """Skip the here-documents that an instruction begins; one without an end is ignored."""
        for word in _WORD.findall(rest):
            begin = _HEREDOC.fullmatch(word)
            if begin is None:
                continue
            # An index, because searching the text for each end would take quadratic time.
            indexes = self._indexes["\t" if begin[1] else ""].get(begin[3], [])
            end = next(iter(indexes[bisect_left(indexes, self._next) :][:1]), -1)
            while self._next <= end:
                self.take()

    @cached_property
    def _indexes(self) -> Mapping[str, Mapping[str, list[int]]]:
        """The indexes of each line, by its text as it is and without its leading tabs."""
        indexes: dict[str, dict[str, list[int]]] = {"": {}, "\t": {}}
        for index, line in enumerate(self._lines):
            for stripped, lines in indexes.items():
                lines.setdefault(line.rstrip("\r\n").lstrip(stripped), []).append(index)
        return indexes


def _join_lines(lines: _Lines, escape: str) -> tuple[str, list[int]]:
    """Return the next line with its continuation lines, and the positions of its characters."""
    whole, places = "", list[int]()
    while lines.more:
        line, place = lines.take()
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            if whole:
                continue  # between continued lines
            return "", []
        text = line.rstrip()
        goes_on = text.endswith(escape) and not text.endswith(2 * escape)
        text = text[:-1] if goes_on else text
        whole += text
        places += range(place, place + len(text))
        if not goes_on:
            break
    return whole, places


def _nested(instruction: Instruction) -> Instruction | None:
    """Return the instruction that an ``ONBUILD`` holds."""
    word = _INSTRUCTION.match(instruction.rest)
    if word is None:
        return None
    return Instruction(
        word[1].upper(), instruction.rest[word.end() :], instruction.places[word.end() :]
    )


def _plain(instruction: Instruction) -> Instruction:
    """Return an instruction, or for ``ONBUILD`` the instruction that it holds."""
    nested: Instruction | None = instruction
    while nested is not None and nested.name == "ONBUILD":
        instruction, nested = nested, _nested(nested)
    return nested or instruction


def find_images(text: str) -> list[ImageName]:
    """Return the images that a Dockerfile starts from, copies from or mounts.

    The name of one of its own stages is not an image. A name that depends on an argument without a
    default is left out.
    """
    names: list[ImageName] = []
    stages: set[str] = {"scratch"}
    arguments: dict[str, str] | None = {}  # arguments before the first stage
    values: dict[str, str] = {}
    for outer in read_instructions(text):
        instruction = _plain(outer)
        if instruction.name == "ARG" and arguments is not None:
            arguments.update(parse_pairs(instruction.rest, arguments))
        elif instruction.name == "FROM":
            if arguments is not None:
                values, arguments = arguments, None
            begin = instruction.arguments_index
            stage = _FROM.fullmatch(instruction.rest, begin)
            if stage is None:
                continue
            flags = {name: value for name, value, _ in instruction.flags()}
            platform = expand_variables(flags.get("platform", ""), values)
            names += _find_image(instruction, *stage.span(1), values, stages, platform)
            stages.add((stage[2] or "scratch").lower())
        elif instruction.name in (*_CONTEXT_READERS, "RUN"):
            for flag, value, index in instruction.flags():
                # A number always refers to a stage, even if there is no such stage.
                if flag == "from" and not value.isdigit():
                    names += _find_image(instruction, index, index + len(value), {}, stages)
                elif flag == "mount":
                    origin = _mount_origin(value)
                    if origin is not None and not value[slice(*origin)].isdigit():
                        start, end = (index + offset for offset in origin)
                        names += _find_image(instruction, start, end, {}, stages)
    return names


def _find_image(
    instruction: Instruction,
    start: int,
    end: int,
    arguments: Mapping[str, str],
    stages: set[str],
    platform: str = "",
) -> Iterator[ImageName]:
    """Yield the image that a part of an instruction names, if it names one."""
    while end - start > 1 and instruction.rest[start] in "\"'":
        if instruction.rest[end - 1] != instruction.rest[start]:
            break
        start, end = start + 1, end - 1
    text = instruction.rest[start:end]
    name = expand_variables(text, arguments, unknown="$")
    if name and "$" not in name and name.lower() not in stages:
        whole = _WHOLE_VARIABLE.fullmatch(text)
        argument = (whole[1] or whole[2]) if whole else ""
        yield ImageName(name, instruction.span(start, end), argument, platform)


def _mount_origin(value: str) -> tuple[int, int] | None:
    """Return the span of the source that ``RUN --mount`` mounts; None for the context."""
    start = 0
    for field in value.split(","):
        key, sign, _ = field.partition("=")
        if sign and key.strip().strip("\"'").lower() == "from":
            return start + len(key) + 1, start + len(field.rstrip("\"'"))
        start += len(field) + 1
    return None


def base_names(text: str) -> list[str]:
    """Return the names of the images that a Dockerfile needs, each once; see `find_images`."""
    return list(dict.fromkeys(image.name for image in find_images(text)))


def replace_bases(
    text: str,
    replacements: Mapping[str, str],
    rename: Callable[[str, str], str] = lambda name, platform: name,
) -> tuple[str, dict[str, str], list[tuple[str, str]]]:
    """Replace images that a Dockerfile names with other images.

    Args:
        text: the Dockerfile.
        replacements: the new images, by the names of those that they replace.
        rename: returns the name of an image for a platform; it is called with the image's name and
            the value of ``FROM --platform``, which may be empty.

    Returns:
        The text; the build arguments to pass, by name, for images that are written as a single
        argument; and the images that the build then needs, each with the name that it replaces.
    """
    spans: list[tuple[tuple[int, int], str]] = []
    arguments: dict[str, str] = {}
    bases: dict[str, str] = {}
    for image in find_images(text):
        name = rename(replacements.get(image.name, image.name), image.platform)
        bases.setdefault(name, image.name)
        if image.argument:
            arguments[image.argument] = name
        elif name != image.name:
            spans.append((image.span, name))
    return replace_spans(text, spans), arguments, list(bases.items())


def write_platforms(text: str, build: str, target: str) -> str:
    """Write out the platform variables that an engine's classic builder does not set.

    Args:
        text: the Dockerfile, which may contain ``FROM --platform=$BUILDPLATFORM``.
        build: the engine's own platform.
        target: the image's platform.
    """
    spans: list[tuple[tuple[int, int], str]] = []
    for instruction in read_instructions(text):
        for flag, value, index in instruction.flags():
            variable = _PLATFORM_VARIABLE.fullmatch(value)
            if instruction.name == "FROM" and flag == "platform" and variable:
                is_build = "BUILD" in (variable[1], variable[2])
                span = instruction.span(index, index + len(value))
                spans.append((span, build if is_build else target))
    return replace_spans(text, spans)


def find_substitutes(
    text: str, replacements: Mapping[str, str], is_there: Callable[[str], bool]
) -> dict[str, str]:
    """Return the images that replace base images of Terminal-Bench 1 in a Dockerfile.

    These base images are made from plain images, which replace them if they are missing.

    Args:
        text: the Dockerfile.
        replacements: base images to use instead of others.
        is_there: returns whether an image exists.
    """
    plain = {name: plain_base(name) for name in base_names(text) if name not in replacements}
    return {
        name: replacements.get(base, base)
        for name, base in plain.items()
        if base and not is_there(name)
    }


def plain_base(name: str) -> str:
    """Return the plain image behind a base image of Terminal-Bench 1; empty for other images."""
    return next(
        (base for pattern, base in _TERMINAL_BENCH_BASES.items() if re.search(pattern, name)), ""
    )


def replace_spans(text: str, spans: list[tuple[tuple[int, int], str]]) -> str:
    """Return a text with some spans, which must not overlap, replaced by other words."""
    for (start, end), word in sorted(spans, reverse=True):
        text = text[:start] + word + text[end:]
    return text


def reads_context(text: str) -> bool:
    """Whether a build may read files of its context; True if that is not certain."""
    for outer in read_instructions(text):
        instruction = _plain(outer)
        flags = list(instruction.flags())
        if instruction.name in _CONTEXT_READERS and not any(name == "from" for name, _, _ in flags):
            return True
        mounts = (value for name, value, _ in flags if name == "mount")
        if instruction.name == "RUN" and any(map(_mounts_context, mounts)):
            return True
    return False


def _mounts_context(value: str) -> bool:
    fields = [field.strip().strip("\"'").partition("=") for field in value.split(",")]
    kinds = [kind.lower() for key, _, kind in fields if key.lower() == "type"] or ["bind"]
    return _mount_origin(value) is None and not {"cache", "tmpfs", "secret", "ssh"} & {*kinds}


def parse_pairs(rest: str, variables: Mapping[str, str]) -> dict[str, str]:
    """Return the values that ``ENV`` or ``ARG`` sets, by name."""
    values = {name: value.strip("\"'") for name, value in _PAIR.findall(rest)}
    if not values and " " in rest.strip():  # the old form: ENV NAME a value
        name, value = rest.strip().split(None, 1)
        values = {name: value}
    return {name: expand_variables(value, variables) for name, value in values.items()}


def expand_variables(text: str, variables: Mapping[str, str], unknown: str = "") -> str:
    """Replace variables in a text with their values.

    Args:
        text: the text.
        variables: the variables that are set.
        unknown: replaces a variable that is not set and has no default, and each one after the
            values have become longer than any path.
    """
    room = _MAX_VALUES

    def limited(match: re.Match[str]) -> str:
        nonlocal room
        text = value(match)
        room -= len(text)
        return text if room >= 0 else unknown

    def value(match: re.Match[str]) -> str:
        if match[1]:
            return "$"
        content = variables.get(match[2] or match[3])
        operator, alternative = match[4] or "", match[5] or ""
        if operator.endswith("+"):
            return alternative if content or (content is not None and operator == "+") else ""
        if content or (content is not None and operator != ":-"):
            return content
        return alternative if operator else unknown

    return _VARIABLE.sub(limited, text)
