"""The fields of Bedrock's Converse requests; see :mod:`~pytest_intercode.gateway.fields`. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from pytest_intercode.gateway.shapes import (
    ANY,
    FLAT,
    HOSTED,
    INLINE,
    PLAIN,
    PRICED,
    STORED_FILE,
    STORED_STATE,
    ListOf,
    Plain,
    Shape,
    object_of,
)

__all__ = ["CONVERSE"]

_CACHE = object_of("type", ttl=Plain(("5m",), "an hour of cache is written at another price"))
_TEXTS = ListOf(object_of("text"))
_SOURCE = object_of("text", bytes=INLINE, s3Location=STORED_FILE, content=_TEXTS)
_MEDIA: Mapping[str, Shape] = {
    "image": object_of("format", source=_SOURCE),
    "video": object_of("format", source=_SOURCE),
    "audio": object_of("format", source=_SOURCE),
    "document": object_of("format name context", source=_SOURCE, citations=FLAT),
    "searchResult": object_of("source title", content=_TEXTS, citations=FLAT),
}
_BLOCK = object_of(
    "text",
    **_MEDIA,
    cachePoint=_CACHE,
    toolUse=object_of("toolUseId name type", input=ANY),
    toolResult=object_of(
        "toolUseId status type", content=ListOf(object_of("text", json=ANY, **_MEDIA))
    ),
    reasoningContent=object_of(
        "", reasoningText=object_of("text signature"), redactedContent=INLINE
    ),
    citationsContent=ANY,
    guardContent=PRICED,
)
_TOOL = object_of(
    "",
    toolSpec=object_of("name description strict", inputSchema=object_of("", json=ANY)),
    cachePoint=_CACHE,
    systemTool=HOSTED,
)
CONVERSE: Mapping[str, Shape] = object_of(
    "model stream",
    messages=ListOf(object_of("role", content=ListOf(_BLOCK))),
    system=ListOf(object_of("text", cachePoint=_CACHE, guardContent=PRICED)),
    inferenceConfig=object_of("maxTokens temperature topP", stopSequences=ListOf(PLAIN)),
    toolConfig=object_of(
        "",
        tools=ListOf(_TOOL),
        toolChoice=object_of("", auto=FLAT, any=FLAT, tool=object_of("name")),
    ),
    # Any field of the model's own API could be here; these are known to be harmless there.
    additionalModelRequestFields=object_of(
        "top_k topK reasoning_effort",
        thinking=object_of("type budget_tokens display"),
        reasoningConfig=object_of("type maxReasoningEffort budgetTokens"),
        output_config=object_of("effort"),
    ),
    additionalModelResponseFieldPaths=ListOf(PLAIN),
    outputConfig=object_of("", textFormat=ANY),
    requestMetadata=FLAT,
    promptVariables=STORED_STATE,
    guardrailConfig=PRICED,
    performanceConfig=object_of(latency=Plain(("standard",), PRICED.reason)),
    serviceTier=object_of(type=Plain(("default",), PRICED.reason)),
).fields
"""The fields of a request; ``model`` and ``stream`` are from the path."""
