"""The fields that requests may have, by API: fields that are not declared here are refused.

APIs grow, and a new field may cost money, choose another model, or make the provider fetch an
address, which would give an agent without network access a network. So a request may only have
fields that are known to do none of that. Fields that are known to do so are also declared, with
their effect, for the message. A test compares the tables of docs/reference/gateway-fields.md with
this module.

Pure. The names come from the APIs' references and from requests of real clients.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pytest_intercode.gateway.apis import Fields
from pytest_intercode.gateway.converse_fields import CONVERSE
from pytest_intercode.gateway.gemini_fields import GEMINI
from pytest_intercode.gateway.shapes import (
    ADDRESS,
    ANY,
    EPISODE_ID,
    FLAT,
    HOSTED,
    INLINE,
    PLAIN,
    PLAINS,
    PRICED,
    ROUTING,
    STORED_FILE,
    STORED_STATE,
    Either,
    Kinds,
    Limits,
    ListOf,
    NotAllowed,
    Plain,
    Refusal,
    Shape,
    check_object,
    object_of,
    part_of,
    quote,
)

__all__ = ["BETAS", "FIELDS", "check_fields", "is_beta"]

# -- OpenAI's chat completions

_REMOTE = part_of(image_url=Either(INLINE, object_of("detail format", url=INLINE)))
_CHAT_PARTS = Kinds(
    {
        "text": part_of("text"),
        "refusal": part_of("refusal"),
        "image_url": _REMOTE,
        "input_audio": part_of(input_audio=object_of("format", data=INLINE)),
        "video_url": part_of(video_url=object_of("", url=INLINE)),
        "file": part_of(file=object_of("filename", file_data=INLINE, file_id=STORED_FILE)),
        "thinking": part_of("signature", thinking=Either(PLAIN, ListOf(part_of("text")))),
        "redacted_thinking": part_of("data"),
    },
    missing="text",
)
_FUNCTION = object_of("name description strict", parameters=ANY)
_CHAT_MESSAGE = object_of(
    "role name tool_call_id refusal prefix reasoning reasoning_content reasoning_text "
    "reasoning_opaque",
    content=Either(PLAIN, ListOf(_CHAT_PARTS)),
    tool_calls=ListOf(
        Kinds(
            {
                "function": part_of(
                    "id index", function=object_of("name arguments"), extra_content=ANY
                ),
                "custom": part_of("id index", custom=object_of("name input"), extra_content=ANY),
            },
            missing="function",
        )
    ),
    function_call=object_of("name arguments"),
    audio=object_of("id"),
    images=ListOf(_REMOTE),
    # Earlier output of the provider, which clients send back.
    annotations=ANY,
    thinking_blocks=ANY,
    reasoning_details=ANY,
    provider_specific_fields=ANY,
    extra_content=ANY,
    cache_control=part_of(),
)
_CHOICE = Either(
    PLAIN,
    Kinds(
        {
            "function": ANY,
            "custom": ANY,
            "allowed_tools": ANY,
            "apply_patch": object_of("type"),
            "shell": object_of("type"),
            "local_shell": object_of("type"),
        },
    ),
)
_TIER = Plain(("auto", "default"), "it has another price")
_SAMPLING = (
    "model stream temperature top_p top_logprobs user safety_identifier prompt_cache_key "
    "prompt_cache_retention parallel_tool_calls"
)
_CHAT: Mapping[str, Shape] = object_of(
    f"{_SAMPLING} max_tokens max_completion_tokens frequency_penalty presence_penalty logprobs "
    "seed reasoning_effort verbosity top_k min_p top_a repetition_penalty enable_thinking "
    "thinking_budget include_reasoning",
    messages=ListOf(_CHAT_MESSAGE),
    tools=ListOf(
        Kinds(
            {
                "function": part_of(function=_FUNCTION),
                "custom": part_of(custom=object_of("name description", format=ANY)),
            },
            missing="function",
        )
    ),
    functions=ListOf(_FUNCTION),
    function_call=Either(PLAIN, object_of("name")),
    tool_choice=_CHOICE,
    stop=PLAINS,
    n=Plain((1,), "only one answer is read, and each costs"),
    logit_bias=FLAT,
    metadata=FLAT,
    stream_options=FLAT,
    prompt_cache_options=object_of("mode ttl"),
    response_format=object_of("type", json_schema=ANY, schema=ANY),
    prediction=object_of("type", content=Either(PLAIN, ListOf(part_of("text")))),
    modalities=ListOf(Plain(("text",), "it has another price")),
    reasoning=object_of("effort summary max_tokens enabled exclude"),
    thinking=object_of("type budget_tokens"),
    chat_template_kwargs=FLAT,
    usage=object_of("include"),
    store=Plain((False,), "it keeps the conversation at the provider"),
    service_tier=_TIER,
).fields

# -- OpenAI's responses

_RESPONSE_PARTS = Kinds(
    {
        "input_text": part_of("text"),
        "output_text": part_of("text", annotations=ANY, logprobs=ANY),
        "text": part_of("text"),
        "summary_text": part_of("text"),
        "reasoning_text": part_of("text"),
        "refusal": part_of("refusal"),
        "input_image": part_of(
            "detail", image_url=Either(INLINE, object_of("detail", url=INLINE)), file_id=STORED_FILE
        ),
        "input_file": part_of(
            "filename detail", file_data=INLINE, file_url=ADDRESS, file_id=STORED_FILE
        ),
        "input_audio": part_of(input_audio=object_of("format", data=INLINE)),
    },
)
_OUTPUT = Either(PLAIN, ListOf(_RESPONSE_PARTS))
_RESPONSE_TOOLS: dict[str, Shape] = {
    "function": part_of(
        "name description strict async defer_loading",
        parameters=ANY,
        output_schema=ANY,
        allowed_callers=PLAINS,
    ),
    "custom": part_of("name description async defer_loading", format=ANY, allowed_callers=PLAINS),
    "local_shell": part_of(),
    "apply_patch": part_of(allowed_callers=PLAINS),
    "computer": part_of(),
    "computer_use_preview": part_of("display_width display_height environment"),
    "shell": part_of(
        allowed_callers=PLAINS,
        environment=Kinds(
            {"local": object_of("type", skills=ListOf(object_of("name description path")))},
        ),
    ),
    "tool_search": part_of("description execution", parameters=ANY),
}
_RESPONSE_TOOL = Kinds(_RESPONSE_TOOLS, missing="function")
_RESPONSE_TOOLS["namespace"] = part_of("name description", tools=ListOf(_RESPONSE_TOOL))

_CALL = "id call_id status name namespace"
_ITEMS = Kinds(
    {
        "message": object_of("id type role name status phase", content=_OUTPUT),
        "function_call": object_of(f"type async arguments {_CALL}", caller=FLAT),
        "function_call_output": object_of(f"type {_CALL}", output=_OUTPUT, caller=FLAT),
        "custom_tool_call": object_of(f"type async input {_CALL}", caller=FLAT),
        "custom_tool_call_output": object_of(f"type {_CALL}", output=_OUTPUT, caller=FLAT),
        "local_shell_call": object_of(f"type {_CALL}", action=ANY),
        "local_shell_call_output": object_of(f"type output {_CALL}"),
        "shell_call": object_of(f"type {_CALL}", action=ANY, environment=FLAT, caller=FLAT),
        "shell_call_output": object_of(f"type max_output_length {_CALL}", output=ANY, caller=FLAT),
        "apply_patch_call": object_of(f"type {_CALL}", operation=FLAT, caller=FLAT),
        "apply_patch_call_output": object_of(f"type output {_CALL}", caller=FLAT),
        "computer_call": object_of(
            f"type {_CALL}", action=ANY, actions=ANY, pending_safety_checks=ANY
        ),
        "computer_call_output": object_of(
            f"type {_CALL}",
            output=object_of("type detail", image_url=INLINE, file_id=STORED_FILE),
            acknowledged_safety_checks=ANY,
        ),
        "reasoning": object_of(
            "id type status encrypted_content",
            summary=ListOf(_RESPONSE_PARTS),
            content=ListOf(_RESPONSE_PARTS),
        ),
        "tool_search_call": object_of(f"type execution {_CALL}", arguments=ANY),
        "tool_search_output": object_of(f"type execution {_CALL}", tools=ListOf(_RESPONSE_TOOL)),
        "additional_tools": object_of("id type role", tools=ListOf(_RESPONSE_TOOL)),
        "item_reference": object_of("type", id=EPISODE_ID),
    },
    missing="message",
    bare="item_reference",
)
_RESPONSES: Mapping[str, Shape] = object_of(
    f"{_SAMPLING} max_output_tokens max_tool_calls truncation",
    input=Either(PLAIN, ListOf(_ITEMS)),
    instructions=Either(PLAIN, ListOf(_ITEMS)),
    tools=ListOf(_RESPONSE_TOOL),
    tool_choice=_CHOICE,
    include=ListOf(PLAIN),
    metadata=FLAT,
    client_metadata=FLAT,
    stream_options=FLAT,
    prompt_cache_options=object_of("mode ttl"),
    reasoning=object_of("effort summary generate_summary context"),
    text=object_of("verbosity", format=object_of("type name description strict", schema=ANY)),
    image=object_of("context_compression"),
    previous_response_id=EPISODE_ID,
    store=PLAIN,  # the provider stores by default, so there is no point in refusing this
    background=Plain((False,), "its tokens cannot be counted"),
    service_tier=_TIER,
).fields

# -- Anthropic's messages

_BLOCKS: dict[str, Shape] = {}
_BLOCK = Kinds(_BLOCKS)
_CONTENT = Either(PLAIN, ListOf(_BLOCK))
_TEXTS = Either(PLAIN, ListOf(Kinds({"text": part_of("text", citations=ANY)})))
_SOURCE = Kinds(
    {
        "base64": object_of("type media_type", data=INLINE),
        "text": object_of("type media_type data"),
        "content": object_of("type", content=_CONTENT),
        "url": ADDRESS,
        "file": STORED_FILE,
    },
)
_TOOL = Kinds(
    {
        "custom": part_of(
            "name description strict defer_loading eager_input_streaming",
            input_schema=ANY,
            input_examples=ANY,
            allowed_callers=PLAINS,
        )
    },
    missing="custom",
    patterns={
        # The client runs the calls of these, or they only search the request's own tools.
        re.compile(r"(bash|text_editor|computer|memory)_\d{8}|tool_search_tool_\w{1,40}"): part_of(
            "name strict defer_loading max_characters display_width_px display_height_px "
            "display_number enable_zoom",
            input_examples=ANY,
            allowed_callers=PLAINS,
        )
    },
)
_CHANGED = Kinds(
    {
        "tool_reference": object_of("type name"),
        "tool_definition": object_of("type", definition=_TOOL),
    },
)
_BLOCKS.update(
    {
        "text": part_of("text", citations=ANY),
        "image": part_of(source=_SOURCE, transformations=FLAT),
        "document": part_of("title context", source=_SOURCE, citations=FLAT),
        "search_result": part_of("title source", content=_TEXTS, citations=FLAT),
        "thinking": part_of("thinking signature"),
        "redacted_thinking": part_of("data"),
        "tool_use": part_of("id name toolset_name", input=ANY, caller=FLAT),
        "tool_result": part_of("tool_use_id is_error toolset_name", content=_CONTENT),
        "tool_reference": part_of("tool_name"),
        "tool_addition": part_of(tool=_CHANGED),
        "tool_removal": part_of(tool=_CHANGED),
        "server_tool_use": part_of("id name", input=ANY, caller=FLAT),  # no effect without its tool
        "tool_search_tool_result": part_of("tool_use_id", content=ANY),
    }
)
_MESSAGES: Mapping[str, Shape] = object_of(
    "model max_tokens stream temperature top_p top_k",
    messages=ListOf(
        object_of("role clear_at", content=_CONTENT, output_config=object_of("effort"))
    ),
    system=_TEXTS,
    tools=ListOf(_TOOL),
    tool_choice=object_of("type name disable_parallel_tool_use"),
    stop_sequences=ListOf(PLAIN),
    metadata=object_of("user_id"),
    thinking=object_of("type budget_tokens display", block_binding=FLAT),
    output_config=object_of(
        "effort",
        format=object_of("type", schema=ANY),
        task_budget=object_of("type total remaining"),
    ),
    output_format=object_of("type", schema=ANY),
    cache_control=part_of().fields["cache_control"],
    context_management=object_of(
        edits=ListOf(
            Kinds(
                {},
                patterns={re.compile(r"clear_(tool_uses|thinking)_\d{8}"): ANY},
                unknown=Refusal("its own tokens are not in the usage"),
            )
        )
    ),
    diagnostics=object_of("previous_message_id"),
    service_tier=Plain(("auto", "standard_only"), "it has another price"),
    speed=Plain(("standard",), "it has another price"),
    inference_geo=Plain(("global",), "it has another price"),
).fields

# Bedrock's form for the same models: the body has what other APIs have in headers.
_INVOKE = {**_MESSAGES, "anthropic_version": PLAIN, "anthropic_beta": ListOf(PLAIN)}

# -- top-level fields that are known and refused, in any API that does not declare them

_REFUSED: Mapping[str, Shape] = {
    **dict.fromkeys(
        (
            *("web_search_options", "web_search", "enable_search", "search_parameters", "plugins"),
            *("mcp_servers", "container", "data_sources"),
        ),
        HOSTED,
    ),
    **dict.fromkeys(
        (
            *("models", "fallbacks", "fallback_models", "route", "provider", "providers", "preset"),
            *("moderation", "api_base", "base_url", "api_key", "custom_llm_provider", "advisor"),
        ),
        ROUTING,
    ),
    **dict.fromkeys(("conversation", "prompt", "thread"), STORED_STATE),
    **dict.fromkeys(("audio", "service_tier", "speed", "inference_geo"), PRICED),
    **dict.fromkeys(
        ("billing_policy", "fallback_credit_token", "user_profile_id", "workspace_id"),
        Refusal("it is charged to somebody else"),
    ),
    **dict.fromkeys(
        ("compaction", "context_management"), Refusal("its own tokens are not in the usage")
    ),
    "access_programs": Refusal("it asks for what an account was given"),
    "best_of": Refusal("only one answer is read, and each costs"),
    "transforms": Refusal("it changes what was asked"),
    "chat_template": Refusal("it is run as a program at the server"),
    "betas": Refusal("it belongs in the header anthropic-beta"),
    "background_options": Refusal("its tokens cannot be counted"),
}

FIELDS: Mapping[Fields, Mapping[str, Shape]] = {
    "chat": {**_REFUSED, **_CHAT},
    "responses": {**_REFUSED, **_RESPONSES},
    "messages": {**_REFUSED, **_MESSAGES},
    "gemini": {**_REFUSED, **GEMINI},
    "converse": {**_REFUSED, **CONVERSE},
    "invoke": {**_REFUSED, **_INVOKE},
}
"""The fields of a request. Requests that count tokens have those of messages or gemini."""

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
"""Names, without dates, to pass on in the headers ``anthropic-beta`` and ``openai-beta``."""

# -- requests

# Models that search the web without being asked to by a field.
_SEARCHING = re.compile(
    r"search-(preview|api)|deep-research|:online\b|@preset/|(^|/)(sonar|compound)\b", re.I
)


def check_fields(api: Fields, body: Mapping[str, Any], limits: Limits) -> None:
    """Check that a request has only known and allowed fields.

    Args:
        api: the API whose fields are allowed.
        body: the parsed body.
        limits: what is allowed in addition.

    Raises:
        NotAllowed: the request has something that is not allowed.
    """
    model = body.get("model")
    if isinstance(model, str) and _SEARCHING.search(model) and not limits.hosted:
        raise NotAllowed(f"the model {quote(model)} searches by itself", hosted=True)
    check_object(FIELDS[api], body, (), limits)
    for name in body.get("anthropic_beta") or () if api == "invoke" else ():
        if not is_beta(str(name), limits):
            raise NotAllowed(f"the beta {quote(str(name))} is not passed on", str(name))


def is_beta(name: str, limits: Limits) -> bool:
    """Whether a name in a header of betas, such as ``effort-2025-11-24``, is passed on."""
    stem = re.sub(r"[-=]([\d-]+|experimental|v\d+)$", "", name)
    return stem in BETAS or name in limits.names or stem in limits.names
