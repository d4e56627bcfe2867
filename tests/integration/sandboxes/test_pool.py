"""The pool on real backends: many at once, several processes, and what is left when all is over."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pytest_intercode.errors import SandboxError
from pytest_intercode.sandboxes.pool import Pool
from pytest_intercode.sandboxes.protocol import SandboxSpec
from pytest_intercode.sandboxes.slots import Slots
from tests.support.backends import Backend

SOON = 30.0

_WORKER = """
    import os, sys, time
    from pathlib import Path
    from pytest_intercode.sandboxes.pool import Pool
    from pytest_intercode.sandboxes.protocol import SandboxSpec
    from pytest_intercode.sandboxes.slots import Slots

    class Launcher:
        starters = 3
        def launch(self, spec):
            began = time.monotonic()
            time.sleep(0.03)
            os.write(1, f"{began} {time.monotonic()}\\n".encode())  # at once: several threads write
            return Box()
        def close(self): pass

    class Box:
        host = ""
        def close(self): pass

    pool = Pool(Launcher(), slots=Slots(Path(sys.argv[1]), 2))
    sys.stdin.readline()
    orders = [pool.order(SandboxSpec("x")) for _ in range(15)]
    for order in orders:
        order.wait()
    pool.close()
"""
_HOLDER = """
    import sys, threading
    from pathlib import Path
    from pytest_intercode.sandboxes.slots import Slots

    slots = Slots(Path(sys.argv[1]), 1)
    assert slots.take(threading.Event()) is not None
    waiting = threading.Thread(target=slots.take, args=(threading.Event(),))
    waiting.start()
    print("held", flush=True)
    waiting.join()
"""
_FORGETFUL = """
    from pytest_intercode.sandboxes.pool import Pool
    pool = Pool(engine)
    spec = SandboxSpec(sys.argv[1])
    pool.expect([spec] * 6)
    for _ in range(2):
        print(pool.order(spec).wait().name)
"""


def await_true(condition: Callable[[], bool]) -> None:
    limit = time.monotonic() + SOON
    while not condition():
        assert time.monotonic() < limit, "not in time"
        time.sleep(0.02)


@pytest.fixture
def script(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Return what runs a script in a process of its own, with the file of the slots."""
    (tmp_path / "slots").touch()
    begun: list[subprocess.Popen[str]] = []

    def run(text: str, argument: str = "") -> subprocess.Popen[str]:
        argument = argument or str(tmp_path / "slots")
        command = [sys.executable, "-c", textwrap.dedent(text), argument]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        begun.append(process)
        return process

    yield run
    for process in begun:
        process.kill()
        process.communicate()


def test_forty_sandboxes_for_sixteen_threads(backend: Backend) -> None:
    engine = backend.new_engine()
    pool = Pool(engine, size=4)
    specs = [SandboxSpec(backend.image, hostname=f"host{number % 2}") for number in range(40)]

    def use(spec: SandboxSpec) -> str:
        sandbox = pool.order(spec).wait()
        try:
            assert sandbox.run("hostname", SOON).output == f"{spec.hostname}\n".encode()
            return sandbox.name
        finally:
            sandbox.close()

    try:
        pool.expect(specs)
        with ThreadPoolExecutor(16) as threads:
            names = set(threads.map(use, specs))
        assert len(names) == 40
        await_true(lambda: backend.running(engine) == [])
    finally:
        pool.close()
        engine.close()


def test_close_leaves_nothing_of_what_was_on_its_way(backend: Backend) -> None:
    engine = backend.new_engine()
    pool = Pool(engine)
    specs = [SandboxSpec(backend.image, hostname=f"host{number}") for number in range(8)]
    try:
        pool.expect([SandboxSpec(backend.image)] * 3)
        await_true(lambda: len(backend.running(engine)) == 3)
        orders = [pool.order(spec) for spec in specs]
        first = orders[0].wait()
        pool.close()
        refused = 0
        for order in orders[1:]:
            try:
                order.wait().close()
            except SandboxError:
                refused += 1
        assert refused > 0
        await_true(lambda: backend.running(engine) == [first.name])
        first.close()
        await_true(lambda: backend.running(engine) == [])
    finally:
        pool.close()
        engine.close()


def test_a_process_that_ends_without_closing_leaves_nothing(
    backend: Backend, script: Callable[..., subprocess.Popen[str]]
) -> None:
    process = script(textwrap.dedent(backend.client) + textwrap.dedent(_FORGETFUL), backend.image)
    said, _ = process.communicate(timeout=SOON)
    assert process.returncode == 0
    names = said.splitlines()[1:]
    assert len(names) == 2
    await_true(lambda: not any(map(backend.exists, names)))


def test_processes_that_share_slots_start_no_more_than_one_would(
    script: Callable[..., subprocess.Popen[str]],
) -> None:
    processes = [script(_WORKER) for _ in range(2)]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    said = [process.communicate(timeout=SOON)[0].splitlines() for process in processes]
    assert [len(lines) for lines in said] == [15, 15]
    moments: list[tuple[float, int]] = []  # the clock is the same for both
    for began, ended in (line.split() for lines in said for line in lines):
        moments += [(float(began), 1), (float(ended), -1)]
    at_once = most = 0
    for _, step in sorted(moments):
        at_once += step
        most = max(most, at_once)
    assert most == 2


def test_a_killed_process_frees_its_slot_and_its_place_in_line(
    script: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    holder = script(_HOLDER)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    file = tmp_path / "slots"
    await_true(lambda: file.read_bytes()[:1] == b"\2")  # tickets: both of the holder's
    slots = Slots(file, 1)
    stop = threading.Event()
    with ThreadPoolExecutor(1) as threads:
        taken = threads.submit(slots.take, stop)
        await_true(lambda: file.read_bytes()[:1] == b"\3")
        assert not taken.done()
        holder.send_signal(signal.SIGKILL)
        slot = taken.result(SOON)
    assert slot is not None
    slots.give_back(slot)
