"""Parts of the command channel that need no sandbox."""

from __future__ import annotations

import hashlib
import subprocess

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pytest_intercode.errors import SandboxError
from pytest_intercode.sandboxes.attached import AttachedSandbox
from pytest_intercode.sandboxes.keeper import Keeper, keeper_script, quote
from pytest_intercode.sandboxes.output import Output, as_bash_c
from pytest_intercode.sandboxes.pipes import PipeStreams
from pytest_intercode.sandboxes.protocol import SandboxSpec
from pytest_intercode.sandboxes.transport import Chunk


def _unquoted(words: list[bytes]) -> list[bytes]:
    """Have bash read the words back, each of them ended by NUL."""
    script = b"printf '%s\\0' " + b" ".join(map(quote, words))
    done = subprocess.run(["bash", "-c", script], capture_output=True, check=True)
    assert done.stderr == b""
    return done.stdout.split(b"\0")[:-1]


_BYTES = st.one_of(
    st.binary(max_size=60).map(lambda data: data.replace(b"\0", b"")),
    st.text(st.sampled_from("a0 7'\"\\$`!\n\r\t\x01\x7f*?#é😀"), max_size=20).map(str.encode),
)


@given(st.lists(_BYTES, min_size=1, max_size=20))
@settings(max_examples=40, deadline=None)
@example([b""])
@example([b"'", b"\\", b"\\'", b"\\\\", b"$'", b"\\x41", b"\\1"])
@example([b"\x011", b"\n7", b"\x7f0", bytes(range(1, 256))])
@example([b"\xff\xfe", "ü".encode()[:1], b"a\r\nb"])
def test_quoting_is_undone_by_bash(words: list[bytes]) -> None:
    assert _unquoted(words) == words


@given(_BYTES)
def test_a_quoted_word_is_one_line(word: bytes) -> None:
    quoted = quote(word)
    assert b"\n" not in quoted
    assert b"\r" not in quoted
    assert quoted.startswith(b"$'")
    assert quoted.endswith(b"'")


def test_a_long_word() -> None:
    word = bytes(range(1, 256)) * 100
    assert _unquoted([word]) == [word]


@given(st.lists(st.binary(max_size=50), max_size=20), st.integers(1, 120))
@example([b"x" * 4], 4)
@example([b"x" * 5], 4)
@example([b"ab", b"cd"], 1)
def test_output_keeps_its_head_and_its_tail(chunks: list[bytes], limit: int) -> None:
    output = Output(limit)
    for chunk in chunks:
        output.add(chunk)
    whole = b"".join(chunks)
    head = limit * 3 // 4
    cut = whole[:head] + whole[len(whole) - (limit - head) :]
    assert output.getvalue() == (whole if len(whole) <= limit else cut)
    assert output.size == len(whole)
    assert output.truncated == (len(whole) > limit)
    assert output.digest() == hashlib.sha256(whole).hexdigest()
    assert len(output.getvalue()) == min(len(whole), limit)


@pytest.mark.parametrize("chunk", [1000, 65536, 200_000])
def test_output_of_a_flood_stays_small(chunk: int) -> None:
    limit = 4096
    output = Output(limit)
    data = bytes(n % 251 for n in range(chunk))
    times = 2_000_000 // chunk
    for _ in range(times):
        output.add(data)
        assert len(output._head) + len(output._tail) <= 3 * limit + 65536 + chunk
    whole = data * times
    assert output.getvalue() == whole[:3072] + whole[-1024:]
    assert output.digest() == hashlib.sha256(whole).hexdigest()
    assert output.size == len(whole)


def test_output_of_more_than_its_limit_is_cut() -> None:
    made = Output(8)
    made.add(b"0123456789")
    assert (made.getvalue(), made.truncated, made.size) == (b"01234589", True, 10)


def test_keeper_is_sent_without_its_comments() -> None:
    script = keeper_script()
    lines = script.decode().splitlines()
    assert script.endswith(b"\n")
    assert len(lines) > 20
    assert not [line for line in lines if line.lstrip().startswith("#")]


def test_keeper_is_bash() -> None:
    done = subprocess.run(["bash", "-n"], input=keeper_script(), capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")


NONCE = "0123456789abcdef"


def answered(*arrived: bytes) -> list[tuple[str, list[str]] | None]:
    """Return the answers in what arrives, and None where one is not whole yet."""
    keeper = object.__new__(Keeper)
    keeper.answers, keeper.noise = bytearray(), 0
    found = []
    for data in arrived:
        keeper.answers += data
        while (answer := keeper.take_answer(NONCE)) is not None:
            found.append(answer)
    assert len(keeper.answers) < 20_000
    assert keeper.noise + len(keeper.answers) == sum(map(len, arrived))
    return [*found, None]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("D N 0 himBHs /a b", ("D", ["0", "himBHs", "/a b"])),
        ("D N 255 - ", ("D", ["255", "-", ""])),
        ("D N 256 - /", ("", [])),
        ("D N -1 - /", ("", [])),
        ("D N \u0663 - /", ("", [])),
        (f"D N {'9' * 5000} - /", ("", [])),
        ("D N 0 /", ("", [])),
        ("D N 0 - /\0", ("", [])),
        ("D N", ("", [])),
        (f"D N 0 - /{'x' * 20_000}", ("", [])),
        ("P N dead 137", ("P", ["dead", "137"])),
        ("P N dead 1370", ("", [])),
        ("P N undead 1", ("", [])),
        ("E N 7", ("E", ["7"])),
        ("E N 256", ("", [])),
        ("N N 3", ("N", ["3"])),
        ("N N 99999999", ("", [])),
        ("K N 3", ("K", ["3"])),
        ("noise without an end D N 0 - /", ("D", ["0", "-", "/"])),
        ("P N alive 0", None),
        ("Q N 1", None),
        ("D 1123456789abcdef 0 - /", None),
    ],
)
def test_answers_have_a_grammar(line: str, expected: tuple[str, list[str]] | None) -> None:
    data = line.replace(" N", f" {NONCE}").encode() + b"\n"
    wanted = [expected, None] if expected is not None else [None]
    assert answered(data) == wanted
    assert answered(b"noise\n\xff\0\n" + data[:7], data[7:]) == wanted


@given(st.lists(st.binary(max_size=200), max_size=5))
@example([b" " + NONCE.encode()] * 3)
@example([b"D " + NONCE.encode() + b" "] * 2)
@example([b"x" * 50_000, b"\n" * 50_000])
def test_any_bytes_are_read_as_answers(arrived: list[bytes]) -> None:
    assert answered(*arrived)[-1] is None


class Wire:
    """A transport that answers a marker with what was printed before it and after it."""

    def __init__(self, before: bytes, after: list[bytes]) -> None:
        self._printed, self._after = [before], after

    def send(self, data: bytes) -> None:
        self._printed += [data.split()[1], *self._after]

    def receive(self, timeout: float) -> list[Chunk]:
        return [Chunk("output", data) for data in self._printed]

    def read_output(self) -> None:
        return None


@given(st.binary(max_size=80), st.lists(st.binary(max_size=80), max_size=3))
@example(b"", [b"xargs: compress: No such file or directory\n"])
def test_output_that_comes_later_belongs_to_the_next_action(
    before: bytes, after: list[bytes]
) -> None:
    keeper = object.__new__(Keeper)
    keeper.transport = Wire(before, after)  # type: ignore[assignment]
    keeper.pending = bytearray()
    output = Output(1000)
    keeper.read_rest(output)
    assert (output.getvalue(), bytes(keeper.pending)) == (before, b"".join(after))


def test_numbers_of_lines_are_those_of_bash_c() -> None:
    actions = [(1002, 0), (1005, 2)]
    text = b"bash: eval: line 1006: syntax error\nmain: line 1002: x\nbash: line 9: y\n"
    assert as_bash_c(text, actions) == (
        b"bash: -c: line 2: syntax error\nenvironment: line 1: x\nbash: line 9: y\n"
    )
    number = b"1" * 5000  # more digits than Python reads as a number
    for forged in (b"bash: line %b: x\n", b"bash: line 1006: warning: here-document at line %b "):
        assert number in as_bash_c(forged % number, actions)


@pytest.mark.parametrize("lowered", [False, True])
@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("echo 'bwrap: execvp bash: nowhere' >&2; exit 127", "'bwrap: execvp bash: nowhere'"),
        ("sleep 0.3; echo late >&2", "'late'"),
        ("exit 3", "nothing"),
    ],
)
def test_a_sandbox_without_bash_says_what_it_printed(
    command: str, words: str, lowered: bool
) -> None:
    streams = PipeStreams.create()
    stdin, stdout, stderr = streams.inside
    with subprocess.Popen(["sh", "-c", command], stdin=stdin, stdout=stdout, stderr=stderr):
        streams.close_inside()
        with pytest.raises(SandboxError, match=f"before its bash answered; it printed {words}$"):
            AttachedSandbox("s", streams, SandboxSpec("image"), lowered=lowered)
        streams.close()
