"""The exit status of a command, as coding agents report it to their model. Pure.

Each client writes the status into the result of its shell tool, in its own words. A command can
print the same words. So each pattern is matched only at the end of the text at which the client
writes the status. If nothing matches, the status is unknown: that is better than a wrong one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

__all__ = ["CommandStatus", "read_status"]

_STATUS = r"(?P<status>-?\d{1,6})"
# Codex: older versions write "Exit code: 0" before the time, newer ones "Process exited ..." after
# it. A command that is still running has a session instead, which a later call asks about.
_CODEX = re.compile(
    rf"Exit code: {_STATUS}\nWall time: "
    r"|(?:Chunk ID: .*\n)?Wall time: .*\n"
    r"Process (?:exited with code (?P<later_status>-?\d{1,6})"
    r"|running with session ID (?P<session>\d{1,20}))\n"
    r"(?:Original token count: .*\n)?Output:\n"  # Kimi Code writes the time, then just the output
)
# Claude Code: only a failed command has its status in the text. Status 1 counts as success for
# programs that use it to report that they found nothing, or a difference.
_CLAUDE_LENIENT = re.compile(
    r"(?:^|[|;&(\n])\s*(?:\S*/)?(?:[ef]?grep|rg|find|diff|cmp|test|\[)(?=\s|$)"
)
_CLAUDE_FAILED = re.compile(rf"Exit code {_STATUS}(?:\n|\Z)")
_CLAUDE_BACKGROUND = re.compile(
    r"in background with ID: |backgrounded by user with ID: |moved to the background \(ID: "
)
_MINI_SWE_AGENT = re.compile(rf"<returncode>{_STATUS}</returncode>")
# Qwen Code: after the output.
_QWEN = re.compile(
    rf"\nExit Code: {_STATUS}\nSignal: .*(?:\nBackground PIDs: .*)?(?:\nProcess Group PGID: .*)?"
    r"\s*\Z"
)
_CLINE_FAILED = re.compile(rf"Command exited with code {_STATUS}")
_STARTS = (_CODEX, _MINI_SWE_AGENT)


class CommandStatus(NamedTuple):
    """The status of a command according to a tool's result.

    Attributes:
        status: the exit status; None if it is not known.
        session: the number by which Codex asks about a command that is still running; empty for
            none.
    """

    status: int | None = None
    session: str = ""


def read_status(text: str, is_error: object = None, command: str = "") -> CommandStatus:
    """Return the status of a command from the result of a shell tool.

    Args:
        text: the result, as the client sent it to its model.
        is_error: the field of that name in a result block of Anthropic's API; None without one.
        command: the command.
    """
    if text.startswith("{"):
        return CommandStatus(_read_object(text))
    if text.startswith("[{"):
        return CommandStatus(_read_list(text, command))
    for pattern in _STARTS:
        if match := pattern.match(text):
            groups = match.groupdict()
            status = groups["status"] or groups.get("later_status")
            return CommandStatus(
                None if status is None else int(status), groups.get("session") or ""
            )
    if match := _QWEN.search(text[-1000:]):
        return CommandStatus(int(match["status"]))
    if is_error is True:
        match = _CLAUDE_FAILED.match(text)
        return CommandStatus(int(match["status"]) if match else None)
    if is_error is False and not _CLAUDE_BACKGROUND.search(text):
        return CommandStatus(None if _CLAUDE_LENIENT.search(command) else 0)
    return CommandStatus()


def _read_object(text: str) -> int | None:
    """Return the status in an object, as written by the first Codex versions or mini-swe-agent."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, Mapping):
        return None
    metadata = document.get("metadata")
    values: tuple[Any, ...] = (
        metadata.get("exit_code") if isinstance(metadata, Mapping) else None,
        document.get("returncode"),
    )
    return next((v for v in values if type(v) is int and abs(v) < 10**6), None)


def _read_list(text: str, command: str) -> int | None:
    """Return the status in Cline's list of objects, one for each command."""
    try:
        items = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if len(items) != 1 or items[0].get("query") != command:
        return None
    if items[0].get("success") is True:
        return 0
    match = _CLINE_FAILED.fullmatch(str(items[0].get("error")))
    return int(match["status"]) if match else None
