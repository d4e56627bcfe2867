"""The arguments of the chat agents, their templates, and the command that copies these."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from string import Template

import pytest

from pytest_intercode.agents.chat import make_factory
from pytest_intercode.agents.chat import templates as module_of_templates
from pytest_intercode.agents.chat.arguments import ChatArguments, read_chat_arguments
from pytest_intercode.agents.chat.templates import PLACEHOLDERS, load_templates
from pytest_intercode.cli import prompts as command
from pytest_intercode.environments.registry import builtin_kinds
from pytest_intercode.errors import AgentLoadError, ConfigurationError
from pytest_intercode.gateway.exchange import Price

HERE = Path("/here")


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_MODEL"):
        monkeypatch.delenv(name, raising=False)


def read(name: str = "react", **given: str) -> ChatArguments:
    return read_chat_arguments(name, {"model": "m", "api_key": "k", **given}, HERE)


def test_what_is_given() -> None:
    told = read(
        "plan-solve",
        base_url="http://localhost:8000/v1",
        temperature="0.5",
        seed="-3",
        max_completion_tokens="1_000",
        timeout="2.5",
        retries="0",
        history="500",
        observation_limit="200",
        prompts="mine",
        input_price="0.25",
        output_price="2",
        cached_price="0.1",
        extra_body='{"top_k": 1}',
        refine="0",
    )
    assert told == ChatArguments(
        model="m",
        base_url="http://localhost:8000/v1",
        api_key="k",
        sampling={"temperature": 0.5, "seed": -3, "max_completion_tokens": 1000},
        extra_body={"top_k": 1},
        timeout=2.5,
        retries=0,
        history=500,
        observation_limit=200,
        prompts=HERE / "mine",
        prices=Price(0.25, 2.0, 0.1),
        refine=0,
    )


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"temprature": "1"}, "no such argument; it takes model, base_url, api_key, temperature"),
        ({"temprature": "1"}, "Did you mean 'temperature'?"),
        ({"refine": "1"}, "the agent 'react' has no such argument"),
        ({"temperature": "hot"}, "temperature=hot: a number from 0 up is needed"),
        ({"temperature": "nan"}, "a number from 0 up is needed"),
        ({"temperature": "inf"}, "a number from 0 up is needed"),
        ({"seed": "1.5"}, "seed=1.5: a whole number is needed"),
        ({"max_tokens": "0"}, "max_tokens=0: a whole number of tokens from 1 up is needed"),
        ({"max_tokens": "1", "max_completion_tokens": "1"}, "max_tokens is given, too"),
        ({"timeout": "0"}, "timeout=0: a number of seconds above 0 is needed"),
        ({"retries": "-1"}, "retries=-1: a whole number from 0 up is needed"),
        ({"history": "all"}, "history=all: a whole number of characters from 1 up is needed"),
        ({"observation_limit": "5"}, "a whole number of characters from 100 up is needed"),
        ({"base_url": "localhost:8000"}, "an address with http:// or https:// is needed"),
        ({"model": " "}, "model= : a value is needed"),
        ({"api_key": ""}, "api_key=...: a value is needed"),
        ({"input_price": "1"}, "output_price=... is missing: the other is given"),
        ({"output_price": "1"}, "input_price=... is missing: the other is given"),
        ({"cached_price": "1"}, "input_price=... is missing: cached_price is given"),
        ({"input_price": "-1", "output_price": "1"}, "a number from 0 up, is needed"),
        ({"extra_body": "{"}, "extra_body={: it is not JSON"),
        ({"extra_body": "[1]"}, "a JSON object is needed"),
        ({"extra_body": '{"stream": true}'}, "'stream' is set by the agent itself"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(given: Mapping[str, str], said: str) -> None:
    with pytest.raises(AgentLoadError) as caught:
        read(**given)
    assert said in str(caught.value)
    assert str(caught.value).startswith("--intercode-agent-arg ")
    assert "\n" not in str(caught.value)


def test_a_model_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AgentLoadError, match=r"no model is given.*model=NAME.*OPENAI_MODEL"):
        read_chat_arguments("react", {"api_key": "k"}, HERE)
    monkeypatch.setenv("OPENAI_MODEL", "from-environment")
    assert read_chat_arguments("react", {"api_key": "k"}, HERE).model == "from-environment"
    assert read(model="given").model == "given"


def test_a_key_is_needed_unless_the_server_is_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AgentLoadError, match=r"no API key.*OPENAI_API_KEY.*base_url=URL"):
        read_chat_arguments("react", {"model": "m"}, HERE)
    assert (
        read_chat_arguments("react", {"model": "m", "base_url": "http://a/v1"}, HERE).api_key
        is None
    )
    monkeypatch.setenv("OPENAI_BASE_URL", "http://a/v1")
    read_chat_arguments("react", {"model": "m"}, HERE)
    monkeypatch.delenv("OPENAI_BASE_URL")
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    read_chat_arguments("react", {"model": "m"}, HERE)


def test_without_the_client_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(AgentLoadError, match=r"pip install 'pytest-intercode\[chat\]'"):
        make_factory("react", "", {"model": "m", "api_key": "k"}, HERE)


def test_what_a_factory_says_of_its_agent() -> None:
    given = {"model": "m", "api_key": "k"}
    priced = {**given, "input_price": "0", "output_price": "0"}
    assert make_factory("try-again", "", given, HERE).feedback == "reward"
    assert make_factory("react", "", given, HERE).feedback == ""
    assert make_factory("react", "", given, HERE).priced is False
    assert make_factory("react", "", priced, HERE).priced is True


def test_a_factory_imports_nothing_heavy() -> None:
    code = (
        "import sys\nfrom pathlib import Path\nfrom pytest_intercode.agents.chat import *\n"
        "make_factory('react', '', {'model': 'm', 'api_key': 'k'}, Path()).close()\n"
        "print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"openai", "httpx", "httpx2", "pytest", "yaml"} & set(done.stdout.split())


# -- templates


def test_every_template_is_there_and_no_other() -> None:
    folder = Path(module_of_templates.__file__).with_name("prompts")
    files = {path.stem for path in folder.iterdir()}
    assert files | {kind.name for kind in builtin_kinds()} == set(PLACEHOLDERS)
    assert load_templates().overrides == ()


def test_every_template_can_be_filled() -> None:
    templates = load_templates()
    for name, allowed in PLACEHOLDERS.items():
        text = templates.fill(name, **{key: f"<{key}>" for key in allowed}, unknown="")
        assert text
        assert "$" not in text


def test_ones_own_templates_replace_ours_by_name(tmp_path: Path) -> None:
    (tmp_path / "task.txt").write_text("It costs $$1: ${query}!\n")
    (tmp_path / "README.md").write_text("not a template")
    templates = load_templates(tmp_path)
    assert templates.overrides == ("task",)
    assert templates.fill("task", query="a $query") == "It costs $1: a $query!"
    assert templates.texts["react"] is load_templates().texts["react"]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("task.txt", "a\n$query\n$quary", "task.txt:3: there is no placeholder $quary here"),
        ("task.txt", "$query $quary", "Did you mean 'query'?"),
        ("task.txt", "$query\nit costs $5", "task.txt:2: a $ without a placeholder"),
        ("task.txt", "Do it.", "task.txt: it has no $query"),
        ("observation.txt", "$turns_left", "it has no $observation"),
        ("raect.txt", "x", "raect.txt: there is no template with this name. Allowed:"),
        ("raect.txt", "x", "Did you mean 'react'?"),
        (
            "notes.md",
            "x",
            "the folder contains no templates; copy those that you want to change with",
        ),
    ],
)
def test_a_wrong_template_is_said(tmp_path: Path, name: str, text: str, said: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(AgentLoadError) as caught:
        load_templates(tmp_path)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_template_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "task.txt").write_bytes(b"\xff $query")
    with pytest.raises(AgentLoadError, match=r"task\.txt: cannot be read"):
        load_templates(tmp_path)
    with pytest.raises(AgentLoadError, match="there is no such folder"):
        load_templates(tmp_path / "nowhere")


# -- the command


def run(*words: str) -> int:
    import argparse

    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return command.run(parser.parse_args(words))


def test_templates_are_copied(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "a" / "prompts"
    assert run(str(folder), "react", "task") == 0
    assert {path.name for path in folder.iterdir()} == {"react.txt", "task.txt"}
    assert f"prompts={folder}" in capsys.readouterr().out
    assert load_templates(folder).overrides == ("react", "task")
    assert isinstance(load_templates(folder).texts["react"], Template)
    assert run(str(tmp_path / "all")) == 0
    assert set(load_templates(tmp_path / "all").overrides) == set(PLACEHOLDERS)


def test_templates_are_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "task.txt").write_text("mine")
    with pytest.raises(ConfigurationError, match=r"task\.txt already exists"):
        run(str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["task.txt"]
    with pytest.raises(ConfigurationError, match=r"no template 'taks'.*Did you mean 'task'"):
        run(str(tmp_path), "taks")
    with pytest.raises(ConfigurationError, match="Not a directory"):
        run(str(tmp_path / "task.txt" / "below"))
