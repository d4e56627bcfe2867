"""The interpreter of a python sandbox: what it shows, what it remembers, and what it survives."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from pytest_intercode.core.task import ImageSource, Limits
from pytest_intercode.errors import SandboxError
from pytest_intercode.sandboxes.attached import AttachedSandbox
from pytest_intercode.sandboxes.channel import FLOOD
from pytest_intercode.sandboxes.docker.engine import DockerEngine
from pytest_intercode.sandboxes.protocol import Execution, SandboxSpec
from pytest_intercode.system.files import bundled_folder
from tests.support.backends import Backend

SOON = 15.0  # seconds; far more than any short action takes, even on a busy machine
PROMPTLY = 10.0
TIMEOUT = 0.4


@pytest.fixture(scope="module")
def spec(backend: Backend) -> SandboxSpec:
    dockerfile = bundled_folder("dockerfiles") / "python.Dockerfile"
    return SandboxSpec(
        backend.image_of(ImageSource(dockerfile=dockerfile)),
        limits=Limits(pids=64),
        workdir="/work",
        variables=(("LC_ALL", "C.UTF-8"),),
        worker="python",
    )


@pytest.fixture(scope="module")
def shared(backend: Backend, spec: SandboxSpec) -> Iterator[AttachedSandbox]:
    """Return a sandbox for tests that leave nothing behind that would matter to the others."""
    container = backend.engine.launch(spec)
    yield container
    container.close()


@pytest.fixture
def sandbox(backend: Backend, spec: SandboxSpec) -> Iterator[AttachedSandbox]:
    container = backend.engine.launch(spec)
    yield container
    container.close()


def run(sandbox: AttachedSandbox, action: str, timeout: float = SOON) -> Execution:
    """Run an action that should end by itself and leave the interpreter alive."""
    execution = sandbox.run(action, timeout)
    assert (execution.ended, execution.restarted) == ("itself", False), execution
    return execution


def said(sandbox: AttachedSandbox, action: str) -> str:
    return run(sandbox, action).output.decode()


# -- what is shown


@pytest.mark.parametrize(
    ("action", "shown"),
    [
        ("1 + 1", "2\n"),
        ("'a\\n'", "'a\\n'\n"),
        ("None", ""),
        ("x = 5", ""),
        ("x = 5\nx", "5\n"),
        ("5\n6", "6\n"),
        ("print('a'); None", "a\n"),
        ("if True:\n    5\n", ""),
        ("", ""),
        ("# a comment", ""),
        ("7  # a comment", "7\n"),
        ("def f():\r\n    return 'é'\r\nf()\r\n", "'é'\n"),
        ("'\\ud800'", "'\\ud800'\n"),
        ("__name__", "'__main__'\n"),
        ("import sys; sys.argv, sys.path[0]", "([''], '')\n"),
        ("class A:\n    def __repr__(self): return 'an A'\nA()", "an A\n"),
    ],
)
def test_shows_what_a_repl_shows(shared: AttachedSandbox, action: str, shown: str) -> None:
    assert said(shared, action) == shown
    assert run(shared, "pass").status == 0


def test_the_last_value_is_kept(shared: AttachedSandbox) -> None:
    said(shared, "6 * 7")
    assert said(shared, "_ + 1") == "43\n"
    said(shared, "None")
    assert said(shared, "_") == "43\n"


def test_state_lasts(sandbox: AttachedSandbox) -> None:
    said(
        sandbox, "import math as m\nx = [1]\ndef f():\n    return len(x)\nclass C:\n    y: int = 1"
    )
    said(sandbox, "x.append(2)\nimport os; os.chdir('/tmp')")
    assert run(sandbox, "f(), C.y, m.pi > 3").output == b"(2, 1, True)\n"
    assert run(sandbox, "os.getcwd()").cwd == "/tmp"
    said(sandbox, "from __future__ import annotations")
    assert said(sandbox, "def g(a: missing): pass\ng.__annotations__") == "{'a': 'missing'}\n"
    said(sandbox, "open('module.py', 'w').write('value = 3')")
    assert said(sandbox, "import module; module.value") == "3\n"


def test_stdout_and_stderr_keep_their_order(shared: AttachedSandbox) -> None:
    action = (
        "import os, sys\nfor n in range(300):\n    print('out', n)\n"
        "    print('err', n, file=sys.stderr)\n    _ = os.write(1, b'raw %d\\n' % n)\n"
        "    _ = os.system(f'echo sh {n}') if n % 50 == 0 else 0"
    )
    expected = ""
    for n in range(300):
        expected += f"out {n}\nerr {n}\nraw {n}\n" + (f"sh {n}\n" if n % 50 == 0 else "")
    assert said(shared, action) == expected


def test_long_output_keeps_both_ends(backend: Backend, spec: SandboxSpec) -> None:
    sandbox = backend.engine.launch(SandboxSpec(spec.image, Limits(output=1000), worker="python"))
    execution = sandbox.run("print('a' * 5000 + 'z', end='')", SOON)
    sandbox.close()
    assert execution.output == b"a" * 999 + b"z"
    assert (execution.size, execution.truncated) == (5001, True)


def test_input_is_empty(shared: AttachedSandbox) -> None:
    assert "EOFError: EOF when reading a line" in said(shared, "input()")
    assert said(shared, "import sys; sys.stdin.read()") == "''\n"
    assert said(shared, "import subprocess; subprocess.run('cat').returncode") == "0\n"


def test_large_action(shared: AttachedSandbox) -> None:
    word = "0123456789abcdef" * 16384  # 256 KiB
    assert said(shared, f"x = '{word}'\nlen(x)") == f"{len(word)}\n"


# -- mistakes


def traceback_of(action: str) -> str:
    """Return what Python itself says of a file."""
    code = f"import sys; exec(compile({action!a}, '<action N>', 'exec'), {{}})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    lines = done.stderr.splitlines(keepends=True)
    return "".join(line for line in lines if '"<string>"' not in line)


def test_tracebacks_show_the_agents_lines_alone(sandbox: AttachedSandbox) -> None:
    said(sandbox, "def half(n):\n    # a comment\n    return n / 0\n")
    execution = run(sandbox, "x = 1\nhalf(x)")
    lines = execution.output.decode().splitlines()
    assert execution.status == 1
    assert lines[:3] == [
        "Traceback (most recent call last):",
        '  File "<action 2>", line 2, in <module>',
        "    half(x)",
    ]
    assert '  File "<action 1>", line 3, in half' in lines
    assert "    return n / 0" in lines
    assert lines[-1] == "ZeroDivisionError: division by zero"
    assert "worker" not in execution.output.decode()
    chained = said(sandbox, "try:\n    half(1)\nexcept Exception as e:\n    raise KeyError from e")
    assert chained.count("Traceback (most recent call last):") == 2
    assert "The above exception was the direct cause" in chained
    assert "worker" not in chained


@pytest.mark.parametrize("mistake", ["x = = 1", "def f(:\n    pass", "  x", "print('a", "return 3"])
def test_syntax_errors_read_as_python_shows_them(shared: AttachedSandbox, mistake: str) -> None:
    execution = run(shared, mistake)
    assert execution.status == 1
    shown = execution.output.decode().splitlines()
    expected = traceback_of(mistake).splitlines()
    assert shown[0].startswith('  File "<action ')
    assert shown[-1].split(":")[0] == expected[-1].split(":")[0]
    assert "Traceback" not in shown[0]


def test_nothing_of_an_action_that_does_not_compile_runs(shared: AttachedSandbox) -> None:
    assert "SyntaxError" in said(shared, "print('ran')\nx = = 1")
    assert "'return' outside function" in said(shared, "print('ran')\nreturn 3")
    assert "ran" not in said(shared, "pass")


def test_source_of_functions_can_be_had(shared: AttachedSandbox) -> None:
    source = "def documented(n):\n    '''Doc.'''\n    return n  # a comment\n"
    said(shared, source)
    assert said(shared, "import inspect; print(inspect.getsource(documented), end='')") == source


def test_redefining_builtins_breaks_the_agents_code_alone(sandbox: AttachedSandbox) -> None:
    said(
        sandbox,
        "import builtins\nfor n in ('len', 'type', 'isinstance', 'exec', 'compile', 'str'):"
        "\n    setattr(builtins, n, None)",
    )
    assert said(sandbox, "1 + 1") == "2\n"
    assert run(sandbox, "1 / 0").status == 1
    sandbox.run("import os; os._exit(3)", SOON)
    assert said(sandbox, "len('abc')") == "3\n"


def test_streams_of_the_agents_own(sandbox: AttachedSandbox) -> None:
    said(sandbox, "import io, sys\nsys.stdout = sys.stderr = io.StringIO()")
    assert said(sandbox, "print('hidden')") == ""
    assert "ZeroDivisionError" in said(sandbox, "1 / 0")
    assert said(sandbox, "got = sys.stdout.getvalue(); sys.stdout = sys.__stdout__; got") == (
        "'hidden\\n'\n"
    )
    said(sandbox, "sys.stdout = None")
    assert run(sandbox, "print(1)").status == 0


# -- the interpreter's death


@pytest.mark.parametrize(
    ("action", "status"),
    [
        ("exit(3)", 3),
        ("import sys; sys.exit()", 0),
        ("raise SystemExit('bye')", 1),
        ("import os; os._exit(4)", 4),
        ("import os; os.abort()", 134),
        ("import os; os.kill(os.getpid(), 9)", 137),
        ("import ctypes; ctypes.string_at(0)", 139),
        ("import os; os.execv('/bin/sh', ['sh', '-c', 'exit 7'])", 7),
        ("import os; os.closerange(3, 300)", None),
        ("import atexit; atexit.register(print, 'bye'); quit()", 0),
    ],
)
def test_lost_interpreter_is_replaced(
    shared: AttachedSandbox, action: str, status: int | None
) -> None:
    said(shared, "x = 1\nimport os; os.chdir('/tmp')")
    execution = shared.run(f"print('before')\n{action}", SOON)
    assert (execution.ended, execution.restarted) == ("itself", True)
    assert status is None or execution.status == status
    assert execution.output.startswith(b"before\n")
    assert (b"bye\n" in execution.output) == ("bye" in action)
    assert execution.seconds < PROMPTLY
    assert "NameError: name 'x' is not defined" in said(shared, "x")
    assert run(shared, "1").cwd == "/work"


def test_too_much_memory_costs_the_interpreter(sandbox: AttachedSandbox) -> None:
    execution = sandbox.run("x = bytearray(2**30)", 60)
    assert (execution.ended, execution.restarted, execution.status) == ("itself", True, 137)
    assert said(sandbox, "1") == "1\n"


def test_deep_recursion(shared: AttachedSandbox) -> None:
    shown = said(shared, "def f(): return f()\nf()")
    assert shown.endswith("RecursionError: maximum recursion depth exceeded\n")
    assert len(shown) < 3000


def test_forked_children(shared: AttachedSandbox) -> None:
    shown = said(
        shared,
        "import os\npid = os.fork()\n_ = os.write(1, b'parent\\n' if pid else b'child\\n')\n"
        "os.waitpid(pid, 0)[1] if pid else None",
    )
    assert sorted(shown.split()) == ["0", "child", "parent"]
    raising = (
        "pid = os.fork()\nif pid == 0:\n    raise KeyError('in the child')\nos.waitpid(pid, 0)[1]"
    )
    assert "KeyError: 'in the child'\n256\n" in said(shared, raising)
    ending = "pid = os.fork()\nif pid == 0:\n    raise SystemExit(7)\nos.waitpid(pid, 0)[1] >> 8"
    assert said(shared, ending) == "7\n"
    assert said(shared, "'one driver'") == "'one driver'\n"


def test_threads_processes_and_loops(shared: AttachedSandbox) -> None:
    pool = "import multiprocessing as m\nwith m.Pool(2) as p:\n    print(p.map(abs, [1, -2]))"
    assert said(shared, pool) == "[1, 2]\n"
    assert said(shared, "import asyncio\nasyncio.run(asyncio.sleep(0.01, 5))") == "5\n"
    thread = (
        "import threading\nt = threading.Thread(target=print, args=('in a thread',))\nt.start()"
    )
    assert said(shared, f"{thread}\nt.join()") == "in a thread\n"


def test_late_output_comes_with_a_later_action(sandbox: AttachedSandbox) -> None:
    said(
        sandbox,
        "import threading\ngo = threading.Event()\n"
        "def late():\n    _ = go.wait()\n    print('late')\n"
        "t = threading.Thread(target=late)\nt.start()",
    )
    assert said(sandbox, "1") == "1\n"
    assert said(sandbox, "go.set(); t.join()") == "late\n"


# -- the clock


@pytest.mark.parametrize(
    "action",
    [
        "while True: pass",
        "import time; time.sleep(1000)",
        "import os; os.system('sleep 1000')",
        "import subprocess; subprocess.run(['sleep', '1000'])",
        "import re; re.match(r'(a+)+$', 'a' * 40 + 'b')",
        "import threading; threading.Event().wait()",
        "import asyncio; asyncio.run(asyncio.sleep(1000))",
        "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nsignal.pause()",
    ],
)
def test_interrupted_actions_leave_the_state(shared: AttachedSandbox, action: str) -> None:
    said(shared, "x = 'kept'")
    execution = shared.run(f"y = 'set'\nprint('begun')\n{action}\nprint('NOT')", TIMEOUT)
    assert (execution.ended, execution.status, execution.restarted) == ("timeout", None, False)
    assert execution.output.startswith(b"begun\n")
    assert execution.seconds < TIMEOUT + PROMPTLY
    assert said(shared, "x, y") == "('kept', 'set')\n"


@pytest.mark.parametrize(
    "action",
    [
        "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass",
        "sum(range(10**15))",
        "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)",
    ],
)
def test_an_action_that_does_not_let_go_is_killed(shared: AttachedSandbox, action: str) -> None:
    said(shared, "x = 'lost'")
    execution = shared.run(f"print('begun')\n{action}", TIMEOUT)
    assert (execution.ended, execution.status, execution.restarted) == ("timeout", None, True)
    assert execution.output == b"begun\n"
    assert execution.seconds < TIMEOUT + PROMPTLY
    assert "NameError" in said(shared, "x")


def test_what_a_stopped_action_started_is_stopped(shared: AttachedSandbox) -> None:
    start = "import subprocess\np = subprocess.Popen(['sleep', '1000'], start_new_session=True)"
    shared.run(f"{start}\nwhile True: pass", TIMEOUT)
    assert said(shared, "p.wait()") == "-9\n"
    said(shared, start)
    shared.run("while True: pass", TIMEOUT)
    assert said(shared, "p.poll() is None") == "True\n"
    said(shared, "p.kill(); _ = p.wait()")


def test_the_status_is_right_after_an_interruption(shared: AttachedSandbox) -> None:
    shared.run("while True: pass", TIMEOUT)
    assert shared.run("import os; os._exit(5)", SOON).status == 5


def test_fork_bomb(sandbox: AttachedSandbox) -> None:
    said(sandbox, "x = 'kept'")
    bomb = (
        "import os\nwhile True:\n    try:\n        _ = os.fork()\n    except OSError:\n        pass"
    )
    assert sandbox.run(bomb, 1.0).ended == "timeout"
    assert run(sandbox, "import subprocess; subprocess.run('true').returncode", 20).output == b"0\n"


def test_flood_is_stopped(sandbox: AttachedSandbox) -> None:
    said(sandbox, "x = 'kept'")
    execution = sandbox.run("while True: print('y' * 1000)", 60)
    assert (execution.ended, execution.restarted) == ("flood", False)
    assert execution.size > FLOOD
    assert said(sandbox, "x") == "'kept'\n"


def test_flood_of_answers_does_not_fill_our_memory(sandbox: AttachedSandbox) -> None:
    flood = "import os\nwhile True:\n    _ = os.write(201, b'x' * 65536)"
    assert sandbox.run(flood, 60.0).ended == "flood"
    assert len(sandbox._channel._keeper.answers) <= 1024**2
    assert run(sandbox, "print('alive')").output == b"alive\n"


def test_interrupt_from_another_thread(sandbox: AttachedSandbox) -> None:
    timer = threading.Timer(0.3, sandbox.interrupt)
    timer.start()
    execution = sandbox.run("while True: pass", 60)
    timer.join()
    assert (execution.ended, execution.status) == ("cancelled", None)
    assert execution.seconds < 0.3 + PROMPTLY


# -- beside the interpreter


def test_admin_settle_and_marks_work_as_with_a_shell(sandbox: AttachedSandbox) -> None:
    assert sandbox.admin("echo out; exit 3", SOON) == (3, b"out\n")
    assert sandbox.settle(SOON) == b""
    sandbox.mark()
    said(sandbox, "open('/work/new', 'w').write('x')")
    assert set(sandbox.changes().entries) == {"/work/new"}


def test_forged_answers_deceive_the_agent_alone(shared: AttachedSandbox) -> None:
    forged = "D 0 0 - /\nP 0 dead 1\nX 0\n"
    assert said(shared, f"print({forged!r}, end='')") == forged
    snoop = (
        "import os, sys\nf = sys._getframe()\nwhile f and 'nonce' not in f.f_locals: f = f.f_back\n"
        "_ = os.write(201, f'D {f.f_locals[\"nonce\"]} 0 - /forged\\n'.encode())\n"
        "import time; time.sleep(0.5); print('later')"
    )
    early = shared.run(snoop, SOON)
    assert (early.cwd, early.restarted) == ("/forged", False)
    assert said(shared, "'next'").endswith("'next'\n")
    assert run(shared, "1").cwd == "/work"


def test_a_working_directory_behind_a_link(backend: Backend, spec: SandboxSpec) -> None:
    container = backend.engine.launch(replace(spec, workdir="/var/run/work"))
    assert said(container, "import os; os.getcwd()") == "'/run/work'\n"
    container.close()
    with pytest.raises(SandboxError, match="the working directory /etc/passwd cannot be made"):
        backend.engine.launch(replace(spec, workdir="/etc/passwd"))


def test_without_python_the_sandbox_does_not_start(docker_engine: DockerEngine) -> None:
    began = time.monotonic()
    with pytest.raises(SandboxError, match="starts no Python interpreter"):
        docker_engine.launch(SandboxSpec("debian:bookworm-slim", worker="python"))
    assert time.monotonic() - began < 10


def test_latency(shared: AttachedSandbox) -> None:
    # The quickest of them, as others may be at work on this machine; 0.5 ms where nobody is.
    assert min(shared.run("1", SOON).seconds for _ in range(100)) < 0.01
