"""What no recording holds: keys, and what names a machine or its user.

A key is known because the gateway or a variable of the environment holds it, or by its form. It is
found with escapes of JSON, URLs and HTML in it, too, and where a stream has it in several events.
What somebody encodes on purpose, in Base64 or backwards, cannot be found.
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
"""What stands for a key. It is a word to every shell, since an agent may run it in a replay."""

_USER_MASK, _HOST_MASK = "intercode-masked-user", "intercode-masked-host"
_ANY_MASK = re.compile(r"intercode-masked-(?:key|user|host)")

# What follows a beginning that may come back has a bound, so that a hostile text takes linear time.
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
_ADDRESS_PASSWORD = re.compile(r"://[^/\s:@]{0,100}:([^/\s:@]{8,200})@")  # of a database, say
_ESCAPES = re.compile(r"\\|%[0-9A-Fa-f]{2}|&#")
# Names that say nothing of a machine or a person.
_COMMON = frozenset(
    {
        *("admin", "build", "builder", "buildbot", "centos", "debian", "docker", "fedora", "home"),
        *("jenkins", "linux", "localhost", "machine", "nobody", "root", "runner", "sandbox"),
        *("test", "tester", "ubuntu", "user", "vagrant", "vscode", "work", "workspace"),
    }
)
_NOTHING = re.compile(r"(?!)")
_PLACE = ("type", "index", "output_index", "content_index", "item_id")
"""What of an event says which text of the answer it continues."""


class _Span(NamedTuple):
    start: int
    end: int
    replacement: str


class Masks:
    """Masks keys, and names of this machine.

    Args:
        secrets: keys that are known.
        user: the name of the user of this machine, masked in paths and addresses: anywhere else it
            may be a word.
        host: the name of this machine; one that may be a word is masked in addresses alone.
        forms: whether keys are known by their form, and found with escapes in them, too.
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
        """Return what masks the keys in the environment, too, and the names of machine and user.

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
        """Return what masks keys that are known, those of the environment too, and nothing else.

        Args:
            secrets: further keys.
        """
        return cls([*secrets, *_secrets_in(os.environ)], forms=False)

    def text(self, text: str) -> str:
        """Return a text without what is masked."""
        parts: list[str] = []
        position = 0
        for span in self._spans(text):
            parts += text[position : span.start], span.replacement
            position = span.end
        return "".join(parts) + text[position:] if parts else text

    def value(self, value: Any) -> Any:
        """Return a JSON value whose texts, the names of fields included, are masked."""
        return map_texts(value, self.text)

    def body(self, text: str) -> str:
        """Return an answer in one piece, masked; one without anything to mask stays as it is."""
        try:
            document = json.loads(text)
            masked = self.value(document)
        except (ValueError, RecursionError):
            return self.text(text)
        return text if masked == document else json.dumps(masked)

    def line(self, line: str) -> str:
        """Return a line of JSON whose texts are masked; one without a known key stays as it is."""
        if not any(json.dumps(secret)[1:-1] in line for secret in self._secrets):
            return line
        return json.dumps(self.value(json.loads(line)))

    def stream(self, events: Sequence[str]) -> tuple[str, ...]:
        """Return the events of a stream, masked where a text goes over several of them, too.

        An event in which nothing is masked stays as it is, byte for byte.
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
        """Mask a text that is in several events; yield their numbers."""
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
                if span.start >= start:  # it begins here, and the rest of it is left out
                    parts.append(span.replacement)
                position = min(span.end, end)
            if parts:
                parts.append(fragment.text[position - start :])
                fragment.holder[fragment.key] = "".join(parts)
                yield fragment.number
            start = end

    def _spans(self, text: str) -> list[_Span]:
        """Return what is masked in a text, in order; no two overlap."""
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
        # Of those that begin at one place the longest first: it covers the others.
        spans.sort(key=lambda span: (span.start, -span.end))
        merged: list[_Span] = []
        for span in spans:
            if merged and span.start < merged[-1].end:
                if span.end > merged[-1].end:  # what either of them covers is masked
                    merged[-1] = _Span(merged[-1].start, span.end, merged[-1].replacement)
            else:
                merged.append(span)
        return merged


def _secrets_in(variables: Mapping[str, str]) -> Iterator[str]:
    """Yield the keys that variables hold, and the passwords in their addresses."""
    for name, value in variables.items():
        if variable_names_secret(name) and is_secret(value) and not value.startswith(("/", ".")):
            yield value
        yield from (match[1] for match in _ADDRESS_PASSWORD.finditer(value))


def map_texts(value: Any, change: Callable[[str], str]) -> Any:
    """Return a JSON value with every text of it changed, the names of fields included."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, (list, tuple)):
        return [map_texts(element, change) for element in value]
    if isinstance(value, Mapping):
        return {change(str(key)): map_texts(inner, change) for key, inner in value.items()}
    return value


class _Fragment(NamedTuple):
    """A text in an event of a stream: where it belongs, and where it stands."""

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
    """Return the JSON object that an event has as its data; None if it has none."""
    lines = [line[5:] for line in event.splitlines() if line.startswith("data:")]
    try:
        data = json.loads("\n".join(lines))
    except (ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None


def _with_data(event: str, data: Any) -> str:
    """Return an event with other data."""
    lines = [line for line in event.splitlines() if line and not line.startswith("data:")]
    return "\n".join([*lines, f"data: {json.dumps(data)}", "", ""])


def _written(character: str) -> str:
    """Return a pattern for a character as it is, and escaped in JSON, in a URL or in HTML."""
    code = ord(character)
    return (
        rf"(?:\\{{0,8}}{re.escape(character)}|\\{{1,8}}(?:u(?i:{code:04x})|x(?i:{code:02x}))"
        rf"|%(?i:{code:02x})|&#{code};)"
    )


def has_mask(text: str) -> bool:
    """Whether something in a text was masked."""
    return _ANY_MASK.search(text) is not None


def matches_masked(recorded: Any, current: Any) -> bool:
    """Whether a value is the recorded one, in which a mask stands for any text.

    What was masked as this machine knew it, a key of the environment or a name, is not known where
    it is replayed.
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
    for part in parts[:-1]:  # the next place is the best one; nothing is tried twice
        position = current.find(part, position)
        if position < 0:
            return False
        position += len(part)
    return current.endswith(parts[-1]) and len(current) - len(parts[-1]) >= position
