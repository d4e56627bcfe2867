"""MCP servers and skills that swe tasks bring: of a suite, and of a folder in Harbor's format."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_intercode.cli import main
from pytest_intercode.core.task import Limits, Task, Verification
from pytest_intercode.environments import mcp_servers
from pytest_intercode.environments.swe.fields import SweFields
from pytest_intercode.environments.swe.strict import SweEnvironment
from pytest_intercode.errors import TaskError
from pytest_intercode.sandboxes.provider import SandboxProvider
from pytest_intercode.sandboxes.settings import SandboxSettings
from pytest_intercode.suites.harbor.config import read_config
from tests.conftest import results
from tests.support import puzzles
from tests.support.task_folders import BASE, write_harbor
from tests.support.ticket_address import serve_tickets

quick_provider = puzzles.quick_provider  # fixture
ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "swe.md").read_text(encoding="utf-8")
# A server that any image can run; an agent that knows the answer from it alone.
SERVER = """\
while read -r line; do
  case $line in
    *'"initialize"'*) echo '{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-06-18"}}' ;;
    *'"tools/call"'*) echo '{"jsonrpc":"2.0","id":2,"result":{"count":41}}' ;;
  esac
done
"""
AGENT = """\
class Agent:
    def reset(self, task):
        self.actions = [
            f"echo '\\"tools/call\\"' | {task.mcp['tickets']} >all",
            "grep -o '41' all >count",
        ]

    def act(self, observation):
        return self.actions.pop(0) if self.actions else "submit"
"""
TOML = """\
[verifier]
environment_mode = "shared"
[[environment.mcp_servers]]
name = "tickets"
transport = "stdio"
command = "sh"
args = ["/opt/the server.sh"]
"""


def write_task(folder: Path, server: str = SERVER, toml: str = TOML) -> None:
    write_harbor(
        folder,
        tests='[ "$(cat /app/count)" = 41 ]',
        solution="echo 41 >count",
        toml=toml,
        dockerfile=f'FROM {BASE}\nCOPY ["server.sh", "/opt/the server.sh"]\nWORKDIR /app\n',
        files={"environment/server.sh": server},
    )


@pytest.mark.usefixtures("needs_docker")
def test_an_agent_has_the_server_of_a_task_folder(pytester: pytest.Pytester) -> None:
    write_task(pytester.path / "set/one")
    pytester.makepyfile(my_agent=AGENT)
    for agent in ("my_agent.py:Agent", "oracle"):
        result = pytester.runpytest("--intercode-dataset=set", f"--intercode-agent={agent}")
        result.assert_outcomes(passed=1)


@pytest.mark.usefixtures("needs_docker")
def test_a_server_that_does_not_start_is_the_tasks_fault(pytester: pytest.Pytester) -> None:
    write_task(pytester.path / "set/one", server="echo it is broken >&2; exit 3\n")
    pytester.makepyfile(my_agent=AGENT)
    result = pytester.runpytest(
        "--intercode-dataset=set", "--intercode-agent=my_agent.py:Agent", "--intercode-results=r"
    )
    result.assert_outcomes(errors=1)
    [row] = results(pytester.path / "r")
    assert row["outcome"] == "task-error"
    assert "the server 'tickets' (sh '/opt/the server.sh') ended with status 3" in row["reason"]


# An MCP server of streamable HTTP in the Perl that every Debian has: one request a connection.
REMOTE = r"""
use IO::Socket::INET;
my $server = IO::Socket::INET->new(LocalPort => 8000, Listen => 9, ReuseAddr => 1) or die $!;
while (my $client = $server->accept) {
  my ($request, $length, $line) = (scalar <$client>, 0, "");
  while ($line ne "\r\n") {
    $line = <$client> // last;
    $length = $1 if $line =~ /^content-length: (\d+)/i;
  }
  read $client, my $body, $length;
  my $result = $body =~ /tools.call/ ? '{"count":41}' : '{"protocolVersion":"2025-06-18"}';
  my $answer = "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":$result}";
  print $client "HTTP/1.1 200 OK\r\nContent-Length: " . length($answer) . "\r\n\r\n$answer";
  close $client;
}
"""
REMOTE_AGENT = """\
from urllib.parse import urlsplit

class Agent:
    def reset(self, task):
        url = urlsplit(task.mcp['tickets'])
        body = '{"method":"tools/call"}'
        headers = f"POST {url.path} HTTP/1.1\\\\r\\\\nContent-Length: {len(body)}"
        request = f"{headers}\\\\r\\\\n\\\\r\\\\n{body}"
        self.actions = [
            f"exec 9<>/dev/tcp/{url.hostname}/{url.port}; printf '{request}' >&9; cat <&9 >all",
            "grep -o '41' all >count",
        ]

    def act(self, observation):
        return self.actions.pop(0) if self.actions else "submit"
"""
REMOTE_TOML = """\
[verifier]
environment_mode = "shared"
[[environment.mcp_servers]]
name = "tickets"
transport = "streamable-http"
url = "http://tickets:8000/mcp"
"""


@pytest.mark.usefixtures("needs_docker")
def test_an_agent_has_the_server_that_a_service_is(pytester: pytest.Pytester) -> None:
    service = {"image": BASE, "command": ["perl", "-e", REMOTE.replace("$", "$$")]}
    write_harbor(
        pytester.path / "set/one",
        tests='[ "$(cat /app/count)" = 41 ]',
        solution="echo 41 >count",
        toml=REMOTE_TOML,
        files={
            "environment/docker-compose.yaml": json.dumps({"services": {"tickets": service}}),
        },
    )
    pytester.makepyfile(my_agent=REMOTE_AGENT)
    arguments = ("--intercode-dataset=set", "--intercode-agent=my_agent.py:Agent")
    pytester.runpytest(*arguments).assert_outcomes(passed=1)


@pytest.mark.parametrize("transport", ["http", "sse"])
def test_a_server_with_an_address_is_asked(
    transport: str, bubblewrap: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcp_servers, "_START_TIMEOUT", 2)
    with contextlib.closing(SandboxProvider(SandboxSettings("bubblewrap"))) as provider:
        environment = SweEnvironment(provider)
        with serve_tickets(transport) as address, contextlib.closing(environment):
            for server, problem in (
                (address, ""),
                (f"{address}/", ""),  # it redirects
                (f"{address}/none", "answers with HTTP status 404"),
                (address.replace("127.0.0.1", "nowhere.invalid"), "cannot be reached"),
                ("https://nowhere.invalid", ""),  # left to the agent
            ):
                task = Task(
                    *("t", "Count.", (), "swe", "s", "s"),
                    limits=Limits(network=True),
                    fields=SweFields(mcp={"tickets": server}),
                    verification=Verification("true", parser="status"),
                )
                if not problem:
                    environment.reset(task=task)
                    assert environment.episode.action == ""  # nothing that the agent did
                    continue
                with pytest.raises(TaskError, match=rf"mcp: the server 'tickets' \(.*\) {problem}"):
                    environment.reset(task=task)


JSON = b'{"jsonrpc": "2.0", "id": 1, "result": {"protocolVersion": "2025-06-18"}}'
NOTE = b'{"jsonrpc": "2.0", "method": "notifications/message", "params": {"result": 1}}'
OK = b"HTTP/1.1 200 OK\r\n"
EVENTS = OK + b"Content-Type: text/event-stream\r\n\r\n"
CHUNKS = [b"%x\r\n%s\r\n" % (len(part), part) for part in (JSON[:30], JSON[30:], b"")]


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        pytest.param([EVENTS, b"data: %s\n\n" % NOTE, b"data: %s\n\n" % JSON], "", id="note"),
        pytest.param([EVENTS, b"id: 1\ndata: \n\n", b"data: %s\n\n" % JSON], "", id="priming"),
        pytest.param([OK, b"Transfer-Encoding: chunked\r\n\r\n", *CHUNKS], "", id="chunks"),
        pytest.param([OK, b"\r\n", JSON.replace(b", ", b",\n  ")], "", id="several lines"),
        pytest.param([b"HTTP/1.1 100 Continue\r\n\r\n", OK, b"\r\n" + JSON], "", id="continue"),
        pytest.param([OK, b"Mcp-Session-Id:abc\r\n\r\n" + JSON + b" " * 3000], "", id="long"),
        pytest.param(
            [OK + b"\r\n" + NOTE], r"printed '.*', which is not an answer", id="no answer"
        ),
        pytest.param([b"220 mail\r\n"], r"printed '220 mail', which is not", id="no HTTP"),
        pytest.param([OK + b"\r\n"], r"did not answer in 2 s", id="nothing"),
    ],
)
def test_answers_in_all_forms_of_http(
    answer: list[bytes],
    problem: str,
    bubblewrap: None,
    quick_provider: SandboxProvider,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The connection stays open, as servers may leave it."""
    monkeypatch.setattr(mcp_servers, "_START_TIMEOUT", 2)
    requests: list[list[bytes]] = []

    def serve() -> None:
        with listener.accept()[0] as connection, connection.makefile("rb") as lines:
            requests.append(list(iter(lines.readline, b"\r\n")))
            for piece in answer:
                connection.sendall(piece)
                time.sleep(0.05)
            with contextlib.suppress(ConnectionError):  # by who has read enough
                lines.read()
        if any(b"Session" in piece for piece in answer):
            with listener.accept()[0] as connection, connection.makefile("rb") as lines:
                requests.append(list(iter(lines.readline, b"\r\n")))

    task = Task(
        *("t", "Count.", (), "swe", "s", "s"),
        limits=Limits(network=True, output=2000),
        verification=Verification("true", parser="status"),
    )
    with (
        contextlib.closing(SweEnvironment(quick_provider)) as environment,
        socket.create_server(("127.0.0.1", 0)) as listener,
    ):
        thread = threading.Thread(target=serve)
        thread.start()
        server = f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
        task = replace(task, fields=SweFields(mcp={"tickets": server}))
        expected = pytest.raises(TaskError, match=problem) if problem else contextlib.nullcontext()
        with expected:
            environment.reset(task=task)
        thread.join()
    assert requests[0][0] == b"POST /mcp HTTP/1.1\r\n"
    assert all(b"Mcp-Session-Id: abc\r\n" in request for request in requests[1:])


@pytest.mark.slow
def test_two_servers_of_one_name(pytester: pytest.Pytester) -> None:
    write_task(pytester.path / "one", toml=TOML + TOML.partition("\n")[2].partition("\n")[2])
    result = pytester.runpytest("--intercode-dataset=one", "--intercode-agent=oracle")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "task.toml: mcp_servers: two have one name" in str(result.stderr)


SUITE = """\
env: swe
tasks:
  - id: count
    query: How many tickets are open?
    gold: echo 41 >/tmp/count
    verification: {command: grep -qx 41 /tmp/count, parser: status}
"""


@pytest.fixture
def suite(pytester: pytest.Pytester) -> str:
    """Write a suite with the fields that the page shows, and return its text."""
    [lines] = [block for block in PAGE.split("```yaml\n") if block.startswith("    mcp:")]
    shutil.copy(ROOT / "tests/support/ticket_server.py", pytester.path / "tickets.py")
    text = SUITE + lines.partition("```")[0]
    Path("suite.yaml").write_text(text)
    return text


def run(pytester: pytest.Pytester, agent: str, sandbox: str) -> tuple[pytest.RunResult, str]:
    result = pytester.runpytest("suite.yaml", f"--intercode-agent={agent}", sandbox)
    return result, f"{result.stdout}{result.stderr}"


def test_the_suite_of_the_page(pytester: pytest.Pytester, suite: str, quick_sandbox: str) -> None:
    run(pytester, "oracle", quick_sandbox)[0].assert_outcomes(passed=1)
    result, text = run(pytester, "mcp:true", quick_sandbox)
    assert result.ret != 0
    assert "--intercode-agent=mcp:true: this agent cannot use MCP servers" in text
    Path("suite.yaml").write_text(suite.replace("mcp: {tickets", "mcp: {a b"))
    result, text = run(pytester, "oracle", quick_sandbox)
    assert result.ret != 0
    assert "a name has up to 32 letters, digits, - and _" in text


def test_an_agent_knows_where_skills_are(pytester: pytest.Pytester, quick_sandbox: str) -> None:
    Path("suite.yaml").write_text(
        f"{SUITE}    skills: /opt/skills\n    files: {{/opt/skills/one/SKILL.md: x}}\n"
    )
    run(pytester, "oracle", quick_sandbox)[0].assert_outcomes(passed=1)
    pytester.makepyfile(
        my_agent="""
        def act(observation, done=[]):
            done.append(1)
            return "submit" if len(done) > 1 else "ls /opt/skills && echo 41 >/tmp/count"

        class Agent:
            def reset(self, task):
                assert task.skills == "/opt/skills"

            def act(self, observation):
                return act(observation)
        """
    )
    run(pytester, "my_agent.py:Agent", quick_sandbox)[0].assert_outcomes(passed=1)
    Path("suite.yaml").write_text(f"{SUITE}    skills: /opt/none\n")
    result, text = run(pytester, "oracle", quick_sandbox)
    result.assert_outcomes(errors=1)
    assert "skills: the sandbox has no folder /opt/none" in text


@pytest.mark.usefixtures("suite")
def test_convert_writes_them(pytester: pytest.Pytester) -> None:
    with Path("suite.yaml").open("a") as suite:
        suite.write("    skills: /opt\n")
    text = Path("suite.yaml").read_text()
    servers = "mcp: {near: 'http://tickets/mcp', old: 'sse+http://tickets/sse', tickets:"
    Path("suite.yaml").write_text(text.replace("mcp: {tickets:", servers))
    assert main(["convert", "suite.yaml", "--to", "out"]) == 0
    environment = read_config(Path("out/count/task.toml").read_text(), "task.toml").environment
    assert environment.skills_dir == "/opt"
    *remote_servers, server = environment.mcp_servers
    assert [(remote.name, remote.transport, remote.url) for remote in remote_servers] == [
        ("near", "streamable-http", "http://tickets/mcp"),
        ("old", "sse", "http://tickets/sse"),
    ]
    assert (server.name, server.transport) == ("tickets", "stdio")
    assert [server.command, *server.args] == ["sh", "-c", "python3 /opt/tickets.py"]
