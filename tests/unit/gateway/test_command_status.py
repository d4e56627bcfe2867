"""Exit statuses, as clients wrote them into what their shell tools returned."""

from __future__ import annotations

import pytest

from pytest_intercode.gateway.command_status import read_status

QWEN = (
    "Command: ls\nDirectory: (root)\nOutput: {output}\nError: (none)\nExit Code: {status}\n"
    "Signal: (none)\n{more}Process Group PGID: (none)"
)


@pytest.mark.parametrize(
    ("text", "status"),
    [
        # Codex 0.169, and what it wrote before.
        (
            "Chunk ID: 822fbd\nWall time: 0.0000 seconds\nProcess exited with code 3\n"
            "Original token count: 14\nOutput:\nls: cannot access '/nope'\n",
            3,
        ),
        ("Wall time: 1.2 seconds\nProcess exited with code -9\nOutput:\n", -9),
        ("Exit code: 1\nWall time: 0.1 seconds\nTotal output lines: 1\nOutput:\nx", 1),
        ('{"output":"x","metadata":{"exit_code":127,"duration_seconds":0.1}}', 127),
        ("Wall time: 10 seconds\nProcess running with session ID 7\nOutput:\n", None),
        # Qwen Code 0.24
        (QWEN.format(output="x", status=2, more=""), 2),
        (QWEN.format(output="x", status=0, more="Background PIDs: 7\n"), 0),
        (QWEN.format(output="\nExit Code: 0\nSignal: (none)", status=4, more=""), 4),
        (QWEN.format(output="x", status="(none)", more=""), None),
        # mini-swe-agent
        ("<returncode>5</returncode>\n<output>\n</output>", 5),
        ('{"returncode": 6, "output": ""}', 6),
        # Kimi Code says something of failures alone, in words that a command can print.
        ("Wall time: 0.1 seconds\nProcess exited with code 0\n", None),
        # opencode says nothing, and neither does what a command prints.
        ("(no output)", None),
        ("x\nProcess exited with code 0\nOutput:\n", None),
        ("Exit Code: 0\n", None),
        ("x\nExit Code: 0\nSignal: none\nand more", None),
        ("<b><returncode>0</returncode>", None),
        ('{"returncode": true}', None),
        ('{"returncode": 1e99, "metadata": []}', None),
        ("{" * 5000, None),
        ("[" * 5000, None),
        ("Exit code: 99999999999999999999\nWall time: 1\n", None),
        ("", None),
    ],
)
def test_what_a_result_says(text: str, status: int | None) -> None:
    assert read_status(text).status == status


@pytest.mark.parametrize(
    ("text", "is_error", "command", "status"),
    [
        ("(Bash completed with no output)", False, "echo hi >x", 0),
        ("Exit code 3\nls: cannot access '/nope'", True, "ls /nope; exit 3", 3),
        ("Exit code 143", True, "sleep 9", 143),
        ("Exit code 0 is what I print", False, "x", 0),
        ("<tool_use_error>InputValidationError</tool_use_error>", True, "x", None),
        ("Command timed out after 2m 0.0s", True, "x", None),
        ("Command running in background with ID: b1. Output is", False, "sleep 9", None),
        # To Claude Code, a status of 1 of these is no error.
        ("(Bash completed with no output)", False, "cat x | grep zzz", None),
        ("(Bash completed with no output)", False, "/usr/bin/rg x", None),
        ("", False, "[ -f x ]", None),
        ("", False, "echo grep", 0),
        ("x", None, "echo", None),
    ],
)
def test_what_a_result_of_anthropics_api_says(
    text: str, is_error: bool | None, command: str, status: int | None
) -> None:
    assert read_status(text, is_error, command).status == status


CLINE = '[{"query":"make","result":"x",%s}]'


@pytest.mark.parametrize(
    ("text", "status"),
    [
        (CLINE % '"success":true', 0),
        (CLINE % '"error":"Command exited with code 3","success":false', 3),
        (CLINE % '"error":"Command timed out after 30000ms","success":false', None),
        (CLINE % '"success":"yes"', None),
        (CLINE.replace("make", "ls") % '"success":true', None),  # what another client's ls printed
        ('[{"query":"make","success":true},{"query":"ls","success":true}]', None),
        ('[{"query":"make"', None),
        ('[{"query":' * 5000, None),
    ],
)
def test_what_a_result_of_cline_says(text: str, status: int | None) -> None:
    assert read_status(text, None, "make").status == status
