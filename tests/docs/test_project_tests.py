"""The tests in docs/project-tests.md work as they are shown, with an agent that does as shown."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.git import git

TEXT = (Path(__file__).parents[2] / "docs" / "project-tests.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(?:python|sh) (\S+)\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)
TESTS = [(name, body) for name, body in BLOCKS if name.endswith(".py")]
SCRIPTS = [body for name, body in BLOCKS if name == "agent.sh"]  # one follows each test
OUTCOMES = {
    "test_rules.py": {"passed": 1},
    "test_example.py": {"passed": 1},
    "test_skill.py": {"passed": 2, "failed": 2},  # the control knows no rules
}
AGENT = """\
from pathlib import Path

class Agent:
    def run(self, task, env):
        for line in Path(__file__).with_name("agent.sh").read_text().splitlines():
            env.step(line)
"""
FILES = {
    "agents.py": AGENT,
    "pyproject.toml": '[project]\nname = "app"\n',
    "legacy/old.py": "x = 1\n",
    "example/README.md": "helo\n",
    "treatments/rules/AGENTS.md": "Use uv.\n",
}


@pytest.mark.usefixtures("needs_sandboxes")
@pytest.mark.parametrize(
    ("name", "body", "script"),
    [(name, body, script) for (name, body), script in zip(TESTS, SCRIPTS, strict=True)],
    ids=[name for name, _ in TESTS],
)
def test_a_test(pytester: pytest.Pytester, name: str, body: str, script: str) -> None:
    for path, content in {**FILES, name: body, "agent.sh": script}.items():
        (pytester.path / path).parent.mkdir(parents=True, exist_ok=True)
        (pytester.path / path).write_text(content)
    git(pytester.path, "init", "-q")
    result = pytester.runpytest("--intercode-agent=agents.py:Agent")
    result.assert_outcomes(**OUTCOMES[name])
