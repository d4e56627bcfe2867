"""The chat client against a real server: what it makes of answers and errors, and how it stops."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pytest_intercode.agents.chat.arguments import ChatArguments
from pytest_intercode.agents.chat.client import Answer, Caller, ChatClient
from pytest_intercode.errors import AgentError, BudgetExhausted
from tests.support.chat_server import ChatServer, Reply, Script, calls

ASKED = {"messages": [{"role": "user", "content": "hi"}]}
_PATIENCE = 30.0

Open = Callable[..., ChatClient]


@pytest.fixture(autouse=True)
def _no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


@pytest.fixture
def connect() -> Iterator[Open]:
    """Make clients; they are closed when the test is over."""
    made: list[ChatClient] = []

    def connect(url: str, **more: Any) -> ChatClient:
        made.append(ChatClient(ChatArguments("any", base_url=url, **more)))
        return made[-1]

    yield connect
    for client in made:
        client.close()
    assert "intercode-chat" not in {thread.name for thread in threading.enumerate()}


def ask(connect: Open, script: Script, **more: Any) -> Answer:
    with ChatServer(script) as server:
        return Caller(connect(server.url, **more)).ask(ASKED)


def refusal(connect: Open, reply: Reply, **more: Any) -> str:
    with pytest.raises(AgentError) as caught:
        ask(connect, lambda request: reply, **{"retries": 0, **more})
    assert "\n" not in str(caught.value)
    return str(caught.value).partition("/v1 ")[2]


def test_an_answer(connect: Open) -> None:
    assert ask(connect, ["hello"]) == Answer("hello", input_tokens=100, output_tokens=10)


def test_an_answer_with_calls_of_tools(connect: Open) -> None:
    answer = ask(connect, [calls(("execute", {"code": "ls"}), ("submit", "{half"))])
    assert [(call.name, call.arguments) for call in answer.calls] == [
        ("execute", '{"code": "ls"}'),
        ("submit", "{half"),
    ]
    assert len({call.id for call in answer.calls}) == 2


@pytest.mark.parametrize(
    ("message", "answer"),
    [
        ({"content": None, "refusal": "I must not."}, Answer("I must not.")),
        ({"content": "x", "reasoning_content": "hm"}, Answer("x", reasoning="hm")),
        ({"content": "x", "reasoning": "hm"}, Answer("x", reasoning="hm")),
        ({"content": [{"type": "text", "text": "a"}, {"text": "b"}]}, Answer("ab")),
        ({}, Answer("")),
        ({"content": "half a pair: \ud800"}, Answer("half a pair: \ufffd")),
    ],
)
def test_messages_as_some_servers_write_them(
    connect: Open, message: dict[str, Any], answer: Answer
) -> None:
    assert ask(connect, [Reply(body={"choices": [{"message": message}]})]) == answer


def test_calls_as_some_servers_write_them(connect: Open) -> None:
    function = {"name": "execute", "arguments": {"code": "ls"}}
    message = {"tool_calls": [{"function": function}, {"id": "", "function": {}}, {"id": "x"}]}
    answer = ask(connect, [Reply(body={"choices": [{"message": message}]})])
    assert [(call.id, call.name, call.arguments) for call in answer.calls] == [
        ("call_1", "execute", '{"code": "ls"}'),
        ("call_2", "", ""),
        ("x", "", ""),
    ]


def test_parts_of_the_tokens_are_read_within_the_whole(connect: Open) -> None:
    usage = {
        "prompt_tokens": 100,
        "completion_tokens": 7,
        "prompt_tokens_details": {"cached_tokens": 90, "cache_write_tokens": 50},
        "completion_tokens_details": {"reasoning_tokens": 8},
    }
    body = {"choices": [{"message": {"content": "x"}}], "usage": usage}
    answer = ask(connect, [Reply(body=body)])
    assert (answer.input_tokens, answer.output_tokens) == (100, 7)
    found = (answer.cached_tokens, answer.cache_write_tokens, answer.reasoning_tokens)
    assert found == (90, 10, 7)


def test_an_answer_that_was_cut_off(connect: Open) -> None:
    assert ask(connect, [Reply(text="```", finish_reason="length")]).cut_off


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (Reply(status=400, body={"error": {"message": "too\nlong"}}), "answered 400: too long"),
        (Reply(status=400, body={"error": "too long"}), "answered 400: too long"),
        (Reply(status=422, body={"detail": [{"msg": "bad"}]}), "answered 422: [{'msg': 'bad'}]"),
        (Reply(status=404, body={"message": "no model"}), "answered 404: no model"),
        (Reply(status=404, body="<p>no page</p>"), "answered 404: <p>no page</p>"),
        (Reply(status=400, body="x" * 9999), f"answered 400: {'x' * 500}..."),
        (
            Reply(status=401, body={"error": {"message": "who?"}}),
            "answered 401: who? (no key was given: set OPENAI_API_KEY)",
        ),
        (Reply(body={"error": {"message": "late"}}), "gave no chat completion: late"),
        (Reply(body="null"), "gave no chat completion: None"),
        (Reply(body="{half"), "gave no chat completion: JSONDecodeError: "),
        (Reply(drop="headers"), "cannot be reached: Connection reset by peer"),
        (Reply(drop="body"), "cannot be reached: Connection reset by peer"),
    ],
)
def test_errors_are_one_line_with_the_servers_words(
    connect: Open, reply: Reply, words: str
) -> None:
    assert refusal(connect, reply).startswith(words)


def test_a_key_that_was_given_is_not_missed(connect: Open) -> None:
    said = refusal(connect, Reply(status=401, body={"error": {"message": "who?"}}), api_key="me")
    assert said == "answered 401: who?"


def test_transient_errors_are_tried_again_as_often_as_is_said(connect: Open) -> None:
    soon = {"retry-after-ms": "1"}
    for status in (408, 409, 429, 500, 502, 503):
        said = refusal(connect, Reply(status=status, headers=soon, body="no"), retries=2)
        assert said == f"answered {status} (3 tries): no"
    assert ask(connect, [Reply(status=429, headers=soon), "ok"], retries=1).text == "ok"


def test_the_servers_own_pause_is_kept(connect: Open) -> None:
    began = time.monotonic()
    assert ask(connect, [Reply(status=429, headers={"Retry-After": "1"}), "ok"]).text == "ok"
    assert time.monotonic() - began >= 1


def test_a_name_that_is_not_found(connect: Open) -> None:
    caller = Caller(connect("http://no-such-host.invalid/v1", retries=0))
    with pytest.raises(AgentError, match=r"http://no-such-host.invalid/v1 cannot be reached: \w+"):
        caller.ask(ASKED)


def test_a_server_of_this_machine_is_reached_past_a_proxy(
    connect: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    with socket.create_server(("127.0.0.1", 0)) as proxy, socket.socket() as silent_server:
        address = f"http://127.0.0.1:{proxy.getsockname()[1]}"
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, address)
            monkeypatch.setenv(name.lower(), address)
        assert ask(connect, ["hello"], timeout=5.0, retries=0).text == "hello"
        silent_server.bind(("127.0.0.1", 0))
        server = f"https://localhost:{silent_server.getsockname()[1]}/v1"
        with pytest.raises(AgentError, match=r"cannot be reached: Connection refused$"):
            Caller(connect(server, timeout=5.0, retries=0)).ask(ASKED)
        proxy.settimeout(0)
        with pytest.raises(BlockingIOError):
            proxy.accept()


def test_a_server_that_was_never_there_is_waited_for_once(connect: Open) -> None:
    with socket.socket() as taken:  # bound, but nobody listens
        taken.bind(("127.0.0.1", 0))
        client = connect(f"http://127.0.0.1:{taken.getsockname()[1]}/v1", retries=1)
        with pytest.raises(AgentError, match=r"cannot be reached \(2 tries\): Connection refused"):
            Caller(client).ask(ASKED)
        with pytest.raises(AgentError, match="cannot be reached: Connection refused"):
            Caller(client).ask(ASKED)


@pytest.mark.parametrize(
    "reply",
    [
        Reply(stall="headers"),
        Reply(stall="body"),
        Reply(status=429, headers={"Retry-After": "100"}),
    ],
    ids=["headers", "body", "pause"],
)
def test_an_abort_ends_a_request_and_leaves_others_alone(connect: Open, reply: Reply) -> None:
    begun = threading.Event()
    failures: list[BaseException] = []

    def script(request: Any) -> str | Reply:
        if request.last == "wait":
            begun.set()
            return reply
        return "hello"

    def wait() -> None:
        try:
            aborted.ask({"messages": [{"role": "user", "content": "wait"}]})
        except BaseException as error:
            failures.append(error)

    with ChatServer(script) as server:
        client = connect(server.url)
        aborted, other = Caller(client), Caller(client)
        thread = threading.Thread(target=wait)
        thread.start()
        assert begun.wait(_PATIENCE)
        assert other.ask(ASKED).text == "hello"  # beside it
        aborted.abort()
        aborted.abort()
        thread.join(_PATIENCE)
        assert not thread.is_alive()
        assert [type(failure) for failure in failures] == [BudgetExhausted]
        if reply.stall:
            assert server.left.wait(_PATIENCE)  # the connection is closed
        assert other.ask(ASKED).text == "hello"
        with pytest.raises(BudgetExhausted):
            aborted.ask(ASKED)


def test_closing_ends_what_is_under_way(connect: Open) -> None:
    failures: list[BaseException] = []

    def wait() -> None:
        try:
            Caller(client).ask(ASKED)
        except BaseException as error:
            failures.append(error)

    with ChatServer([Reply(stall="body")]) as server:
        client = connect(server.url)
        thread = threading.Thread(target=wait)
        thread.start()
        assert server.stalled.wait(_PATIENCE)
        client.close()
        client.close()
        thread.join(_PATIENCE)
        assert not thread.is_alive()
        assert len(failures) == 1
        with pytest.raises(AgentError, match="closed"):
            Caller(client).ask(ASKED)


def test_many_threads_share_a_client(connect: Open) -> None:
    said: list[str] = []

    def talk(number: int) -> None:
        for _ in range(5):
            body = {"messages": [{"role": "user", "content": str(number)}]}
            said.append(f"{number} {Caller(client).ask(body).text}")

    with ChatServer(lambda request: request.last) as server:
        client = connect(server.url)
        threads = [threading.Thread(target=talk, args=(number,)) for number in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(_PATIENCE)
    assert sorted(said) == sorted(f"{n} {n}" for n in range(10) for _ in range(5))
