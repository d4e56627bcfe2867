"""Canonical requests, without what differs between equivalent requests: to replay recordings.

Pure. Two runs of a program never send equal bytes: sessions and requests have ids, prompts contain
the date, and outputs of commands show durations. Such details are removed or masked here, and
nothing else: a request with a different observation is a different request.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

__all__ = ["canonical", "digest", "first_difference", "mask_text", "without_order"]

# Top-level fields that identify the session, the user or the request.
_TOP = frozenset(
    {
        *("metadata", "client_metadata", "user", "safety_identifier", "prompt_cache_key"),
        *("previous_response_id", "stream_options", "labels", "requestMetadata"),
    }
)
# Fields of messages and items: ids, which clients may generate again, and the server's markers.
_INNER = frozenset(
    {
        *("id", "call_id", "tool_call_id", "tool_use_id", "encrypted_content", "signature"),
        *("cache_control", "internal_chat_message_metadata_passthrough"),
        *("thoughtSignature", "thought_signature", "toolUseId", "cachePoint"),
    }
)
_AS_THEY_ARE = frozenset(
    {
        *("parameters", "input_schema", "inputSchema", "schema"),
        *("parametersJsonSchema", "parameters_json_schema"),
        *("responseSchema", "response_schema", "responseJsonSchema", "response_json_schema"),
    }
)

_LONG = range(4096, 65536)  # lengths, in characters, of texts whose masked form is cached

Mask: TypeAlias = Callable[[str], str]

_MONTH = "(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*"
_DAY = "(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*"
_TIME = r"\d\d:\d\d(?::\d\d(?:\.\d+)?)?"
_ZONE = r"(?: ?(?:Z|UTC|[+-]\d\d:?\d\d))"
# Ids are recognized only by their format, never by their random characters: a random id may happen
# to consist of digits only.
_OWNER = (
    "(?:agent|build|call|chunk|container|conversation|event|installation|job|message|process|"
    "request|response|run|session|task|thread|trace|turn|window)"
)
_PREFIX = "(?:call|chatcmpl|fc|msg|req|resp|rs|sess|srvtoolu|toolu)"
_MASKS = tuple(
    (re.compile(pattern), mask)
    for pattern, mask in (
        (r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b", "<uuid>"),
        (rf"\b\d{{4}}-\d\d-\d\d(?:[T ]{_TIME}{_ZONE}?)?", "<time>"),
        (rf"\b(?:{_DAY},? )?{_MONTH} \d{{1,2}},? (?:{_TIME}(?: [A-Z]+)? )?\d{{4}}", "<time>"),
        (rf"\b(?:{_DAY},? )?\d{{1,2}} {_MONTH} \d{{4}}", "<time>"),
        (rf"\b{_DAY} {_MONTH} +\d+ [\d:]{{8}} (?:[A-Z]+ )?\d{{4}}", "<time>"),
        (r"\b\d{1,2}/\d{1,2}/\d{4}\b", "<time>"),
        (rf"\b{_MONTH} +\d{{1,2}} +(?:\d\d:\d\d|\d{{4}})\b", "<time>"),  # as ls writes it
        (r"\b\d{1,2}:\d\d:\d\d(?:\.\d+)?\b", "<time>"),
        (r"\b\d+ (?:second|minute|hour|day|week|month|year)s? ago\b", "<time>"),
        (r"\b(?:\d+h)?\d+m ?\d+(?:\.\d+)?s\b", "<duration>"),
        (r"\b\d+(?:\.\d+)? ?(?:[mnuµ]?s|sec|secs|seconds?)\b", "<duration>"),
        (r"\b\d+(?:\.\d+)? ?[kKMG]i?B/s\b", "<speed>"),
        # The kernel is that of the machine, even in a container.
        (r"\b(Linux(?: \S+)?) \d+\.\d+[\w.+-]*(?: #\d\S*)?", r"\1 <kernel>"),
        # A text that is labelled as an id: Chunk ID: 547191, session_id=x, "requestId": "r-1".
        (rf"(?i)\b({_OWNER}[ _-]?(?:id|uuid))(\W{{1,4}})[\w-]+", r"\1\2<id>"),
        (r"(?i)\b(pid)(\W{1,4})\d+\b", r"\1\2<id>"),
        (rf"\b{_PREFIX}[_-][0-9A-Za-z]{{16,64}}\b", "<id>"),
        (r"\b[0-7][0-9A-HJKMNP-TV-Z]{25}\b", "<id>"),  # a ULID
        (r"\b(?:[0-9a-f]{6,64}|[0-9A-F]{6,64})\b", "<hex>"),
        # Complete paths, also those converted to a single name: /tmp/a/b, -tmp-a-b.
        (r"(?:/private)?(?:/var)?/tmp/[\w.+/-]+|(?<!\w)-tmp-[\w.-]+", "<temporary>"),
        (r"\b0x[0-9a-fA-F]{6,16}\b", "<address>"),
        (r"(?m)^\[\d+\] \d+$", "<job>"),  # a shell's background job
        (r"(?:\b127\.0\.0\.1|\blocalhost|\b0\.0\.0\.0|\[::1\]):\d+", "<loopback>:<port>"),
    )
)


def canonical(body: Mapping[str, Any], mask: Mask | None = None) -> Any:
    """Return a request's body without details that differ from run to run.

    Args:
        body: the parsed body.
        mask: the function that masks each text: :func:`mask_text`, or a version of it that caches
            its results, as each request of an agent repeats the texts of earlier ones.
    """
    mask = mask or mask_text
    return {
        key: _canonical(value, mask, key in _AS_THEY_ARE)
        for key, value in body.items()
        if key not in _TOP
    }


def _canonical(value: Any, mask: Mask, as_it_is: bool) -> Any:
    if as_it_is:
        return value
    if isinstance(value, str):
        return mask(value)
    if isinstance(value, list):
        return [_canonical(element, mask, as_it_is) for element in value]
    if not isinstance(value, dict):
        return value
    return {
        # A tool's argument is never treated as an id, whatever its name.
        key: _canonical(inner, mask, key in _AS_THEY_ARE or _is_argument(value, key))
        for key, inner in value.items()
        if key not in _INNER
    }


def _is_argument(block: Mapping[str, Any], key: str) -> bool:
    if key == "args":  # of a Gemini call
        return "name" in block
    return key == "input" and (block.get("type") == "tool_use" or "toolUseId" in block)


def mask_text(text: str) -> str:
    """Mask the details of a text that differ from run to run."""
    return _mask_long(text) if len(text) in _LONG else _mask(text)


@functools.lru_cache(maxsize=32)
def _mask_long(text: str) -> str:
    """Mask a long text, cached: agents repeat instructions, and masking takes milliseconds."""
    return _mask(text)


def _mask(text: str) -> str:
    for pattern, mask in _MASKS:
        text = pattern.sub(mask, text)
    return text


def without_order(content: Any) -> Any:
    """Return a canonical request in which the order of lines does not matter.

    An agent that reads a command's stdout and stderr through two pipes gets their lines in
    a different order each time.
    """
    if isinstance(content, str):
        return "\n".join(sorted(filter(None, content.split("\n"))))
    if isinstance(content, list):
        return [without_order(element) for element in content]
    if isinstance(content, dict):
        return {key: without_order(value) for key, value in content.items()}
    return content


def digest(method: str, path: str, content: Any) -> str:
    """Return a short digest of a canonical request."""
    text = json.dumps([method, path, content], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:16]


def first_difference(recorded: Any, current: Any, path: str = "") -> str:
    """Describe the first difference between two canonical requests; empty if there is none."""
    if isinstance(recorded, dict) and isinstance(current, dict):
        for key in [*recorded, *(key for key in current if key not in recorded)]:
            inner = f"{path}.{key}" if path else str(key)
            if key not in current:
                return f"{inner}: recorded, and not there now"
            if key not in recorded:
                return f"{inner}: not recorded"
            if difference := first_difference(recorded[key], current[key], inner):
                return difference
        return ""
    if isinstance(recorded, list) and isinstance(current, list):
        for number, (recorded_entry, entry) in enumerate(zip(recorded, current, strict=False)):
            if difference := first_difference(recorded_entry, entry, f"{path}[{number}]"):
                return difference
        if len(recorded) != len(current):
            return f"{path}: {len(recorded)} entries recorded, {len(current)} now"
        return ""
    if recorded == current and type(recorded) is type(current):
        return ""
    return f"{path}: {_excerpts(recorded, current)}"


def _excerpts(recorded: Any, current: Any) -> str:
    """Return excerpts of two values that start shortly before their first difference."""
    if isinstance(recorded, str) and isinstance(current, str):
        index = next(
            (n for n, (a, b) in enumerate(zip(recorded, current, strict=False)) if a != b),
            min(len(recorded), len(current)),
        )
        start = max(0, index - 20)
        lead = "..." if start else ""
        recorded, current = (
            f"{lead}{text[start : start + 80]}{'...' if len(text) > start + 80 else ''}"
            for text in (recorded, current)
        )
    return f"recorded {recorded!r:.120}, now {current!r:.120}"
