"""The texts that are sent into sandboxes, and the part of them that needs no sandbox."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_intercode.environments.inside_program import ForgedAnswers, _read_answers
from pytest_intercode.sandboxes.inside import text_of

WORKER = ("pytest_intercode.sandboxes", "python_worker")
INSIDE = "pytest_intercode.environments.python.inside"
CANDIDATE = (INSIDE, "encoding", "one_by_one", "candidate")
JUDGE = (INSIDE, "decoding", "one_by_one", "judge")


@pytest.mark.parametrize("modules", [WORKER, CANDIDATE, JUDGE, (INSIDE, "paper")])
def test_texts_stand_alone(modules: tuple[str, ...]) -> None:
    text = text_of(*modules)
    assert text.startswith("from __future__ import annotations\n")
    tree = ast.parse(text)
    imported = {
        name.split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for name in (
            [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else [alias.name for alias in node.names]
        )
    }
    assert imported <= set(sys.stdlib_module_names)
    assert "typing" not in imported
    # Run by itself, it defines what it should, and prints nothing.
    check = (
        f"exec(compile({text!a}, 'text', 'exec'), scope := {{}}); assert callable(scope['main'])"
    )
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def one_by_one(work: str, count: int = 4, seconds: float = 5.0, further: str = "") -> list[str]:
    """Run it in a process of its own; ``work`` is the body of a function of ``n``."""
    body = "\n".join(f"    {line}" for line in work.splitlines())
    text = text_of(INSIDE, "one_by_one")
    code = f"{text}\nimport sys\n{further}\ndef work(n):\n{body}\n"
    code += f"for answer in one_by_one({count}, work, {seconds}):\n    print(answer)\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_pieces_are_done_in_order() -> None:
    assert one_by_one("return str(n * n)") == ["0", "1", "4", "9"]
    assert one_by_one("return 'x' * 200_000", 2) == ["x" * 200_000] * 2
    assert one_by_one("return ''", 0) == []


@pytest.mark.parametrize(
    ("end", "word"),
    [
        ("os._exit(0)", '"died"'),
        ("os.kill(os.getpid(), 9)", '"died"'),
        ("sys.exit(3)", '"died"'),
        ("raise ValueError", '"died"'),
        ("return 'x' * 9_000_000", '"too long"'),
        # Someone else holds on to the pipe.
        ("os.fork() or time.sleep(60)\n    os._exit(0)", '"died"'),
    ],
)
def test_one_that_ends_the_process_is_passed_over(end: str, word: str) -> None:
    assert one_by_one(f"if n == 1:\n    {end}\nreturn str(n)") == ["0", word, "2", "3"]


def test_what_is_written_just_after_the_end_of_the_process(tmp_path: Path) -> None:
    """Whoever else holds the pipe writes between the last look at it and the wait for the child."""
    flag = str(tmp_path / "write")
    work = (
        "if n == 1:\n"
        "    if os.fork() == 0:\n"
        f"        while not os.path.exists({flag!r}):\n            time.sleep(0.001)\n"
        "        os.write(4, b'x')\n"
        "        time.sleep(60)\n"
        "    os._exit(0)\n"
        "return str(n)"
    )
    # Between that look and that wait, the child's activity is measured.
    write_now = (
        "activity = _activity\n"
        "def _activity(process):\n"
        "    measured = activity(process)\n"
        f"    if not os.path.exists({flag!r}) and not select.select([3], [], [], 0)[0] and "
        "b') Z' in open(f'/proc/{process}/stat', 'rb').read():\n"
        f"        open({flag!r}, 'w').close()\n"
        "        select.select([3], [], [], 30)\n"
        "    return measured\n"
    )
    assert one_by_one(work, further=write_now) == ["0", '"died"', "2", "3"]


def test_one_that_takes_too_long_is_passed_over() -> None:
    hang = "if n in (0, 2):\n    while True:\n        pass\nreturn str(n)"
    assert one_by_one(hang, seconds=0.3) == ['"timed out"', "1", '"timed out"', "3"]
    trickle = "while True:\n    os.write(4, b'x')\n    time.sleep(0.01)"
    assert one_by_one(trickle, 1, seconds=0.3) == ['"timed out"']


def test_waiting_for_a_processor_takes_no_time() -> None:
    """On a machine with too much to do, a test would fail that is right."""
    beside_others = (
        "os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])\n"
        "for _ in range(7):\n    if os.fork() == 0:\n        while True:\n            pass\n"
        "began = time.process_time()\n"
        "while time.process_time() - began < 0.25:\n    pass\n"
        "return str(n)"
    )
    assert one_by_one(beside_others, 1, seconds=0.5) == ["0"]


def test_the_state_before_is_that_of_every_piece_after_an_end() -> None:
    count = "global c\nc = globals().get('c', 0) + 1\nif n == 1:\n    os._exit(0)\nreturn str(c)"
    assert one_by_one(count) == ["1", '"died"', "1", "2"]


def test_what_a_piece_started_ends_with_it() -> None:
    leave = (
        "if os.fork() == 0:\n    time.sleep(0.5)\n    print('left')\n    os._exit(0)\nreturn '1'"
    )
    assert one_by_one(leave, 2) == ["1", "1"]


# -- what the host reads of an answer, where code of the agent's may have written, too

TOKEN = "0123456789abcdef"


def lines(*pairs: tuple[object, object]) -> bytes:
    return b"".join(f"{TOKEN} {number} {text}\n".encode() for number, text in pairs)


def test_answers_are_read_among_other_lines() -> None:
    output = b"noise" + lines((0, "a b")) + b"x y z\n" + lines((1, "[]")) + b"the end"
    assert _read_answers(output, TOKEN, 2) == {0: "a b", 1: "[]"}
    assert _read_answers(lines((-1, "missing")), TOKEN, 2) == {-1: "missing"}
    assert _read_answers(b"", TOKEN, 2) == {}
    assert _read_answers(lines((0, "a"))[:-1], TOKEN, 2) == {}


@pytest.mark.parametrize(
    "output",
    [
        *(lines(("9" * 5000, "a")), lines(("00", "a")), lines(("", "a")), lines(("\u0661", "a"))),
        *(lines((1, "a")), lines((0, "a"), (0, "a")), lines((0, "a"), (1, "a"), (2, "a"))),
        *(lines((0, "a"), (-1, "missing")), lines((-1, "missing"), (0, "a")), lines((-2, "a"))),
        *(lines((0, "\u00e9")), lines((0, "\0")), lines((0, "a\r"))),
        f"{TOKEN} 0 ".encode() + b"\xff\n",
    ],
)
def test_answers_that_no_program_of_ours_writes_are_forged(output: bytes) -> None:
    with pytest.raises(ForgedAnswers):
        _read_answers(output, TOKEN, 2)
