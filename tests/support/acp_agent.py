"""An agent that speaks ACP by the SDK's own side for agents, and does what its prompts say.

A prompt's first line is one of the scripts below; ``CONTINUE`` goes on in the same session.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

import acp
from acp.schema import (
    AgentCapabilities,
    EnvVariable,
    InitializeResponse,
    NewSessionResponse,
    PermissionOption,
    PromptResponse,
    TerminalExitStatus,
    ToolCallUpdate,
)

OPTIONS = [
    PermissionOption(option_id="forever", name="Always", kind="allow_always"),
    PermissionOption(option_id="now", name="Once", kind="allow_once"),
    PermissionOption(option_id="no", name="No", kind="reject_once"),
]
TEXT = "1 \f \u2028 \x85\n2\n3\n"  # of three lines, whatever Python's splitlines() says


class ScriptedAgent:
    """Plays one of its scripts for each prompt."""

    session = "session-1"

    def on_connect(self, conn: acp.Client) -> None:
        self.client = conn

    async def initialize(self, protocol_version: int, **_: Any) -> InitializeResponse:
        return InitializeResponse(
            protocol_version=protocol_version, agent_capabilities=AgentCapabilities()
        )

    async def new_session(self, cwd: str, **_: Any) -> NewSessionResponse:
        self.cwd = cwd
        self.prompts = 0
        return NewSessionResponse(session_id=self.session)

    async def prompt(self, prompt: list[Any], **_: Any) -> PromptResponse:
        name = prompt[0].text.split()[0].lower().strip(".")
        self.prompts += 1
        await getattr(self, name)(prompt[0].text)
        return PromptResponse(stop_reason="end_turn")

    # -- scripts

    async def write(self, _: str) -> None:
        """Solves the task with a terminal and files, and reports all that it does."""
        await self._update(acp.update_agent_thought(acp.text_block("I think.")))
        await self._update(acp.update_plan([acp.plan_entry("write it")]))
        output = await self._run("sh", ["-c", "echo hi >x; echo $A; pwd"], A="it's")
        assert output == f"it's\n{self.cwd}\n", output
        path = f"{self.cwd}/y"
        await self.client.write_text_file(session_id=self.session, path=path, content=TEXT)
        part = await self.client.read_text_file(
            session_id=self.session, path=f"{self.cwd}/../{self.cwd}/y", line=2, limit=1
        )
        assert part.content == "2\n", part
        await self._update(acp.start_tool_call("c", "Look up", kind="search", raw_input={"q": "x"}))
        answer = await self.client.request_permission(
            session_id=self.session,
            tool_call=ToolCallUpdate(tool_call_id="c", title="Look up"),
            options=OPTIONS,
        )
        outcome = getattr(answer.outcome, "option_id", "none")
        await self._update(
            acp.update_tool_call(
                "c",
                status="completed",
                content=[acp.tool_content(acp.text_block(f"allowed: {outcome}"))],
            )
        )
        await self._run(f"rm {path}")
        await self._update(acp.update_agent_message(acp.text_block("All done.")))

    async def ask(self, _: str) -> None:
        """Asks what to write."""
        await self._update(acp.update_agent_message(acp.text_block("What shall I write?")))

    async def hi(self, _: str) -> None:
        """Goes on in the same session."""
        await self._run(f"echo hi >x; echo {self.prompts}")
        await self._update(acp.update_agent_message(acp.text_block("All done.")))

    async def the(self, _: str) -> None:
        """Goes on when "The tests fail"."""
        await self.hi(_)

    async def stray(self, _: str) -> None:
        """Asks for files that a path could lead to outside, and says what came of it."""
        await self._run("ln -s /etc up; echo inside >/etc/secret; mkfifo pipe")
        paths = ("up/secret", "../etc/secret", "pipe", "../../../etc/no", "up/../nothing", ".")
        for name in paths:
            try:
                result = await self.client.read_text_file(
                    session_id=self.session, path=f"{self.cwd}/{name}"
                )
                text = result.content
            except acp.RequestError as error:
                text = f"refused {error}"
            await self._run("echo", [name, text])
        await self.client.write_text_file(
            session_id=self.session, path=f"{self.cwd}/up/written", content="in the sandbox"
        )
        await self._run("cat /etc/written; rm -r up pipe /etc/secret /etc/written")

    async def _run(self, command: str, args: list[str] | None = None, **variables: str) -> str:
        terminal = await self.client.create_terminal(
            session_id=self.session,
            command=command,
            args=args,
            env=[EnvVariable(name=name, value=value) for name, value in variables.items()],
        )
        ids = {"session_id": self.session, "terminal_id": terminal.terminal_id}
        await self.client.wait_for_terminal_exit(**ids)
        result = await self.client.terminal_output(**ids)
        assert isinstance(result.exit_status, TerminalExitStatus)
        await self.client.kill_terminal(**ids)
        await self.client.release_terminal(**ids)
        return result.output

    async def _update(self, update: Any) -> None:
        await self.client.session_update(self.session, update)


if __name__ == "__main__":
    asyncio.run(acp.run_agent(cast(acp.Agent, ScriptedAgent())))
