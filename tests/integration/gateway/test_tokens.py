"""Token ids and log-probabilities of agents behind the gateway, in records and in rollouts."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pytest_intercode
from pytest_intercode import SandboxProvider, SandboxSettings
from pytest_intercode.core.tokens import full_prompt, full_request, token_sequences
from pytest_intercode.errors import ConfigurationError, MissingTokensWarning
from pytest_intercode.gateway.streams import Splitter
from pytest_intercode.gateway.tokens import TokenReader
from pytest_intercode.results.format import from_row
from tests.conftest import results
from tests.integration.gateway.conftest import KEY, Gateways, ask, body, opened
from tests.integration.gateway.test_programs import AGENT, COMMAND
from tests.support.model_server import Command, ModelServer, Step
from tests.support.token_ids import TokenServerKind, completion_of, prompt_of

CHAT = "/v1/chat/completions"
KINDS: tuple[TokenServerKind, ...] = ("vllm", "sglang")
ASKED = {
    "vllm": {"logprobs", "return_token_ids"},
    "sglang": {"logprobs", "return_input_ids_in_sglext", "return_output_ids_in_sglext"},
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_tokens_are_kept_and_not_shown(
    kind: TokenServerKind, stream: bool, gateways: Gateways
) -> None:
    """A client sees the same events, in the same number, as if nobody had asked for tokens."""
    request = body("chat", stream=stream)
    with ModelServer(["Hello there"], tokens=kind) as server:
        plain, _ = opened(gateways(server))
        unasked = ask(plain, CHAT, request)
        session, ledger = opened(gateways(server, tokens=kind))
        answer = ask(session, CHAT, request)
        session.close()
        plain.close()
    assert _values(answer.body, stream) == _values(unasked.body, stream)
    assert server.requests[1].body.keys() - server.requests[0].body.keys() == ASKED[kind]
    [call] = ledger.model_calls
    [exchange] = session.exchanges
    assert exchange.call == 0
    assert not plain.exchanges[0].call
    completion = completion_of({"content": "Hello there"})
    assert call.prompt_ids == tuple(prompt_of(request))
    assert call.completion_ids == tuple(completion)
    assert call.logprobs == tuple(-value / 1e6 for value in completion)
    assert (call.finish_reason, call.problem) == ("stop", "")
    assert full_request([call], 0) == server.requests[1].body


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_asks_for_logprobs_sees_them_alone(stream: bool, gateways: Gateways) -> None:
    with ModelServer(["hi"], tokens="vllm") as server:
        session, _ = opened(gateways(server, tokens="vllm"))
        answer = ask(session, CHAT, body("chat", stream=stream, logprobs=True))
        session.close()
    text = answer.body.decode()
    assert text.count('"logprob"') == len(completion_of({"content": "hi"}))
    assert '"token_ids": [' not in text
    assert '"prompt_token_ids": [' not in text


def _values(data: bytes, stream: bool) -> list[Any]:
    """Return what a client gets, without what is null there."""
    if not stream:
        return [_filled(json.loads(data))]
    splitter = Splitter()
    return [event.is_last or _filled(event.data) for event in splitter.feed(data)]


def _filled(value: Any) -> Any:
    if isinstance(value, dict):
        # Servers have empty fields of tokens where nobody has asked for them.
        return {key: _filled(v) for key, v in value.items() if v is not None and key != "token_ids"}
    return [*map(_filled, value)] if isinstance(value, list) else value


# -- what a server may get wrong


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ({}, "the server sent no token ids"),
        ({"prompt_token_ids": [1]}, "the server sent no token ids of the answer"),
        ({"token_ids": [1, 2]}, "the server sent no token ids of the prompt"),
        ({"prompt_token_ids": [1], "token_ids": [1]}, "the server counts 2 tokens, and sent 1 ids"),
        ({"prompt_token_ids": [1], "token_ids": [1, -2]}, "the server sent what are not token ids"),
        ({"prompt_token_ids": "1", "token_ids": [1, 2]}, "the server sent what are not token ids"),
    ],
)
def test_a_server_without_tokens_is_told_from_an_agent(
    answer: dict[str, Any], problem: str, gateways: Gateways
) -> None:
    """The first answer says so, and no more are asked for."""
    with ModelServer([Step(body=_completion(answer))]) as server:
        session, ledger = opened(gateways(server, tokens="vllm"))
        assert ask(session, CHAT, body("chat")).status == 200
        refused = ask(session, CHAT, body("chat"))
        session.close()
    line = f"{server.url}/v1 was asked for token ids (docs/tokens.md): {problem}"
    assert session.misconfiguration == refused.message == line
    assert len(server.requests) == 1
    assert [call.problem for call in ledger.model_calls] == [problem]


@pytest.mark.parametrize("stream", [False, True])
def test_several_answers_are_not_taken_for_one(stream: bool) -> None:
    """Of a stream, the events of both come in turn."""
    reader = TokenReader({"n": 2, "stream": stream})
    choices = [
        {"index": index, "token_ids": [index], "logprobs": {"content": [{"logprob": -1.0}]}}
        for index in (0, 1)
    ]
    for part in [[choice] for choice in choices] if stream else [choices]:
        reader.take({"prompt_token_ids": [5], "choices": part})
    assert (
        reader.tokens(2).problem == "the request asks for several answers (n), and a call keeps one"
    )


def test_a_later_answer_without_tokens_is_kept_as_such(gateways: Gateways) -> None:
    """What an agent asks may be the cause: the episode goes on."""
    good = _completion({"prompt_token_ids": [1], "token_ids": [2, 3]})
    bodies = iter([good, _completion({}), good])
    with ModelServer(lambda _: Step(body=next(bodies))) as server:
        session, ledger = opened(gateways(server, tokens="vllm"))
        assert [ask(session, CHAT, body("chat")).status for _ in range(3)] == [200] * 3
        ask(session, "/v1/messages", body("messages"))
        session.close()
    assert session.misconfiguration == ""
    problems = [call.problem for call in ledger.model_calls]
    assert problems[:3] == ["", "the server sent no token ids", ""]
    assert [sequence.calls for sequence in token_sequences(ledger.model_calls)] == [(0,), (2,)]


def _completion(fields: dict[str, Any]) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", "content": "x"}, "finish_reason": "stop"}
    of_choice = {key: fields[key] for key in fields if key == "token_ids"}
    of_answer = {key: fields[key] for key in fields if key != "token_ids"}
    usage = {"prompt_tokens": 1, "completion_tokens": 2}
    return {"model": "m", "choices": [{**choice, **of_choice}], "usage": usage, **of_answer}


# -- whole episodes


@pytest.fixture
def provider(quick_sandbox: str) -> Iterator[SandboxProvider]:
    sandboxes = SandboxProvider(SandboxSettings(quick_sandbox.partition("=")[2]))
    yield sandboxes
    sandboxes.close()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    with ModelServer([Command("echo hello"), "done"], tokens="vllm") as running:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{running.url}/v1")
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        yield running


def test_records_have_the_tokens_of_a_program(
    server: ModelServer, pytester: pytest.Pytester, pretend: Path
) -> None:
    """Both requests are one sequence: the second prompt goes on from the first answer."""
    (pytester.path / "agent.py").write_text(AGENT)
    done = pytester.runpytest(
        *("suite.yaml", "-k=prints", f"--intercode-agent={COMMAND}", "-pno:cacheprovider"),
        *("--intercode-results=r.jsonl", "--intercode-tokens=vllm"),
    )
    assert done.ret == 0
    [row] = results(pytester.path / "r.jsonl")
    assert KEY not in json.dumps(row)
    assert row["turn_model_calls"] == [[0], [1]]
    record = from_row(row)
    prompts = [full_prompt(record.model_calls, number) for number in range(2)]
    sent = [request.body for request in server.requests]
    assert [full_request(record.model_calls, number) for number in range(2)] == sent
    assert [*map(list, prompts)] == [*map(prompt_of, sent)]
    assert record.model_calls[1].base == 0
    [sequence] = token_sequences(record.model_calls)
    assert sequence.prompt_ids == prompts[0]
    assert sequence.prompt_ids + sequence.response_ids == (
        prompts[1] + record.model_calls[1].completion_ids
    )
    own = [i for i, mask in zip(sequence.response_ids, sequence.loss_mask, strict=True) if mask]
    assert own == [i for call in record.model_calls for i in call.completion_ids]
    assert sequence.logprobs is not None
    assert sum(sequence.logprobs) == pytest.approx(-sum(own) / 1e6)


def test_a_replay_gives_the_recorded_tokens(
    server: ModelServer, pytester: pytest.Pytester, pretend: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (pytester.path / "agent.py").write_text(AGENT)
    rows = []
    for option in ("record", "replay"):
        pytester.runpytest(
            *("suite.yaml", "-k=prints", f"--intercode-agent={COMMAND}", "-pno:cacheprovider"),
            *("--intercode-results=r.jsonl", "--intercode-tokens=vllm"),
            f"--intercode-gateway-{option}=recorded",
        )
        rows += results(pytester.path / "r.jsonl")
        monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    assert rows[0]["model_calls"] == rows[1]["model_calls"]
    assert len(server.requests) == len(rows[1]["model_calls"]) == 2


def test_rollouts_have_them_and_split_where_the_server_has_tokenised_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, provider: SandboxProvider
) -> None:
    """Capital letters have ids of the model's own, which are not in the next prompt."""
    (tmp_path / "agent.py").write_text(AGENT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    tasks = [pytest_intercode.make("bash").tasks.find("access-log-server-errors")]
    script: list[Command | str] = [Command("ls"), Command("echo HELLO"), "done"]
    with ModelServer(script, tokens="sglang") as server:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        agent = f"command:{shlex.quote(sys.executable)} -S agent.py"
        with pytest_intercode.run_rollouts(
            tasks, agent, n=2, provider=provider, tokens="sglang"
        ) as records:
            played = list(records)
    assert [len(record.model_calls) for record in played] == [3, 3]
    for record in played:
        assert [turn.model_calls for turn in record.turns] == [(0,), (1,), (2,)]
        first, second = token_sequences(record.model_calls)
        assert (first.calls, second.calls) == ((0, 1), (2,))
        assert first.cause == ""
        assert second.cause.startswith("the prompt of call 2 begins with ")
        assert second.cause.endswith(" tokens of call 1, and not with all")
        assert [*full_prompt(record.model_calls, 2)] == prompt_of(server.requests[2].body)


def test_a_server_that_gives_none_is_the_configurations_fault(
    monkeypatch: pytest.MonkeyPatch, pytester: pytest.Pytester, pretend: Path
) -> None:
    (pytester.path / "agent.py").write_text(AGENT)
    with ModelServer([Command("echo hello"), "done"]) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        pytester.runpytest(
            *("suite.yaml", "-k=prints", f"--intercode-agent={COMMAND}", "-pno:cacheprovider"),
            *("--intercode-results=r.jsonl", "--intercode-tokens=vllm"),
        )
    [row] = results(pytester.path / "r.jsonl")
    line = f"{server.url}/v1 was asked for token ids (docs/tokens.md): the server sent no token ids"
    assert (row["outcome"], row["reason"]) == ("infrastructure-error", line)
    assert len(server.requests) == 1


def test_an_agent_that_asks_elsewhere_is_told_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, provider: SandboxProvider
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    (tmp_path / "agent.py").write_text('input(); print(\'{"submit": ""}\')')
    agent = f"command:{shlex.quote(sys.executable)} -S agent.py"
    task = pytest_intercode.make("bash").tasks.find("access-log-server-errors")
    with (
        pytest.warns(MissingTokensWarning, match="no request of the agent came") as caught,
        pytest_intercode.run_rollouts(
            [task], agent, n=2, provider=provider, tokens="vllm"
        ) as records,
    ):
        assert len(list(records)) == 2
    assert len(caught) == 1


@pytest.mark.parametrize(
    ("agent", "tokens", "problem"),
    [
        ("oracle", "vllm", "and this agent does not use it"),
        ("command:true", "tgi", "tokens='tgi': allowed are vllm and sglang"),
        (lambda task, env: None, "vllm", "it needs an agent that is given by name"),
    ],
)
def test_what_has_no_tokens_is_refused(
    agent: Any, tokens: Any, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    with pytest.raises(ConfigurationError, match=problem):
        pytest_intercode.run_rollouts("bash", agent, tokens=tokens)


def test_openais_own_server_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(ConfigurationError, match="do not return token ids; set OPENAI_BASE_URL"):
        pytest_intercode.run_rollouts("bash", "command:true", tokens="vllm")
