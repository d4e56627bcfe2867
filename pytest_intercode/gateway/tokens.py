"""Token ids and log-probabilities in answers of vLLM and SGLang: requests, reads and removes them.

Both serve OpenAI's chat completions with additional fields. A client that did not ask for these
does not see them: the gateway asks for them, keeps them, and passes on what the client would have
received without them.

Sources: vLLM's ``entrypoints/openai/chat_completion/protocol.py`` (``return_token_ids``, since
0.10.2: ``prompt_token_ids`` next to the choices, in a stream's first event, and ``token_ids`` in
each choice) and SGLang's ``entrypoints/openai/protocol.py`` and ``serving_chat.py`` of 0.5.23
(``return_input_ids_in_sglext`` and ``return_output_ids_in_sglext``: ``sglext`` next to the choices,
in a separate event of a stream). SGLang refuses its ``return_token_ids`` for streams. Both return
``logprobs`` as OpenAI does, one for each token of the completion. Pure.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias, get_args

from pytest_intercode.core.tokens import AnswerTokens
from pytest_intercode.gateway.apis import objects

__all__ = ["TOKEN_SERVERS", "TokenReader", "TokenServer", "asking_for_tokens"]

TokenServer: TypeAlias = Literal["vllm", "sglang"]
"""A kind of server that returns token ids."""

TOKEN_SERVERS: tuple[TokenServer, ...] = get_args(TokenServer)

_MAX_IDS = 4_000_000  # of one answer
_ID_END = 2**31  # all ids are below this
_FIELDS: Mapping[TokenServer, Mapping[str, bool]] = {
    "vllm": {"return_token_ids": True, "logprobs": True},
    "sglang": {
        "return_input_ids_in_sglext": True,
        "return_output_ids_in_sglext": True,
        "logprobs": True,
    },
}
# The fields of answers that contain them, with the fields of requests that ask for these.
_OF_ANSWER = {
    "prompt_token_ids": ("return_token_ids",),
    "sglext": ("return_input_ids_in_sglext", "return_output_ids_in_sglext"),
}
_OF_CHOICE = {"token_ids": ("return_token_ids",), "logprobs": ("logprobs",)}


def asking_for_tokens(server: TokenServer, body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body of a request for chat completions with the fields that ask for tokens."""
    return {**body, **_FIELDS[server]}


class TokenReader:
    """Reads the tokens of one answer, in one piece or streamed, and removes them.

    Args:
        request: the client's body, which determines the fields that it is shown.
    """

    def __init__(self, request: Mapping[str, Any]) -> None:
        self._request = request
        self._prompt_ids: array[int] | None = None
        self._completion_ids: array[int] | None = None
        self._logprobs = array("d")
        self._finish_reason = ""
        self._problem = ""

    def take(self, data: dict[str, Any]) -> dict[str, Any] | None:
        """Read an answer, or the data of an event of a stream.

        Returns:
            The data for the client: the same object if nothing is removed; None if nothing else
            remains of an event.
        """
        extension = data.get("sglext")
        of_choices = objects(data.get("choices"))
        self._read_prompt(data.get("prompt_token_ids"))
        if isinstance(extension, dict):
            self._read_prompt(extension.get("input_ids"))
            outputs = extension.get("output_ids")
            self._read_completion(outputs[0] if isinstance(outputs, list) and outputs else None)
        if len(of_choices) > 1 or any(choice.get("index") for choice in of_choices):
            self._problem = "the request asks for several answers (n), and a call keeps one"
        for choice in of_choices[:1]:
            self._read_completion(choice.get("token_ids"))
            self._read_logprobs(choice.get("logprobs"))
            self._finish_reason = str(choice.get("finish_reason") or self._finish_reason)[:80]
        hidden = self._hidden(data, _OF_ANSWER)
        choices = [self._client_choice(choice) for choice in of_choices]
        if not hidden and choices == of_choices:
            return data
        client_data = {key: value for key, value in data.items() if key not in hidden}
        if "choices" in client_data:
            client_data["choices"] = choices
        return None if hidden and not choices and not client_data.get("usage") else client_data

    def _hidden(self, data: Mapping[str, Any], asked_by: Mapping[str, tuple[str, ...]]) -> set[str]:
        """Return the names of present fields that the client did not ask for."""
        return {
            name
            for name, fields in asked_by.items()
            if data.get(name) is not None and not any(map(self._request.get, fields))
        }

    def _client_choice(self, choice: dict[str, Any]) -> dict[str, Any]:
        hidden = self._hidden(choice, _OF_CHOICE)
        if not hidden:
            return choice
        client_choice = {key: value for key, value in choice.items() if key not in hidden}
        return client_choice | ({"logprobs": None} if "logprobs" in hidden else {})

    def _read_prompt(self, ids: Any) -> None:
        if ids is not None and self._prompt_ids is None:
            self._prompt_ids = self._checked(ids, _MAX_IDS)

    def _read_completion(self, ids: Any) -> None:
        if ids is not None:
            if self._completion_ids is None:
                self._completion_ids = array("i")
            self._completion_ids += self._checked(ids, _MAX_IDS - len(self._completion_ids))

    def _checked(self, ids: Any, limit: int) -> array[int]:
        """Return ids as an array; empty, with a problem noted, if they are not valid."""
        if isinstance(ids, list) and len(ids) <= limit and all(map(_is_id, ids)):
            return array("i", ids)
        self._problem = "the server sent what are not token ids"
        return array("i")

    def _read_logprobs(self, logprobs: Any) -> None:
        for entry in objects(logprobs.get("content")) if isinstance(logprobs, dict) else ():
            value: Any = entry.get("logprob")
            good = type(value) in (float, int) and math.isfinite(value)
            if len(self._logprobs) < _MAX_IDS:
                self._logprobs.append(value if good else -math.inf)

    def tokens(self, completion_tokens: int | None) -> AnswerTokens:
        """Return the tokens of the answer, once it is complete.

        Args:
            completion_tokens: the number of tokens that the server reports; None if it does not.
        """
        prompt_ids, completion_ids = self._prompt_ids, self._completion_ids
        logprobs = self._logprobs
        if self._problem:
            return AnswerTokens(problem=self._problem)
        if not prompt_ids or completion_ids is None:
            part = " of the prompt" if completion_ids else " of the answer" if prompt_ids else ""
            return AnswerTokens(problem=f"the server sent no token ids{part}")
        if completion_tokens is not None and completion_tokens != len(completion_ids):
            counts = f"{completion_tokens} tokens, and sent {len(completion_ids)} ids"
            return AnswerTokens(problem=f"the server counts {counts}")
        if len(logprobs) != len(completion_ids) or -math.inf in logprobs:
            logprobs = array("d")
        return AnswerTokens(prompt_ids, completion_ids, logprobs, self._finish_reason)


def _is_id(value: object) -> bool:
    return type(value) is int and 0 <= value < _ID_END
