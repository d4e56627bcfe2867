"""``pytest-intercode doctor`` as a process of its own: what it says, and that it only looks."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import pytest
from _pytest.pytester import SysModulesSnapshot, SysPathsSnapshot

from pytest_intercode.cli import main
from pytest_intercode.projects import recording_file
from pytest_intercode.projects.recordings import RecordingHead
from pytest_intercode.sandboxes.bubblewrap.engine import Bubblewrap
from pytest_intercode.sandboxes.docker.address import find_address
from pytest_intercode.system.extras import EXTRAS
from tests.conftest import ADDOPTS
from tests.support.core_python import make_python
from tests.support.git import git
from tests.support.recording_engine import RecordingEngine

NOWHERE = "unix:///nowhere.sock"
KEY = "sk-planted-0123456789abcdef"
# What would change where the engine is, or what is said of keys and data.
CLEARED = re.compile(r"DOCKER_|INTERCODE_|OPENAI_|ANTHROPIC_|PYTEST_|XDG_|NO_COLOR")


class Report(NamedTuple):
    """What the command printed, as JSON, and its exit status."""

    status: int
    facts: list[dict[str, str]]
    text: str

    def of(self, subject: str) -> str:
        """Return the state and the text of a subject's facts, a line for each."""
        return "\n".join(
            f"{fact['state']} {fact['text']}" for fact in self.facts if fact["subject"] == subject
        )

    def problems(self) -> set[str]:
        return {fact["subject"] for fact in self.facts if fact["state"] == "problem"}


Doctor = Callable[..., Report]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project below a home, with an ini file of its own."""
    folder = tmp_path / "home" / "project"
    folder.mkdir(parents=True)
    (folder / "pytest.ini").write_text("[pytest]\n")
    return folder


@pytest.fixture
def environment(project: Path, tmp_path: Path) -> dict[str, str]:
    (tmp_path / "tmp").mkdir()
    variables = {name: value for name, value in os.environ.items() if not CLEARED.match(name)}
    variables |= {"HOME": str(project.parent), "TMPDIR": str(tmp_path / "tmp")}
    return {**variables, "PYTEST_ADDOPTS": ADDOPTS}


@pytest.fixture
def doctor(
    project: Path,
    environment: dict[str, str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Doctor:
    """Run the command in the project, and read its JSON.

    It runs in this process, as it starts a pytest as pytester does; with ``command``, which starts
    a Python, in one of its own.
    """

    def run_here(words: Sequence[str], variables: Mapping[str, str]) -> tuple[int, str, str]:
        modules, paths = SysModulesSnapshot(), SysPathsSnapshot()
        monkeypatch.chdir(project)
        monkeypatch.syspath_prepend(project)
        with mock.patch.dict(os.environ, variables, clear=True):
            try:
                status = main(words)
            finally:
                modules.restore()
                paths.restore()
        return status, *capsys.readouterr()

    def run(*arguments: str, command: Sequence[str | Path] = (), **variables: str) -> Report:
        words = ["doctor", "--json", "--", *arguments]
        if command:
            result = subprocess.run(
                [*map(str, command), "-m", "pytest_intercode", *words],
                cwd=project,
                env={**environment, **variables},
                capture_output=True,
                text=True,
                timeout=60,
            )
            status, output, errors = result.returncode, result.stdout, result.stderr
        else:
            status, output, errors = run_here(words, {**environment, **variables})
        assert not errors
        content: dict[str, Any] = json.loads(output)
        assert content["version"] == 1
        assert content["runs"] == (status == 0)
        assert {fact["state"] for fact in content["facts"]} <= {"ok", "note", "problem"}
        return Report(status, content["facts"], output)

    return run


def configure(project: Path, **values: str) -> None:
    lines = [f"intercode_{name} = {value}" for name, value in values.items()]
    (project / "pytest.ini").write_text("\n".join(["[pytest]", *lines, ""]))


# -- sandboxes


@pytest.mark.usefixtures("needs_docker")
def test_an_engine_is_described_and_only_read(doctor: Doctor) -> None:
    path = find_address().url.removeprefix("unix://")
    with contextlib.closing(RecordingEngine(path)) as engine:
        address = engine.address
        report = doctor("--intercode-sandbox=docker", "--intercode-env=bash", DOCKER_HOST=address)
    assert report.status == 0, report.text
    assert report.of("sandboxes").startswith("ok docker")
    assert re.search(r"^ok .*(Docker|Podman) [\d.]+\S* for linux/\w+ at", report.of("docker"))
    assert address in report.of("docker")
    assert "DOCKER_HOST" in report.of("docker")
    assert "memory, processes and processor time are limited" in report.of("docker limits")
    assert re.search(r"control groups of version [12], storage \w+", report.of("docker limits"))
    assert "GiB of memory" in report.of("docker machine")
    assert {name.partition(" ")[0] for name, _ in engine.requests} == {"GET"}


def test_an_engine_that_is_asked_for_and_gone(project: Path, doctor: Doctor) -> None:
    configure(project, sandbox="docker")
    report = doctor(DOCKER_HOST=NOWHERE)
    assert report.status == 1
    assert {"sandboxes", "docker"} == report.problems()
    assert report.of("docker") == (
        f"problem no Docker engine answers at {NOWHERE}: start it, or name another one with "
        "DOCKER_HOST or `docker context use` (docs/platforms.md)"
    )


@pytest.mark.usefixtures("bubblewrap")
def test_an_engine_that_nothing_needs_is_a_note(doctor: Doctor) -> None:
    report = doctor("--intercode-env=bash", DOCKER_HOST=NOWHERE)
    assert report.status == 0
    assert report.of("sandboxes") == f"ok bubblewrap (no Docker engine answers at {NOWHERE})"
    assert report.of("docker").startswith("note no Docker engine answers")
    assert re.search(r"^ok bubblewrap \d+\.\d+ makes sandboxes here", report.of("bubblewrap"))
    assert "memory" in report.of("bubblewrap limits")


def test_a_context_that_is_not_there(project: Path, doctor: Doctor) -> None:
    folder = project / "docker"
    folder.mkdir()
    (folder / "config.json").write_text('{"currentContext": "colima"}')
    report = doctor("--intercode-sandbox=docker", DOCKER_CONFIG=str(folder))
    assert report.status == 1
    assert "Docker's current context is 'colima', but there is no such" in report.of("docker")
    assert "~/project/docker/contexts" in report.of("docker")


@pytest.mark.slow
def test_an_engine_that_never_answers(doctor: Doctor, tmp_path: Path) -> None:
    """It is asked once, and given up: the listener sees the connection end."""
    received: list[bytes] = []

    def listen() -> None:
        with contextlib.suppress(OSError):  # how the test ends what waits for a second connection
            while True:
                connection, _ = listener.accept()
                with connection:
                    connection.settimeout(20)  # seconds, for what takes five on an idle machine
                    received.append(b"".join(iter(partial(connection.recv, 4096), b"")))

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "engine"))
        listener.listen()
        thread = threading.Thread(target=listen)
        thread.start()
        try:
            report = doctor(
                "--intercode-sandbox=docker", DOCKER_HOST=f"unix://{tmp_path / 'engine'}"
            )
        finally:
            # Closing alone would neither wake what waits nor keep its descriptor from being another
            # file's by the time it wakes.
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
    assert report.status == 1
    assert "no Docker engine answers" in report.of("docker")
    assert len(received) == 1
    assert received[0].startswith(b"GET /_ping ")


def test_no_backend_at_all(doctor: Doctor, bubblewrap: Bubblewrap) -> None:
    """Where bubblewrap is hidden, what needs sandboxes cannot run, and the rest can."""
    program = Path(str(shutil.which("bwrap"))).resolve()
    hidden = [str(program), "--dev-bind", "/", "/", "--ro-bind", "/dev/null", str(program), "--"]
    command = [*hidden, sys.executable]
    report = doctor("--intercode-env=bash", command=command, DOCKER_HOST=NOWHERE)
    assert report.status == 1
    assert {"sandboxes", "docker"} == report.problems()
    assert report.of("bubblewrap").startswith("note bubblewrap is not installed: `apt-get install")
    for arguments in (["--intercode-env=sql"], []):  # SQLite needs no sandbox
        report = doctor(*arguments, command=command, DOCKER_HOST=NOWHERE)
        assert report.status == 0, report.text
        assert report.of("sandboxes") == "note none can be started with docker"
    report = doctor("--intercode-sandbox=bubblewrap", command=command, DOCKER_HOST=NOWHERE)
    assert {"sandboxes", "bubblewrap"} == report.problems()


@pytest.mark.usefixtures("needs_docker")
def test_each_host_is_described(doctor: Doctor) -> None:
    gone = "tcp://127.0.0.1:1"
    report = doctor("--intercode-docker-host=default", f"--intercode-docker-host={gone}")
    assert report.status == 1
    assert report.problems() == {f"docker {gone}"}
    assert "no Docker engine answers there" in report.of(f"docker {gone}")
    assert report.of("docker default").startswith("ok ")


@pytest.mark.usefixtures("needs_docker")
def test_a_runtime_that_the_engine_lacks(doctor: Doctor) -> None:
    report = doctor("--intercode-runtime=nope")
    assert report.status == 1
    assert "problem the Docker engine has no such runtime. Available: " in report.of(
        "docker limits"
    )


BACKEND = """\
from pytest_intercode import Fact

class Kitchen:
    name, takes = "kitchen", frozenset()
    builds_images = shares_network = False
    def __init__(self, settings): pass
    def __str__(self): return self.name
    def check(self, options): pass
    def start(self, spec): raise NotImplementedError
    launch = start
    def close(self): pass
    def requested(self): return None
    def problem(self): return "it is not plugged in"
    def describe(self, problem):
        return [Fact("kitchen sink", f"{problem}, and it drips", "problem")]
"""


@pytest.mark.slow
def test_a_backend_of_another_package_describes_itself(doctor: Doctor, tmp_path: Path) -> None:
    metadata = tmp_path / "site" / "kitchen-1.dist-info"
    metadata.mkdir(parents=True)
    (tmp_path / "site" / "kitchen.py").write_text(BACKEND)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: kitchen\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text(
        "[pytest_intercode.sandboxes]\nkitchen = kitchen:Kitchen\n"
    )
    command, variables = [sys.executable], {"PYTHONPATH": str(metadata.parent)}
    report = doctor(command=command, DOCKER_HOST=NOWHERE, **variables)
    assert report.of("kitchen sink") == "note it is not plugged in, and it drips"
    report = doctor("--intercode-sandbox=kitchen", command=command, **variables)
    assert report.status == 1
    assert report.of("kitchen sink") == "problem it is not plugged in, and it drips"


# -- agents and keys

AGENT = """\
class Agent:
    def act(self, observation):
        return "submit"
"""


def test_an_agent_that_cannot_be_loaded_and_keys(project: Path, doctor: Doctor) -> None:
    configure(project, agent="mine.py:Agent", agent_arg="api_key=argument-0123456789")
    (project / "mine.py").write_text(
        "import os\nprint('noise')\n"
        "raise RuntimeError(os.environ['MY_TOKEN'] + os.environ['OPENAI_API_KEY'])\n"
    )
    address = f"tcp://ada:{KEY[::-1]}@nowhere.invalid:1"
    keys = {"OPENAI_API_KEY": KEY, "MY_TOKEN": KEY.swapcase(), "DOCKER_HOST": address}
    report = doctor(**keys)
    assert report.status == 1
    assert "importing" in report.of("agent")
    assert "RuntimeError: (hidden)(hidden) (~/project/mine.py:3)" in report.of("agent")
    assert report.of("key of openai") == "ok OPENAI_API_KEY is set"
    assert report.of("key of anthropic").startswith("note ANTHROPIC_API_KEY is not set")
    for secret in (KEY, KEY.swapcase(), KEY[::-1], "argument-0123456789", str(project.parent)):
        assert secret not in report.text
    (project / "mine.py").write_text(AGENT)
    report = doctor(**keys)
    assert "cannot be called with the arguments" in report.of("agent")
    configure(project, agent="mine.py:Agent")
    assert doctor().of("agent") == "ok mine.py:Agent: can be loaded"


def test_arguments_are_hidden_as_results_hide_them(project: Path, doctor: Doctor) -> None:
    arguments = {
        "auth": "ada-lovelace-1815",
        "passphrase": "open-sesame-2",
        "tokenizer": "llama-3.1-8b",
    }
    (project / "mine.py").write_text(f"raise RuntimeError({' '.join(arguments.values())!r})\n")
    report = doctor(
        "--intercode-agent=mine.py:Agent",
        *(f"--intercode-agent-arg={name}={value}" for name, value in arguments.items()),
    )
    assert "RuntimeError: (hidden) (hidden) llama-3.1-8b (" in report.of("agent")


def test_an_installed_agent(doctor: Doctor, project: Path, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    arguments = ("--intercode-agent=claude", "--intercode-agent-arg=model=m")
    without_npm = {"PATH": str(tmp_path / "bin"), "DOCKER_HOST": NOWHERE}
    report = doctor(*arguments, **without_npm)
    assert "agent" in report.problems()
    assert (
        "it is not installed yet, and its installation needs npm, which is missing: install Node.js"
        in report.of("agent")
    )
    assert "claude-code, claude-acp, cline, codex" in report.of("installed agents")
    bundle = project.parent / ".cache/pytest-intercode/agents/claude-code-0123456789ab"
    program = bundle / "node_modules/@anthropic-ai/claude-code-linux-x64/claude"
    program.parent.mkdir(parents=True)
    program.touch()
    report = doctor(*arguments, **without_npm)
    assert report.of("agent") == "ok claude: is installed"
    assert "ok here: claude-code" in report.of("installed agents")
    assert "no model is given" in doctor(arguments[0]).of("agent")


# -- extras and versions


@pytest.mark.slow
def test_extras_that_are_missing(doctor: Doctor, tmp_path: Path) -> None:
    python = make_python(tmp_path / "core", pytest="8.2.1")
    report = doctor("--intercode-env=sql", command=[python], DOCKER_HOST=NOWHERE)
    assert report.problems() == {"requirements"}
    assert re.fullmatch(
        r"problem pytest 8\.2\.1 is installed, but pytest\S*>=8\.3\S* is needed: "
        r"pip install --upgrade pytest-intercode",
        report.of("requirements"),
    )
    for name in EXTRAS:
        command = f"pip install 'pytest-intercode[{name}]'"
        assert report.of(f"extra {name}").startswith(f"note {command}, for ")


@pytest.mark.parametrize(
    ("extra", "argument"),
    [
        ("html", "--intercode-html=x.html"),
        pytest.param("ray", "--intercode-cluster=auto", marks=pytest.mark.slow),
        pytest.param("gateway", "--intercode-gateway", marks=pytest.mark.slow),
        ("mysql", "servers.yaml"),
    ],
)
def test_an_extra_that_is_asked_for(
    doctor: Doctor, project: Path, tmp_path: Path, extra: str, argument: str
) -> None:
    (project / "servers.yaml").write_text(
        "env: sql\ndefaults:\n  database: {engine: mysql, name: a, script: a.sql}\n"
        "tasks:\n  - {id: a, query: b, gold: SELECT 1}\n"
    )
    (project / "a.sql").touch()
    report = doctor(argument, command=[make_python(tmp_path / "core")])
    assert report.status == 1
    assert f"extra {extra}" in report.problems()
    assert report.of(f"extra {extra}").startswith(
        f"problem pip install 'pytest-intercode[{extra}]'"
    )


@pytest.mark.slow
def test_an_agent_that_needs_an_extra(doctor: Doctor, tmp_path: Path) -> None:
    command = [make_python(tmp_path / "core")]
    report = doctor("--intercode-agent=tools", command=command)
    assert report.status == 1
    assert report.of("agent") == (
        "problem --intercode-agent=tools needs the openai client: "
        "pip install 'pytest-intercode[chat]'"
    )
    report = doctor("--intercode-agent=codex", "--intercode-agent-arg=model=m", command=command)
    assert "the gateway needs aiohttp: pip install" in report.of("agent")


# -- the configuration


def test_it_reads_what_pytest_reads(project: Path, doctor: Doctor) -> None:
    configure(project, env="sql", limit="3", agent="oracle")
    report = doctor("--intercode-repeat=2")
    assert report.status == 0
    assert report.of("configuration") == (
        "ok ~/project/pytest.ini: intercode_agent, intercode_env, intercode_limit; arguments: "
        "--intercode-repeat"
    )
    assert report.of("tasks") == "ok 6 tasks of sql"
    report = doctor(PYTEST_ADDOPTS="--intercode-limit=1")
    assert report.of("tasks") == "ok 1 task of sql"
    (project / "conftest.py").write_text(
        "print('noise')\ndef pytest_intercode_modify_tasks(tasks):\n    del tasks[2:]\n"
    )
    assert doctor().of("tasks") == "ok 2 tasks of sql"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--nope"], "pytest cannot read it: unrecognized arguments: --nope"),
        (["--intercode-env=nope"], "--intercode-env=nope: allowed are bash, "),
        (["--intercode-dataset=spider"], "its data are missing. Get them with: pytest-intercode"),
        (["--intercode-html=a", "-p", "no:intercode"], "unrecognized arguments: --intercode-html"),
        (["-p", "no:intercode"], "pytest does not load the plugin: leave out -p no:intercode"),
        (["nope.yaml"], "nope.yaml: cannot be read: No such file"),
    ],
)
def test_a_configuration_that_is_wrong(doctor: Doctor, arguments: list[str], message: str) -> None:
    report = doctor(*arguments, DOCKER_HOST=NOWHERE)
    assert report.status == 1
    assert report.problems() == {"configuration"}
    assert message in report.of("configuration")
    assert report.of("bundled suites") == "ok bash, sql, python, ctf, swe"


def test_a_conftest_that_raises(project: Path, doctor: Doctor) -> None:
    (project / "conftest.py").write_text("import nothere\n")
    assert doctor().of("configuration") == (
        "problem pytest cannot read it: ImportError while loading conftest "
        "'~/project/conftest.py': ModuleNotFoundError: No module named 'nothere'"
    )


# -- what it leaves, and how it is printed


@pytest.mark.slow
def test_nothing_is_left_behind(project: Path, doctor: Doctor, tmp_path: Path) -> None:
    configure(project, agent="agents:Agent", env="bash")
    (project / "agents.py").write_text(
        "class Agent:\n    def act(self, text):\n        return ''\n"
    )
    (project / "conftest.py").touch()
    paths = sorted(project.parent.rglob("*"))
    assert doctor(command=[sys.executable]).of("agent") == "ok agents:Agent: can be loaded"
    for agent in ("mcp:cat", "claude"):
        doctor(
            *(f"--intercode-agent={agent}", "--intercode-agent-arg=model=m"),
            command=[sys.executable],
        )
    assert sorted(project.parent.rglob("*")) == paths
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.fixture
def command(environment: dict[str, str]) -> list[str]:
    environment["DOCKER_HOST"] = NOWHERE
    return [sys.executable, "-m", "pytest_intercode", "doctor"]


@pytest.mark.slow
def test_lines_have_words_and_no_colours(
    project: Path, environment: dict[str, str], command: list[str]
) -> None:
    words = [*command, "--", "--intercode-sandbox=docker"]
    result = subprocess.run(words, cwd=project, env=environment, capture_output=True, text=True)
    assert result.returncode == 1
    *lines, end = result.stdout.splitlines()
    assert {line.split()[0] for line in lines} == {"ok", "note", "problem"}
    assert re.fullmatch(r"2 problems, \d+ notes about what is optional", end)
    assert "\x1b" not in result.stdout
    result = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True)
    assert result.returncode == 0
    end = result.stdout.splitlines()[-1]
    assert end.startswith("what this configuration asks for can run; ")


@pytest.mark.parametrize("variable", ["", "NO_COLOR"])
def test_colours_are_for_terminals(
    project: Path, environment: dict[str, str], command: list[str], variable: str
) -> None:
    terminal, inside = pty.openpty()
    variables = environment | ({variable: "1"} if variable else {})
    process = subprocess.Popen(command, cwd=project, env=variables, stdout=inside, stderr=inside)
    os.close(inside)
    output = b""
    try:
        while data := os.read(terminal, 4096):
            output += data
    except OSError:  # how Linux says that the other end is closed
        pass
    finally:
        os.close(terminal)
    assert process.wait(60) == 0
    states = re.findall(rb"^\x1b\[32mok\x1b\[0m ", output, re.MULTILINE)
    assert bool(states) == (not variable), output
    assert (b"\x1b" in output) == (not variable)


# -- project tests


RULES = """\
def test_rules(intercode_project):
    intercode_project.run("Read the rules.")
"""


@pytest.fixture
def rules(project: Path) -> Path:
    """The folder of project tests, in a repository."""
    git(project, "init", "-q")
    folder = project / "tests/agents"
    folder.mkdir(parents=True)
    (folder / "test_rules.py").write_text(RULES)
    (project / "AGENTS.md").write_text("Use uv.\n")
    return folder


def record(folder: Path, name: str, agent: str = "codex") -> Path:
    """Write a recording of an agent without an exchange."""
    path = folder / "recordings/test_rules" / f"{name}.jsonl.gz"
    head = RecordingHead.of_item(f"test_rules.py::{name}", "Read the rules.", agent=agent)
    recording_file.write_file(path, asdict(head), (), None, {})
    return path


CODEX = ("--intercode-agent=codex", "--intercode-agent-arg=model=m")


def test_without_project_tests_nothing_is_said_of_them(project: Path, doctor: Doctor) -> None:
    (project / "test_plain.py").write_text("def test_plain(): pass\n")
    subjects = {fact["subject"] for fact in doctor(*CODEX).facts}
    assert not {"project tests", "project copy", "recordings", "replays"} & subjects


@pytest.mark.slow
def test_project_tests_that_have_no_model(project: Path, rules: Path, doctor: Doctor) -> None:
    (project / ".gitignore").write_text("big\n")
    (project / "big").write_bytes(bytes(2**20))
    report = doctor(*CODEX)
    assert report.status == 1
    assert report.of("project tests") == "ok 1 file in tests/agents asks for intercode_project"
    assert report.of("project copy") == (
        "ok agents get 3 files of ~/project, 0.0 MiB, as git lists them"
    )
    assert report.of("replays") == (
        "problem codex: no recording, and no model can be reached: set OPENAI_API_KEY or the "
        "address of a server (OPENAI_BASE_URL, ANTHROPIC_BASE_URL)"
    )
    assert report.of("recordings") == ""
    assert "replays" in report.problems()
    report = doctor(*CODEX, "tests", OPENAI_API_KEY=KEY)
    assert report.of("replays") == "ok codex: no recording, and models can be called"
    assert not doctor(*CODEX, "test_other.py").of("project tests")
    assert not list(rules.rglob("recordings"))


def test_recordings_are_read(rules: Path, doctor: Doctor) -> None:
    record(rules, "test_rules[codex]")
    record(rules, "test_rules[claude]", "claude")
    report = doctor(*CODEX, "--intercode-record=none", "tests/agents/test_rules.py::test_rules")
    assert report.of("recordings") == "ok 2 items in 1 folder can be read"
    assert report.of("replays") == "ok codex: 1 recording, and no model is called"
    torn = record(rules, "test_torn[codex]")
    torn.write_bytes(torn.read_bytes()[:40])
    report = doctor(*CODEX, "--intercode-record=none")
    assert report.status == 1
    assert "recordings" in report.problems()
    assert re.search(
        r"^problem ~/project/tests/agents/.*torn\[codex\]\S* is damaged: its gzip data is "
        r"incomplete or broken: look at it, delete it, and record it again with "
        r"--intercode-record=missing$",
        report.of("recordings"),
        re.M,
    )


def test_a_project_that_cannot_be_copied(
    project: Path, rules: Path, doctor: Doctor, tmp_path: Path
) -> None:
    shutil.rmtree(project / ".git")
    (project / "mine.py").write_text(AGENT)
    agent = "--intercode-agent=mine.py:Agent"
    report = doctor(agent)
    assert report.status == 1
    assert "~/project is not in a git repository" in report.of("project copy")
    assert "run `git init` there" in report.of("project copy")
    assert report.of("replays") == ""  # an agent in this process calls its model itself
    (tmp_path / "bin").mkdir()
    assert "problem git is not installed" in doctor(agent, PATH=str(tmp_path / "bin")).of(
        "project copy"
    )


def test_an_option_of_pytests_comes_after_two_dashes(capsys: pytest.CaptureFixture[str]) -> None:
    hint = "; arguments for pytest come after --: pytest-intercode doctor -- --intercode-env=bash"
    for words, remedy in ((["doctor"], hint), (["gate", "r.jsonl"], "")):
        with pytest.raises(SystemExit) as stopped:
            main([*words, "--intercode-env=sql"])
        assert stopped.value.code == 2
        last_line = capsys.readouterr().err.splitlines()[-1]
        assert last_line.endswith(f"error: unrecognized arguments: --intercode-env=sql{remedy}")


def test_a_project_whose_warnings_are_errors(
    project: Path, doctor: Doctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Installed from a wheel, the package is one whose asserts pytest would rewrite."""
    listing = tmp_path / "site" / "of_a_wheel-1.0.dist-info"
    listing.mkdir(parents=True)
    (listing / "METADATA").write_text("Metadata-Version: 2.1\nName: of-a-wheel\nVersion: 1.0\n")
    (listing / "entry_points.txt").write_text("[pytest11]\nof_a_wheel = json\n")
    (listing / "RECORD").write_text("pytest_intercode/__init__.py,,\n")
    monkeypatch.syspath_prepend(listing.parent)
    (project / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    assert "pytest.ini" in doctor("--intercode-sandbox=docker").of("configuration")
