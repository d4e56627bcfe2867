"""What each strategy tells a model in each environment."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
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
from pytest_intercode.environments.kind import EnvironmentKind
from pytest_intercode.environments.registry import register_environment
from pytest_intercode.errors import AgentLoadError, TaskError
from tests.unit.rollouts.test_turn_loop import Counter

ARGUMENTS = ChatArguments("any", base_url="http://127.0.0.1:9/v1")
# environment and engine: the language, the fence, and how to submit
ENVS = {
    ("bash", ""): ("Bash", "```bash", "submit", "/work"),
    ("sql", "sqlite"): ("SQLite", "```sql", "submit", "sqlite_master"),
    ("sql", "mysql"): ("MySQL", "```sql", "submit", "SHOW TABLES"),
    ("python", ""): ("Python", "```python", "submit NAME", "def "),
    ("ctf", ""): ("Capture The Flag", "```bash", "submit FLAG", "/work"),
}


def system(name: str, env: str, engine: str, folder: Path | None = None) -> str:
    task = TaskView(
        *("id", "Do this $1 thing.", env, "suite", "suite", "", (), "/work", 7, engine, "shop")
    )
    caller = Caller(ChatClient(ARGUMENTS))
    silent = SimpleNamespace(log=lambda _: None, has_user=False, functions=())
    unused = cast(AgentEnvironment, silent)
    conversation = Conversation(name, ARGUMENTS, load_templates(folder), caller, task, unused)
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


# -- environments of the user's


class Perl(Counter):
    """Perl as it is: variables last.

    Tests are graded.
    """

    name = "perl"


class Lisp(Counter):
    name, language, example = "my_lisp", "Common Lisp", "(+ 1 2)"
    description = "A read-eval-print loop for $5."


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_intercode.environments.registry._added", {})
    register_environment(Perl)
    register_environment(Lisp)


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize("name", list(STRATEGIES))
def test_a_model_is_told_of_an_environment_of_the_users(name: str) -> None:
    perl, lisp = system(name, "perl", ""), system(name, "my_lisp", "")
    assert 'the environment "perl". An action is Perl code.' in perl
    assert "Perl as it is: variables last.\n\nTests are graded.\n" in perl
    assert "An action is Common Lisp code." in lisp
    assert "A read-eval-print loop for $5.\n" in lisp
    assert ("```common-lisp\n(+ 1 2)\n```" in lisp) == (
        name in ("single-turn", "try-again", "plan-solve")
    )
    assert ("execute[(+ 1 2)]" in lisp) == (name == "react")


@pytest.mark.usefixtures("registered")
def test_what_a_model_writes_in_an_environment_of_the_users() -> None:
    for label in ("common-lisp", "my_lisp", ""):
        assert parse_fenced(f"```{label}\n(+ 1 2)\n```", "my_lisp").text == "(+ 1 2)"
    assert parse_fenced("```bash\nls\n```", "my_lisp").problem == (
        "the code block is marked as 'bash', not as common-lisp"
    )
    assert parse_react("Action: execute[print 1]", "perl").text == "print 1"
    assert parse_react("Action: submit", "perl").kind == "submit"


@pytest.mark.usefixtures("registered")
def test_a_template_of_an_environment_of_the_users(tmp_path: Path) -> None:
    (tmp_path / "perl.txt").write_text("Perl in $workdir, as ```$fence.")
    assert load_templates(tmp_path).overrides == ("perl",)
    assert system("react", "perl", "", tmp_path).startswith("Perl in /work, as ```perl.\n")
    (tmp_path / "ruby.txt").write_text("Ruby")
    with pytest.raises(AgentLoadError, match="no template with this name"):
        load_templates(tmp_path)


def test_a_wrong_prompt_of_a_kind_is_not_the_agents_fault() -> None:
    class Kind(EnvironmentKind):
        name = "perl"
        prompt = "You are in $workdirr."

    with pytest.raises(TaskError, match=r"Kind:1: there is no placeholder \$workdirr here; all"):
        load_templates().introduce(Kind())
