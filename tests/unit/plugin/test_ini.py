"""Options in configuration files: each of them, in every format and of every type of TOML's."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any, NamedTuple, get_args

import pytest

from pytest_intercode.core.rates import FailUnder
from pytest_intercode.errors import ConfigurationError
from pytest_intercode.options.option import IniType, Option
from pytest_intercode.options.table import OPTIONS
from pytest_intercode.plugin.ini import ini_values
from pytest_intercode.plugin.options import read_option, starts_run
from pytest_intercode.plugin.settings import Settings


class Format(NamedTuple):
    """A format of configuration files: the file's name, the table, and whether it is TOML."""

    file: str
    table: str
    toml: bool = False

    def write(self, lines: dict[str, str]) -> None:
        """Write a file with ini values into the current folder."""
        content = "".join(f"{name} = {written}\n" for name, written in lines.items())
        Path(self.file).write_text(f"[{self.table}]\n{content}")


NATIVE = pytest.mark.skipif(pytest.version_tuple < (9,), reason="native TOML came with pytest 9")
TYPED = [
    pytest.param(Format("pyproject.toml", "tool.pytest", True), id="tool.pytest", marks=NATIVE),
    pytest.param(Format("pytest.toml", "pytest", True), id="pytest.toml", marks=NATIVE),
    pytest.param(Format(".pytest.toml", "pytest", True), id=".pytest.toml", marks=NATIVE),
]
FORMATS = [
    *TYPED,
    pytest.param(Format("pyproject.toml", "tool.pytest.ini_options", True), id="ini_options"),
    pytest.param(Format("pytest.ini", "pytest"), id="pytest.ini"),
    pytest.param(Format("tox.ini", "pytest"), id="tox.ini"),
    pytest.param(Format("setup.cfg", "tool:pytest"), id="setup.cfg"),
]
# What is a value of an option that takes neither any text nor a folder.
SAMPLES: dict[str, Any] = {
    "agent": ["react:model=x,seed=1", "command:python agent.py --names a,b"],
    "agent-arg": ["model=x", "greeting=good day"],
    "env": ["sql", "bash"],
    "shard": "2/8",
    "cluster": "local:2",
    "fail-under": 0.8,
    "sandbox": "docker",
    "docker-host": ["unix:///run/a.sock", "tcp://b:2375=4"],
    "registry": "localhost:5000/ada",
    "gateway-price": ["*=1.25/10"],
    "base-image": ["debian=mirror/debian"],
    "kube-node": ["pool=agents"],
    "platform": "linux/amd64",
    "pass-rate": 0.8,
}
NEEDED: dict[IniType, str] = {
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "string": "a string",
    "args": "a list of strings",
    "linelist": "a list of strings",
}


def sample(option: Option[Any]) -> Any:
    """Return a value as TOML has it; a new option that takes no such value needs its own above."""
    if option.name in SAMPLES:
        return SAMPLES[option.name]
    by_type: dict[IniType, Any] = {"bool": True, "int": 2, "float": 1.5}
    if option.ini_type in by_type:
        return by_type[option.ini_type]
    text = option.allowed[-1] if option.allowed else "." if option.parse is Path else "word"
    return [text] if option.ini_type == "args" else text


def in_format(value: Any, form: Format) -> str:
    if form.toml or isinstance(value, bool):
        return json.dumps(value)
    return shlex.join(value) if isinstance(value, list) else str(value)


def written_as(option: Option[Any], form: Format) -> str:
    """Return a sample of an option as a file has it."""
    value = sample(option)
    if option.ini_type == "linelist" and not form.toml:
        return "".join(f"\n    {line}" for line in value)
    return in_format(value, form)


def on_command_line(option: Option[Any]) -> list[str]:
    word, value = f"--intercode-{option.name}", sample(option)
    if value is True:
        return [f"{word}=true" if option.metavar else word]
    return [f"{word}={each}" for each in (value if isinstance(value, list) else [value])]


def read_each(config: pytest.Config) -> dict[str, Any]:
    return {option.ini: read_option(config, option) for option in OPTIONS}


@pytest.mark.parametrize("form", FORMATS)
def test_each_option_is_what_it_is_on_the_command_line(
    pytester: pytest.Pytester, form: Format
) -> None:
    words = [word for option in OPTIONS for word in on_command_line(option)]
    expected = read_each(pytester.parseconfig(*words))
    assert all(value not in (None, False, (), {}) for value in expected.values())
    form.write({option.ini: written_as(option, form) for option in OPTIONS})
    config = pytester.parseconfig("--strict-config")
    assert config.inipath == pytester.path / form.file
    assert read_each(config) == expected


@pytest.mark.parametrize("form", FORMATS)
def test_what_is_false_or_empty_is_not_given(pytester: pytest.Pytester, form: Format) -> None:
    expected = read_each(pytester.parseconfig())
    empty: dict[IniType, str] = {"bool": "false"}
    if form.toml:
        empty |= {"args": "[]", "linelist": "[]", "string": '""'}
    lines = {
        option.ini: empty.get(option.ini_type, '""' if form.toml else "")
        for option in OPTIONS
        if option.default != "true"
    }
    form.write(lines)
    config = pytester.parseconfig()
    assert read_each(config) == expected
    assert not starts_run(config)


@pytest.mark.parametrize("form", FORMATS)
def test_types_that_will_do(pytester: pytest.Pytester, form: Format) -> None:
    if form.toml:  # a single string where a list may be, texts of numbers, numbers of texts
        lines = {
            **{"env": '"sql, bash"', "agent_arg": '"model=x"', "dataset": '["a,b", "c"]'},
            **{"limit": '"3"', "max_cost": "2", "timeout": '"1.5"', "run_name": "2024"},
            **{"fail_under": '"80%"', "network": '"yes"', "audit": '"no"', "suites": '"*.yaml"'},
            "agent": '"command:python a.py b, c"',
        }
    else:
        lines = {
            **{"env": "sql, bash", "agent_arg": "model=x", "dataset": "a,b c"},
            **{"limit": "3", "max_cost": "2", "timeout": "1.5", "run_name": "2024"},
            **{"fail_under": "80%", "network": "yes", "audit": "no", "suites": "*.yaml"},
            "agent": "command:python a.py b, c",
        }
    form.write({f"intercode_{name}": written for name, written in lines.items()})
    config = pytester.parseconfig()
    settings = Settings.of(config)
    assert settings.environments == ("sql", "bash")
    assert settings.datasets == ("a", "b", "c")
    assert [(agent.name, agent.arguments) for agent in settings.agents] == [
        ("command:python a.py b, c", {"model": "x"})
    ]
    assert (settings.limit, settings.max_cost, settings.timeout) == (3, 2.0, 1.5)
    assert (settings.run_name, settings.fail_under) == ("2024", FailUnder(0.8, False))
    assert (settings.network, settings.audit) == (True, False)
    assert ini_values(config, "intercode_suites") == ["*.yaml"]
    assert Settings.of(pytester.parseconfig("-o", "intercode_limit=2")).limit == 2


@pytest.mark.parametrize("form", TYPED)
@pytest.mark.parametrize(
    ("written", "kind", "fits"),
    [
        ("true", "not a boolean", ["bool"]),
        ("3", "not a number", ["int", "float", "string", "args", "linelist"]),
        ("[]", "not a list", ["args", "linelist"]),
        ('["a"]', "not a list", ["args", "linelist"]),
        ("[[]]", "but the list contains a list", ["bool", "int", "float", "string"]),
        ('["a", false]', "but the list contains a boolean", ["bool", "int", "float", "string"]),
        ("{model = 1}", "not a table", []),
        ("1979-05-27", "not a date or a time", []),
        ("07:32:00", "not a date or a time", []),
    ],
)
def test_a_type_that_does_not_fit_is_one_line(
    pytester: pytest.Pytester, form: Format, written: str, kind: str, fits: list[str]
) -> None:
    form.write({option.ini: written for option in OPTIONS} | {"intercode_suites": written})
    config = pytester.parseconfig()
    types: dict[str, IniType] = {option.ini: option.ini_type for option in OPTIONS}
    types["intercode_suites"] = "args"
    for name, ini_type in types.items():
        if ini_type in fits:
            continue
        with pytest.raises(ConfigurationError) as caught:
            ini_values(config, name)
        needed = f"{NEEDED[ini_type]} is needed, {kind}"
        assert str(caught.value) == f"ini value {name} of {form.file}: {needed}"


@pytest.mark.parametrize("form", TYPED)
@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('limit = "many"', "a whole number above 0 is needed, found 'many'"),
        ("limit = 1.5", "a whole number above 0 is needed, found '1.5'"),
        ("limit = 0", "a whole number above 0 is needed, found '0'"),
        ("timeout = -5", "a number of seconds above 0 is needed, found '-5'"),
        ("timeout = inf", "a number of seconds above 0 is needed, found 'inf'"),
        ('network = "perhaps"', "true or false is needed"),
        ("agent_arg = [5]", "the form KEY=VALUE is needed, found '5'"),
    ],
)
def test_a_value_that_is_wrong_is_one_line(
    pytester: pytest.Pytester, form: Format, line: str, message: str
) -> None:
    name, _, value = line.partition(" = ")
    form.write({f"intercode_{name}": value})
    with pytest.raises(ConfigurationError) as caught:
        Settings.of(pytester.parseconfig())
    assert str(caught.value).endswith(f" (ini value intercode_{name} of {form.file}): {message}")


def test_a_list_that_cannot_be_divided_is_one_line(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nintercode_env = 'sql\n")
    with pytest.raises(ConfigurationError) as caught:
        Settings.of(pytester.parseconfig())
    assert str(caught.value) == "ini value intercode_env of tox.ini: No closing quotation"


@pytest.mark.parametrize("line", ["intercode_suites = true", "intercode_env = [1, true]"])
@NATIVE
def test_a_run_says_it_without_a_traceback(pytester: pytest.Pytester, line: str) -> None:
    pytester.makepyprojecttoml(f"[tool.pytest]\n{line}\n")
    result = pytester.runpytest()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    [error] = [text for text in result.stderr.lines if text.strip()]
    assert error.startswith(f"ERROR: ini value {line.split()[0]} of pyproject.toml: a list of str")
    assert not result.stdout.lines


def test_keys_that_are_no_options_are_refused_by_pytest(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nintercode_limits = 1\n")
    result = pytester.runpytest("--strict-config")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: Unknown config option: intercode_limits*"])


def test_types_follow_from_what_parsers_return() -> None:
    types = {option.name: option.ini_type for option in OPTIONS}
    expected = {"limit": "int", "repeat": "int", "timeout": "float", "max-cost": "float"}
    expected |= {"agent": "linelist", "fail-under": "string", "results": "string", "audit": "bool"}
    expected |= {"env": "args", "agent-arg": "args", "profile": "string", "shard": "string"}
    assert {name: types[name] for name in expected} == expected


def test_help_gives_the_types(pytester: pytest.Pytester) -> None:
    shown = " ".join(pytester.runpytest("--help").stdout.str().split())
    numbers = pytest.version_tuple >= (8, 4)
    everyday = [option for option in OPTIONS if option.everyday]
    assert {option.ini_type for option in everyday} == set(get_args(IniType))
    for option in everyday:
        ini_type = option.ini_type
        if ini_type in ("int", "float") and not numbers:
            ini_type = "string"
        assert f" {option.ini} ({ini_type}): " in shown


@pytest.mark.parametrize("form", FORMATS)
def test_what_is_true_by_default_can_be_false(pytester: pytest.Pytester, form: Format) -> None:
    form.write({"intercode_stop_early": "false"})
    config = pytester.parseconfig()
    assert read_each(config)["intercode_stop_early"] is False
    assert not starts_run(config)
    assert read_each(pytester.parseconfig("--intercode-stop-early=yes"))["intercode_stop_early"]
