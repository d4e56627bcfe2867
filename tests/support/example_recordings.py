"""Records the example repositories anew, with a server that plays the model by a script.

::

    python -m tests.support.example_recordings [NAME...]

What the server answers is written here by hand: no model has a part in it, and the recordings show
how replay works, not what a model can do.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.support.conversations import call_tool
from tests.support.model_server import Command, ModelServer, Request

__all__ = ["EXAMPLES", "SCRIPTS", "record"]

EXAMPLES = Path(__file__).parents[2] / "examples" / "projects"

SCRIPTS: Mapping[str, Sequence[str | Command] | Callable[[Request], Any]] = {
    "skill": [
        Command("cat AGENTS.md VERSION"),
        Command("cat .claude/skills/release/SKILL.md"),
        Command("echo 1.5.0 >VERSION && git commit -qam 'Release 1.5.0'"),
        Command("gh release create v1.5.0 --draft --generate-notes"),
        "The draft of release 1.5.0 waits for a look.",
    ],
    "mcp-server": call_tool("tickets", "close", "Ticket 1 is closed.", number=1),
    "cli": [
        Command("cat AGENTS.md README.md"),
        Command("./stock add nut 40"),
        "There are 40 nuts in stock now.",
    ],
}
"""What the model says in each example."""


def record(name: str) -> int:
    """Record the tests of one example; return the exit status of pytest."""
    with ModelServer(SCRIPTS[name]) as server:
        variables = {"OPENAI_API_KEY": "sk-none", "OPENAI_BASE_URL": f"{server.url}/v1"}
        command = [sys.executable, "-m", "pytest", "-q", "--intercode-record=all"]
        process = subprocess.run(
            [*command, "-p", "no:cacheprovider"],
            cwd=EXAMPLES / name,
            env={**os.environ, **variables},
            check=False,
        )
    return process.returncode


if __name__ == "__main__":
    sys.exit(max(map(record, sys.argv[1:] or SCRIPTS)))
