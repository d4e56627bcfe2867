"""JSON-RPC 2.0 over lines, with an agent that is not trusted.

Everything happens on the agent's thread: while we wait for an answer, the agent's own requests are
carried out one at a time, and each is answered before the next line is read. So an agent that
floods us with messages has to wait, and at most one of its messages is in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pytest_intercode.agents.program.messages import JsonLines, read_object
from pytest_intercode.core.text import replace_surrogates
from pytest_intercode.errors import AgentError

__all__ = ["AgentRefused", "Connection", "ConnectionLost", "RequestRefused"]

_MAX_MESSAGES = 1_000_000  # in one episode; most are pieces of a model's answer
_MAX_REQUESTS = 100_000  # from the agent in one episode
_MAX_ID = 200  # characters
_MAX_REASON = 300  # characters of an error's message and data
_INVALID_PARAMS, _METHOD_NOT_FOUND = -32602, -32601  # of JSON-RPC
_EXAMPLE = '{"jsonrpc": "2.0", ...}'


class RequestRefused(Exception):
    """A request of the agent cannot be carried out; the agent gets an error and continues.

    Args:
        message: the reason.
        code: the error code.
    """

    def __init__(self, message: str, code: int = _INVALID_PARAMS) -> None:
        super().__init__(message)
        self.code = code


class AgentRefused(AgentError):
    """The agent answers one of our requests with an error.

    Args:
        method: the method of the request.
        error: the error that it answers with.

    Attributes:
        method: the method of the request.
        code: the error code; None if there is none.
    """

    def __init__(self, method: str, error: object) -> None:
        self.method = method
        fields = error if isinstance(error, dict) else {"message": error}
        self.code = fields.get("code")
        details = f": {fields['data']}" if fields.get("data") else ""
        reason = " ".join(f"{fields.get('message')}{details}".split())[:_MAX_REASON]
        super().__init__(f"the agent answers {method} with an error: {reason} ({self.code})")


class ConnectionLost(AgentError):
    """The agent's output ended before it answered.

    Args:
        method: the method of the request that it did not answer.
    """

    def __init__(self, method: str) -> None:
        super().__init__(f"the agent ended its output without an answer to {method}")
        self.method = method


Handler = Callable[[Mapping[str, Any]], "Mapping[str, Any] | None"]
"""Takes the parameters of a request, carries it out, and returns the result."""


class Connection:
    """The connection to one agent; used on one thread.

    Args:
        lines: the lines that it writes and reads.
        handlers: the functions that carry out its requests, by method.
        update: called with the parameters of each ``session/update``.
    """

    def __init__(
        self,
        lines: JsonLines,
        handlers: Mapping[str, Handler],
        update: Callable[[Mapping[str, Any]], None],
    ) -> None:
        self._lines = lines
        self._handlers = handlers
        self._update = update
        self._requests = 0  # the number of our requests
        self._agent_requests: set[tuple[type, object]] = set()  # the ids of the agent's requests

    def request(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Send a request, and carry out the agent's requests until it answers.

        Raises:
            AgentRefused: the agent answers with an error.
            ConnectionLost: the agent ends before it answers.
            AgentError: the agent violates the protocol.
            BudgetExhausted: its request is not carried out, as the episode is over.
        """
        number = self._requests
        self._requests += 1
        self._send({"id": number, "method": method, "params": params})
        while (line := self._lines.receive()) is not None:
            if self._lines.received > _MAX_MESSAGES:
                raise AgentError(f"the agent wrote more than {_MAX_MESSAGES:,} messages")
            try:
                result = self._take(line, method, number)
            except RecursionError:
                raise AgentError("the agent wrote a message that is nested too deeply") from None
            if result is not None:
                return result
        raise ConnectionLost(method)

    def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Send the agent a notification, which it does not answer."""
        self._send({"method": method, "params": params})

    def _take(self, line: bytes, method: str, number: int) -> Mapping[str, Any] | None:
        """Carry out the request in a line, or return the line's answer to our request."""
        message = read_object(line, self._lines.received, _EXAMPLE)
        if "method" in message:
            self._serve(message)
            return None
        if type(message.get("id")) is int and message["id"] == number:
            return self._result(method, message)
        if "error" in message and message.get("id") is None:
            raise AgentRefused(method, message["error"])
        raise AgentError(
            f"the agent answers the request {message.get('id')!r:.40}, which is not open; it was "
            f"asked {method}, with the id {number}"
        )

    def _result(self, method: str, message: Mapping[str, Any]) -> Mapping[str, Any]:
        if message.get("error") is not None:
            raise AgentRefused(method, message["error"])
        result = message.get("result")
        if result is None:
            return {}
        if not isinstance(result, dict):
            raise AgentError(f"the agent answers {method} with {result!r:.60}, not with an object")
        return result

    def _serve(self, message: Mapping[str, Any]) -> None:
        """Carry out a request or a notification of the agent."""
        method, params = message["method"], message.get("params")
        if not isinstance(params, dict):
            params = {}
        if "id" not in message:
            if method == "session/update":
                self._update(params)
            return  # other notifications are not needed
        self._check_id(message["id"])
        reply: dict[str, Any] = {"id": message["id"]}
        try:
            handler = self._handlers.get(method) if isinstance(method, str) else None
            if handler is None:
                raise RequestRefused(f"the client has no {method!r:.60}", _METHOD_NOT_FOUND)
            reply["result"] = handler(params) or {}
        except RequestRefused as refusal:
            reply["error"] = {"code": refusal.code, "message": replace_surrogates(str(refusal))}
        self._send(reply)

    def _check_id(self, number: object) -> None:
        if not isinstance(number, (str, int)) or isinstance(number, bool):
            raise AgentError(
                f"the agent made a request with the id {number!r:.40}, which is neither a number "
                "nor a text"
            )
        if len(str(number)) > _MAX_ID:
            raise AgentError(
                f"the agent made a request whose id has more than {_MAX_ID} characters"
            )
        key = type(number), number
        if key in self._agent_requests:
            raise AgentError(f"the agent made two requests with the id {number!r:.40}")
        if len(self._agent_requests) >= _MAX_REQUESTS:
            raise AgentError(f"the agent made more than {_MAX_REQUESTS:,} requests")
        self._agent_requests.add(key)

    def _send(self, message: Mapping[str, Any]) -> None:
        self._lines.send({"jsonrpc": "2.0", **message})
