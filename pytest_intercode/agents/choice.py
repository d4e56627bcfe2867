"""The agents of a run: parses ``--intercode-agent``, and gives each agent its label.

An agent may have its own arguments: ``codex:model=gpt-x``, ``module:Attr:key=value,key2=value``.
An agent that takes a command line or a file cannot, as its arguments could not be told from these.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from pytest_intercode.agents.loader import BUILT_IN
from pytest_intercode.errors import AgentLoadError
from pytest_intercode.results.cells import ATTRIBUTE, COMMAND_LINES, make_cell, shorten
from pytest_intercode.results.format import shown_arguments

__all__ = ["AgentChoice", "choose_agents", "parse_agent"]

_KEY = r"[A-Za-z_][\w.-]*"
_ARGUMENTS = re.compile(rf":(?=\s*{_KEY}\s*=)")  # what separates a name from its arguments


@dataclass(frozen=True)
class AgentChoice:
    """One of the agents that a run is asked for.

    Its string form is the agent as the user may have written it, without keys and passwords.

    Attributes:
        name: the agent without its arguments, as ``load_agent`` takes it.
        arguments: the arguments that the agent is made with.
        label: the agent's name in this run, in node ids and tables; empty until the run's other
            agents are known.
    """

    name: str
    arguments: Mapping[str, str] = field(default_factory=dict, hash=False)
    label: str = ""

    def __str__(self) -> str:
        arguments = ",".join(
            f"{key}={value}" for key, value in shown_arguments(self.arguments).items()
        )
        return f"{self.name}:{arguments}" if arguments else self.name

    def explain(self, message: str, shared: Mapping[str, str]) -> str:
        """Return a message about loading the agent that names the option of each argument.

        Args:
            message: the message; it names every argument as ``--intercode-agent-arg`` does.
            shared: the arguments of that option.
        """
        own_keys = [key for key, value in self.arguments.items() if value != shared.get(key)]
        for key in own_keys:
            option = f"--intercode-agent={self.name}:{key}="
            message = message.replace(f"--intercode-agent-arg {key}=", option)
        if own_keys:
            message = message.replace(
                "the arguments given by --intercode-agent-arg", "its arguments"
            )
        return message


def parse_agent(text: str) -> AgentChoice:
    """Parse one value of ``--intercode-agent``; :func:`choose_agents` adds the label.

    Raises:
        AgentLoadError: an argument is malformed or given twice, or the value names several agents.
    """
    head = text.partition(":")[0]
    if head in (*COMMAND_LINES, "replay"):
        return AgentChoice(text)
    heads = [word.partition(":")[0] for word in re.split(r"[,\s]+", text) if word]
    if len(heads) > 1 and all(name in BUILT_IN for name in heads):
        raise AgentLoadError(
            f"--intercode-agent={heads[0]}...: the option names one agent at a time; give it once "
            f"for each of {', '.join(heads)}; in an ini file, write one per line, in TOML a list"
        )
    name, colon, arguments = text, "", ""
    if separator := _ARGUMENTS.search(text):
        name, colon, arguments = text[: separator.start()], ":", text[separator.end() :]
    elif head in BUILT_IN and ":" not in BUILT_IN[head][1]:
        name, colon, arguments = text.partition(":")
    elif attribute := re.match(rf"{ATTRIBUTE.pattern}:", text):
        name, colon, arguments = attribute[0][:-1], ":", text[attribute.end() :]
    return AgentChoice(name, _read_arguments(name, arguments) if colon else {})


def _read_arguments(name: str, text: str) -> dict[str, str]:
    """Parse ``KEY=VALUE,KEY=VALUE``. No message shows a value, as it may be a secret key."""
    arguments: dict[str, str] = {}
    for number, part in enumerate(text.split(","), 1):
        key, sign, value = map(str.strip, part.partition("="))
        if not sign or not re.fullmatch(_KEY, key):
            raise AgentLoadError(
                f"--intercode-agent={name}:...: argument {number} is not of the form KEY=VALUE; "
                "give a value with a comma by --intercode-agent-arg KEY=VALUE"
            )
        if key in arguments:
            raise AgentLoadError(
                f"--intercode-agent={name}:...: the argument {key} is given twice; name the agent "
                "once for each of its values"
            )
        arguments[key] = value
    return arguments


def choose_agents(
    requested: Sequence[AgentChoice], shared: Mapping[str, str]
) -> tuple[AgentChoice, ...]:
    """Return the agents of a run, with all their arguments and with unique labels.

    Args:
        requested: the agents with their own arguments.
        shared: the arguments of all agents; an agent's own argument of the same name overrides.

    Raises:
        AgentLoadError: two agents are the same, or could not be told apart in records.
    """
    choices = [replace(choice, arguments={**shared, **choice.arguments}) for choice in requested]
    cells = [make_cell(choice.name, choice.arguments) for choice in choices]
    for position, choice in enumerate(choices):
        if cells[position] not in cells[:position]:
            continue
        earlier = choices[cells.index(cells[position])]
        if choice.arguments == earlier.arguments:
            raise AgentLoadError(
                f"--intercode-agent={choice}: this agent is given twice; for several tries at "
                "each task, use --intercode-repeat"
            )
        raise AgentLoadError(
            f"--intercode-agent={choice}: two agents differ only in a key, which results do not "
            "show; use two runs"
        )
    short_cells = shorten(cells)
    return tuple(
        replace(choice, label=short_cells[cell].agent_label)
        for choice, cell in zip(choices, cells, strict=True)
    )
