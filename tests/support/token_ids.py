"""Token ids and log-probabilities as vLLM and SGLang send them, of a model of single characters.

A message is a number for its role, one for each character, and one for its end. The model writes
capital letters with ids of its own, which no tokenizer makes of the same text. So a conversation
goes on from its own tokens, as long as the model writes none; once it has, the server's next prompt
has other ids for what it wrote, as those servers' have.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

__all__ = ["TokenServerKind", "add_ids", "add_ids_to_stream", "completion_of", "prompt_of"]

TokenServerKind: TypeAlias = Literal["vllm", "sglang"]

_ROLES = {"system": 1, "developer": 1, "user": 2, "assistant": 3, "tool": 4}
_END = 5
_OWN = 200_000  # is added to ids of capital letters that the model writes


def prompt_of(body: Mapping[str, Any]) -> list[int]:
    """Return the ids of a request's messages, and the one that asks for an answer."""
    ids: list[int] = []
    for message in body["messages"]:
        ids += [_ROLES[message["role"]], *map(ord, _text_of(message)), _END]
    return [*ids, _ROLES["assistant"]]


def completion_of(message: Mapping[str, Any]) -> list[int]:
    """Return the ids of an answer as the model has written it."""
    text = _text_of(message)
    return [ord(letter) + (_OWN if letter.isupper() else 0) for letter in text] + [_END]


def _text_of(message: Mapping[str, Any]) -> str:
    content = message.get("content") or ""
    calls = [call["function"] for call in message.get("tool_calls") or ()]
    text = content if isinstance(content, str) else "".join(part["text"] for part in content)
    return text + "".join(f"<{call['name']}{call['arguments']}>" for call in calls)


def _logprobs(ids: Sequence[int]) -> dict[str, Any]:
    return {
        "content": [
            {"token": str(value), "logprob": -value / 1e6, "bytes": None, "top_logprobs": []}
            for value in ids
        ]
    }


def add_ids(
    kind: TokenServerKind, body: Mapping[str, Any], answer: Mapping[str, Any]
) -> dict[str, Any]:
    """Return an answer of chat completions with what a request asks for.

    Args:
        kind: whose fields it has.
        body: the request.
        answer: the answer without them.
    """
    choice = {**answer["choices"][0]}
    answer = {**answer, "choices": [choice]}
    prompt, completion = prompt_of(body), completion_of(choice["message"])
    counts = {"prompt_tokens": len(prompt), "completion_tokens": len(completion)}
    answer["usage"] = {**counts, "total_tokens": sum(counts.values())}
    if body.get("logprobs"):
        choice["logprobs"] = _logprobs(completion)
    if kind == "vllm":
        wanted = bool(body.get("return_token_ids"))
        choice["token_ids"] = completion if wanted else None
        answer["prompt_token_ids"] = prompt if wanted else None
        return answer
    extension: dict[str, Any] = {}
    if body.get("return_input_ids_in_sglext"):
        extension["input_ids"] = prompt
    if body.get("return_output_ids_in_sglext"):
        extension["output_ids"] = [completion]
    return {**answer, "sglext": extension} if extension else answer


def add_ids_to_stream(
    whole: Mapping[str, Any], chunks: Sequence[Mapping[str, Any]]
) -> Iterator[dict[str, Any]]:
    """Return the chunks of an answer that :func:`add_ids` has made, with what it has.

    The ids are spread over the chunks with a delta; those of SGLang follow in one of their own.
    """
    choice = whole["choices"][0]
    ids = choice.get("token_ids")
    logprobs = (choice.get("logprobs") or {}).get("content")
    with_choice = [chunk for chunk in chunks if chunk["choices"]]
    size = -(-len(ids or logprobs or ()) // max(1, len(with_choice) - 1))
    for number, chunk in enumerate(with_choice):
        piece = slice(size * (number - 1), size * number) if number else slice(0)
        inner = json.loads(json.dumps(chunk["choices"][0]))
        if ids is not None:
            inner["token_ids"] = ids[piece]
        if logprobs is not None and logprobs[piece]:
            inner["logprobs"] = {"content": logprobs[piece]}
        first = {"prompt_token_ids": whole["prompt_token_ids"]} if ids and not number else {}
        yield {**chunk, "choices": [inner], **first}
    rest = {key: value for key, value in chunks[0].items() if key != "choices"}
    if "sglext" in whole:
        yield {**rest, "choices": [], "sglext": whole["sglext"]}
    yield from (dict(chunk) for chunk in chunks if not chunk["choices"])
