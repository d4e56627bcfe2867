"""What requests may hold: what real clients send passes, and what may cost or leave does not."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from pytest_intercode.core.presets import PRESETS
from pytest_intercode.gateway.apis import Fields, find_target
from pytest_intercode.gateway.exchange import Api
from pytest_intercode.gateway.fields import FIELDS, check_fields, is_beta
from pytest_intercode.gateway.gemini_fields import _CONTENT, GEMINI
from pytest_intercode.gateway.shapes import (
    ADDRESS,
    STORED_STATE,
    UNKNOWN_FIELD,
    UNKNOWN_KIND,
    Either,
    EpisodeId,
    Inline,
    Kinds,
    Limits,
    ListOf,
    MapOf,
    NotAllowed,
    Object,
    Plain,
    Refusal,
    Shape,
)

_PAGE = Path(__file__).parents[3] / "docs" / "reference" / "gateway-fields.md"
_CLIENTS = [
    json.loads(line)
    for line in Path(__file__).with_name("requests_of_clients.jsonl").read_text().splitlines()
]
"""Requests of the presets' programs as they were sent, with their texts taken out."""


def _refusal(api: Fields, body: dict[str, Any], **more: Any) -> str:
    """Return by which name a request is refused; nothing if it is not, ``?`` without a name."""
    try:
        check_fields(api, body, Limits(**more))
    except NotAllowed as error:
        refusal = error
    else:
        return ""
    assert len(refusal.message) < 300
    assert refusal.message.isprintable()
    return refusal.name or "?"


def _said(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": [*parts]}]}


def _gemini(*parts: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"contents": [{"role": "user", "parts": [*parts]}], **more}


def _block(**block: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": [block]}]}


def _item(**item: Any) -> dict[str, Any]:
    return {"input": [item]}


def test_the_clients_are_there() -> None:
    clients = {row["client"].partition(" ")[0] for row in _CLIENTS}
    assert clients == set(PRESETS)


@pytest.mark.parametrize("row", _CLIENTS, ids=lambda row: row["client"])
def test_what_real_clients_send_is_passed_on(row: dict[str, Any]) -> None:
    target = find_target("POST", *row["path"].split("?"))
    assert target is not None
    check_fields(target.route.fields, row["body"], Limits())
    for beta in filter(None, row["betas"].split(",")):
        assert is_beta(beta, Limits())


def test_every_field_of_the_sdks_is_declared() -> None:
    """A newer SDK has newer fields: for each it is to be said whether it is passed on."""
    from anthropic.types.beta.message_count_tokens_params import MessageCountTokensParams
    from anthropic.types.beta.message_create_params import MessageCreateParamsBase
    from anthropic.types.message_create_params import (
        MessageCreateParamsBase as PlainMessageCreateParamsBase,
    )
    from openai.types.chat.completion_create_params import CompletionCreateParamsBase
    from openai.types.responses.response_create_params import ResponseCreateParamsBase

    known: list[tuple[Api, Any]] = [
        ("chat", CompletionCreateParamsBase),
        ("responses", ResponseCreateParamsBase),
        ("messages", MessageCreateParamsBase),
        ("messages", PlainMessageCreateParamsBase),
        ("messages", MessageCountTokensParams),
    ]
    for api, parameters in known:
        assert set(parameters.__annotations__) <= set(FIELDS[api])


def test_every_field_of_googles_sdk_is_declared() -> None:
    """Of parts, those that come with audio, video and documents alone are not known."""
    from google.genai import types

    generation = GEMINI["generationConfig"]
    [part, tool] = [
        shape.element
        for shape in (_CONTENT.fields["parts"].nested, GEMINI["tools"])  # type: ignore[union-attr]
        if isinstance(shape, ListOf)
    ]
    assert isinstance(generation, Object)
    assert isinstance(part, Object)
    assert isinstance(tool, Object)
    assert set(types.GenerationConfig.model_fields) <= set(generation.fields)
    assert set(types.Tool.model_fields) <= set(tool.fields)
    unknown = set(types.Part.model_fields) - set(part.fields)
    assert {name for name in unknown if not name.endswith("_metadata")} == {
        *("audio_transcription", "media_processing", "tool_call", "tool_response")
    }


IMAGE = "data:image/png;base64,iVBORw0KGgo="


@pytest.mark.parametrize(
    ("api", "body", "name"),
    [
        # what runs at the provider, also where it is empty or false
        ("chat", {"web_search_options": {}}, "web_search_options"),
        ("chat", {"web_search_options": []}, "web_search_options"),
        ("chat", {"web_search_options": None}, "web_search_options"),
        ("chat", {"plugins": [{"id": "web"}]}, "plugins"),
        ("chat", {"search_parameters": {"mode": "on"}}, "search_parameters"),
        ("messages", {"mcp_servers": []}, "mcp_servers"),
        ("messages", {"container": "c"}, "container"),
        # another model, another server, another price, somebody else's account
        ("chat", {"models": ["dear"]}, "models"),
        ("chat", {"fallbacks": ["dear"]}, "fallbacks"),
        ("chat", {"route": "fallback"}, "route"),
        ("chat", {"provider": {"order": ["dear"]}}, "provider"),
        ("chat", {"api_base": "http://evil/"}, "api_base"),
        ("chat", {"extra_body": {"models": ["dear"]}}, "extra_body"),
        ("chat", {"moderation": {"model": "dear"}}, "moderation"),
        ("messages", {"fallbacks": [{"model": "dear"}]}, "fallbacks"),
        ("messages", {"user_profile_id": "x"}, "user_profile_id"),
        ("messages", {"tools": [{"type": "advisor_20260301", "model": "x"}]}, "advisor_20260301"),
        ("chat", {"service_tier": "priority"}, "service_tier"),
        ("chat", {"service_tier": ["priority"]}, "service_tier"),
        ("messages", {"speed": "fast"}, "speed"),
        ("messages", {"inference_geo": "us"}, "inference_geo"),
        ("chat", {"modalities": ["text", "audio"]}, "modalities"),
        ("chat", {"n": 2}, "n"),
        ("chat", {"n": 1e300}, "n"),
        ("messages", {"system": [{"type": "text", "cache_control": {"ttl": "1h"}}]}, "ttl"),
        # what is kept at the provider
        ("chat", {"store": True}, "store"),
        ("responses", {"background": True}, "background"),
        ("responses", {"background": "true"}, "background"),
        ("responses", {"conversation": "conv_1"}, "conversation"),
        ("responses", {"prompt": {"id": "pmpt_1"}}, "prompt"),
        ("responses", {"previous_response_id": "resp_of_another"}, "previous_response_id"),
        ("responses", _item(type="item_reference", id="msg_of_another"), "id"),
        ("responses", _item(id="msg_of_another"), "id"),
        ("responses", _item(type=None, id="msg_of_another"), "id"),
        ("chat", _said({"type": "file", "file": {"file_id": "file-1"}}), "file_id"),
        (
            "responses",
            _item(role="user", content=[{"type": "input_file", "file_id": "f"}]),
            "file_id",
        ),
        ("messages", _said({"type": "image", "source": {"type": "file", "file_id": "f"}}), "file"),
        ("messages", _said({"type": "container_upload", "file_id": "f"}), "container_upload"),
        # addresses that the provider would fetch
        ("chat", _said({"type": "image_url", "image_url": {"url": "https://evil/"}}), "url"),
        ("chat", _said({"type": "image_url", "image_url": "HTTPS://evil/"}), "image_url"),
        ("chat", _said({"type": "image_url", "image_url": ["https://evil/"]}), "image_url"),
        ("chat", _said({"type": "image_url", "image_url": {"url": " data:,x"}}), "url"),
        ("chat", _said({"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}), "url"),
        ("chat", _said({"type": "image", "image": "https://evil/"}), "image"),
        ("chat", _said({"type": "file", "file": {"file_data": "https://evil/"}}), "file_data"),
        (
            "chat",
            _said({"type": "input_audio", "input_audio": {"data": "//evil.test/x"}}),
            "data",
        ),
        ("chat", _said({"type": "input_audio", "input_audio": {"url": "https://evil"}}), "url"),
        ("chat", _said({"type": "text", "text": "x", "url": "https://evil"}), "url"),
        (
            "responses",
            _item(role="user", content=[{"type": "input_file", "file_url": ""}]),
            "file_url",
        ),
        (
            "responses",
            _item(type="computer_call_output", output={"image_url": "http://x"}),
            "image_url",
        ),
        ("messages", _said({"type": "image", "source": {"type": "url", "url": "x"}}), "url"),
        ("messages", _said({"type": "image", "source": {"type": "URL", "url": "x"}}), "URL"),
        (
            "messages",
            _said({"type": "tool_result", "content": [{"type": "document", "url": "http://x"}]}),
            "url",
        ),
        # tools, wherever they are defined
        ("chat", {"tools": [{"type": "openrouter:web_search"}]}, "openrouter:web_search"),
        ("chat", {"tools": {"0": {"type": "web_search"}}}, "tools"),
        ("chat", {"tools": [["x", {"type": "web_search"}]]}, "tools"),
        ("chat", {"tools": ["web_search"]}, "tools"),
        ("chat", {"tools": [{"type": ["function"]}]}, "?"),
        ("chat", {"tools": [{"type": "function", "web_search": {}}]}, "web_search"),
        ("responses", {"tools": [{"type": "mcp", "server_url": "http://x"}]}, "mcp"),
        ("responses", {"tools": [{"type": "namespace", "tools": [{"type": "mcp"}]}]}, "mcp"),
        (
            "responses",
            {"tools": [{"type": "programmatic_tool_calling"}]},
            "programmatic_tool_calling",
        ),
        (
            "responses",
            {"tools": [{"type": "shell", "environment": {"type": "container_auto"}}]},
            "container_auto",
        ),
        ("responses", _item(type="tool_search_output", tools=[{"type": "mcp"}]), "mcp"),
        ("responses", _item(type="additional_tools", tools=[{"type": "web_search"}]), "web_search"),
        ("responses", _item(type="mcp_approval_response", approve=True), "mcp_approval_response"),
        ("responses", {"tool_choice": {"type": "web_search"}}, "web_search"),
        (
            "messages",
            _said(
                {
                    "type": "tool_addition",
                    "tool": {"type": "tool_definition", "definition": {"type": "web_fetch_1"}},
                }
            ),
            "web_fetch_1",
        ),
        (
            "messages",
            {"context_management": {"edits": [{"type": "compact_20260112"}]}},
            "compact_20260112",
        ),
        # keys that only look like others
        ("chat", {"Tools": [{"type": "web_search"}]}, "Tools"),
        ("chat", {"TOOLS": []}, "TOOLS"),
        ("chat", {"m\u043edel": "dear"}, "m\u043edel"),  # a Cyrillic letter
        ("chat", {"model\x00": "dear"}, "model\x00"),
        ("chat", {" model": "dear"}, " model"),
        ("chat", {"messages.model": "dear"}, "messages.model"),
        ("chat", {"": 1}, "?"),
        # Gemini's, in both ways of writing
        ("gemini", {"tools": [{"googleSearch": {}}]}, "googleSearch"),
        ("gemini", {"tools": [{"google_search": {}}]}, "google_search"),
        ("gemini", {"tools": [{"urlContext": {}, "functionDeclarations": []}]}, "urlContext"),
        ("gemini", {"tools": [{"codeExecution": {}}]}, "codeExecution"),
        ("gemini", {"tools": [{"mcp_servers": [{"url": "http://x"}]}]}, "mcp_servers"),
        ("gemini", {"tools": [{"newTool": {}}]}, "newTool"),
        ("gemini", {"cachedContent": "cachedContents/x"}, "cachedContent"),
        ("gemini", {"cached_content": "cachedContents/x"}, "cached_content"),
        ("gemini", _gemini({"fileData": {"fileUri": "https://evil/"}}), "fileData"),
        ("gemini", _gemini({"file_data": {"file_uri": "gs://evil/x"}}), "file_data"),
        (
            "gemini",
            _gemini({"functionResponse": {"parts": [{"fileData": {"fileUri": "http://x"}}]}}),
            "fileData",
        ),
        ("gemini", {"systemInstruction": {"parts": [{"fileData": {}}]}}, "fileData"),
        ("gemini", {"generationConfig": {"candidateCount": 8}}, "candidateCount"),
        ("gemini", {"generation_config": {"candidate_count": 8}}, "candidate_count"),
        ("gemini", {"generationConfig": {"responseModalities": ["AUDIO"]}}, "responseModalities"),
        ("gemini", {"generationConfig": {"routingConfig": {"autoMode": {}}}}, "routingConfig"),
        ("gemini", {"generationConfig": {"speechConfig": {}}}, "speechConfig"),
        ("gemini", {"serviceTier": "priority"}, "serviceTier"),
        ("gemini", {"store": True}, "store"),
        ("gemini", {"modelArmorConfig": {"promptTemplateName": "x"}}, "modelArmorConfig"),
        ("gemini", {"Contents": []}, "Contents"),
        ("chat", {"data_sources": [{"type": "azure_search"}]}, "data_sources"),
        # Bedrock's
        ("converse", _block(image={"source": {"s3Location": {"uri": "s3://x"}}}), "s3Location"),
        ("converse", _block(toolResult={"content": [{"video": {"source": {"x": 1}}}]}), "x"),
        ("converse", {"toolConfig": {"tools": [{"systemTool": {"name": "x"}}]}}, "systemTool"),
        ("converse", {"guardrailConfig": {"guardrailIdentifier": "x"}}, "guardrailConfig"),
        ("converse", {"additionalModelRequestFields": {"mcp_servers": []}}, "mcp_servers"),
        ("converse", {"additionalModelRequestFields": {"tools": []}}, "tools"),
        ("converse", {"promptVariables": {}}, "promptVariables"),
        ("converse", {"performanceConfig": {"latency": "optimized"}}, "latency"),
        ("converse", {"serviceTier": {"type": "priority"}}, "type"),
        ("converse", {"system": [{"cachePoint": {"type": "default", "ttl": "1h"}}]}, "ttl"),
        ("invoke", {"mcp_servers": []}, "mcp_servers"),
        ("invoke", {"anthropic_beta": ["mcp-client-2025-11-20"]}, "mcp-client-2025-11-20"),
        # models that search
        ("chat", {"model": "m:online"}, "?"),
        ("chat", {"model": "gpt-4o-search-preview"}, "?"),
        ("chat", {"model": "o3-Deep-Research"}, "?"),
        ("chat", {"model": "m@preset/mine"}, "?"),
        ("chat", {"model": "perplexity/sonar-pro"}, "?"),
    ],
)
def test_what_may_cost_or_leave_is_refused_by_name(
    api: Fields, body: dict[str, Any], name: str
) -> None:
    assert _refusal(api, body) == name
    if name != "?":
        assert _refusal(api, body, names=(name,)) == ""


@pytest.mark.parametrize(
    ("api", "body"),
    [
        ("chat", {"tools": [{"type": "function"}, {"type": "custom"}, {"function": {}}]}),
        ("messages", {"tools": [{"name": "x", "input_schema": {"type": "url"}}]}),
        ("messages", {"tools": [{"type": "bash_20250124"}, {"type": "text_editor_20250728"}]}),
        ("responses", {"tools": [{"type": "shell"}, {"type": "local_shell"}]}),
        ("responses", {"tools": [{"type": "shell", "environment": {"type": "local"}}]}),
        ("responses", {"tools": [{"type": "namespace", "tools": [{"type": "custom"}]}]}),
        ("responses", {"previous_response_id": "resp_1", "input": [{"id": "msg_1"}]}),
        ("responses", {"input": "text", "store": True, "tools": None}),
        ("responses", _item(role="user", content=[{"type": "input_image", "image_url": IMAGE}])),
        ("chat", _said({"type": "image_url", "image_url": {"url": IMAGE, "detail": "low"}})),
        ("chat", _said({"type": "image_url", "image_url": {"url": "iVBORw0KGgo="}})),
        ("messages", _said({"type": "image", "source": {"type": "base64", "data": "iVBO"}})),
        # what an agent writes, or a tool describes, is no request
        ("messages", _said({"type": "tool_use", "input": {"tools": [{"type": "mcp"}]}})),
        ("messages", {"tools": [{"input_schema": {"properties": {"tools": {"type": "mcp"}}}}]}),
        (
            "responses",
            _item(
                role="assistant",
                content=[{"type": "output_text", "annotations": [{"url": "http://x"}]}],
            ),
        ),
        ("chat", {"service_tier": "auto", "n": 1, "store": False, "modalities": ["text"]}),
        (
            "gemini",
            _gemini(
                {"text": "hi"},
                {"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}},
                {"functionCall": {"name": "x", "args": {"fileData": {"fileUri": "http://x"}}}},
                {"functionResponse": {"name": "x", "response": {"url": "http://x"}}},
                {"thought": True, "text": "hm", "thoughtSignature": "c2ln"},
                system_instruction={"parts": [{"text": "be brief"}]},
                tools=[{"function_declarations": [{"name": "x", "parameters": {"type": "url"}}]}],
                toolConfig={"functionCallingConfig": {"mode": "AUTO"}},
                generationConfig={"thinkingConfig": {"thinkingBudget": 8192}, "topK": 64},
                safetySettings=[{"category": "x", "threshold": "OFF"}],
            ),
        ),
        (
            "invoke",
            {"anthropic_version": "bedrock-2023-05-31", "anthropic_beta": ["effort-2025-11-24"]},
        ),
        (
            "converse",
            {
                **_block(toolUse={"toolUseId": "x", "name": "y", "input": {"s3Location": "z"}}),
                "system": [{"text": "x"}, {"cachePoint": {"type": "default"}}],
                "toolConfig": {
                    "tools": [{"toolSpec": {"name": "x", "inputSchema": {"json": {"a": 1}}}}],
                    "toolChoice": {"auto": {}},
                },
                "inferenceConfig": {"maxTokens": 9, "stopSequences": ["x"]},
                "additionalModelRequestFields": {"thinking": {"type": "enabled"}},
            },
        ),
    ],
)
def test_these_are_passed_on(api: Fields, body: dict[str, Any]) -> None:
    assert _refusal(api, body, answers=("resp_1", "msg_1")) == ""


@pytest.mark.parametrize(
    ("api", "body"),
    [
        ("chat", {"web_search_options": {}}),
        ("chat", {"model": "m:online"}),
        ("responses", {"tools": [{"type": "web_search"}]}),
        ("messages", {"mcp_servers": [{"url": "http://x"}]}),
        ("messages", _said({"type": "image", "source": {"type": "url", "url": "http://x"}})),
        ("chat", _said({"type": "image_url", "image_url": {"url": "http://x"}})),
    ],
)
def test_what_runs_at_the_provider_can_be_allowed_as_a_whole(
    api: Api, body: dict[str, Any]
) -> None:
    assert _refusal(api, body)
    assert _refusal(api, body, hosted=True) == ""
    assert _refusal(api, {**body, "fallbacks": []}, hosted=True) == "fallbacks"


@pytest.mark.parametrize(
    ("api", "start", "inner"),
    [
        ("messages", "messages", {"type": "tool_result", "content": []}),
        ("responses", "tools", {"type": "namespace", "tools": []}),
    ],
)
def test_what_is_nested_without_end_is_refused(api: Api, start: str, inner: Any) -> None:
    key = "content" if start == "messages" else "tools"
    part: dict[str, Any] = {"type": "web_search"}
    for _ in range(5000):
        part = {**inner, key: [part]}
    body = {"messages": [{"content": [part]}]} if start == "messages" else {"tools": [part]}
    with pytest.raises(NotAllowed, match=r"is nested too deep$"):
        check_fields(api, body, Limits())


@pytest.mark.parametrize(
    ("name", "passed"),
    [
        ("effort-2025-11-24", True),
        ("responses=experimental", True),
        ("context-1m-2025-08-07", False),
        ("fast-mode-2026-02-01", False),
        ("mcp-client-2025-11-20", False),
        ("effort-x", False),
        ("", False),
    ],
)
def test_betas_are_passed_on_by_their_names(name: str, passed: bool) -> None:
    assert is_beta(name, Limits()) == passed
    assert is_beta(name, Limits((name,)))


def test_the_page_has_the_table() -> None:
    """``python -m tests.unit.gateway.test_fields`` writes it."""
    assert _with_table(_PAGE.read_text("utf-8")) == _PAGE.read_text("utf-8")


def _table() -> str:
    names: dict[Fields, list[str]] = {
        api: sorted(
            name
            for name, shape in fields.items()
            if not (isinstance(shape, Refusal) or _is_alias(name, fields))
        )
        for api, fields in FIELDS.items()
    }
    paths: tuple[Fields, ...] = ("gemini", "converse", "invoke")
    for in_path in paths:  # which model, and whether it is streamed
        names[in_path] = [name for name in names[in_path] if name not in ("model", "stream")]
    rows = ["| API | fields that are passed on |", "| --- | --- |"]
    rows += [f"| {api} | {', '.join(f'`{name}`' for name in names[api])} |" for api in names]
    reasons: dict[str, set[str]] = {}
    for fields in FIELDS.values():
        for name, reason in _refusals(Object(fields), "", set()):
            reasons.setdefault(reason, set()).add(name)
    rows += ["", "| refused | as |", "| --- | --- |"]
    rows += [f"| {', '.join(sorted(reasons[reason]))} | {reason} |" for reason in sorted(reasons)]
    rows.append(f"| any other field | {UNKNOWN_FIELD.reason} |")
    rows.append(f"| any other type of tools and of contents | {UNKNOWN_KIND.reason} |")
    return "\n".join(rows)


def _is_alias(name: str, fields: Mapping[str, Shape]) -> bool:
    """Whether a name is Google's other way of writing one."""
    return "_" in name and re.sub("_(.)", lambda match: match[1].upper(), name) in fields


def _refusals(shape: Shape, name: str, visited: set[int]) -> Iterator[tuple[str, str]]:
    """Yield what is refused, with the reasons, wherever it is."""
    if isinstance(shape, Refusal):
        yield f"`{name}`", shape.reason
    elif isinstance(shape, Plain) and shape.choices:
        choices = " and ".join(
            choice if isinstance(choice, str) else json.dumps(choice) for choice in shape.choices
        )
        yield f"`{name}` but for {choices}", shape.reason
    elif isinstance(shape, Inline):
        yield f"`{name}` with an address", ADDRESS.reason
    elif isinstance(shape, EpisodeId):
        yield f"`{name}` of another episode", STORED_STATE.reason
    if id(shape) in visited:
        return
    visited.add(id(shape))
    if isinstance(shape, (ListOf, MapOf)):
        yield from _refusals(shape.element, name, visited)
    elif isinstance(shape, Either):
        for inner in (shape.plain, shape.nested):
            yield from _refusals(inner, name, visited)
    elif isinstance(shape, Object):
        for key, inner in shape.fields.items():
            if not _is_alias(key, shape.fields):
                yield from _refusals(inner, key, visited)
    elif isinstance(shape, Kinds):
        for key, inner in (
            *shape.kinds.items(),
            *((name, pattern_shape) for pattern_shape in shape.patterns.values()),
        ):
            if isinstance(inner, Refusal):
                yield f"the type `{key}` of `{name}`", inner.reason
            else:
                yield from _refusals(inner, key, visited)


def _with_table(text: str) -> str:
    head = "| API | fields that are passed on |"
    assert text.count(head) == 1
    return text[: text.index(head)] + _table() + "\n"


if __name__ == "__main__":
    _PAGE.write_text(_with_table(_PAGE.read_text("utf-8")), "utf-8")
