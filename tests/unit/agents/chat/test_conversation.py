"""What each strategy tells a model in each environment."""

from __future__ import annotations

from typing import cast

import pytest

from pytest_intercode.agents.agent_environment import AgentEnvironment
from pytest_intercode.agents.chat.arguments import ChatArguments
from pytest_intercode.agents.chat.client import Caller, ChatClient
from pytest_intercode.agents.chat.conversation import Conversation
from pytest_intercode.agents.chat.parsing import parse_fenced, parse_react
from pytest_intercode.agents.chat.strategies import STRATEGIES
from pytest_intercode.agents.chat.templates import load_templates
from pytest_intercode.core.task import TaskView

ARGUMENTS = ChatArguments("any", base_url="http://127.0.0.1:9/v1")
# environment and engine: the language, the fence, and how to submit
ENVS = {
    ("bash", ""): ("Bash", "```bash", "submit", "/work"),
    ("sql", "sqlite"): ("SQLite", "```sql", "submit", "sqlite_master"),
    ("sql", "mysql"): ("MySQL", "```sql", "submit", "SHOW TABLES"),
    ("python", ""): ("Python", "```python", "submit NAME", "def "),
    ("ctf", ""): ("Capture The Flag", "```bash", "submit FLAG", "/work"),
}


def system(name: str, env: str, engine: str) -> str:
    task = TaskView(
        *("id", "Do this $1 thing.", env, "suite", "suite", "", (), "/work", 7, engine, "shop")
    )
    caller = Caller(ChatClient(ARGUMENTS))
    unused = cast(AgentEnvironment, object())
    conversation = Conversation(name, ARGUMENTS, load_templates(), caller, task, unused)
    first, second = conversation.history.messages()
    assert (first["role"], second["role"]) == ("system", "user")
    assert "Do this $1 thing." in second["content"]
    return str(first["content"])


@pytest.mark.parametrize("name", list(STRATEGIES))
@pytest.mark.parametrize(("env", "engine"), list(ENVS))
def test_a_model_is_told_what_it_needs(name: str, env: str, engine: str) -> None:
    language, fence, submit, example = ENVS[env, engine]
    text = system(name, env, engine)
    assert language in text
    assert ("```" in text) == (name in ("single-turn", "try-again", "plan-solve"))
    if "```" in text:
        assert fence in text
        assert example in text
    if name in ("react", "plan-solve") or (env == "ctf" and name != "tools"):
        assert submit in text
    if name == "tools":
        assert "the tool submit" in text.replace("call the tool", "the tool")
        assert "submit FLAG" not in text
    if name != "single-turn":
        assert "7 " in text
    assert "$" not in text
    assert all(len(line) <= 100 for line in text.split("\n"))


@pytest.mark.parametrize(("env", "engine"), list(ENVS))
def test_our_own_examples_are_read_as_they_are_meant(env: str, engine: str) -> None:
    shown = system("react", env, engine)
    _, _, example = shown.partition("what you do next\n")
    parsed = parse_react(example.partition("\n\n")[0], env)
    assert (parsed.kind, parsed.text) == (
        "execute",
        parse_fenced(system("try-again", env, engine), env).text,
    )
    last = shown.rpartition("Thought: ")[2]
    assert parse_react(last, env).kind == "submit"
