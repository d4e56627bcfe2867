"""Writes the files of cases that are too large, or too odd, to be written out in YAML."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.tau2_library import write_library

__all__ = ["FILES"]

Maker = Callable[[Path], None]
FILES: dict[str, Maker] = {}

LINE = {
    "environment": "bash", "dataset": "d", "task_id": "t", "query": "q", "turn_history": {},
    "outcome": "solved", "reward": 1.0,
}  # fmt: skip


def _file(function: Maker) -> Maker:
    FILES[function.__name__.replace("_", "-")] = function
    return function


def _archive(path: Path, *members: tuple[tarfile.TarInfo, bytes]) -> None:
    with tarfile.open(path, "w:gz") as archive:
        for member, content in members:
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def _member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return member


def _compiled(path: Path, text: str, *options: str) -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler here, for a library to be preloaded")
    source = path.with_suffix(".c")
    source.write_text(text)
    subprocess.run([compiler, "-shared", "-fPIC", *options, "-o", path, source], check=True)
    source.unlink()


@_file
def library(path: Path) -> None:
    """A domain in the form of tau2-bench's, and its suite."""
    write_library(path.parent).rename(path)


@_file
def climbing_archive(path: Path) -> None:
    """Names that lead out of the sandbox's root, and links that do."""
    _archive(
        path,
        (_member("../../../../../tmp/intercode-escaped"), b"out"),
        (_member("/tmp/intercode-escaped"), b"out"),
        (_member("link", tarfile.SYMTYPE, "/tmp"), b""),
        (_member("link/intercode-escaped"), b"out"),
    )


@_file
def device_archive(path: Path) -> None:
    """A block device of the host."""
    device = _member("disk", tarfile.BLKTYPE)
    device.devmajor, device.devminor = 254, 0
    _archive(path, (device, b""))


@_file
def bomb_archive(path: Path) -> None:
    """2 GB of zeros in 2 MB."""
    member = _member("zeros")
    member.size = 2 * 1024**3

    class Zeros(io.RawIOBase):
        def read(self, size: int = -1) -> bytes:
            return bytes(min(size, 1024**2) if size >= 0 else 1024**2)

    with tarfile.open(path, "w:gz", compresslevel=1) as archive:
        archive.addfile(member, Zeros())


@_file
def repeating_archive(path: Path) -> None:
    """A million empty files in a few kilobytes."""
    block = _member("same").tobuf() * 1000
    with gzip.open(path, "wb", compresslevel=6) as archive:
        for _ in range(1000):
            archive.write(block)


@_file
def sparse_archive(path: Path) -> None:
    """A file of 8 GB of which nothing is there, as GNU tar writes it."""
    folder = path.with_name("sparse")
    folder.mkdir()
    with (folder / "holes").open("wb") as file:
        file.truncate(8 * 1024**3)
    subprocess.run(["tar", "-cSzf", path, "-C", folder, "holes"], check=True)
    shutil.rmtree(folder)


@_file
def long_header_archive(path: Path) -> None:
    """A name of 3 GB, in an extended header."""
    size = 3 * 1024**3
    header = bytearray(_member("x", tarfile.XHDTYPE).tobuf(tarfile.GNU_FORMAT))
    header[124:136] = b"%011o\0" % size
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    with gzip.open(path, "wb", compresslevel=1) as archive:
        archive.write(bytes(header))
        for _ in range(size // 1024**2):
            archive.write(bytes(1024**2))


@_file
def odd_archive(path: Path) -> None:
    """Names that differ by case alone, hard links to files of the host, and a FIFO."""
    _archive(
        path,
        (_member("work/Name"), b"one"),
        (_member("work/name"), b"two"),
        (_member("work/pipe", tarfile.FIFOTYPE), b""),
        (_member("work/shadow", tarfile.LNKTYPE, "../../../etc/shadow"), b""),
    )


@_file
def lying_library(path: Path) -> None:
    """A shared library that prints what gold prints, and ends whatever program loads it."""
    _compiled(
        path,
        "#include <unistd.h>\n"
        "__attribute__((constructor)) static void lie(void) {\n"
        '  if (write(1, "3\\nkept\\n", 7)) _exit(0);\n'
        "}\n",
    )


@_file
def tidying_library(path: Path) -> None:
    """A shared library that puts right what the agent did, in each program that lists files."""
    _compiled(
        path,
        "#define _GNU_SOURCE\n"
        "#include <errno.h>\n#include <fcntl.h>\n#include <string.h>\n#include <unistd.h>\n"
        "__attribute__((constructor)) static void tidy(void) {\n"
        '  if (!strstr("find sha256sum stat tar mountpoint", program_invocation_short_name))\n'
        "    return;\n"
        '  int file = open("/work/keep.txt", O_WRONLY | O_TRUNC);\n'
        '  if (file < 0 || write(file, "kept\\n", 5) < 0 || unlink("/etc/ld.so.preload"))\n'
        "    _exit(1);\n"
        "}\n",
    )


@_file
def large_yaml(path: Path) -> None:
    """A hundred megabytes."""
    with path.open("wb") as file:
        file.write(b"env: bash\ntasks: []\n")
        file.truncate(100 * 1024**2)


@_file
def bomb_rows(path: Path) -> None:
    """Three gigabytes of blanks in three megabytes."""
    with gzip.open(path, "wb", compresslevel=1) as archive:
        for _ in range(3 * 64):
            archive.write(b" " * 16 * 1024**2)


@_file
def large_results(path: Path) -> None:
    """Ten gigabytes."""
    with path.open("wb") as file:
        file.write(json.dumps(LINE).encode() + b"\n")
        file.truncate(10 * 1024**3)


@_file
def truncated_results(path: Path) -> None:
    """A line, and half of another."""
    line = json.dumps({**LINE, "turn_history": {"actions": ["ls"]}})
    path.write_text(f"{line}\n{line[:40]}")


@_file
def nan_results(path: Path) -> None:
    """Numbers that JSON has not."""
    path.write_text(json.dumps({**LINE, "reward": float("nan")}) + "\n")


@_file
def other_results(path: Path) -> None:
    """Another program's lines."""
    path.write_text('{"model": "x", "score": [1, 2]}\n{"model": "y", "score": null}\n')


@_file
def aliases_yaml(path: Path) -> None:
    """A billion laughs."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    path.write_text("\n".join([*lines, "env: bash", "tasks: *a9", ""]))


@_file
def recursive_yaml(path: Path) -> None:
    """A list that holds itself."""
    path.write_text("env: bash\ntasks: &tasks [*tasks]\n")


@_file
def deep_yaml(path: Path) -> None:
    """A hundred thousand brackets."""
    path.write_text("env: bash\ntasks: " + "[" * 100_000 + "]" * 100_000 + "\n")


@_file
def huge_integer_yaml(path: Path) -> None:
    """A number of 5,000 digits."""
    path.write_text(
        f"env: bash\ntasks: [{{id: a, query: q, gold: 'true', max_turns: {'9' * 5000}}}]\n"
    )


@_file
def deep_results(path: Path) -> None:
    """A line of brackets."""
    path.write_text("[" * 200_000 + "]" * 200_000 + "\n")


@_file
def huge_integer_results(path: Path) -> None:
    """A reward of 5,000 digits."""
    line = json.dumps(LINE)
    path.write_text(line.replace('"reward": 1.0', '"reward": ' + "9" * 5000) + "\n")


@_file
def odd_results(path: Path) -> None:
    """Types that no line has."""
    path.write_text(json.dumps({**LINE, "reward": "NaN", "turn_history": 3}) + "\n")


@_file
def binary_results(path: Path) -> None:
    """No text at all."""
    path.write_bytes(bytes(range(256)) * 100)


@_file
def busy_builtin(path: Path) -> None:
    """A library for ``enable -f``: a thread in the shell that moves a file and floods answers."""
    _compiled(
        path,
        "#include <pthread.h>\n"
        "#include <stdio.h>\n"
        "#include <unistd.h>\n"
        "static void *work(void *nothing) {\n"
        '  static const char line[] = "D 0 0 - /\\n";\n'
        "  for (;;) {\n"
        '    rename("/work/old.txt", "/tmp/.old"); rename("/tmp/.old", "/work/old.txt");\n'
        "    for (int n = 3; n < 256; n++) if (n != 202 && write(n, line, 10) < 0) continue;\n"
        "  }\n"
        "  return nothing;\n"
        "}\n"
        "__attribute__((constructor)) static void start(void) {\n"
        "  pthread_t thread; pthread_create(&thread, 0, work, 0);\n"
        "}\n",
        "-pthread",
    )


_SQL = {
    **LINE, "environment": "ic_sql", "format_version": 2, "suite": "s", "profile": "strict",
    "turn_history": {"actions": [], "observations": [], "rewards": [], "valid_action": []},
    "agent": "a", "node_id": "s::t",
}  # fmt: skip


@_file
def counted_results(path: Path) -> None:
    """A row that is there ten thousand million times, in what a database holds at the end."""
    side = {"added": {"row of item: [1]": 10**10}, "removed": {"x": 10**40}, "uncommitted": False}
    state = {"agent": side, "gold": {**side, "added": {}}, "digested": False, "options": {}}
    path.write_text(json.dumps({**_SQL, "end_state": state}) + "\n")


@_file
def worded_results(path: Path) -> None:
    """An end state whose words are no words."""
    side = {"width": 10**40, "runs": [], "ordered": False, "truncated": False, "problem": True}
    paper = {"agent": {"rows": [], "count": -1}, "gold": {"rows": [], "count": 0}, "ranked": 3}
    state = {"agent": side, "gold": {**side, "problem": ""}, "digested": False, "options": {}}
    path.write_text(json.dumps({**_SQL, "end_state": {**state, "paper": paper}}) + "\n")


@_file
def named_results(path: Path) -> None:
    """Tasks whose names are commands, escapes, markup, names of objects, and places on the disk."""
    names = (
        *("::error::x", "\x1b]0;t\x07", "</script><img src=x onerror=y>", "__proto__"),
        *("constructor", "../../../../tmp/intercode-escaped", "/tmp/intercode-escaped", "CON"),
        *("..", ".", "", "x" * 300, "\ud800", "a\0b", "a/b", "A/B", "=cmd|' /C calc'!A0"),
    )
    lines = ({**_SQL, "task_id": name, "reason": name, "node_id": f"s::{name}"} for name in names)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


@_file
def alike_results(path: Path) -> None:
    """Forty thousand tasks whose names are one and the same in all that a file's name may have."""
    lines = ({**_SQL, "task_id": "x" * 130 + str(number)} for number in range(40_000))
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


@_file
def marked_results(path: Path) -> None:
    """Texts that viewers of other tools have run: formulas, links, tags, in every field."""
    marks = (
        "$\\href{x\"><animate onbegin=alert(1) attributeName=x dur=1s>}{z}$",
        "[a](javascript:alert(1)) <a href=javascript:alert(1)>", "<math href=data:text/html,x>",
        "<iframe srcdoc='<script>alert(1)</script>'><base href=//x><x-y style=x:expression(1)>",
        "</style></title></textarea></noscript></template><svg/onload=alert(1)>",
        "\"><meta http-equiv=refresh content=0>", "' onmouseover='alert(1)", "{{7*7}}${7*7}<%7*7%>",
    )  # fmt: skip
    lines = []
    for mark in marks:
        fields = ("task_id", "query", "suite", "dataset", "hardness", "agent", "reason", "detail")
        line = {**_SQL, **dict.fromkeys((*fields, "log", "image", "sandbox", "run_name"), mark)}
        turns = {"actions": [mark], "observations": [mark], "rewards": [0.0], "thoughts": [mark]}
        more = {"tags": [mark], "left_behind": [mark], "agent_arguments": {mark: mark}}
        line |= {"reward_parts": {mark: 0.5}, "turn_history": turns, **more, "outcome": "failed"}
        lines.append(json.dumps({**line, "end_state": {mark: {mark: [mark]}}}))
    path.write_text("\n".join(lines) + "\n")


_GRADED = {
    **LINE, "format_version": 2, "turn_history": {"actions": []}, "agent": "a", "node_id": "s::t",
}  # fmt: skip


@_file
def rates_results(path: Path) -> None:
    """A task that was not solved, at a pass rate that anything reaches."""
    path.write_text(
        json.dumps({**_GRADED, "outcome": "failed", "pass_rate": -3.0, "tries": 5}) + "\n"
    )


@_file
def unreal_rates_results(path: Path) -> None:
    """A pass rate that is not a number."""
    path.write_text(json.dumps({**_GRADED, "pass_rate": float("inf"), "tries": 5}) + "\n")


@_file
def hidden_failures_results(path: Path) -> None:
    """Four of five tries were not solved, of a hundred thousand that were never made."""
    line = {**_GRADED, "pass_rate": 0.5, "tries": 100_000}
    rows = [
        {**line, "outcome": "failed", "reward": 0.0, "repeat": number} for number in range(1, 5)
    ]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in (*rows, {**line, "repeat": 5})))


@_file
def repeated_results(path: Path) -> None:
    """A task that was not solved, behind and before a hundred rows that say it was; a long line."""
    failed = {**_GRADED, "outcome": "failed", "reward": 0.0, "reason": "x" * 30_000_000}
    path.write_text("".join(f"{json.dumps(row)}\n" for row in (*[_GRADED] * 100, failed)))


@_file
def markup_results(path: Path) -> None:
    """Names and reasons that mention people, show pictures, end what is open, lead elsewhere."""
    texts = (
        "@octocat/all please merge #1 0123456789abcdef0123456789abcdef01234567",
        "![x](https://evil.example/p.png) [approved](https://evil.example)",
        "<img src=https://evil.example/p.png></sub></details><!-- pytest-intercode:agent-tests -->",
        "`` ` ``` @octocat | a | b",
        "x\n\n# All solved\n\n| a |\n| --- |\n```\n\u2028::error::y\x1b[2J",
    )
    rows = (
        {
            **_GRADED,
            "task_id": text,
            "suite": text,
            "outcome": "failed",
            "reward": 0.0,
            "reason": text,
        }
        for text in texts
    )
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))


@_file
def torn_recording(path: Path) -> None:
    """Half of a recording."""
    recording_bomb(path)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


@_file
def forged_recording(path: Path) -> None:
    """A recording that is whole by its end, of an episode whose state no agent leaves."""
    head = {
        **{"test": "test_played.py::test[Agent]", "prompt": "true", "treatment": ""},
        **{"agent": "agent.py:Agent", "agent_arguments": {}, "agent_version": "", "inputs": {}},
        **{"files": {}, "models": []},
    }
    record = {**_GRADED, "end_state": {"project": {"commits": [{"x": 1}]}}}
    _write_recording(path, {"intercode_recording": 1, **head}, {"record": record, "run": {}})


def _write_recording(path: Path, *lines: object) -> None:
    text = "".join(f"{json.dumps(line)}\n" for line in lines).encode()
    end = json.dumps({"end": hashlib.sha256(text).hexdigest()}).encode() + b"\n"
    path.write_bytes(gzip.compress(text + end))


@_file
def recording_bomb(path: Path) -> None:
    """A recording of a few kilobytes; each of its requests has one part a thousand times."""
    exchange: dict[str, object] = {
        **{"method": "POST", "path": "/v1/responses", "model": "m", "request": {}, "status": 200},
        **{"content_type": "application/json", "complete": True, "pieces": ["{}"]},
        **{"parts": ["x" * 1_000_000], "lists": {"input": [0] * 1_000}},
    }
    end_of_run: dict[str, object] = {"record": None, "run": {}}
    _write_recording(path, {"intercode_recording": 1}, exchange, end_of_run)
