"""A repository's first project tests: what is found in the repository, and the files made from it.

Reads the repository and this machine, and writes nothing. The texts in the repository are not
trusted: only known commands and names of plain letters get into the files that are made.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from iniconfig import IniConfig, ParseError

from pytest_intercode.agents.installed.recipe import MODEL, executables
from pytest_intercode.options.table import OPTIONS
from pytest_intercode.system.files import read_bounded

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # installed with pytest

__all__ = [
    "Addition",
    "Findings",
    "add_option",
    "choose_agents",
    "find_out",
    "make_tests",
    "workflow",
]

INI_VALUE = "intercode_agent"
_DEFAULT_AGENT = "codex"
_MAX_FILE = 1 << 20  # bytes that are read of a file
_RULES = ("AGENTS.md", "CLAUDE.md")
_SKILLS = (".claude/skills", ".agents/skills", ".codex/skills", "skills")
_SKILL_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?")
# A command that runs tests, as rules write it in code: a program, and a word for tests.
_TEST_COMMAND = re.compile(
    r"(?:(?:uv|poetry|pdm|hatch|pipenv) run |python3? -m )?(?:pytest|tox|nox)"
    r"|(?:make|just|task|rake|mix|cargo|go|dotnet|npm|pnpm|yarn|bun|composer|hatch)"
    r"(?: run)? (?:tests?|check)"
    r"|(?:\./)?(?:gradlew|mvnw|gradle|mvn) test"
    r"|(?:\./)?(?:scripts|bin|script)/tests?"
)
_SPAN = re.compile(r"`+\s*([^`]+?)\s*`+")
_FENCE = re.compile(r"\s*(?:```|~~~)")


@dataclass(frozen=True)
class Findings:
    """What a repository provides for agents, and what this machine has.

    Attributes:
        rules: the file with rules for agents; empty for none.
        command: the command that runs the tests, according to the rules; empty for none.
        skills: the names of skills.
        servers: the names of the servers in ``.mcp.json``.
        tests: the folder for the tests, relative to the repository.
        agents: the agents for which this machine has a program or a key, with which of them.
    """

    rules: str
    command: str
    skills: tuple[str, ...]
    servers: tuple[str, ...]
    tests: str
    agents: Mapping[str, str]

    @property
    def shipped(self) -> str:
        """What the repository provides for agents, in one line."""
        facts = [self.rules] if self.rules else []
        if self.command:
            facts[0] += f" (tests run with `{self.command}`)"
        facts += [f"skills {', '.join(self.skills)}"] if self.skills else []
        facts += [f".mcp.json ({', '.join(self.servers)})"] if self.servers else []
        return "; ".join(facts) or "no AGENTS.md, CLAUDE.md, skills or .mcp.json"


def find_out(root: Path, variables: Mapping[str, str] = os.environ) -> Findings:
    """Inspect a repository and this machine.

    Args:
        root: the repository's folder.
        variables: the environment variables.
    """
    rules = next((name for name in _RULES if (root / name).is_file()), "")
    tests = next((name for name in ("tests", "test") if (root / name).is_dir()), "tests")
    agents: dict[str, str] = {}
    keys: set[str] = set()
    for name, recipe in executables().items():
        program = recipe.executable
        reasons = [f"its program {program}"] if shutil.which(program) else []
        # A key that several agents use counts for its vendor's own agent, which is the first.
        if recipe.key not in keys and variables.get(recipe.key):
            reasons.append(recipe.key)
        keys.add(recipe.key)
        if reasons:
            agents[name] = " and ".join(reasons)
    return Findings(
        rules,
        _find_test_command(_read(root / rules)) if rules else "",
        tuple(_find_skills(root)),
        tuple(_find_servers(root)),
        f"{tests}/agents",
        agents,
    )


def choose_agents(findings: Findings) -> list[str]:
    """Return the agents to begin with, each with a placeholder for the model if it needs one."""
    recipes = executables()
    names = findings.agents or (_DEFAULT_AGENT,)
    return [
        f"{name}:model={MODEL}" if "model" in recipes[name].arguments else name for name in names
    ]


def _read(path: Path) -> str:
    try:
        return (read_bounded(path, _MAX_FILE) or b"").decode("utf-8", "replace")
    except OSError:
        return ""


def _find_test_command(text: str) -> str:
    for code in _find_code(text):
        code = code.removeprefix("$ ")
        command = _TEST_COMMAND.match(code)
        if command is not None and code[command.end() :][:1] in ("", " ", ":"):
            return command[0]
    return ""


def _find_code(text: str) -> Iterator[str]:
    """Yield the code in a Markdown text: the lines of blocks, and the spans in other lines."""
    in_block = False
    for line in text.splitlines():
        if _FENCE.match(line):
            in_block = not in_block
        elif in_block or line.startswith(("    ", "\t")):
            yield line.strip()
        else:
            yield from (match[1] for match in _SPAN.finditer(line))


def _find_skills(root: Path) -> Iterator[str]:
    for folder in _SKILLS:
        paths = sorted((root / folder).glob("*/SKILL.md"))
        yield from (path.parent.name for path in paths if _SKILL_NAME.fullmatch(path.parent.name))


def _find_servers(root: Path) -> Iterator[str]:
    try:
        settings = json.loads(_read(root / ".mcp.json") or "{}")
    except ValueError:
        return
    servers = settings.get("mcpServers") if isinstance(settings, dict) else None
    yield from (name for name in servers or () if isinstance(name, str))


# -- the files


_MODULE = '''\
"""Do agents do in this repository what {subject}?

Each test runs an agent on a prompt in a copy of the repository, and asks what it did. Good
prompts are what people here ask agents for. What else a run can be asked is in
docs/project-tests.md of pytest-intercode.
"""
'''
_RULES_TEST = """
def test_runs_the_tests_as_{name}_says(intercode_project):
    run = intercode_project.run("Run the tests of this project, and say whether they pass.")
    assert run.ran({command})
    assert run.unchanged({rules})
"""
_SKILL_TEST = """
def test_loads_the_skill(intercode_project):
    # A better prompt says what a user wants, and does not name the skill.
    run = intercode_project.run({prompt})
    assert run.loaded_skill({skill})
"""
_PLAIN_TEST = """
def test_answers_and_changes_nothing(intercode_project):
    run = intercode_project.run("Say in one sentence what this project is for. Change nothing.")
    assert run.answer
    assert not run.created
    assert not run.changed
"""


def make_tests(findings: Findings) -> str:
    """Return the first tests, each about something that the repository has."""
    subjects = [f"{findings.rules} says"] if findings.rules else []
    subjects += ["its skills are for"] if findings.skills else []
    parts = [_MODULE.format(subject=" and what ".join(subjects) or "people here ask them for")]
    if findings.command:
        parts.append(
            _RULES_TEST.format(
                name=findings.rules.replace(".", "_").lower(),
                command=json.dumps(findings.command),
                rules=json.dumps(findings.rules),
            )
        )
    if findings.skills:
        skill = findings.skills[0]
        prompt = json.dumps(f"Use the skill {skill}: say in one sentence what it is for.")
        parts.append(_SKILL_TEST.format(skill=json.dumps(skill), prompt=prompt))
    if len(parts) == 1:
        parts.append(_PLAIN_TEST)
    return "\n".join(parts)


def workflow(findings: Findings) -> str:
    """Return the workflow that runs the tests on pull requests from recordings."""
    text = files("pytest_intercode.cli").joinpath("agents.yml").read_text(encoding="utf-8")
    return text.replace("pytest tests/agents ", f"pytest {findings.tests} ")


# -- the options


@dataclass(frozen=True)
class Addition:
    """An addition to a configuration file of pytest.

    Attributes:
        path: the file.
        lines: the lines that are added.
        text: the whole file with the addition; None if nothing is added.
        reason: why nothing is added; empty otherwise.
    """

    path: Path
    lines: str
    text: str | None
    reason: str = ""


# In the order in which pytest uses the first file that it finds, with the names of its sections.
# The first four files count even without such a section.
_SECTIONS = {
    "pytest.toml": ("pytest",),
    ".pytest.toml": ("pytest",),
    "pytest.ini": ("pytest",),
    ".pytest.ini": ("pytest",),
    "pyproject.toml": ("tool.pytest", "tool.pytest.ini_options"),
    "tox.ini": ("pytest",),
    "setup.cfg": ("tool:pytest",),
}
_OWN_FILES = ("pytest.toml", ".pytest.toml", "pytest.ini", ".pytest.ini")


def add_option(root: Path, agents: Sequence[str]) -> Addition:
    """Return the addition that makes the agents those of every run, to the file that pytest reads.

    Every other byte of the file stays as it is.

    Args:
        root: the repository's folder.
        agents: their names.
    """
    for name, sections in _SECTIONS.items():
        path = root / name
        if not path.is_file():
            continue
        try:
            text = path.read_bytes().decode("utf-8")
            present = [section for section in sections if _table(name, text, section) is not None]
        except (OSError, ValueError, ParseError) as error:
            return Addition(path, "", None, f"it cannot be read: {error}")
        if present or name in _OWN_FILES:
            return _add(path, text, (present or sections)[0], agents)
    path = root / "pyproject.toml"
    if path.is_file():
        return _add(path, path.read_bytes().decode("utf-8"), "tool.pytest.ini_options", agents)
    return _add(root / "pytest.ini", "", "pytest", agents)


def _add(path: Path, text: str, section: str, agents: Sequence[str]) -> Addition:
    line = _line(path.name, agents)
    old_values = _table(path.name, text, section) or {}
    if INI_VALUE in old_values:
        return Addition(path, "", None, f"it already has {INI_VALUE}")
    end = "\r\n" if "\r\n" in text else "\n"
    head = re.search(rf"^\[{re.escape(section)}\][ \t]*(?:[#;].*)?\r?$", text, re.MULTILINE)
    if head is not None:
        # The line goes below the head, before the head's line end.
        tail = text[head.end() :]
        new_text = f"{text[: head.end()].rstrip(chr(13))}{end}{line}{end[:-1]}{tail}"
    else:
        gap = "" if not text else end if text.endswith("\n") else end * 2
        new_text = f"{text}{gap}[{section}]{end}{line}{end}"
    try:
        new_values = dict(_table(path.name, new_text, section) or {})
    except (ValueError, ParseError):
        new_values = {}
    # A file that is written in an unusual way, such as with dotted keys, is left as it is.
    if not new_values.pop(INI_VALUE, None) or new_values != old_values:
        return Addition(path, "", None, f"add to [{section}] yourself: {line}")
    return Addition(path, f"[{section}]\n{line}", new_text)


def _line(name: str, agents: Sequence[str]) -> str:
    (option,) = [option for option in OPTIONS if option.ini == INI_VALUE]
    is_list = option.ini_type == "args"
    names = list(agents) if is_list else list(agents)[:1]
    if name.endswith(".toml"):
        value = json.dumps(names) if is_list else json.dumps(names[0])
    else:
        value = " ".join(names)
    return f"{INI_VALUE} = {value}"


def _table(name: str, text: str, section: str) -> Mapping[str, Any] | None:
    """Return a section's values, as pytest reads them; None if there is no such section."""
    if not name.endswith(".toml"):
        sections = IniConfig(name, data=text)
        return dict(sections[section].items()) if section in sections else None
    table: Any = tomllib.loads(text)
    for key in section.split("."):
        table = table.get(key) if isinstance(table, dict) else None
    if section == "tool.pytest" and isinstance(table, dict) and set(table) <= {"ini_options"}:
        return None  # it contains only the table of the older format
    return table if isinstance(table, dict) else None
