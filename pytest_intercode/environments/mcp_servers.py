"""MCP servers of a task: whether one starts, tried in the agent's sandbox.

The agent starts them itself. One that does not start would be the agent's trouble, and look like
its failure; so each is started once before it, and has to answer the first request of the protocol.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any

from pytest_intercode.core.text import one_line
from pytest_intercode.core.turn import Command
from pytest_intercode.environments.shell import ShellEnvironment
from pytest_intercode.errors import TaskError

__all__ = ["start_servers"]

_START_TIMEOUT = 30  # seconds for the answer to the first request
_MAX_LINE_BYTES = 1_000_000
_MAX_SHOWN = 200  # characters of what a server printed
_VERSION = "2025-06-18"  # of the protocol; a server may answer with one that it knows
_REQUEST = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": _VERSION,
        "capabilities": {},
        "clientInfo": {"name": "pytest-intercode", "version": "1"},
    },
}
# It prints how the reading ended (`line`, `timeout`, or `end`) with the server's status, the line
# that was read, and what the server printed on its standard error. Lines before the answer, which
# are notifications, are skipped. With `set -m`, the server has a process group of its own, which
# ends as a whole: by the end of its input, as MCP says, or by a signal where that does not help.
# Its number is taken from `$!`, as bash forgets `SERVER_PID` as soon as the server has ended. It
# forgets the pipes with it: the server waits for an empty line, until they have other numbers.
_SCRIPT = """\
set -m
exec {{report}}>&1 >/dev/null 2>&1 </dev/null
errors=$(mktemp)
coproc SERVER {{ read -r; exec sh -c {command} 2>"$errors"; }}
server=$!
exec {{input}}>&"${{SERVER[1]}}" {{output}}<&"${{SERVER[0]}}"
eval "exec ${{SERVER[1]}}>&- ${{SERVER[0]}}<&-"
trap '' PIPE
printf '\\n%s\\n' {request} >&"$input"
deadline=$((SECONDS + {timeout}))
ending=timeout
while remaining=$((deadline - SECONDS)); [ $remaining -gt 0 ]; do
  line=
  IFS= read -r -n {max_bytes} -t "$remaining" line <&"$output"
  status=$?
  if [ $status -gt 128 ]; then break; fi
  if [ $status -ne 0 ] && [ -z "$line" ]; then ending=end; break; fi
  case $line in
    '' | *'"method"'*) continue ;;
  esac
  ending=line
  break
done
exec {{input}}>&-
for signal in 0 0 0 0 TERM 0 0 0 KILL; do
  kill -$signal -- "-$server" || break
  sleep 0.05
done
wait "$server"
code=$?
printf '%s %s\\n%s\\n' "$ending" "$code" "$line" >&"$report"
tail -c 2000 "$errors" >&"$report"
rm -f "$errors"
"""


def start_servers(environment: ShellEnvironment, servers: Mapping[str, str]) -> None:
    """Start each server once in the agent's sandbox, in the task's directory, and end it.

    Args:
        environment: after its sandbox was prepared, before the agent acts.
        servers: the command lines, by name.

    Raises:
        TaskError: one does not answer in 30 seconds, ends, or answers what is not MCP.
        InfrastructureError: the sandbox broke.
    """
    for name, command in servers.items():
        script = _SCRIPT.format(
            command=shlex.quote(command),
            request=shlex.quote(json.dumps(_REQUEST)),
            timeout=_START_TIMEOUT,
            max_bytes=_MAX_LINE_BYTES,
        )
        request = Command(script, "", _START_TIMEOUT + 10.0, "", False)
        _, output = environment.run_command(request)
        if problem := _find_problem(output):
            raise TaskError(f"mcp: the server {name!r} ({one_line(command):.80}) {problem}")


def _find_problem(output: str) -> str:
    """Return why a server cannot be used, from what the script printed; empty if it can."""
    head, _, rest = output.partition("\n")
    line, _, errors = rest.partition("\n")
    ending, _, code = head.partition(" ")
    words = one_line(errors.strip())[-_MAX_SHOWN:]
    detail = f"; its last output: {words}" if words else ""
    if ending == "timeout":
        return f"did not answer `initialize` in {_START_TIMEOUT} s{detail}"
    if ending == "end":
        return f"ended with status {code} before it answered `initialize`{detail}"
    if ending != "line":
        return f"could not be tried in this sandbox: {one_line(output):.200}"
    try:
        answer: Any = json.loads(line)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict) or answer.get("id") != 1:
        return (
            f"printed {one_line(line)[:_MAX_SHOWN]!r}, which is not an answer to `initialize`: its "
            f"standard output is for messages of MCP alone{detail}"
        )
    if "result" not in answer:
        return f"refused `initialize`: {one_line(json.dumps(answer.get('error'))):.200}"
    return ""
