"""Programs that speak MCP as agents: through the SDK's own client, and through plain JSON lines."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

# pytester forgets what a run inside the process imported; this is slow to import again.
from pytest_intercode.agents.agent_environment import AgentEnvironment
from pytest_intercode.agents.ledger import Ledger
from pytest_intercode.agents.loader import load_agent
from pytest_intercode.agents.program.process import Program
from pytest_intercode.agents.protocol import Agent
from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.core.reward import Reward
from pytest_intercode.core.task import Task
from pytest_intercode.core.turn import Observation
from pytest_intercode.environments.base import Environment
from pytest_intercode.rollouts.turn_loop import run_episode
from pytest_intercode.sandboxes.protocol import SandboxSpec
from pytest_intercode.sandboxes.provider import SandboxProvider
from pytest_intercode.suites.loader import load_suite
from pytest_intercode.system.files import bundled_folder
from tests.conftest import results

CLIENT = Path(__file__).parents[3] / "examples" / "mcp_client.py"

# An agent on nothing but the standard library, which is quick to start.
PLAIN = """\
import json, os, subprocess, sys, time
from pathlib import Path

server = json.loads(Path(sys.argv[1]).read_text())["mcpServers"]["intercode"]
pipe = subprocess.PIPE
process = subprocess.Popen([server["command"], *server["args"]], stdin=pipe, stdout=pipe, text=True)


def ask(method, number=1, **params):
    message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
    print(json.dumps(message), file=process.stdin, flush=True)
    return json.loads(process.stdout.readline())["result"]


def call(tool, **arguments):
    result = ask("tools/call", name=tool, arguments=arguments)
    said = " ".join(block["text"] for block in result["content"])
    return f"error: {said}" if result["isError"] else said


client = {"name": "plain", "version": "1"}
hello = ask("initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo=client)
print(json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}), file=process.stdin)
"""


def mcp(*words: str) -> str:
    """Return an agent that this Python runs."""
    return f"mcp:{shlex.join([sys.executable, *words])}"


def write(folder: Path, body: str, name: str = "agent.py") -> str:
    """Write an agent, and return how it is named."""
    (folder / name).write_text(PLAIN + body)
    return mcp(f"{{here}}/{name}", "{config}")


def run(pytester: pytest.Pytester, agent: str, *more: str) -> dict[str, Any]:
    """Run the first task of the small suite, in this process, and return the result's row."""
    before = set(threading.enumerate())
    pytester.runpytest(
        "suite.yaml",
        "-kprints",
        f"--intercode-agent={agent}",
        "--intercode-results=r.jsonl",
        "-pno:cacheprovider",
        *more,
    )
    assert set(threading.enumerate()) <= before  # nothing of the server is left
    [row] = results(pytester.path / "r.jsonl")
    return row


def gone(*pids: int, seconds: float = 30.0) -> bool:
    """Wait until none of the processes runs."""
    until = time.monotonic() + seconds
    while any(map(_runs, pids)):
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


def _runs(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


# -- the SDK's own client


@pytest.mark.usefixtures("pretend")
@pytest.mark.parametrize("config", ["{config}", "{config_http}"])
def test_the_sdks_client_solves_a_task(
    pytester: pytest.Pytester, config: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")  # for others, not for our server
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.setenv("NO_PROXY", "example.org")
    row = run(pytester, mcp(str(CLIENT), config, "echo hello"))
    assert (row["outcome"], row["reward"]) == ("solved", 1.0)
    assert row["turn_history"]["actions"] == ["echo hello", "submit"]
    assert "tools: execute submit" in row["turn_logs"][0]
    assert "[done; 9 turns left]" in row["turn_logs"][1]


@pytest.mark.parametrize("config", ["{config}", "{config_http}"])
def test_the_sdks_client_solves_bundled_tasks(pytester: pytest.Pytester, config: str) -> None:
    """With their gold it is an oracle, so its rewards are the oracle's."""
    task = load_suite(bundled_folder("tasks") / "sql.yaml").tasks[0]
    gold = (statement.replace("{", "{{").replace("}", "}}") for statement in task.gold)
    agent = mcp(str(CLIENT), config, *gold)
    pytester.runpytest(
        f"intercode/sql::test_solves[{task.id}]",
        f"--intercode-agent={agent}",
        "--intercode-results=r.jsonl",
    ).assert_outcomes(passed=1)
    [row] = results(pytester.path / "r.jsonl")
    assert row["turn_history"]["actions"] == [*task.gold, "submit"]


# -- how programs end


@pytest.mark.usefixtures("pretend")
def test_who_ends_without_submit_is_graded(pytester: pytest.Pytester) -> None:
    agent = write(pytester.path, "call('execute', code='echo hello')\nprint('bye')\n")
    row = run(pytester, agent)
    assert (row["outcome"], row["reward"]) == ("solved", 1.0)
    assert row["turn_history"]["actions"] == ["echo hello"]
    assert row["log"] == "bye\n"


@pytest.mark.usefixtures("pretend")
@pytest.mark.parametrize(
    ("end", "said"),
    [
        ("print('a'); sys.exit('no key')", "the program exited with status 1 before it submitted"),
        ("import signal; os.kill(os.getpid(), signal.SIGSEGV)", "was killed by SIGSEGV before"),
    ],
)
def test_who_fails_before_submit_is_an_error(
    pytester: pytest.Pytester, end: str, said: str
) -> None:
    row = run(pytester, write(pytester.path, f"call('execute', code='ls')\n{end}\n"))
    assert row["outcome"] == "agent-error"
    assert said in row["reason"]
    assert row["detail"] == ""
    if "sys.exit" in end:
        assert row["reason"].endswith("; its last output: a / no key")


@pytest.mark.usefixtures("pretend")
def test_who_never_speaks_to_the_server_is_an_error(pytester: pytest.Pytester) -> None:
    row = run(pytester, mcp("-c", "print('not logged in')"))
    assert row["outcome"] == "agent-error"
    assert "without connecting to the MCP server" in row["reason"]
    assert "not logged in" in row["reason"]


@pytest.mark.usefixtures("pretend")
def test_who_never_connects_before_its_time_is_up_is_an_error(pytester: pytest.Pytester) -> None:
    agent = mcp("-c", "import time; print('log in at example.org', flush=True); time.sleep(60)")
    row = run(pytester, agent, "--intercode-timeout=2")
    assert row["outcome"] == "agent-error"
    assert row["reason"].startswith(
        "the program was stopped, as its time was up, without connecting to the MCP server: is "
    )
    assert row["reason"].endswith("; its last output: log in at example.org")


@pytest.mark.usefixtures("pretend")
@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("", "ended without calling a tool; it connected and did no more: does it load its tools"),
        (
            "ask('tools/list')\nprint('no model')\n",
            "ended without calling a tool; it asked for the list of tools and did no more: may it "
            "use execute and submit, and does its model answer?; its last output: no model",
        ),
        (
            "ask('tools/list')\ntime.sleep(60)\n",
            "was stopped, as its time was up, without calling a tool; it asked for the list",
        ),
    ],
)
def test_who_connects_and_calls_no_tool_is_an_error(
    pytester: pytest.Pytester, body: str, said: str
) -> None:
    row = run(pytester, write(pytester.path, body), "--intercode-timeout=2")
    assert row["outcome"] == "agent-error"
    assert row["reason"].startswith(f"the program {said}")


@pytest.mark.usefixtures("pretend")
def test_a_program_that_dies_at_once_when_killed_was_stopped(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    kill = Program.kill

    def kill_and_wait(program: Program) -> None:
        kill(program)
        assert program.wait(30) == -signal.SIGKILL
        time.sleep(0.2)  # for the thread that waits for its end

    monkeypatch.setattr(Program, "kill", kill_and_wait)
    agent = write(pytester.path, "ask('tools/list')\ntime.sleep(60)\n")
    row = run(pytester, agent, "--intercode-timeout=2")
    assert row["outcome"] == "agent-error"
    assert row["reason"].startswith("the program was stopped, as its time was up,")


@pytest.mark.usefixtures("pretend")
def test_after_submit_nothing_is_run_and_no_status_counts(pytester: pytest.Pytester) -> None:
    body = """
call("execute", code="echo hello")
print("1", call("submit"))
print("2", call("execute", code="rm -rf /"))
print("3", call("submit", answer="x"))
sys.exit(3)
"""
    row = run(pytester, write(pytester.path, body))
    assert row["outcome"] == "solved"
    assert row["turn_history"]["actions"] == ["echo hello", "submit"]
    first, second, third = row["log"].splitlines()
    assert first == "1 submitted: the episode is over, stop now"
    assert second == "2 error: The episode is over, and nothing is run any more: stop now."
    assert third.startswith("3 error: The episode is over")


@pytest.mark.usefixtures("pretend")
def test_over_budget(pytester: pytest.Pytester) -> None:
    body = "for number in range(9):\n    print(call('execute', code=str(number)))\n"
    row = run(pytester, write(pytester.path, body), "--intercode-max-turns=2")
    assert row["outcome"] == "out-of-budget"
    assert row["turn_history"]["actions"] == ["0", "1"]
    assert row["turn_logs"] == ["", "[done; 1 turn left]\n"]
    said = row["log"].splitlines()
    assert said[0] == "[done; no turns left, and the episode is over: stop now]"
    assert set(said[1:]) == {"error: The episode is over, and nothing is run any more: stop now."}


@pytest.mark.usefixtures("pretend")
def test_over_another_budget(pytester: pytest.Pytester) -> None:
    """However often it asks, it is answered."""
    body = "for number in range(9):\n    print(call('execute', code=str(number)))\nsys.exit(1)\n"
    row = run(pytester, write(pytester.path, body), "--intercode-run-max-turns=1")
    assert row["outcome"] == "out-of-budget"
    assert row["turn_history"]["actions"] == ["0"]
    said = row["log"].splitlines()
    assert len(said) == 9
    assert set(said[1:]) == {"error: The episode is over, and nothing is run any more: stop now."}


def test_rewards_as_feedback(pytester: pytest.Pytester) -> None:
    task = load_suite(bundled_folder("tasks") / "sql.yaml").tasks[0]
    body = f"""
print(call("execute", code="SELECT 'x' WHERE 0"))
print(call("execute", code={task.gold[0]!r}).splitlines()[-1])
"""
    pytester.runpytest(
        f"intercode/sql::test_solves[{task.id}]",
        f"--intercode-agent={write(pytester.path, body)}",
        "--intercode-results=r.jsonl",
        "--intercode-feedback=reward",
    ).assert_outcomes(passed=1)
    [row] = results(pytester.path / "r.jsonl")
    assert "[done; reward 0.00; 14 turns left]" in row["turn_logs"][1]
    assert "[done; reward 1.00; the task is solved, and the episode is over: stop" in row["log"]


@pytest.mark.usefixtures("pretend")
def test_submit_as_code_submits(pytester: pytest.Pytester) -> None:
    body = "call('execute', code='echo hello')\nprint(call('execute', code=' submit 42'))\n"
    row = run(pytester, write(pytester.path, body))
    assert row["turn_history"]["actions"] == ["echo hello", " submit 42"]
    assert row["log"] == "submitted: the episode is over, stop now\n"


def test_other_words_for_the_end(pytester: pytest.Pytester) -> None:
    body = "print(call('execute', code='submit;'))\n"
    pytester.runpytest(
        "--intercode-env=sql",
        "--intercode-limit=1",
        f"--intercode-agent={write(pytester.path, body)}",
        "--intercode-results=r.jsonl",
    ).assert_outcomes(failed=1)
    [row] = results(pytester.path / "r.jsonl")
    assert row["log"] == "submitted: the episode is over, stop now\n"


HANG = """
child = subprocess.Popen(["sleep", "300"], start_new_session=True)
Path({pids!r}).write_text(f"{{os.getpid()}} {{child.pid}} {{process.pid}}")
call("execute", code="echo hello")
{end}
time.sleep(300)
"""


@pytest.mark.usefixtures("pretend")
@pytest.mark.parametrize(
    ("end", "more", "outcome"),
    [
        ("", ["--intercode-timeout=4"], "solved"),
        ("call('execute', code='ls')", ["--intercode-timeout=4"], "timed-out"),
        ("call('submit')", ["--intercode-agent-arg=grace=0.2"], "solved"),
    ],
)
def test_who_does_not_end_is_ended_with_its_children(
    pytester: pytest.Pytester, end: str, more: list[str], outcome: str
) -> None:
    pids = pytester.path / "pids"
    row = run(pytester, write(pytester.path, HANG.format(pids=str(pids), end=end)), *more)
    assert row["outcome"] == outcome
    assert gone(*map(int, pids.read_text().split()))
    assert row["left_behind"] == []


@pytest.mark.usefixtures("pretend")
def test_no_program_survives_a_killed_pytest(pytester: pytest.Pytester) -> None:
    pids = pytester.path / "pids"
    agent = write(pytester.path, HANG.format(pids=str(pids), end=""))
    words = [sys.executable, "-m", "pytest", "suite.yaml", "-kprints", f"--intercode-agent={agent}"]
    with subprocess.Popen(words, cwd=pytester.path, stdout=subprocess.DEVNULL) as process:
        until = time.monotonic() + 60
        while not pids.exists() or len(pids.read_text().split()) < 3:
            assert time.monotonic() < until
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
    assert gone(*map(int, pids.read_text().split()))


# -- what a program is given


GIVEN = """
given = {"arguments": sys.argv[2:], "folder": os.getcwd(), "files": os.listdir(), "hello": hello}
given["pwd"] = os.environ["PWD"]
given["variables"] = {key: os.environ[key] for key in os.environ if key.startswith("INTERCODE_")}
config = Path(sys.argv[1])
given["modes"] = [path.stat().st_mode & 0o777 for path in (config, config.parent)]
Path("left.txt").write_text("x")
Path({out!r}).write_text(json.dumps(given))
call("execute", code="echo hello")
"""
HOSTILE = """ --help "it's" $(touch /tmp/x) `id` {token} {{url}} \\n é \u2028 ; | & \n\t* ' """


@pytest.mark.usefixtures("pretend")
def test_a_hostile_query_is_one_word(pytester: pytest.Pytester) -> None:
    suite = {"env": "bash", "tasks": [{"id": "prints", "query": HOSTILE, "gold": "echo hello"}]}
    (pytester.path / "suite.yaml").write_text(json.dumps(suite))
    out = pytester.path / "given.json"
    agent = write(pytester.path, GIVEN.replace("{out!r}", repr(str(out))))
    places = "{prompt} {task_id} {env} {url} {token} {folder} {stdio} {config_http}"
    row = run(pytester, f"{agent} '{{query}}' --q={{query}} {places}")
    assert row["outcome"] == "solved"
    given = json.loads(out.read_text())
    query, option, prompt, task_id, env, url, token, folder, stdio, config = given["arguments"]
    task = row["query"]
    assert task.strip() == HOSTILE.strip()
    assert (query, option, task_id, env) == (task, f"--q={task}", "prints", "bash")
    assert prompt.endswith(task)
    assert not prompt.startswith("-")
    assert task in given["hello"]["instructions"]
    ours = {name: v for name, v in given["variables"].items() if name not in os.environ}
    assert ours == {
        "INTERCODE_QUERY": task,
        "INTERCODE_PROMPT": prompt,
        "INTERCODE_TASK_ID": "prints",
        "INTERCODE_ENV": "bash",
        "INTERCODE_MCP_URL": url,
        "INTERCODE_MCP_TOKEN": token,
        "INTERCODE_MCP_CONFIG": str(Path(config).with_name("stdio.json")),
        "INTERCODE_MCP_CONFIG_HTTP": config,
        "INTERCODE_MCP_STDIO": stdio,
    }
    assert url.startswith("http://127.0.0.1:")
    assert len(token) > 30
    # An empty folder of its own, which is gone afterwards with all that was in it.
    assert given["files"] == []
    assert given["folder"] == given["pwd"] == folder
    assert given["modes"] == [0o600, 0o700]
    assert not Path(config).parent.exists()


@pytest.mark.usefixtures("pretend")
def test_a_folder_of_the_users(pytester: pytest.Pytester) -> None:
    (pytester.path / "home").mkdir()
    out = pytester.path / "given.json"
    agent = write(pytester.path, GIVEN.replace("{out!r}", repr(str(out))))
    row = run(pytester, f"{agent} {{folder}}", "--intercode-agent-arg=folder=home")
    assert row["outcome"] == "solved"
    given = json.loads(out.read_text())
    assert given["arguments"] == [given["folder"]] == [str(pytester.path / "home")]
    assert (pytester.path / "home" / "left.txt").exists()


@pytest.mark.usefixtures("pretend")
def test_a_copy_of_a_folder_of_the_users(pytester: pytest.Pytester) -> None:
    (pytester.path / "mine").mkdir()
    (pytester.path / "mine" / "AGENTS.md").write_text("Be brief.")
    out = pytester.path / "given.json"
    agent = write(pytester.path, GIVEN.replace("{out!r}", repr(str(out))))
    row = run(pytester, agent, "--intercode-agent-arg=template=mine")
    assert row["outcome"] == "solved"
    given = json.loads(out.read_text())
    assert given["files"] == ["AGENTS.md"]
    assert given["folder"] != str(pytester.path / "mine")
    assert [path.name for path in (pytester.path / "mine").iterdir()] == ["AGENTS.md"]


@pytest.mark.usefixtures("pretend")
def test_the_stdio_server_as_one_word(pytester: pytest.Pytester) -> None:
    """It needs no arguments, and nothing of the environment that the agent gives it."""
    body = PLAIN.replace('[server["command"], *server["args"]]', "[sys.argv[2]], env={}")
    (pytester.path / "agent.py").write_text(f"{body}call('execute', code='echo hello')\n")
    row = run(pytester, mcp("{here}/agent.py", "{config}", "{stdio}"))
    assert row["outcome"] == "solved"


# -- several at a time


@pytest.mark.slow
@pytest.mark.usefixtures("pretend")
def test_with_workers(pytester: pytest.Pytester) -> None:
    agent = write(pytester.path, "call('execute', code='echo hello'); call('submit')\n")
    done = pytester.runpytest_subprocess(
        "suite.yaml", f"--intercode-agent={agent}", "--intercode-results=r.jsonl", "-n2", "-Werror"
    )
    done.assert_outcomes(passed=1, failed=2)
    rows = {row["task_id"]: row for row in results(pytester.path / "r.jsonl")}
    assert {row["outcome"] for row in rows.values()} == {"solved", "failed"}
    assert rows["prints"]["outcome"] == "solved"


class Together(Environment):
    """Records who called it and whether two calls met; an action ``meet`` waits for the other."""

    name, profile = "bash", "strict"

    def __init__(self, barrier: threading.Barrier) -> None:
        super().__init__(None, max_turns=50)  # type: ignore[arg-type]
        self.barrier = barrier
        self.threads: set[str] = set()
        self.met = False
        self.busy = threading.Lock()

    @classmethod
    def sandboxes(cls, task: Task, provider: SandboxProvider) -> list[SandboxSpec]:
        return []

    def start(self, task: Task) -> None:
        pass

    def execute(self, action: str) -> Observation:
        self.threads.add(threading.current_thread().name)
        if not self.busy.acquire(blocking=False):
            self.met = True
            return Observation("")
        try:
            if action == "meet":
                self.barrier.wait(60)
            time.sleep(0.005)
        finally:
            self.busy.release()
        assert self.task is not None
        return Observation(f"{self.task.id} saw {action}")

    def grade(self, answer: str | None) -> Reward:
        assert self.task is not None
        return Reward(float(answer == self.task.id), {}, "")

    def stop(self) -> None:
        pass

    def interrupt(self) -> None:
        pass


TOGETHER = """
(Path(__file__).parent / os.environ["INTERCODE_TASK_ID"]).write_text(sys.argv[1])
print(call("execute", code="meet"))
for number in range(12):
    message = {"name": "execute", "arguments": {"code": str(number)}}
    message = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": message}
    print(json.dumps(message), file=process.stdin)
process.stdin.flush()
said = [json.loads(process.stdout.readline()) for _ in range(12)]
for answer in said:
    text = answer["result"]["content"][0]["text"]
    assert text == f"{os.environ['INTERCODE_TASK_ID']} saw {answer['id']}", text
call("submit", answer=os.environ["INTERCODE_TASK_ID"])
"""


def test_two_episodes_at_the_same_time_and_many_calls_in_each(tmp_path: Path) -> None:
    factory = load_agent(write(tmp_path, TOGETHER), {}, tmp_path)
    barrier = threading.Barrier(2)
    episodes: dict[str, EpisodeRecord] = {}
    environments = {name: Together(barrier) for name in ("one", "two")}

    def play(name: str) -> None:
        task = Task(id=name, query=name, gold=("",), env="bash", suite="s", dataset="s")
        environment = environments[name]
        first, _ = environment.reset(task=task)
        episodes[name] = run_episode(factory.make(task), environment, first, timeout=60)

    threads = [threading.Thread(target=play, args=[name]) for name in environments]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    configs = {Path((tmp_path / name).read_text()) for name in environments}
    assert len(configs) == 2
    assert not any(config.parent.exists() for config in configs)
    assert all(config.parents[1].exists() for config in configs)
    factory.close()
    assert not any(config.parents[1].exists() for config in configs)
    for name, environment in environments.items():
        assert (episodes[name].outcome, episodes[name].reason) == ("solved", "")
        assert len(episodes[name].turns) == 14
        assert not environment.met
        assert environment.threads == {f"intercode-agent-{name}"}


def test_an_episode_may_be_aborted_before_it_begins_and_closed_twice(tmp_path: Path) -> None:
    factory = load_agent(write(tmp_path, "call('execute', code='x')\n"), {}, tmp_path)
    task = Task(id="t", query="q", gold=("",), env="bash", suite="s", dataset="s")
    agent: Agent = factory.make(task)

    agent.abort()
    agent.abort()
    nowhere: Any = mock.Mock()  # no action is run
    agent.run(task.view(), AgentEnvironment(task.view(), nowhere, Ledger()))
    agent.close()
    agent.close()
    factory.close()
    factory.close()
    agent.abort()
    assert not [thread for thread in threading.enumerate() if "intercode-mcp" in thread.name]
    assert os.environ.get("INTERCODE_QUERY") is None
