"""Aider's polyglot exercises: their golds pass, and who does nothing does not."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from tests.conftest import results
from tests.support.polyglot import write_sample

OPTIONS = ("-p", "no:cacheprovider", "--intercode-results=r.jsonl")


def outcomes(
    pytester: pytest.Pytester, language: str, agent: str, backend: str
) -> list[tuple[str, int]]:
    write_sample(pytester.path / "data" / "polyglot")
    pytester.makepyfile(
        others=textwrap.dedent(
            """
            class Idle:
                def run(self, task, env):
                    return None

            class Ends:
                def run(self, task, env):
                    env.step("echo 'import os; os._exit(0)' >transpose.py")
                    return "Done."
            """
        )
    )
    pytester.runpytest(
        *OPTIONS,
        f"--intercode-dataset=polyglot-{language}",
        "--intercode-data=data",
        f"--intercode-agent={agent}",
        backend,
    )
    rows = results(pytester.path / "r.jsonl")
    Path(pytester.path / "r.jsonl").unlink()
    return [(row["outcome"], row["submissions"]) for row in rows]


@pytest.mark.usefixtures("needs_sandboxes")
def test_python(pytester: pytest.Pytester, quick_sandbox: str) -> None:
    assert outcomes(pytester, "python", "oracle", quick_sandbox) == [("solved", 1)]
    assert outcomes(pytester, "python", "others.py:Idle", quick_sandbox) == [("failed", 1)]
    assert outcomes(pytester, "python", "others.py:Ends", quick_sandbox) == [("failed", 2)]


@pytest.mark.slow
@pytest.mark.usefixtures("needs_docker")
@pytest.mark.parametrize("language", ["go", "java", "javascript", "python", "rust"])
def test_its_image(pytester: pytest.Pytester, language: str) -> None:
    docker = "--intercode-sandbox=docker"
    assert outcomes(pytester, language, "oracle", docker) == [("solved", 1)]
    assert outcomes(pytester, language, "others.py:Idle", docker) == [("failed", 1)]
