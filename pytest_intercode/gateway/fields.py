"""The fields that requests may have, by API: what is not declared here is not passed on.

An API grows, and a new field may cost money, choose another model, or have the provider fetch an
address, by which an agent without a network would have one. So a request is checked against what is
known to do none of that. What is known to do so is declared, too, with what it does, for the
message. The table in docs/gateway.md comes from here (:func:`table`).

Pure. The names are those of the APIs' references and of what clients were seen to send.
"""

from __future__ import annotations

import json
import re
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from pytest_intercode.core.text import one_line
from pytest_intercode.gateway.exchange import Api

__all__ = ["BETAS", "FIELDS", "Limits", "NotAllowed", "check_fields", "is_beta", "table"]

_DEEPEST = 60

_Path: TypeAlias = "tuple[str, ...]"
"""The keys that lead to a value, without the places in lists."""


class NotAllowed(Exception):
    """A request has what may not be passed on.

    Args:
        message: what, where, and what it does.
        name: by which it can be allowed; empty where it cannot.
        hosted: whether it leaves the sandbox through the provider.
    """

    def __init__(self, message: str, name: str = "", *, hosted: bool = False) -> None:
        super().__init__(message)
        self.message, self.name, self.hosted = message, name, hosted


@dataclass(frozen=True)
class Limits:
    """What one request may have beyond the table.

    Attributes:
        names: fields and types that are passed on, whatever they hold.
        hosted: whether what runs at the provider may be used.
        answers: ids of what the provider answered in the same episode.
    """

    names: Container[str] = ()
    hosted: bool = False
    answers: Container[str] = ()


# -- shapes: what a field may hold


@dataclass(frozen=True)
class _Refused:
    """What is not passed on, and why. ``hosted``: it leaves through the provider."""

    why: str
    hosted: bool = False


_UNKNOWN = _Refused("the gateway does not know what it does")
_KINDS_UNKNOWN = _Refused("it may run at the provider", hosted=True)


@dataclass(frozen=True)
class _Anything:
    """Any JSON: words of the agent or of the model, and schemas, which nobody follows."""


@dataclass(frozen=True)
class _Value:
    """A text, a number or a truth value; with ``only``, one of these."""

    only: tuple[object, ...] = ()
    why: str = ""


@dataclass(frozen=True)
class _Inline:
    """Content in the request itself: a ``data:`` URL, or base64."""


@dataclass(frozen=True)
class _OfEpisode:
    """The id of something that the provider answered in the same episode."""


@dataclass(frozen=True)
class _List:
    of: Shape


@dataclass(frozen=True)
class _Either:
    """One shape for a plain value, another one for an object or a list."""

    value: Shape
    other: Shape


@dataclass(frozen=True)
class _Map:
    """An object whose keys the client chooses, and whose values are of one shape."""

    of: Shape


@dataclass(frozen=True)
class _Object:
    fields: Mapping[str, Shape]


@dataclass(frozen=True)
class _Kinds:
    """An object whose ``type`` says what it is; the names may be patterns.

    ``missing`` is the type of those that name none, ``bare`` of those without a role, too.
    """

    kinds: Mapping[str, Shape]
    missing: str = ""
    bare: str = ""
    patterns: Mapping[re.Pattern[str], Shape] = field(default_factory=dict)
    unknown: _Refused = _KINDS_UNKNOWN


Shape: TypeAlias = (
    _Anything | _Value | _Inline | _OfEpisode | _Refused | _List | _Either | _Map | _Object | _Kinds
)

_ADDRESS = _Refused("the provider would fetch it from an address", hosted=True)
_FILE = _Refused("it names a file that is kept at the provider", hosted=True)
_STATE = _Refused("it names what is kept at the provider, and may be another episode's")
_ROUTING = _Refused("it chooses another model, or another server")
_HOSTED = _Refused("it runs at the provider", hosted=True)

_ANY, _VALUE, _INLINE, _KNOWN = _Anything(), _Value(), _Inline(), _OfEpisode()
_VALUES = _Either(_VALUE, _List(_VALUE))
_FLAT = _Map(_VALUE)


def _of(names: str = "", **more: Shape) -> _Object:
    """Return an object of plain values by these names, and of what else is given."""
    return _Object({**dict.fromkeys(names.split(), _VALUE), **more})


def _part(names: str = "", **more: Shape) -> _Object:
    """Return an object with a ``type``, which may be marked as the end of what is cached."""
    cache = _of("type", ttl=_Value(("5m",), "an hour of cache is written at another price"))
    mark = _of("mode ttl")
    fields = {"cache_control": cache, "prompt_cache_breakpoint": mark, **more}
    return _of(f"type {names}", **fields)


# -- OpenAI's chat completions

_REMOTE = _part(image_url=_Either(_INLINE, _of("detail format", url=_INLINE)))
_CHAT_PARTS = _Kinds(
    {
        "text": _part("text"),
        "refusal": _part("refusal"),
        "image_url": _REMOTE,
        "input_audio": _part(input_audio=_of("format", data=_INLINE)),
        "video_url": _part(video_url=_of("", url=_INLINE)),
        "file": _part(file=_of("filename", file_data=_INLINE, file_id=_FILE)),
        "thinking": _part("signature", thinking=_Either(_VALUE, _List(_part("text")))),
        "redacted_thinking": _part("data"),
    },
    missing="text",
)
_FUNCTION = _of("name description strict", parameters=_ANY)
_CHAT_MESSAGE = _of(
    "role name tool_call_id refusal prefix reasoning reasoning_content reasoning_text "
    "reasoning_opaque",
    content=_Either(_VALUE, _List(_CHAT_PARTS)),
    tool_calls=_List(
        _Kinds(
            {
                "function": _part("id index", function=_of("name arguments"), extra_content=_ANY),
                "custom": _part("id index", custom=_of("name input"), extra_content=_ANY),
            },
            missing="function",
        )
    ),
    function_call=_of("name arguments"),
    audio=_of("id"),
    images=_List(_REMOTE),
    # What the provider has said before, which clients send back.
    annotations=_ANY,
    thinking_blocks=_ANY,
    reasoning_details=_ANY,
    provider_specific_fields=_ANY,
    extra_content=_ANY,
    cache_control=_part(),
)
_CHOICE = _Either(
    _VALUE,
    _Kinds(
        {
            "function": _ANY,
            "custom": _ANY,
            "allowed_tools": _ANY,
            "apply_patch": _of("type"),
            "shell": _of("type"),
            "local_shell": _of("type"),
        },
    ),
)
_TIER = _Value(("auto", "default"), "it has another price")
_SAMPLING = (
    "model stream temperature top_p top_logprobs user safety_identifier prompt_cache_key "
    "prompt_cache_retention parallel_tool_calls"
)
_CHAT: Mapping[str, Shape] = _of(
    f"{_SAMPLING} max_tokens max_completion_tokens frequency_penalty presence_penalty logprobs "
    "seed reasoning_effort verbosity top_k min_p top_a repetition_penalty enable_thinking "
    "thinking_budget include_reasoning",
    messages=_List(_CHAT_MESSAGE),
    tools=_List(
        _Kinds(
            {
                "function": _part(function=_FUNCTION),
                "custom": _part(custom=_of("name description", format=_ANY)),
            },
            missing="function",
        )
    ),
    functions=_List(_FUNCTION),
    function_call=_Either(_VALUE, _of("name")),
    tool_choice=_CHOICE,
    stop=_VALUES,
    n=_Value((1,), "only one answer is read, and each costs"),
    logit_bias=_FLAT,
    metadata=_FLAT,
    stream_options=_FLAT,
    prompt_cache_options=_of("mode ttl"),
    response_format=_of("type", json_schema=_ANY, schema=_ANY),
    prediction=_of("type", content=_Either(_VALUE, _List(_part("text")))),
    modalities=_List(_Value(("text",), "it has another price")),
    reasoning=_of("effort summary max_tokens enabled exclude"),
    thinking=_of("type budget_tokens"),
    chat_template_kwargs=_FLAT,
    usage=_of("include"),
    store=_Value((False,), "it keeps the conversation at the provider"),
    service_tier=_TIER,
).fields

# -- OpenAI's responses

_RESPONSE_PARTS = _Kinds(
    {
        "input_text": _part("text"),
        "output_text": _part("text", annotations=_ANY, logprobs=_ANY),
        "text": _part("text"),
        "summary_text": _part("text"),
        "reasoning_text": _part("text"),
        "refusal": _part("refusal"),
        "input_image": _part(
            "detail", image_url=_Either(_INLINE, _of("detail", url=_INLINE)), file_id=_FILE
        ),
        "input_file": _part("filename detail", file_data=_INLINE, file_url=_ADDRESS, file_id=_FILE),
        "input_audio": _part(input_audio=_of("format", data=_INLINE)),
    },
)
_OUTPUT = _Either(_VALUE, _List(_RESPONSE_PARTS))
_RESPONSE_TOOLS: dict[str, Shape] = {
    "function": _part(
        "name description strict async defer_loading",
        parameters=_ANY,
        output_schema=_ANY,
        allowed_callers=_VALUES,
    ),
    "custom": _part("name description async defer_loading", format=_ANY, allowed_callers=_VALUES),
    "local_shell": _part(),
    "apply_patch": _part(allowed_callers=_VALUES),
    "computer": _part(),
    "computer_use_preview": _part("display_width display_height environment"),
    "shell": _part(
        allowed_callers=_VALUES,
        environment=_Kinds(
            {"local": _of("type", skills=_List(_of("name description path")))},
        ),
    ),
    "tool_search": _part("description execution", parameters=_ANY),
}
_RESPONSE_TOOL = _Kinds(_RESPONSE_TOOLS, missing="function")
_RESPONSE_TOOLS["namespace"] = _part("name description", tools=_List(_RESPONSE_TOOL))

_CALL = "id call_id status name namespace"
_ITEMS = _Kinds(
    {
        "message": _of("id type role name status phase", content=_OUTPUT),
        "function_call": _of(f"type async arguments {_CALL}", caller=_FLAT),
        "function_call_output": _of(f"type {_CALL}", output=_OUTPUT, caller=_FLAT),
        "custom_tool_call": _of(f"type async input {_CALL}", caller=_FLAT),
        "custom_tool_call_output": _of(f"type {_CALL}", output=_OUTPUT, caller=_FLAT),
        "local_shell_call": _of(f"type {_CALL}", action=_ANY),
        "local_shell_call_output": _of(f"type output {_CALL}"),
        "shell_call": _of(f"type {_CALL}", action=_ANY, environment=_FLAT, caller=_FLAT),
        "shell_call_output": _of(f"type max_output_length {_CALL}", output=_ANY, caller=_FLAT),
        "apply_patch_call": _of(f"type {_CALL}", operation=_FLAT, caller=_FLAT),
        "apply_patch_call_output": _of(f"type output {_CALL}", caller=_FLAT),
        "computer_call": _of(
            f"type {_CALL}", action=_ANY, actions=_ANY, pending_safety_checks=_ANY
        ),
        "computer_call_output": _of(
            f"type {_CALL}",
            output=_of("type detail", image_url=_INLINE, file_id=_FILE),
            acknowledged_safety_checks=_ANY,
        ),
        "reasoning": _of(
            "id type status encrypted_content",
            summary=_List(_RESPONSE_PARTS),
            content=_List(_RESPONSE_PARTS),
        ),
        "tool_search_call": _of(f"type execution {_CALL}", arguments=_ANY),
        "tool_search_output": _of(f"type execution {_CALL}", tools=_List(_RESPONSE_TOOL)),
        "additional_tools": _of("id type role", tools=_List(_RESPONSE_TOOL)),
        "item_reference": _of("type", id=_KNOWN),
    },
    missing="message",
    bare="item_reference",
)
_RESPONSES: Mapping[str, Shape] = _of(
    f"{_SAMPLING} max_output_tokens max_tool_calls truncation",
    input=_Either(_VALUE, _List(_ITEMS)),
    instructions=_Either(_VALUE, _List(_ITEMS)),
    tools=_List(_RESPONSE_TOOL),
    tool_choice=_CHOICE,
    include=_List(_VALUE),
    metadata=_FLAT,
    client_metadata=_FLAT,
    stream_options=_FLAT,
    prompt_cache_options=_of("mode ttl"),
    reasoning=_of("effort summary generate_summary context"),
    text=_of("verbosity", format=_of("type name description strict", schema=_ANY)),
    image=_of("context_compression"),
    previous_response_id=_KNOWN,
    store=_VALUE,  # it is kept there by default, so that there is nothing to refuse
    background=_Value((False,), "its tokens cannot be counted"),
    service_tier=_TIER,
).fields

# -- Anthropic's messages

_BLOCKS: dict[str, Shape] = {}
_BLOCK = _Kinds(_BLOCKS)
_CONTENT = _Either(_VALUE, _List(_BLOCK))
_TEXTS = _Either(_VALUE, _List(_Kinds({"text": _part("text", citations=_ANY)})))
_SOURCE = _Kinds(
    {
        "base64": _of("type media_type", data=_INLINE),
        "text": _of("type media_type data"),
        "content": _of("type", content=_CONTENT),
        "url": _ADDRESS,
        "file": _FILE,
    },
)
_TOOL = _Kinds(
    {
        "custom": _part(
            "name description strict defer_loading eager_input_streaming",
            input_schema=_ANY,
            input_examples=_ANY,
            allowed_callers=_VALUES,
        )
    },
    missing="custom",
    patterns={
        # Of these the client runs the calls, or they look at nothing but the tools of the request.
        re.compile(r"(bash|text_editor|computer|memory)_\d{8}|tool_search_tool_\w{1,40}"): _part(
            "name strict defer_loading max_characters display_width_px display_height_px "
            "display_number enable_zoom",
            input_examples=_ANY,
            allowed_callers=_VALUES,
        )
    },
)
_CHANGED = _Kinds(
    {"tool_reference": _of("type name"), "tool_definition": _of("type", definition=_TOOL)},
)
_BLOCKS.update(
    {
        "text": _part("text", citations=_ANY),
        "image": _part(source=_SOURCE, transformations=_FLAT),
        "document": _part("title context", source=_SOURCE, citations=_FLAT),
        "search_result": _part("title source", content=_TEXTS, citations=_FLAT),
        "thinking": _part("thinking signature"),
        "redacted_thinking": _part("data"),
        "tool_use": _part("id name toolset_name", input=_ANY, caller=_FLAT),
        "tool_result": _part("tool_use_id is_error toolset_name", content=_CONTENT),
        "tool_reference": _part("tool_name"),
        "tool_addition": _part(tool=_CHANGED),
        "tool_removal": _part(tool=_CHANGED),
        "server_tool_use": _part("id name", input=_ANY, caller=_FLAT),  # runs with its tool alone
        "tool_search_tool_result": _part("tool_use_id", content=_ANY),
    }
)
_MESSAGES: Mapping[str, Shape] = _of(
    "model max_tokens stream temperature top_p top_k",
    messages=_List(_of("role clear_at", content=_CONTENT, output_config=_of("effort"))),
    system=_TEXTS,
    tools=_List(_TOOL),
    tool_choice=_of("type name disable_parallel_tool_use"),
    stop_sequences=_List(_VALUE),
    metadata=_of("user_id"),
    thinking=_of("type budget_tokens display", block_binding=_FLAT),
    output_config=_of(
        "effort", format=_of("type", schema=_ANY), task_budget=_of("type total remaining")
    ),
    output_format=_of("type", schema=_ANY),
    cache_control=_part().fields["cache_control"],
    context_management=_of(
        edits=_List(
            _Kinds(
                {},
                patterns={re.compile(r"clear_(tool_uses|thinking)_\d{8}"): _ANY},
                unknown=_Refused("its own tokens are not in the usage"),
            )
        )
    ),
    diagnostics=_of("previous_message_id"),
    service_tier=_Value(("auto", "standard_only"), "it has another price"),
    speed=_Value(("standard",), "it has another price"),
    inference_geo=_Value(("global",), "it has another price"),
).fields

# -- what is known and refused, at the top of any request

_PRICED = _Refused("it has another price")
_NOT_FIRST: Mapping[str, Shape] = {
    **dict.fromkeys(
        (
            *("web_search_options", "web_search", "enable_search", "search_parameters", "plugins"),
            *("mcp_servers", "container"),
        ),
        _HOSTED,
    ),
    **dict.fromkeys(
        (
            *("models", "fallbacks", "fallback_models", "route", "provider", "providers", "preset"),
            *("moderation", "api_base", "base_url", "api_key", "custom_llm_provider", "advisor"),
        ),
        _ROUTING,
    ),
    **dict.fromkeys(("conversation", "prompt", "thread"), _STATE),
    **dict.fromkeys(("audio", "service_tier", "speed", "inference_geo"), _PRICED),
    **dict.fromkeys(
        ("billing_policy", "fallback_credit_token", "user_profile_id", "workspace_id"),
        _Refused("it is charged to somebody else"),
    ),
    **dict.fromkeys(
        ("compaction", "context_management"), _Refused("its own tokens are not in the usage")
    ),
    "access_programs": _Refused("it asks for what an account was given"),
    "best_of": _Refused("only one answer is read, and each costs"),
    "transforms": _Refused("it changes what was asked"),
    "chat_template": _Refused("it is run as a program at the server"),
    "betas": _Refused("it belongs into the header anthropic-beta"),
    "background_options": _Refused("its tokens cannot be counted"),
}

FIELDS: Mapping[Api, Mapping[str, Shape]] = {
    "chat": {**_NOT_FIRST, **_CHAT},
    "responses": {**_NOT_FIRST, **_RESPONSES},
    "messages": {**_NOT_FIRST, **_MESSAGES},
}
"""By API, what the fields of a request may hold. Counts of tokens have those of messages."""

# A search that no field asks for: it is the model's own, or that of its name.
_SEARCHING = re.compile(
    r"search-(preview|api)|deep-research|:online\b|@preset/|(^|/)(sonar|compound)\b", re.I
)

BETAS = frozenset(
    {
        *("adaptive-thinking", "advanced-tool-use", "cache-diagnosis", "claude-code"),
        *("computer-use", "context-management", "dev-full-thinking", "effort"),
        *("fine-grained-tool-streaming", "inline-tools", "interleaved-thinking"),
        *("mid-conversation-output-config", "mid-conversation-system-clear-at"),
        *("mid-conversation-tool-changes", "model-context-window-exceeded", "output-128k"),
        *("output-300k", "pdfs", "prompt-caching", "prompt-caching-scope", "redact-thinking"),
        *("responses", "structured-outputs", "task-budgets", "thinking-binding-controls"),
        *("thinking-display-updates", "thinking-token-count", "token-counting"),
        *("token-efficient-tools", "tool-examples", "tool-search-tool"),
    }
)
"""Names in the headers ``anthropic-beta`` and ``openai-beta`` that are passed on, without dates."""


def is_beta(name: str, limits: Limits) -> bool:
    """Whether a name in a header of betas is passed on: ``effort-2025-11-24``."""
    stem = re.sub(r"[-=]([\d-]+|experimental|v\d+)$", "", name)
    return stem in BETAS or name in limits.names or stem in limits.names


# -- checking


def check_fields(api: Api, body: Mapping[str, Any], limits: Limits) -> None:
    """See that a request asks for nothing but what is known.

    Args:
        api: whose fields they are.
        body: the parsed body.
        limits: what is allowed beyond that.

    Raises:
        NotAllowed: it does.
    """
    model = body.get("model")
    if isinstance(model, str) and _SEARCHING.search(model) and not limits.hosted:
        raise NotAllowed(f"the model {_quoted(model)} searches by itself", hosted=True)
    _check_object(FIELDS[api], body, (), limits)


def _check(shape: Shape, value: Any, where: _Path, limits: Limits) -> None:
    if len(where) > _DEEPEST:
        raise NotAllowed(f"{_shown(where[:6])} is nested too deep")
    if isinstance(shape, _Refused):
        if not (shape.hosted and limits.hosted):
            raise _not_allowed(f"the field {_shown(where)}", shape, where[-1])
        return
    if value is None or isinstance(shape, _Anything):
        return
    if isinstance(shape, _Either):
        shape = shape.other if isinstance(value, (dict, list)) else shape.value
    if isinstance(shape, _List) and isinstance(value, list):
        for part in value:
            _check(shape.of, part, where, limits)
    elif isinstance(shape, _Map) and isinstance(value, dict):
        for part in value.values():
            _check(shape.of, part, where, limits)
    elif isinstance(shape, _Object) and isinstance(value, dict):
        _check_object(shape.fields, value, where, limits)
    elif isinstance(shape, _Kinds) and isinstance(value, dict):
        _check_kind(shape, value, where, limits)
    elif isinstance(shape, (_Value, _Inline, _OfEpisode)) and not isinstance(value, (dict, list)):
        _check_value(shape, value, where, limits)
    else:
        raise NotAllowed(f"the field {_shown(where)} has a form that is not known", where[-1])


def _check_value(
    shape: _Value | _Inline | _OfEpisode, value: object, where: _Path, limits: Limits
) -> None:
    if isinstance(shape, _Value):
        if shape.only and value not in shape.only:
            refused = _Refused(f"{shape.why}; allowed: {_listed(shape.only)}")
            description = f"the value {_quoted(str(value))} of the field {_shown(where)}"
            raise _not_allowed(description, refused, where[-1])
    elif isinstance(shape, _Inline):
        if not limits.hosted and not (isinstance(value, str) and _is_inline(value)):
            raise _not_allowed(f"the field {_shown(where)}", _ADDRESS, where[-1])
    elif value not in limits.answers:
        raise _not_allowed(f"the field {_shown(where)}", _STATE, where[-1])


def _check_object(
    fields: Mapping[str, Shape], value: Mapping[str, Any], where: _Path, limits: Limits
) -> None:
    for key, inner in value.items():
        if key not in limits.names:
            _check(fields.get(key, _UNKNOWN), inner, (*where, key), limits)


def _check_kind(shape: _Kinds, value: Mapping[str, Any], where: _Path, limits: Limits) -> None:
    kind = value.get("type")
    if kind is None:
        kind = shape.bare if shape.bare and "role" not in value else shape.missing
    if not isinstance(kind, str):
        raise NotAllowed(f"the type in {_shown(where)} is no text")
    if kind in limits.names:
        return
    inner = shape.kinds.get(kind)
    if inner is None:
        matches = (
            candidate for pattern, candidate in shape.patterns.items() if pattern.fullmatch(kind)
        )
        inner = next(matches, shape.unknown)
    if isinstance(inner, _Refused):
        if not (inner.hosted and limits.hosted):
            raise _not_allowed(f"the type {_quoted(kind)} in {_shown(where)}", inner, kind)
        return
    _check(inner, value, where, limits)


def _is_inline(text: str) -> bool:
    return text[:5].lower() == "data:" or _BASE64.fullmatch(text) is not None


_BASE64 = re.compile(r"[A-Za-z0-9+/=_\s-]*")  # which no address is, for want of a colon and a dot


def _not_allowed(what: str, refused: _Refused, name: str) -> NotAllowed:
    return NotAllowed(f"{what} is not passed on: {refused.why}", name, hosted=refused.hosted)


def _shown(where: _Path) -> str:
    return _quoted(".".join(where))


def _quoted(text: str) -> str:
    excerpt = one_line(text[:200])
    return f"'{excerpt[:80]}...'" if len(excerpt) > 80 else f"'{excerpt}'"


def _listed(values: tuple[object, ...]) -> str:
    return " and ".join(value if isinstance(value, str) else json.dumps(value) for value in values)


# -- for docs/gateway.md


def table() -> str:
    """Return what is passed on and what is refused, in Markdown."""
    names: dict[Api, list[str]] = {
        api: sorted(name for name, shape in fields.items() if not isinstance(shape, _Refused))
        for api, fields in FIELDS.items()
    }
    rows = ["| API | fields that are passed on |", "| --- | --- |"]
    rows += [f"| {api} | {', '.join(f'`{name}`' for name in names[api])} |" for api in names]
    reasons: dict[str, set[str]] = {}
    for fields in FIELDS.values():
        for name, reason in _refusals(_Object(fields), "", set()):
            reasons.setdefault(reason, set()).add(name)
    rows += ["", "| refused | as |", "| --- | --- |"]
    rows += [f"| {', '.join(sorted(reasons[reason]))} | {reason} |" for reason in sorted(reasons)]
    rows.append(f"| any other field | {_UNKNOWN.why} |")
    rows.append(f"| any other type of tools and of contents | {_KINDS_UNKNOWN.why} |")
    return "\n".join(rows)


def _refusals(shape: Shape, name: str, seen: set[int]) -> Iterator[tuple[str, str]]:
    """Yield what is refused, with the reasons, wherever it stands."""
    if isinstance(shape, _Refused):
        yield f"`{name}`", shape.why
    elif isinstance(shape, _Value) and shape.only:
        yield f"`{name}` but for {_listed(shape.only)}", shape.why
    elif isinstance(shape, _Inline):
        yield f"`{name}` with an address", _ADDRESS.why
    elif isinstance(shape, _OfEpisode):
        yield f"`{name}` of another episode", _STATE.why
    if id(shape) in seen:
        return
    seen.add(id(shape))
    if isinstance(shape, (_List, _Map)):
        yield from _refusals(shape.of, name, seen)
    elif isinstance(shape, _Either):
        for inner in (shape.value, shape.other):
            yield from _refusals(inner, name, seen)
    elif isinstance(shape, _Object):
        for key, inner in shape.fields.items():
            yield from _refusals(inner, key, seen)
    elif isinstance(shape, _Kinds):
        for key, inner in (
            *shape.kinds.items(),
            *((name, pattern_shape) for pattern_shape in shape.patterns.values()),
        ):
            if isinstance(inner, _Refused):
                yield f"the type `{key}` of `{name}`", inner.why
            else:
                yield from _refusals(inner, key, seen)
