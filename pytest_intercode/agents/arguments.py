"""The arguments of agents, as ``--intercode-agent-arg KEY=VALUE`` gives them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pytest_intercode.errors import AgentLoadError, suggestion

__all__ = ["Argument", "find_folder", "read_arguments"]


class Argument(NamedTuple):
    """One argument that an agent takes.

    Attributes:
        name: its key.
        parse: converts a text to the value; its ValueError says what is needed.
        secret: whether its value is hidden in messages.
    """

    name: str
    parse: Callable[[str], object]
    secret: bool = False


def read_arguments(
    agent: str, arguments: Mapping[str, str], parameters: tuple[Argument, ...] = ()
) -> dict[str, Any]:
    """Return the values of arguments by their names.

    Args:
        agent: the agent's name, for messages.
        arguments: the texts by their keys.
        parameters: the arguments that the agent takes.

    Raises:
        AgentLoadError: a key is unknown, or a value is wrong.
    """
    parsers = {argument.name: argument for argument in parameters}
    values = {}
    for key, text in arguments.items():
        option = f"--intercode-agent-arg {key}"
        if not parameters:
            raise AgentLoadError(f"{option}=...: the agent {agent!r} takes no arguments")
        if key not in parsers:
            raise AgentLoadError(
                f"{option}=...: the agent {agent!r} has no such argument; it takes "
                f"{', '.join(parsers)}.{suggestion(key, parsers)}"
            )
        try:
            values[key] = parsers[key].parse(text.strip())
        except ValueError as error:
            displayed_value = "..." if parsers[key].secret else text
            raise AgentLoadError(f"{option}={displayed_value}: {error}") from None
    return values


def find_folder(argument: str, name: str | None, folder: Path) -> Path | None:
    """Return the folder that an argument names, or None if it was not given.

    Args:
        argument: the argument's key.
        name: its value; None if it was not given.
        folder: where a relative path starts.

    Raises:
        AgentLoadError: there is no such folder.
    """
    if name is None:
        return None
    path = (folder / Path(name).expanduser()).absolute()
    if not path.is_dir():
        raise AgentLoadError(f"--intercode-agent-arg {argument}=...: there is no folder {path}")
    return path
