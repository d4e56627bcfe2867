"""``--intercode-otel``: spans of real runs, read back by OpenTelemetry's own definitions."""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path

import pytest

from pytest_intercode.plugin import otel
from tests.conftest import results
from tests.integration.gateway.conftest import KEY
from tests.integration.gateway.test_programs import AGENT, COMMAND
from tests.support import cell_records
from tests.support.model_server import Command, ModelServer
from tests.support.otlp_receiver import OtlpReceiver, ReceivedSpan

pytest.importorskip("opentelemetry.sdk")


def play(pytester: pytest.Pytester, *options: str) -> pytest.RunResult:
    return pytester.runpytest(
        *("suite.yaml", "-pno:cacheprovider", "--intercode-results=r.jsonl", *options)
    )


def children(spans: list[ReceivedSpan], parent: ReceivedSpan | None = None) -> list[ReceivedSpan]:
    """Return the spans below another one, by their times; without it those that begin a trace."""
    identity = "" if parent is None else parent.id
    below = [span for span in spans if span.parent == identity]
    return sorted(below, key=lambda span: (span.start, span.end))


def test_a_rollout_is_a_trace(
    pytester: pytest.Pytester, pretend: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (pytester.path / "agent.py").write_text(AGENT)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20of-the-collector")
    script: list[Command | str] = [Command("echo hello"), "done"]
    with OtlpReceiver() as receiver, ModelServer(script, tokens="vllm") as server:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        play(
            pytester,
            *("-k=prints", f"--intercode-agent={COMMAND}", f"--intercode-otel={receiver.url}"),
            *("--intercode-tokens=vllm", "--intercode-run-name=nightly"),
        )
    [row] = results(pytester.path / "r.jsonl")
    spans = receiver.spans
    [root] = children(spans)
    assert root.resource["service.name"] == "pytest-intercode"
    assert (root.name, root.is_error) == ("rollout prints", False)
    assert root.attributes["test.case.result.status"] == "pass"
    assert root.attributes["intercode.run.name"] == "nightly"
    assert (root.attributes["intercode.reward"], root.attributes["intercode.turns"]) == (1.0, 2)
    agent, verifier = [
        span for span in children(spans, root) if not span.name.startswith("sandbox ")
    ]
    usage = row["usage"]
    expected = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": COMMAND,
        "gen_ai.usage.input_tokens": usage["input_tokens"],
        "gen_ai.usage.output_tokens": usage["output_tokens"],
        "intercode.requests": 2,
    }
    assert expected.items() <= agent.attributes.items()
    first, last = children(spans, agent)
    assert [first.name, last.name] == ["turn 1", "turn 2"]
    chat, tool = children(spans, first)
    assert (chat.name, tool.name) == ("chat m", "execute_tool bash")
    assert chat.is_client
    assert chat.attributes == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "m",
        "gen_ai.response.model": "m",
        "gen_ai.response.finish_reasons": ["tool_calls"],
        "gen_ai.usage.input_tokens": len(row["model_calls"][0]["prompt_ids"]),
        "gen_ai.usage.output_tokens": len(row["model_calls"][0]["completion_ids"]),
        "intercode.requests": 1,
    }
    assert tool.attributes["gen_ai.tool.name"] == "bash"
    assert verifier.name == "verifier"
    score = {
        "gen_ai.evaluation.name": "reward",
        "gen_ai.evaluation.score.value": 1.0,
        "gen_ai.evaluation.score.label": "solved",
    }
    assert ("gen_ai.evaluation.result", score) in verifier.events
    for span in spans:
        assert span.trace == root.trace
        assert root.start <= span.start <= span.end
    assert tool.end <= root.end
    whole = repr(spans)
    assert row["query"] not in whole
    assert "echo hello" not in whole
    assert KEY not in whole
    assert receiver.headers[0]["path"] == "/v1/traces"
    assert receiver.headers[0]["authorization"] == "Bearer of-the-collector"


@pytest.mark.parametrize("mode", ["-n2", "--intercode-concurrency=2"])
def test_each_episode_is_sent_once_whoever_plays_it(
    mode: str, pytester: pytest.Pytester, pretend: Path
) -> None:
    with OtlpReceiver() as receiver:
        play(
            pytester, mode, "--intercode-agent=oracle", f"--intercode-otel={receiver.url}/v1/traces"
        )
    roots = children(receiver.spans)
    assert len(roots) == len(results(pytester.path / "r.jsonl")) > 2
    names = {root.name for root in roots}
    assert len(names) == len(roots)
    assert len({root.trace for root in roots}) == len(roots)


def test_contents_are_sent_where_they_are_asked_for(
    pytester: pytest.Pytester, pretend: Path
) -> None:
    """And a file has what a collector would get, in OTLP's JSON."""
    play(
        pytester,
        *("-k=prints", "--intercode-agent=oracle", "--intercode-otel=spans.jsonl"),
        "--intercode-otel-content",
    )
    [row] = results(pytester.path / "r.jsonl")
    lines = (pytester.path / "spans.jsonl").read_text().splitlines()
    spans = [
        span
        for line in lines
        for resource in json.loads(line)["resourceSpans"]
        for scope in resource["scopeSpans"]
        for span in scope["spans"]
    ]
    attributes = {
        pair["key"]: pair["value"].get("stringValue")
        for span in spans
        for pair in span.get("attributes", ())
    }
    assert attributes["intercode.task.query"] == row["query"]
    assert "gen_ai.tool.call.arguments" in attributes
    assert "gen_ai.tool.call.result" in attributes
    ids = {span["spanId"] for span in spans}
    assert all(len(identity) == 16 and int(identity, 16) for identity in ids)
    assert {span["parentSpanId"] for span in spans if "parentSpanId" in span} <= ids
    assert len({span["traceId"] for span in spans}) == 1
    assert len(spans[0]["traceId"]) == 32


def test_no_key_is_sent(
    pytester: pytest.Pytester, pretend: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_API_KEY", KEY)
    (pytester.path / "loud.py").write_text(f"def act(observation):\n    return 'echo {KEY}'\n")
    play(
        pytester,
        *("-k=prints", "--intercode-agent=loud.py:act", "--intercode-otel=spans.jsonl"),
        "--intercode-otel-content",
    )
    spans = (pytester.path / "spans.jsonl").read_text()
    assert "echo intercode-masked-key" in spans
    assert KEY not in spans


def test_what_is_not_the_agents_fault_is_an_error(pytester: pytest.Pytester, pretend: Path) -> None:
    (pytester.path / "broken.py").write_text("def act(observation):\n    raise OSError('secret')\n")
    with OtlpReceiver() as receiver:
        play(
            pytester,
            *("-k=prints", "--intercode-agent=broken.py:act", f"--intercode-otel={receiver.url}"),
        )
    [root] = children(receiver.spans)
    assert root.is_error
    assert root.attributes["error.type"] == "agent-error"
    assert "secret" not in repr(receiver.spans)


def test_a_collector_that_takes_nothing_costs_nothing_but_a_line(
    pytester: pytest.Pytester, pretend: Path
) -> None:
    with OtlpReceiver(status=400) as receiver:
        done = play(
            pytester, "-k=prints", "--intercode-agent=oracle", f"--intercode-otel={receiver.url}"
        )
    assert done.ret == 0
    line = f"--intercode-otel={receiver.url}: * of * spans could not be sent: *400*Bad Request"
    done.stdout.fnmatch_lines([line])
    assert done.stderr.str() == ""


def test_the_end_of_a_run_does_not_wait_for_a_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otel, "_CLOSE_TIMEOUT", 0.3)
    with OtlpReceiver(status=0) as receiver:
        sender = otel.SpanSender(receiver.url)
        sender.send(cell_records.episode())
        began = time.monotonic()
        line = sender.close()
        assert time.monotonic() - began < 8  # the SDK waits for 10 s, and for 30 in all
    problem = "spans could not be sent: not accepted within 0.3 s of the run's end"
    assert re.fullmatch(rf"--intercode-otel={receiver.url}: (\d+) of \1 {problem}", line)


LOGGER = """\
import logging
import sys

from pytest_intercode.plugin.otel import SpanSender
from tests.support import cell_records

logger = logging.getLogger("opentelemetry.exporter.otlp")
senders = [SpanSender(sys.argv[1]), SpanSender(sys.argv[1])]
for sender in senders:
    print(logger.propagate, len(logger.handlers))
    sender.send(cell_records.episode())
    sender.close()
print(logger.propagate, len(logger.handlers))
"""


def test_the_exporters_logger_is_left_as_it_was(pytester: pytest.Pytester) -> None:
    """In a process of its own, as runs of other tests in this one may not be at their end."""
    with OtlpReceiver() as receiver:
        done = pytester.run(sys.executable, "-c", LOGGER, receiver.url)
    assert done.outlines == ["False 2", "False 1", "True 0"]


def test_a_file_of_the_ini_file_is_next_to_that(pytester: pytest.Pytester, pretend: Path) -> None:
    pytester.makeini("[pytest]\nintercode_otel = spans.jsonl\n")
    pytester.chdir()
    subfolder = pytester.mkdir("below")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(subfolder)
        pytester.runpytest_inprocess("../suite.yaml", "--intercode-agent=oracle")
    assert (pytester.path / "spans.jsonl").read_text()
    assert not any(subfolder.iterdir())


@pytest.mark.parametrize(
    ("target", "problem"),
    [
        ("ftp://host", "expected an address such as http://localhost:4318"),
        ("localhost:4318", "expected an address such as http://localhost:4318"),
        ("http://[::1", "expected an address such as http://localhost:4318"),
        ("http://localhost:99999", "expected an address such as http://localhost:4318"),
        ("http://name:word@host", "without a user name or password"),
        ("no/such/folder/spans.jsonl", "cannot be written: No such file or directory"),
        ("r.jsonl", "another option also names this file, and it would be overwritten"),
    ],
)
def test_a_wrong_target_is_one_line(
    target: str, problem: str, pytester: pytest.Pytester, pretend: Path
) -> None:
    results = "--intercode-results=r.jsonl"
    options = ("--intercode-agent=oracle", results, f"--intercode-otel={target}")
    done = pytester.runpytest("suite.yaml", "-pno:cacheprovider", *options)
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    [line] = [line for line in done.errlines if "--intercode-otel" in line]
    assert problem in line
    assert "word" not in line or "password" in line
