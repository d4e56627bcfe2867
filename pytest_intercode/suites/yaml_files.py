"""Reading of YAML files with limits; mistakes are reported in one line.

Values on which a parser would crash, or that it would never finish, are refused: values nested too
deeply, aliases that contain themselves or multiply, integers that are too long for Python to print.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import yaml

from pytest_intercode.errors import SuiteError
from pytest_intercode.system.suite_folder import SuitePath

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["read_yaml"]

_MAX_BYTES = 64 * 1024**2
_MAX_DEPTH = 100  # levels of nested values
_MAX_NODES = 1_000_000  # values, with aliases replaced by their content
_MAX_DIGITS = 1000  # characters
# Text that may be an alias; a suite without any is not parsed twice.
_ALIAS = re.compile(r"(?:^|[\s,\[{:?])\*[\w-]", re.MULTILINE)
# A line with so much indentation may be nested too deeply.
_LONG_INDENT = re.compile(rf"^[ ?:-]{{{_MAX_DEPTH}}}", re.MULTILINE)

# Remedies for parser messages that are hard to understand.
_REMEDIES = {
    "tab character": "; indent with spaces",
    "cannot start any token": "; indent with spaces, not tabs, and put a value that begins with a "
    "special character into quotes",
    "mapping values are not allowed": "; put a value that has ': ' in it into quotes",
}

_Base: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_Base):  # type: ignore[misc]
    """YAML's safe loader, which would use the last of equal keys; here they are a mistake."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> Any:
        """Return the mapping, if its keys are unique."""
        keys = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if key.value in keys:
                    raise _mistake(f"the key {key.value!r:.80} is used twice", key.start_mark)
                keys.add(key.value)
        return super().construct_mapping(node, deep)

    def construct_yaml_int(self, node: yaml.ScalarNode) -> Any:
        """Return an integer that is short enough to be printed."""
        if len(node.value) > _MAX_DIGITS:
            raise _mistake(
                f"an integer of more than {_MAX_DIGITS:,} digits; write it as text, in quotes",
                node.start_mark,
            )
        return super().construct_yaml_int(node)


_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_yaml_int)


class _AsWritten(int):
    """A value that is a boolean or a number in YAML 1.1 and a text in 1.2; printed as the text."""

    _text: str

    def __new__(cls, value: int, text: str) -> _AsWritten:
        self = super().__new__(cls, value)
        self._text = text
        return self

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return repr(self._text)


class _NewLoader(_Loader):
    """Keeps texts of YAML 1.2: ``12:30``, and booleans other than ``true`` and ``false``."""

    def construct_yaml_bool(self, node: yaml.ScalarNode) -> Any:
        """Return a boolean."""
        value = super().construct_yaml_bool(node)
        is_new = node.value.lower() in ("true", "false")
        return value if is_new else _AsWritten(value, node.value)

    def construct_yaml_int(self, node: yaml.ScalarNode) -> Any:
        """Return an integer."""
        value = super().construct_yaml_int(node)
        return _AsWritten(value, node.value) if ":" in node.value else value


_NewLoader.add_constructor("tag:yaml.org,2002:bool", _NewLoader.construct_yaml_bool)
_NewLoader.add_constructor("tag:yaml.org,2002:int", _NewLoader.construct_yaml_int)


def read_yaml(path: Path | SuitePath, *, new: bool = False) -> tuple[Any, yaml.Node | None]:
    """Return the content of a file, and its root node, which has the line numbers.

    Args:
        path: the file.
        new: whether the file is written for YAML 1.2: texts there, such as ``yes`` and ``12:30``,
            are printed as they are written.

    Raises:
        SuiteError: it cannot be read, or is not YAML within the limits.
    """
    try:
        size = path.stat().st_size
        if size > _MAX_BYTES:
            raise SuiteError(
                f"{path}: larger than {_MAX_BYTES // 2**20} MiB; put the tasks into a file of rows"
            )
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise SuiteError(
            f"{path}: not UTF-8 text at byte {error.start}; save it with the encoding UTF-8"
        ) from None
    except OSError as error:
        raise SuiteError(f"{path}: cannot be read: {error.strerror or error}") from None
    node = None
    try:
        _check_limits(text)
        loader = _NewLoader(text) if new else _Loader(text)
        node = loader.get_single_node()
        return (None if node is None else loader.construct_document(node)), node
    except yaml.YAMLError as error:
        fault = error
    except Exception as error:  # PyYAML does not catch the errors that int() etc. raise for values
        fault = _find_mistake(node, error)
    mark = getattr(fault, "problem_mark", None)
    place = f"{path}:{mark.line + 1}" if mark else str(path)
    problem = getattr(fault, "problem", None) or str(fault).splitlines()[0]
    remedy = next((words for part, words in _REMEDIES.items() if part in problem), "")
    raise SuiteError(f"{place}: not YAML: {problem}{remedy}")


def _mistake(problem: str, mark: Any) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=mark)


def _check_limits(text: str) -> None:
    """Refuse text that is nested too deeply or has too many values, before it is loaded."""
    brackets = text.count("[") + text.count("{")
    if brackets < _MAX_DEPTH and not _ALIAS.search(text) and not _LONG_INDENT.search(text):
        return
    sizes: dict[str, int] = {}  # number of values by anchor, including those of aliases
    open_nodes: list[tuple[str | None, int]] = []
    total = 0
    for event in yaml.parse(text, Loader=_Base):
        if isinstance(event, yaml.CollectionEndEvent):
            anchor, start = open_nodes.pop()
            if anchor is not None:
                sizes[anchor] = total - start
        elif isinstance(event, yaml.AliasEvent):
            if any(anchor == event.anchor for anchor, _ in open_nodes):
                raise _mistake(f"the alias *{event.anchor:.80} contains itself", event.start_mark)
            total += sizes.get(str(event.anchor), 1)
        elif isinstance(event, yaml.NodeEvent):
            if isinstance(event, yaml.CollectionStartEvent):
                open_nodes.append((event.anchor, total))
            total += 1
        if len(open_nodes) > _MAX_DEPTH:
            raise _mistake(f"nested more than {_MAX_DEPTH} levels deep", event.start_mark)
        if total > _MAX_NODES:
            raise _mistake(f"more than {_MAX_NODES:,} values, aliases included", event.start_mark)


def _find_mistake(node: yaml.Node | None, error: Exception) -> yaml.YAMLError:
    """Return the mistake for the first value that cannot be constructed."""
    for scalar in _scalars(node):
        try:
            _Loader("").construct_object(scalar)
        except Exception:
            kind = scalar.tag.rpartition(":")[2]
            return _mistake(f"{scalar.value!r:.60} is not a valid {kind}", scalar.start_mark)
    if isinstance(error, RecursionError):
        return yaml.YAMLError("nested too deeply")
    return _mistake("a value does not fit its tag", node.start_mark if node else None)


def _scalars(node: yaml.Node | None) -> Iterator[yaml.ScalarNode]:
    waiting, visited_ids = [node], set()
    while waiting:
        current = waiting.pop()
        if id(current) in visited_ids:
            continue
        visited_ids.add(id(current))
        if isinstance(current, yaml.ScalarNode):
            yield current
        elif isinstance(current, yaml.SequenceNode):
            waiting += reversed(current.value)
        elif isinstance(current, yaml.MappingNode):
            waiting += (part for pair in reversed(current.value) for part in reversed(pair))
