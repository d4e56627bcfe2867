"""What nodes need of an agent."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_intercode.rollouts.cluster.files import FileIndex
from pytest_intercode.rollouts.cluster.settings import find_agent


@pytest.mark.parametrize(
    ("command", "travels"),
    [
        ("python agent.py", True),
        ("python other.py", False),
        (f"bash -c 'echo {'x' * 300}'", False),
        (f"bash -c 'echo {'x' * 300}' agent.py", True),
    ],
)
def test_the_folder_of_a_command_travels_if_a_word_is_a_file_of_it(
    tmp_path: Path, command: str, travels: bool
) -> None:
    (tmp_path / "agent.py").write_text("print('submit')\n")
    agent = find_agent(f"command:{command}", {}, tmp_path, FileIndex(), "a test")
    assert (agent.archive is not None) == travels
