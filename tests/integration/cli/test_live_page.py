"""``pytest-intercode top --page``: runs in a real browser, and who may ask its server."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_intercode.cli import main
from pytest_intercode.cli.live_server import _MAX_CONNECTIONS, LiveServer
from pytest_intercode.cli.living_runs import find_runs
from pytest_intercode.cli.top import _HOME, _watch
from pytest_intercode.system.control import RUN_SOCKET, ControlSocket
from pytest_intercode.system.private_folder import PrivateFolder
from tests.conftest import results
from tests.integration.cli.conftest import KEY, Start
from tests.support import live_status
from tests.support.axe import DAILY_LOOKS, LOOKS, Axe, Theme, looking
from tests.support.browser import Browser

pytestmark = pytest.mark.timeout(120)

HOSTILE = (
    "</script><script>document.title='taken'</script><img src=x onerror=\"document.title='taken'\">"
    "<iframe src=http://127.0.0.1:9/></iframe>{{7*7}}\x1b]0;taken\x07\u202e\x00\ud800"
)
EPISODE = replace(
    live_status.EPISODE, item="suite.yaml::test_solves[one]", task="one", agent="codex"
)
RUN = replace(
    live_status.RUN,
    name="nightly",
    tokens=0,
    cost=None,
    episodes=(EPISODE, replace(EPISODE, item="suite.yaml::test_solves[two]", task="two")),
)


class AnsweringRun:
    """What a run is to others: a socket that answers by a status, and notes what it is told.

    Attributes:
        status: what it answers.
        requests: what it was asked.
        may_answer: whether it answers what it does; else it is silent until it is set.
    """

    def __init__(self) -> None:
        self.status = RUN
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.requests: list[dict[str, Any]] = []
        self._folder = PrivateFolder()
        path = self._folder.make() / RUN_SOCKET
        self._socket = ControlSocket(path, self._answer, name="intercode-test-run")

    def _answer(self, request: Any) -> dict[str, Any]:
        self.requests.append(dict(request))
        if request["request"] == "status":
            self.may_answer.wait()
            return {"run": self.status.to_json()}
        return {"problem": ""}

    def close(self) -> None:
        self.may_answer.set()
        self._socket.close()
        self._folder.close()


@pytest.fixture
def answering_run(temporary: Path) -> Iterator[AnsweringRun]:
    """Return a run that answers as the test wants it to."""
    run = AnsweringRun()
    yield run
    run.close()


@pytest.fixture
def server(temporary: Path) -> Iterator[LiveServer]:
    """Return a server of the page, which answers."""
    server = LiveServer(None)
    thread = threading.Thread(target=server.serve, name="intercode-test-page")
    thread.start()
    yield server
    server.stop()
    thread.join()


def ask(
    server: LiveServer,
    path: str,
    method: str = "GET",
    body: str | None = None,
    **headers: str,
) -> tuple[int, dict[str, str], str]:
    """Return status, headers and text of an answer; of a path, or of a name below the token."""
    _, _, host, token, _ = server.address.split("/")
    connection = http.client.HTTPConnection(host, timeout=30)
    target = path if path.startswith("/") else f"/{token}/{path}"
    own_headers = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, target, body, {"Host": host, **own_headers})
    response = connection.getresponse()
    answer = response.status, dict(response.headers), response.read().decode()
    connection.close()
    return answer


# -- who may ask


def test_only_who_knows_the_token_sees_anything(
    server: LiveServer, answering_run: AnsweringRun
) -> None:
    token = server.address.split("/")[3]
    assert len(token) >= 43
    status, headers, text = ask(server, "")
    assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
    assert headers["X-Frame-Options"] == "DENY"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["Cache-Control"] == "no-store"
    assert "Access-Control-Allow-Origin" not in headers
    assert "Python" not in headers["Server"]
    assert "grep" not in text  # a document without a run's text
    assert "grep" in ask(server, "status")[2]
    answering_run.requests.clear()
    wrong = token[:-1] + ("A" if token[-1] != "A" else "B")
    for path in (
        "/",
        f"/{wrong}/",
        f"/{wrong}/status",
        "/status",
        "/open/",
        f"/{token}/../{token}/status",
        f"/{token}",
        f"/{token}/other",
        "*",
        f"/{token}/status/",
        f"/{token}/status?",
    ):
        assert ask(server, path)[::2] == (404, "Not Found\n"), path
    assert ask(server, "status", "POST")[0] == 404
    assert ask(server, "", "DELETE")[0] == 501
    assert answering_run.requests == []


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", ""])
def test_a_name_that_leads_here_is_refused(
    server: LiveServer, answering_run: AnsweringRun, host: str
) -> None:
    for path in ("", "status"):
        assert ask(server, path, Host=host)[0] == 421
    assert answering_run.requests == []
    assert ask(server, "status", Host="localhost:8000")[0] == 200  # as by ssh -L


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "{origin}", "Content_Type": "text/plain"},
        {"Origin": "{origin}", "Content_Type": "application/x-www-form-urlencoded"},
    ],
    ids=str,
)
def test_only_the_page_itself_stops_anything(
    server: LiveServer, answering_run: AnsweringRun, headers: dict[str, str]
) -> None:
    origin = server.address.rpartition("/")[0].rpartition("/")[0]
    headers = {"Content_Type": "application/json", **headers}
    filled = {name: value.format(origin=origin) for name, value in headers.items()}
    assert ask(server, "stop", "POST", '{"run": 4711}', **filled)[0] == 403
    assert answering_run.requests == []


@pytest.mark.parametrize(
    ("body", "answer"),
    [
        ('{"run": 4711}', {"message": "run 4711: interrupted, as by Ctrl-C"}),
        (
            '{"run": 4711, "episode": "suite.yaml::test_solves[one]"}',
            {"message": "suite.yaml::test_solves[one]: stopped after 3/30 turns and 1:23"},
        ),
        ('{"run": 4711, "episode": "one"}', {"problem": "it is over"}),
        ('{"run": 4711, "episode": "run"}', {"problem": "it is over"}),
        ('{"run": 4711, "episode": [{}]}', {"problem": "it is over"}),
        ('{"run": "4711"}', {"problem": "it is over"}),
        ("[]", {"problem": "it is over"}),
        ("[" * 60_000, {"problem": "it is over"}),
        ('{"run": 4711, "x": "%s"}' % ("x" * 70_000), {"problem": "it is over"}),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_the_page_asks_for(
    server: LiveServer, answering_run: AnsweringRun, body: str, answer: dict[str, str]
) -> None:
    origin = server.address.rpartition("/")[0].rpartition("/")[0]
    headers = {"Origin": origin, "Content_Type": "application/json"}
    status, _, text = ask(server, "stop", "POST", body, **headers)
    assert (status, json.loads(text)) == (200, answer)
    orders = [request for request in answering_run.requests if request["request"] != "status"]
    assert len(orders) == ("message" in answer)


def test_a_silent_run_keeps_nobody_from_the_page(
    answering_run: AnsweringRun, server: LiveServer
) -> None:
    answering_run.may_answer.clear()
    statuses: list[int] = []
    thread = threading.Thread(target=lambda: statuses.append(ask(server, "status")[0]))
    thread.start()
    while not answering_run.requests:
        time.sleep(0.01)
    assert ask(server, "")[0] == 200
    assert not statuses
    answering_run.may_answer.set()
    thread.join()
    assert statuses == [200]


def test_silent_runs_are_waited_for_together(
    server: LiveServer, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_intercode.cli.living_runs._STATUS_TIMEOUT", 2.0)
    with contextlib.ExitStack() as stack:
        runs = [stack.enter_context(contextlib.closing(AnsweringRun())) for _ in range(4)]
        for run in runs[:3]:
            run.may_answer.clear()
        began = time.monotonic()
        status = json.loads(ask(server, "status")[2])
        assert time.monotonic() - began < 5
        assert (len(status["runs"]), len(status["notes"])) == (1, 3)


def test_a_terminal_shows_that_one_run_of_two_is_suspended(
    answering_run: AnsweringRun, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("pytest_intercode.cli.living_runs._STATUS_TIMEOUT", 0.2)
    monkeypatch.setattr("pytest_intercode.cli.top._REFRESH_INTERVAL", 0.05)
    with contextlib.closing(AnsweringRun()) as other_run:
        other_run.status = replace(RUN, pid=4712)
        thread = threading.Thread(target=_watch, args=(find_runs(None), None))
        thread.start()
        other_run.may_answer.clear()
        frame = ""
        while "run 4712 does not answer" not in frame:
            frame = capsys.readouterr().out.rpartition(_HOME)[2] or frame
            time.sleep(0.05)
        assert "run 4711: " in frame
        answering_run.close()
    thread.join()
    assert capsys.readouterr().out.endswith("all runs are over\n")


def test_ctrl_c_waits_for_no_silent_run(answering_run: AnsweringRun) -> None:
    answering_run.may_answer.clear()
    command = [sys.executable, "-m", "pytest_intercode", "top", "--once"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        while not answering_run.requests:
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        assert process.wait(5) == 130


def test_a_connection_without_a_thread_takes_no_room(
    server: LiveServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", fail)
        for _ in range(_MAX_CONNECTIONS):
            with pytest.raises((ConnectionError, http.client.HTTPException)):
                ask(server, "")
    assert ask(server, "")[0] == 200
    assert "can't start new thread" in capsys.readouterr().err


def test_it_listens_without_asking_for_the_name_of_this_machine(temporary: Path) -> None:
    """Which may take as long as a name server that does not answer."""
    program = (
        "import sys\n"
        "from pytest_intercode.cli.live_server import LiveServer\n"
        "events = []\n"
        "sys.addaudithook(lambda event, arguments: events.append(event))\n"
        "print(LiveServer(None).address)\n"
        "assert 'socket.bind' in events\n"
        "assert not [event for event in events if event.startswith('socket.gethost')], events\n"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert re.fullmatch(r"http://127\.0\.0\.1:[1-9]\d*/[\w-]{43}/\n", result.stdout)


def test_an_address_for_a_browser_leads_here_once(server: LiveServer) -> None:
    path = "/open/" + server.address_for_browser().rpartition("/")[2]
    status, headers, _ = ask(server, path)
    assert (status, headers["Location"]) == (303, f"/{server.address.split('/')[3]}/")
    assert ask(server, path)[0] == 404


def test_nobody_asks_the_run_while_nobody_looks(
    server: LiveServer, answering_run: AnsweringRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask(server, "")
    assert answering_run.requests == []
    monkeypatch.setattr("pytest_intercode.cli.live_server._SHARED_INTERVAL", 3600.0)
    for _ in range(3):
        assert ask(server, "status")[0] == 200
    assert answering_run.requests == [{"request": "status"}]


# -- the command


@pytest.mark.slow
def test_the_command_serves_until_ctrl_c(answering_run: AnsweringRun) -> None:
    command = [sys.executable, "-m", "pytest_intercode", "top", "4711", "--page"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        assert process.stdout.readline() == "Ctrl-C ends this page; runs go on.\n"
        host, _, path = address.removeprefix("http://").partition("/")
        connection = http.client.HTTPConnection(host, timeout=30)
        connection.request("GET", f"/{path}status")
        status = json.load(connection.getresponse())
        assert status["runs"][0]["title"] == "nightly (run 4711)"
        process.send_signal(signal.SIGINT)
        assert process.wait() == 0
        assert process.stdout.read() == ""


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--port=1234"], "--port needs --page"),
        (["--open"], "--open needs --page"),
        (
            ["1", "--page"],
            "1: you have no run with this process id on this machine; your runs: 4711",
        ),
        (["--page", "--port=99999999"], "--port=99999999: the page cannot be served there: .+"),
        (
            ["--page", "--port={taken}"],
            r"--port=\d+: the page cannot be served there: Address already .+",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_mistake_is_one_line(
    answering_run: AnsweringRun,
    server: LiveServer,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    problem: str,
) -> None:
    port = server.address.split("/")[2].rpartition(":")[2]
    assert main(["top", *(argument.format(taken=port) for argument in arguments)]) == 1
    output, errors = capsys.readouterr()
    assert output == ""
    assert re.fullmatch(rf"pytest-intercode: {problem}\n", errors), errors


# -- in a browser

ROWS = "[...document.querySelectorAll('.episodes tbody tr')]"
STATE = "document.getElementById('state').textContent"
DIALOG = "document.getElementById('question')"


@pytest.fixture
def browser(shared_browser: Browser, server: LiveServer) -> Iterator[Browser]:
    """The browser; it asks the page's server alone, and has nothing to complain of."""
    shared_browser.forget()
    yield shared_browser
    assert all(url.startswith(server.address) for url in shared_browser.requests)
    assert shared_browser.problems == []
    shared_browser.send("Page.navigate", url="about:blank")


def press(browser: Browser, *keys: str) -> None:
    """Press keys as soon as the page has drawn what it was told."""
    browser.evaluate("new Promise(requestAnimationFrame).then(() => 1)")
    browser.press(*keys)


def test_a_run_is_watched_and_stopped(browser: Browser, server: LiveServer, start: Start) -> None:
    run = start("--intercode-concurrency=2", "--intercode-results=r.jsonl")
    run.wait_for_turns(2)
    browser.open(server.address)
    browser.wait(f"{ROWS}.length === 2")
    one, two = browser.evaluate(f"{ROWS}.map(row => row.innerText)")
    assert "gated.yaml::test_solves[one]" in one
    assert "gated:Gated" in one
    assert "1/10" in one
    assert "/10:00" in one
    assert "0.125" in one
    assert "echo \\x1b]0;mine\\x07 intercode-masked-key one" in one
    assert "test_solves[two]" in two
    assert KEY not in browser.evaluate("document.documentElement.outerHTML")
    measures = browser.evaluate("document.querySelector('.measures').innerText").split("\n")
    assert dict(zip(measures[::2], measures[1::2], strict=True)) == {
        "Under way": "2",
        "Done": "0 of 3",
        "Solved": "0",
        "Tokens": "1,200",
        "Cost": "0.25",
    }
    # Without a mouse: to the first episode's button, which asks, and Cancel has the focus.
    press(browser, "Tab", "Tab")
    assert browser.evaluate("document.activeElement.getAttribute('aria-label')").endswith("[one]")
    press(browser, "Enter")
    browser.wait(f"{DIALOG}.open")
    assert browser.evaluate("document.activeElement.textContent") == "Cancel"
    assert browser.evaluate("document.getElementById('asked').textContent") == (
        "Stop gated.yaml::test_solves[one]?"
    )
    press(browser, "Escape")
    browser.wait(f"!{DIALOG}.open")
    assert browser.evaluate("document.activeElement.getAttribute('aria-label')").endswith("[one]")
    press(browser, "Enter")
    browser.wait(f"{DIALOG}.open")
    press(browser, "Tab", "Enter")
    browser.wait(f"{STATE}.startsWith('gated.yaml::test_solves[one]: stopped after 1/10 turns')")
    run.wait_for_turns(1)
    browser.wait(f"{ROWS}.some(row => row.innerText.includes('[three]'))")
    browser.wait("document.title === '1 of 3 done'")
    browser.click(".run-head .stop")
    browser.wait(f"{DIALOG}.open")
    browser.click("#confirm")
    browser.wait(f"{STATE} === 'run {run.process.pid}: interrupted, as by Ctrl-C'")
    run.let_go()
    output = run.finish()
    assert run.process.returncode == pytest.ExitCode.INTERRUPTED, output
    browser.wait("document.title === 'You have no runs on this machine'")
    outcomes = {row["task_id"]: row["outcome"] for row in results(Path("r.jsonl"))}
    assert outcomes["one"] == "stopped"


def test_hostile_text_is_only_text(
    browser: Browser, server: LiveServer, answering_run: AnsweringRun
) -> None:
    hostile = replace(
        EPISODE, item=HOSTILE, agent=HOSTILE, treatment=HOSTILE, worker=HOSTILE, action=HOSTILE
    )
    answering_run.status = replace(RUN, name=HOSTILE, folder=HOSTILE, episodes=(hostile,))
    browser.open(server.address)
    browser.wait(f"{ROWS}.length === 1")
    visible_text = HOSTILE.split("\x1b")[0] + "\\x1b]0;taken\\x07\\u202e\\x00\\ud800"
    action = f"{ROWS}[0].querySelector('.action').textContent"
    assert browser.evaluate(action) == visible_text
    assert browser.evaluate("document.title") == "12 of 40 done"
    assert browser.evaluate("document.querySelectorAll('img, iframe, script').length") == 1
    browser.click(".episodes .stop")
    browser.wait(f"{DIALOG}.open")
    assert (
        browser.evaluate("document.getElementById('asked').textContent") == f"Stop {visible_text}?"
    )
    browser.click("#confirm")
    browser.wait(f"{STATE} !== ''")
    assert {"request": "stop", "episode": HOSTILE} in answering_run.requests
    assert browser.evaluate("document.title") == "12 of 40 done"


@pytest.mark.slow
@pytest.mark.parametrize("width", [1280, 420])
def test_it_fits_and_can_be_read(
    browser: Browser, server: LiveServer, answering_run: AnsweringRun, width: int
) -> None:
    long_action = replace(EPISODE, action="x" * 300, item=f"suite.yaml::test_solves[{'y' * 80}]")
    answering_run.status = replace(RUN, episodes=(long_action, EPISODE))
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    browser.send("Emulation.setDeviceMetricsOverride", **size)
    backgrounds = set()
    for theme in ("light", "dark"):
        feature = {"name": "prefers-color-scheme", "value": theme}
        browser.send("Emulation.setEmulatedMedia", features=[feature])
        browser.open(server.address)
        browser.wait(f"{ROWS}.length === 2")
        assert browser.evaluate("document.documentElement.scrollWidth") <= width
        outside = "[...document.querySelectorAll('main *')].filter(e => e.clientWidth > 1 && "
        outside += "!e.closest('thead') && e.getBoundingClientRect().right > innerWidth).length"
        assert browser.evaluate(outside) == 0
        backgrounds.add(browser.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert len(backgrounds) == 2
    browser.send("Emulation.setEmulatedMedia", features=[])
    browser.send("Emulation.clearDeviceMetricsOverride")


@pytest.mark.slow
def test_what_is_shown_stays_while_it_is_refreshed(
    browser: Browser, server: LiveServer, answering_run: AnsweringRun
) -> None:
    browser.open(server.address)
    browser.wait(f"{ROWS}.length === 2")
    browser.evaluate(f"{ROWS}[1].querySelector('button').focus()")
    two = answering_run.status.episodes[1]
    answering_run.status = replace(RUN, done=13, episodes=(replace(two, turns=4, action="ls"),))
    browser.wait(f"{ROWS}.length === 1 && document.title === '13 of 40 done'")
    assert browser.evaluate(f"{ROWS}[0].querySelector('.turns').textContent") == "4/30"
    assert browser.evaluate("document.activeElement.getAttribute('aria-label')") == (
        "Stop suite.yaml::test_solves[two]"
    )


@pytest.mark.slow
def test_a_page_whose_server_is_gone_says_so(
    shared_browser: Browser, server: LiveServer, answering_run: AnsweringRun
) -> None:
    shared_browser.open(server.address)
    shared_browser.wait(f"{ROWS}.length === 2")
    server.stop()
    shared_browser.wait(f"{STATE}.startsWith('pytest-intercode top does not answer')")
    shared_browser.send("Page.navigate", url="about:blank")


@pytest.mark.parametrize(
    ("theme", "width"),
    [pytest.param(*look, marks=() if look in DAILY_LOOKS else pytest.mark.slow) for look in LOOKS],
)
def test_everybody_can_use_it(
    browser: Browser,
    axe: Axe,
    server: LiveServer,
    answering_run: AnsweringRun,
    theme: Theme,
    width: int,
) -> None:
    with looking(browser, theme, width):
        browser.open(server.address)
        browser.wait("document.querySelectorAll('.episodes tbody tr').length === 2")
        assert axe.violations(browser) == []
        assert browser.evaluate("document.documentElement.scrollWidth") <= width
        browser.click(".episodes .stop")
        browser.wait("document.getElementById('question').open")
        assert axe.violations(browser) == []
