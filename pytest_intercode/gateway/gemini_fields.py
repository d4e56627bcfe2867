"""The fields of Gemini's requests; see :mod:`~pytest_intercode.gateway.fields`. Pure.

Google's servers accept each name in two spellings, ``systemInstruction`` and
``system_instruction``, and clients use both.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from pytest_intercode.gateway.shapes import (
    ADDRESS,
    ANY,
    FLAT,
    HOSTED,
    INLINE,
    PLAIN,
    PLAINS,
    PRICED,
    ROUTING,
    STORED_STATE,
    Either,
    ListOf,
    Object,
    Plain,
    Refusal,
    Shape,
    object_of,
)

__all__ = ["GEMINI"]


def _google(names: str = "", **fields: Shape) -> Object:
    """Return an object of fields whose names may have either spelling."""
    shapes = object_of(names, **fields).fields
    snakes = {re.sub("[A-Z]", lambda m: f"_{m[0].lower()}", name): s for name, s in shapes.items()}
    return Object({**snakes, **shapes})


_BLOB = _google("mimeType displayName", data=INLINE)
_PART = _google(
    "text thought thoughtSignature",
    inlineData=_BLOB,
    fileData=ADDRESS,
    functionCall=_google("id name willContinue", args=ANY, partialArgs=ANY),
    functionResponse=_google(
        "id name willContinue scheduling",
        response=ANY,
        parts=ListOf(_google(inlineData=_BLOB, fileData=ADDRESS)),
    ),
    # Earlier code that the provider ran, which clients send back; no effect without its tool.
    executableCode=_google("id language code"),
    codeExecutionResult=_google("id outcome output"),
    videoMetadata=FLAT,
    mediaResolution=Either(PLAIN, FLAT),
    partMetadata=ANY,
)
_CONTENT = _google("role", parts=Either(PLAIN, ListOf(_PART)))
_FUNCTION = _google(
    "name description behavior",
    parameters=ANY,
    parametersJsonSchema=ANY,
    response=ANY,
    responseJsonSchema=ANY,
)
_TOOL = _google(
    functionDeclarations=ListOf(_FUNCTION),
    computerUse=_google("environment", excludedPredefinedFunctions=PLAINS),
    googleSearch=HOSTED,
    googleSearchRetrieval=HOSTED,
    googleMaps=HOSTED,
    urlContext=HOSTED,
    codeExecution=HOSTED,
    enterpriseWebSearch=HOSTED,
    retrieval=HOSTED,
    fileSearch=HOSTED,
    mcpServers=HOSTED,
    parallelAiSearch=HOSTED,
    exaAiSearch=HOSTED,
)
_CALLING = _google("mode streamFunctionCallArguments", allowedFunctionNames=PLAINS)
_GENERATION = _google(
    "temperature topP topK maxOutputTokens responseMimeType seed presencePenalty frequencyPenalty "
    "logprobs responseLogprobs mediaResolution audioTimestamp",
    candidateCount=Plain((1,), "only one answer is read, and each costs"),
    stopSequences=ListOf(PLAIN),
    responseSchema=ANY,
    responseJsonSchema=ANY,
    responseFormat=ANY,
    responseModalities=ListOf(Plain(("TEXT", "text"), "it has another price")),
    thinkingConfig=_google("includeThoughts thinkingBudget thinkingLevel"),
    routingConfig=ROUTING,
    modelSelectionConfig=ROUTING,
    speechConfig=PRICED,
    imageConfig=PRICED,
    translationConfig=PRICED,
    audioTranscriptionConfig=PRICED,
    enableAffectiveDialog=PRICED,
    enableEnhancedCivicAnswers=PRICED,
)
GEMINI: Mapping[str, Shape] = _google(
    "model stream",
    contents=Either(PLAIN, ListOf(_CONTENT)),
    systemInstruction=Either(PLAIN, _CONTENT),
    tools=ListOf(_TOOL),
    toolConfig=_google(
        functionCallingConfig=_CALLING,
        retrievalConfig=_google("languageCode", latLng=FLAT),
        includeServerSideToolInvocations=HOSTED,
    ),
    safetySettings=ListOf(_google("category threshold method")),
    generationConfig=_GENERATION,
    labels=FLAT,
    cachedContent=STORED_STATE,
    store=Plain((False,), "it keeps the conversation at the provider"),
    serviceTier=Plain(("standard", "unspecified"), "it has another price"),
    modelArmorConfig=Refusal("it names what is kept at the provider"),
).fields
"""The fields of a request; ``model`` and ``stream`` are from the path."""
