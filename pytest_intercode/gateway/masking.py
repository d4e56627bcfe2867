"""Masks what no recording may contain: keys, and the names of the machine and its user.

A key is known because the gateway or an environment variable contains it, or because of its format.
It is also found if it has escapes of JSON, URLs or HTML in it, or is split between several events
of a stream. A key that is encoded on purpose, in Base64 or reversed, cannot be found.
"""

from __future__ import annotations

import getpass
import itertools
import json
import os
import re
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pytest_intercode.core.secrets import variable_names_secret
from pytest_intercode.gateway.settings import is_secret

__all__ = ["KEY_MASK", "Masks", "has_mask", "map_texts", "matches_masked"]

KEY_MASK = "intercode-masked-key"
"""Replaces a key. It is a plain word in every shell, as an agent may run it in a replay."""

_USER_MASK, _HOST_MASK = "intercode-masked-user", "intercode-masked-host"
_ANY_MASK = re.compile(r"intercode-masked-(?:key|user|host)")

# Repetitions after a prefix that may recur are bounded, so that a hostile text takes linear time.
_FORMS = re.compile(
    "|".join(
        (
            r"\bsk-(?=[\w-]{0,100}\d)[\w-]{20,}",
            r"\b(?:gh[pousr]_\w{30,}|github_pat_\w{30,}|glpat-[\w-]{20,})",
            r"\bxox[abeprs]-[\w-]{10,}",
            r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b",
            r"\bAIza[\w-]{35}",
            r"\bya29\.[\w-]{20,}",  # a token of Google Cloud
            r"\b(?:hf|npm)_[A-Za-z0-9]{30,}",
            r"\bpypi-[\w-]{50,}",
            r"\beyJ[\w-]{10,2000}\.eyJ[\w-]{10,4000}\.[\w-]{10,}",  # a JSON web token
            r"(?<=Bearer )(?=[\w.~+/-]{0,100}\d)[\w.~+/-]{20,}=*",
            r"-----BEGIN [A-Z ]{0,20}PRIVATE KEY-----[^-]{1,20000}-----END [A-Z ]{0,20}PRIVATE KEY",
        )
    )
)
_ADDRESS_PASSWORD = re.compile(r"://[^/\s:@]{0,100}:([^/\s:@]{8,200})@")  # such as a database's
_ESCAPES = re.compile(r"\\|%[0-9A-Fa-f]{2}|&#")
# Names that do not identify a machine or a person.
_COMMON = frozenset(
    {
        *("admin", "build", "builder", "buildbot", "centos", "debian", "docker", "fedora", "home"),
        *("jenkins", "linux", "localhost", "machine", "nobody", "root", "runner", "sandbox"),
        *("test", "tester", "ubuntu", "user", "vagrant", "vscode", "work", "workspace"),
    }
)
_NOTHING = re.compile(r"(?!)")
_PLACE = ("type", "index", "output_index", "content_index", "item_id")
"""The fields of an event that determine which text of the answer it continues."""


class _Span(NamedTuple):
    start: int
    end: int
    replacement: str


class Masks:
    """Masks keys, and names of this machine.

    Args:
        secrets: known keys.
        user: the name of the user of this machine; it is masked only in paths and addresses, as it
            may be a word elsewhere.
        host: the name of this machine; a name that may be a word is masked only in addresses.
        forms: whether keys are also recognized by their format, and with escapes in them.
    """

    def __init__(
        self, secrets: Iterable[str] = (), *, user: str = "", host: str = "", forms: bool = True
    ) -> None:
        self._forms = _FORMS if forms else _NOTHING
        self._secrets = tuple(sorted({*secrets}, key=len, reverse=True))
        escaped = self._secrets if forms else ()
        self._escaped = [re.compile("".join(map(_written, secret))) for secret in escaped]
        self._user = self._host = _NOTHING
        if user and user.lower() not in _COMMON:
            name = re.escape(user)
            homes = r"(?:(?<=/home/)|(?<=/Users/)|(?<=\\Users\\))"
            self._user = re.compile(rf"{homes}{name}\b|(?<![\w.-]){name}(?=@)")
        if host and host.lower() not in _COMMON:
            name = re.escape(host)
            start = r"(?<![\w.-])" if re.search(r"[\d.-]", host) else "(?<=@)"
            self._host = re.compile(rf"{start}{name}(?![\w-])")

    @classmethod
    def of_machine(
        cls, secrets: Iterable[str] = (), environment: Mapping[str, str] | None = None
    ) -> Masks:
        """Return masks for the keys in the environment as well, and for machine and user names.

        Args:
            secrets: further keys.
            environment: the variables; by default those of this process.
        """
        values = _secrets_in(os.environ if environment is None else environment)
        try:
            user = getpass.getuser()
        except (KeyError, OSError):  # an account without a name
            user = ""
        return cls([*secrets, *values], user=user, host=socket.gethostname())

    @classmethod
    def of_keys(cls, secrets: Iterable[str] = ()) -> Masks:
        """Return masks for known keys only, including those in the environment.

        Args:
            secrets: further keys.
        """
        return cls([*secrets, *_secrets_in(os.environ)], forms=False)

    def text(self, text: str) -> str:
        """Return a text, masked."""
        parts: list[str] = []
        position = 0
        for span in self._spans(text):
            parts += text[position : span.start], span.replacement
            position = span.end
        return "".join(parts) + text[position:] if parts else text

    def value(self, value: Any) -> Any:
        """Return a JSON value whose texts, including the names of fields, are masked."""
        return map_texts(value, self.text)

    def body(self, text: str) -> str:
        """Return an answer in one piece, masked; unchanged if there is nothing to mask."""
        try:
            document = json.loads(text)
            masked = self.value(document)
        except (ValueError, RecursionError):
            return self.text(text)
        return text if masked == document else json.dumps(masked)

    def line(self, line: str) -> str:
        """Return a line of JSON whose texts are masked; unchanged if it has no known key."""
        if not any(json.dumps(secret)[1:-1] in line for secret in self._secrets):
            return line
        return json.dumps(self.value(json.loads(line)))

    def stream(self, events: Sequence[str]) -> tuple[str, ...]:
        """Return the events of a stream, masked even if a text is split between several of them.

        An event in which nothing is masked does not change by a single byte.
        """
        documents = [_data_of(event) for event in events]
        texts: dict[Any, list[_Fragment]] = {}
        for number, document in enumerate(documents):
            if document is not None:
                for fragment in _fragments(number, document, document):
                    texts.setdefault(fragment.place, []).append(fragment)
        changed: set[int] = set()
        for fragments in texts.values():
            changed.update(self._mask_fragments(fragments))
        return tuple(
            _with_data(event, documents[number])
            if number in changed
            else event
            if documents[number] is not None
            else self.text(event)
            for number, event in enumerate(events)
        )

    def _mask_fragments(self, fragments: Sequence[_Fragment]) -> Iterator[int]:
        """Mask a text that is split between several events; yield the changed events' numbers."""
        spans = self._spans("".join(fragment.text for fragment in fragments))
        start = first = 0
        for fragment in fragments if spans else ():
            end = start + len(fragment.text)
            while first < len(spans) and spans[first].end <= start:
                first += 1
            parts, position = [], start
            for span in itertools.islice(spans, first, None):
                if span.start >= end:
                    break
                parts.append(fragment.text[position - start : max(span.start - start, 0)])
                if span.start >= start:  # it begins in this event; its rest is only removed
                    parts.append(span.replacement)
                position = min(span.end, end)
            if parts:
                parts.append(fragment.text[position - start :])
                fragment.holder[fragment.key] = "".join(parts)
                yield fragment.number
            start = end

    def _spans(self, text: str) -> list[_Span]:
        """Return the spans to mask in a text, in order and without overlaps."""
        spans: list[_Span] = []
        for secret in self._secrets:
            start = text.find(secret)
            while start >= 0:
                spans.append(_Span(start, start + len(secret), KEY_MASK))
                start = text.find(secret, start + len(secret))
        if self._escaped and _ESCAPES.search(text):
            for pattern in self._escaped:
                spans += (_Span(*match.span(), KEY_MASK) for match in pattern.finditer(text))
        spans += (_Span(*match.span(), KEY_MASK) for match in self._forms.finditer(text))
        for pattern, mask in ((self._user, _USER_MASK), (self._host, _HOST_MASK)):
            spans += (_Span(*match.span(), mask) for match in pattern.finditer(text))
        # Of spans with the same start, put the longest first, as it covers the others.
        spans.sort(key=lambda span: (span.start, -span.end))
        merged: list[_Span] = []
        for span in spans:
            if merged and span.start < merged[-1].end:
                if span.end > merged[-1].end:  # mask everything that either of them covers
                    merged[-1] = _Span(merged[-1].start, span.end, merged[-1].replacement)
            else:
                merged.append(span)
        return merged


def _secrets_in(variables: Mapping[str, str]) -> Iterator[str]:
    """Yield the keys in variables, and the passwords in addresses in them."""
    for name, value in variables.items():
        if variable_names_secret(name) and is_secret(value) and not value.startswith(("/", ".")):
            yield value
        yield from (match[1] for match in _ADDRESS_PASSWORD.finditer(value))


def map_texts(value: Any, change: Callable[[str], str]) -> Any:
    """Return a JSON value with all its texts changed, including the names of fields."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, (list, tuple)):
        return [map_texts(element, change) for element in value]
    if isinstance(value, Mapping):
        return {change(str(key)): map_texts(inner, change) for key, inner in value.items()}
    return value


class _Fragment(NamedTuple):
    """A text in an event of a stream: the place that it belongs to, and its location."""

    place: Any
    number: int
    text: str
    holder: Any
    key: Any


def _fragments(number: int, value: Any, holder: Any, place: Any = ()) -> Iterator[_Fragment]:
    items: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, dict):
        items = list(value.items())
        place = (*place, tuple(str(value[name]) for name in _PLACE if name in value))
    elif isinstance(value, list):
        items = list(enumerate(value))
    for key, inner in items:
        inner_place = (*place, key)
        if isinstance(inner, str):
            yield _Fragment(inner_place, number, inner, value, key)
        else:
            yield from _fragments(number, inner, value, inner_place)


def _data_of(event: str) -> Any:
    """Return the JSON object in an event's data; None if there is none."""
    lines = [line[5:] for line in event.splitlines() if line.startswith("data:")]
    try:
        data = json.loads("\n".join(lines))
    except (ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None


def _with_data(event: str, data: Any) -> str:
    """Return an event with its data replaced."""
    lines = [line for line in event.splitlines() if line and not line.startswith("data:")]
    return "\n".join([*lines, f"data: {json.dumps(data)}", "", ""])


def _written(character: str) -> str:
    """Return a pattern for a character, plain or escaped in JSON, a URL or HTML."""
    code = ord(character)
    return (
        rf"(?:\\{{0,8}}{re.escape(character)}|\\{{1,8}}(?:u(?i:{code:04x})|x(?i:{code:02x}))"
        rf"|%(?i:{code:02x})|&#{code};)"
    )


def has_mask(text: str) -> bool:
    """Whether a text contains a mask."""
    return _ANY_MASK.search(text) is not None


def matches_masked(recorded: Any, current: Any) -> bool:
    """Whether a value equals the recorded one, in which a mask matches any text.

    Some masked texts, a key in the environment or a name, were known only to the machine that
    recorded, not to the one that replays.
    """
    if isinstance(recorded, str) and isinstance(current, str):
        return _matches_text(recorded, current)
    if isinstance(recorded, dict) and isinstance(current, dict):
        return recorded.keys() == current.keys() and all(
            matches_masked(value, current[key]) for key, value in recorded.items()
        )
    if isinstance(recorded, list) and isinstance(current, list):
        return len(recorded) == len(current) and all(map(matches_masked, recorded, current))
    return bool(recorded == current) and type(recorded) is type(current)


def _matches_text(recorded: str, current: str) -> bool:
    first, *parts = _ANY_MASK.split(recorded)
    if not parts:
        return recorded == current
    if not current.startswith(first):
        return False
    position = len(first)
    for part in parts[:-1]:  # the first match is always best, so no backtracking is needed
        position = current.find(part, position)
        if position < 0:
            return False
        position += len(part)
    return current.endswith(parts[-1]) and len(current) - len(parts[-1]) >= position
