"""What docs/fakes.md shows works as it is shown: its tests, in a sandbox, and its table."""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_intercode.core.call import ShimCall
from pytest_intercode.projects.fakes import Fake
from pytest_intercode.projects.shims import Shims
from pytest_intercode.sandboxes.protocol import SandboxSpec
from pytest_intercode.sandboxes.provider import SandboxProvider
from pytest_intercode.sandboxes.settings import SandboxSettings
from tests.support.backends import SOURCE

TEXT = (Path(__file__).parents[2] / "docs" / "fakes.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```\w+ (\S+)\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)
TESTS = [(name, body) for name, body in BLOCKS if name.endswith(".py")]
# Of each test, what its agent does; it comes after it.
AGENTS = [body for name, body in BLOCKS if name == "agent.sh"]
FILES = {name: body for name, body in BLOCKS if (name, body) not in TESTS and name != "agent.sh"}
ROWS = re.findall(r"^\| (`.*`) \| (`.*`) \| (`.*`) \|$", TEXT, re.MULTILINE)


class Run:
    """What a run has that these tests look at."""

    def __init__(self, calls: list[ShimCall]) -> None:
        self.calls = calls


class Project:
    """Plays an agent that runs a script in an empty project."""

    def __init__(self, provider: SandboxProvider, folder: Path, script: str) -> None:
        self._provider, self._folder, self._script = provider, folder, script

    def run(self, prompt: str, *, fake: Any, watch: Any = ()) -> Run:
        shims = Shims(fake, watch, folder=self._folder)
        image = self._provider.image(SOURCE)
        spec = SandboxSpec(
            image, workdir="/project", readonly=shims.readonly, variables=shims.variables
        )
        with (
            contextlib.closing(shims),
            contextlib.closing(self._provider.acquire(spec)) as sandbox,
        ):
            shims.open(sandbox)
            sandbox.run(self._script, 60)
        shims.check()
        return Run(shims.calls)


@pytest.fixture(scope="module")
def provider() -> Iterator[SandboxProvider]:
    with contextlib.closing(SandboxProvider(SandboxSettings("bubblewrap"))) as provider:
        yield provider


@pytest.mark.usefixtures("bubblewrap")
@pytest.mark.parametrize(
    ("body", "script"),
    [(body, script) for (_, body), script in zip(TESTS, AGENTS, strict=True)],
    ids=[name for name, _ in TESTS],
)
def test_a_test(body: str, script: str, tmp_path: Path, provider: SandboxProvider) -> None:
    for name, content in FILES.items():
        (tmp_path / name).write_text(content)
    names: dict[str, Any] = {}
    exec(compile(body, "docs/fakes.md", "exec"), names)
    [test] = [value for name, value in names.items() if name.startswith("test_")]
    test(Project(provider, tmp_path, script))


@pytest.mark.parametrize(("pattern", "matching", "other"), ROWS)
def test_a_row_of_the_table(pattern: str, matching: str, other: str) -> None:
    fake = Fake({pattern.strip("`"): "yes"}, "no")
    for words in re.findall("`(.*?)`", matching):
        assert fake.find_answer(shlex.split(words)) == "yes"
    for words in re.findall("`(.*?)`", other):
        assert fake.find_answer(shlex.split(words)) == "no"


def test_there_is_something_to_test() -> None:
    assert (len(TESTS), len(ROWS), list(FILES)) == (3, 5, ["fake_gh.sh"])
