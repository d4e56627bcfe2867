"""The chat baselines: a model on any server that supports OpenAI's chat completions API.

``single-turn``, ``try-again``, ``react``, ``plan-solve`` and ``tools``. They are loop-style agents,
and use nothing that other agents cannot use. The openai client is imported before the first episode
starts.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pytest_intercode.agents.agent_environment import AgentEnvironment
from pytest_intercode.agents.chat.arguments import read_chat_arguments
from pytest_intercode.agents.chat.templates import load_templates
from pytest_intercode.agents.protocol import Agent, AgentFactory
from pytest_intercode.core.task import Task, TaskView
from pytest_intercode.errors import AgentLoadError
from pytest_intercode.system.extras import has_extra, need

__all__ = ["make_factory"]


def make_factory(name: str, rest: str, arguments: Mapping[str, str], folder: Path) -> AgentFactory:
    """Return the factory of a chat baseline.

    Raises:
        AgentLoadError: an argument is wrong, or the openai client is not installed.
    """
    if not has_extra("chat"):
        raise AgentLoadError(need("chat", f"--intercode-agent={name}"))
    settings = read_chat_arguments(name, arguments, folder)
    templates = load_templates(settings.prompts)

    from pytest_intercode.agents.chat.client import Caller, ChatClient
    from pytest_intercode.agents.chat.conversation import Conversation
    from pytest_intercode.agents.chat.strategies import CONVERSATIONAL, STRATEGIES

    client = ChatClient(settings)
    play, continues = STRATEGIES[name], name in CONVERSATIONAL

    def make(_: Task) -> Agent:
        client.start()
        caller = Caller(client)

        def run(task: TaskView, env: AgentEnvironment) -> None:
            play(Conversation(name, settings, templates, caller, task, env))

        return Agent("loop", run=run, name=name, abort=caller.abort, continues=continues)

    return AgentFactory(
        name,
        make,
        feedback="reward" if name == "try-again" else "",
        priced=settings.prices is not None,
        close=client.close,
        continues=continues,
    )
