"""Which requests are the same request for a recording, and which are not."""

from __future__ import annotations

import pytest

from pytest_intercode.gateway.canonical import canonical, first_difference, without_order


@pytest.mark.parametrize(
    ("recorded", "current"),
    [
        ("-rw-r--r-- 1 a a 5 Nov 24 18:50 x", "-rw-r--r-- 1 a a 5 Jan  2 09:01 x"),
        ("Mar  3  2025 y", "Nov 24 18:50 y"),
        ("Date:   Tue Nov 24 18:50:01 2026 +0000", "Date:   Fri Jan 1 00:00:00 2027 +0000"),
        ("changed 2 minutes ago", "changed 1 hour ago"),
        ("real\t0m0.003s", "real\t1m12.9s"),
        ("resolved in 12ms", "resolved in 1.5 s"),
        ("took 14.2µs", "took 900ns"),
        ("eta 0:00:01 at 3.4 MB/s", "eta 0:00:12 at 12 MB/s"),
        ("OS Version: Linux 6.8.0-45-generic", "OS Version: Linux 5.15.0"),
        (
            "Linux box 6.8.0-45-generic #45-Ubuntu SMP Tue Nov 24 18:50:01 UTC 2026 x86_64",
            "Linux box 6.1.0 #1 SMP Fri Jan 1 00:00:00 UTC 2027 x86_64",
        ),
        ("<object at 0x7f01aa5540>", "<object at 0x7ffe00112233>"),
        ("[1] 12345\nok", "[1] 99\nok"),
        ("http://localhost:40001/v1", "http://127.0.0.1:8000/v1"),
    ],
)
def test_facts_of_a_run_do_not_matter(recorded: str, current: str) -> None:
    contents = [canonical({"input": [{"content": text}]}) for text in (recorded, current)]
    assert first_difference(*contents) == ""
    assert canonical(contents[0]) == contents[0]  # also of what is canonical already


@pytest.mark.parametrize(
    ("recorded", "current"),
    [
        ("5 passed", "4 passed"),
        ("total 12", "total 16"),
        ("Python 3.11.2", "Python 3.12.0"),
        ("a:8000", "a:8001"),
        ("x86_64", "aarch64"),
        ("requests==2.31", "requests==2.32"),
        ("line 10, in f", "line 11, in f"),
    ],
)
def test_what_an_agent_sees_matters(recorded: str, current: str) -> None:
    contents = [canonical({"input": [{"content": text}]}) for text in (recorded, current)]
    assert first_difference(*contents)


def test_lines_of_two_pipes_come_in_any_order() -> None:
    contents = [
        without_order(canonical({"messages": [{"role": "tool", "content": text}]}))
        for text in ("out\n\nreal 0m0.1s\nend\n", "real 0m0.2s\nout\nend", "out\nend")
    ]
    assert contents[0] == contents[1] != contents[2]
