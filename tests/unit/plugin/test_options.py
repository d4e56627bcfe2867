"""The table of options: complete, the same everywhere, and what its values come to."""

from __future__ import annotations

import argparse
import re
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from pytest_intercode.cli.arguments import add_option
from pytest_intercode.core.rates import FailUnder
from pytest_intercode.core.task import Task
from pytest_intercode.core.turn import Feedback, Profile
from pytest_intercode.environments.registry import PROFILES
from pytest_intercode.errors import ConfigurationError
from pytest_intercode.options.option import Option
from pytest_intercode.options.table import GROUPS, OPTIONS, Options
from pytest_intercode.plugin.settings import Settings
from pytest_intercode.sandboxes.choice import backend_names

_BY_NAME = {option.name: option for option in OPTIONS}
_TASK = Task("id", "query", ("gold",), "bash", "suite", "dataset")


def test_names_are_unique() -> None:
    assert len(_BY_NAME) == len(OPTIONS) > 30


def test_each_is_in_one_group() -> None:
    declared = [
        value
        for cls in Options.__mro__
        for value in vars(cls).values()
        if isinstance(value, Option)
    ]
    assert sorted(map(id, declared)) == sorted(map(id, OPTIONS))
    assert len({group.title for group in GROUPS}) == len(GROUPS)
    assert all(1 < len(group.options) < 15 for group in GROUPS)


def test_help_shows_those_of_every_day(pytester: pytest.Pytester) -> None:
    everyday = [option for option in OPTIONS if option.everyday]
    assert len(everyday) == 12
    # What --help does not show has its value all the same.
    result = pytester.runpytest("--help", "-o", "intercode_max_turns=3", "--intercode-repeat=2")
    assert result.ret == 0
    help = result.stdout.str()
    names = re.findall(r"^  --intercode-([\w-]+)", help, re.MULTILINE)
    assert names == [*(option.name for option in everyday), "help"]
    ini_names = re.findall(r"^  (intercode_\w+) \(", help, re.MULTILINE)
    assert ini_names == [*(option.ini for option in everyday), "intercode_suites"]
    result.stdout.fnmatch_lines([f"  --intercode-help *show all {len(OPTIONS)} options*"])


@pytest.mark.parametrize("columns", [40, 120])
def test_all_are_shown_in_groups(
    columns: int, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    pytester.makepyfile("def test_that_is_not_run(): assert False")
    pytester.makeini("[pytest]\naddopts = --intercode-help\nintercode_env = sql\n")
    result = pytester.runpytest()
    assert result.ret == 0
    lines = result.outlines
    assert all(len(line) <= max(columns, 80) for line in lines)
    forms = [line[2:] for line in lines if line.startswith("  --")]
    assert forms == [f"--intercode-{option.form}" for option in OPTIONS]
    assert [line[:-1] for line in lines if re.fullmatch(r"\w.*:", line)] == [
        group.title for group in GROUPS
    ]
    words = " ".join(result.stdout.str().split())
    assert all(option.description.replace("`", "") in words for option in OPTIONS)
    assert "time limit of an episode (default: the task's own, else 600)" in words


def test_options_are_not_abbreviated(pytester: pytest.Pytester) -> None:
    for option in ("--intercode-max-turn=3", "--intercode-lim=3", "--intercode-hel"):
        result = pytester.runpytest(option)
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        result.stderr.fnmatch_lines([f"*unrecognized arguments: {option}"])


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_each_option(option: Option[object]) -> None:
    assert option.help[0] == option.help[0].lower() or option.help.startswith("`")
    assert not option.help.endswith(".")
    assert "\n" not in option.help
    assert bool(option.default) + bool(option.fallback) < 2
    if option.default:
        option.value(option.default)
    for rule in (option.needs, option.excludes):
        assert rule is None or rule[0] in {each.key for each in OPTIONS}


@pytest.mark.parametrize(
    ("name", "allowed"),
    [
        ("profile", PROFILES),
        ("profile", get_args(Profile)),
        ("feedback", get_args(Feedback)),
        ("gate", ("tasks", "verdict")),
    ],
)
def test_choices_are_those_of_the_code(name: str, allowed: tuple[str, ...]) -> None:
    option = _BY_NAME[name]
    assert option.metavar == "|".join(allowed)
    assert [option.value(value) for value in allowed] == list(allowed)
    with pytest.raises(ValueError, match=f"^allowed are {', '.join(allowed)}"):
        option.value("else")


def test_backends_are_those_that_there_are() -> None:
    option = _BY_NAME["sandbox"]
    assert option.metavar == "|".join((*backend_names(), "NAME"))
    assert [option.value(name) for name in backend_names()] == list(backend_names())
    with pytest.raises(ValueError, match=r"^allowed are auto, docker, bubblewrap, kubernetes"):
        option.value("else")


@pytest.mark.parametrize(
    ("name", "written", "value"),
    [
        ("shard", "2/8", (2, 8)),
        ("fail-under", "0.8", FailUnder(0.8, False)),
        ("fail-under", "80%", FailUnder(0.8, False)),
        ("fail-under", "lower: 1", FailUnder(1.0, True)),
        ("network", "On", True),
        ("network", "0", False),
        ("max-cost", "0.25", 0.25),
        ("allow-host", "Pypi.org:443", "pypi.org:443"),
        ("registry", "localhost:5000/a/b-c/", "localhost:5000/a/b-c"),
        ("registry", "ghcr.io/ada", "ghcr.io/ada"),
        ("registry", "mirror:443", "mirror:443"),
        ("allow-host", "[2001:DB8::1]:80", "[2001:db8::1]:80"),
    ],
)
def test_values(name: str, written: str, value: object) -> None:
    assert _BY_NAME[name].value(written) == value


@pytest.mark.parametrize(
    ("name", "written"),
    [
        *[("shard", written) for written in ("0/2", "3/2", "1", "a/b", "1/")],
        *[("fail-under", written) for written in ("0", "1.1", "upper:0.5", "120%", "nan")],
        *[("network", written) for written in ("maybe", "2")],
        *[("allow-host", written) for written in ("http://a.test", "a b", "a.test:x")],
        *[
            ("registry", written)
            for written in (
                "https://a.b",
                "ada",
                "A.b/c",
                "a.b/C",
                "a.b:x",
                "a.b//c",
                "-a.b",
                "a.b c",
            )
        ],
        *[("max-turns", written) for written in ("0", "-1", "1.5", "many")],
        *[("max-cost", written) for written in ("0", "nan", "inf", "-1")],
    ],
)
def test_what_is_no_value(name: str, written: str) -> None:
    with pytest.raises(ValueError, match=r"is needed|must be a number"):
        _BY_NAME[name].value(written)


def test_the_defaults(pytester: pytest.Pytester) -> None:
    settings = Settings.of(pytester.parseconfig())
    assert (settings.profile, settings.backend, settings.requested_gate) == ("strict", "auto", None)
    assert (settings.concurrency, settings.repeat, settings.network) == (1, 1, False)
    assert (settings.agents, settings.timeout, settings.feedback) == ((), None, None)
    assert (settings.environments, settings.datasets, settings.agent_arguments) == ((), (), {})


def test_each_option_is_an_attribute_of_the_settings(pytester: pytest.Pytester) -> None:
    settings = Settings.of(pytester.parseconfig("--intercode-limit=2"))
    for option in OPTIONS:
        assert getattr(Settings, option.attribute) is option
        default = option.value(option.default) if option.default else None
        assert vars(settings)[option.attribute] in (default, (), {}, False, 2)
    assert settings.limit == 2
    with pytest.raises(AttributeError, match="settings do not change"):
        settings.limit = 3
    assert (settings.replace(limit=3).limit, settings.limit) == (3, 2)


def test_commands_take_options_over(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    parser = argparse.ArgumentParser(prog="command")
    options = (Options.backend, Options.base_images, Options.allow_path, Options.network)
    for option in options:
        add_option(parser, option, "what it means here")
    empty = vars(parser.parse_args([]))
    assert empty == {"sandbox": "auto", "base_image": [], "allow_path": [], "network": False}
    words = ["--sandbox=docker", "--base-image=a=b", f"--allow-path={tmp_path}", "--network"]
    assert vars(parser.parse_args(words)) == {
        **{"sandbox": "docker", "base_image": [("a", "b")], "allow_path": [tmp_path]},
        "network": True,
    }
    for word, message in (
        ("--sandbox=x", "argument --sandbox: allowed are auto, docker, bubblewrap, kubernetes."),
        ("--base-image=a", "--base-image: the form NAME=REPLACEMENT is needed, found 'a'"),
        ("--base-image=a=", "--base-image: a value is needed"),
        ("--allow-path=no", "argument --allow-path: no: there is no such folder"),
    ):
        with pytest.raises(SystemExit):
            parser.parse_args([word])
        assert message in capsys.readouterr().err


def test_values_are_put_in_form(pytester: pytest.Pytester) -> None:
    settings = Settings.of(
        pytester.parseconfig(
            *("--intercode-env=sql,all", "--intercode-env= sql", "--intercode-max-tokens=7"),
            *("--intercode-agent-arg=a=b=c", "--intercode-agent-arg= d = e "),
            *("--intercode-results=~/r.jsonl", "--intercode-html=sub/p.html", "--intercode-audit"),
            "--intercode-repeat=3",
        )
    )
    assert settings.environments == ("sql", "bash", "python", "ctf", "swe")
    assert settings.agent_arguments == {"a": "b=c", "d": "e"}
    assert settings.results == Path.home() / "r.jsonl"
    assert settings.html == pytester.path / "sub/p.html"
    assert settings.budget.tokens == 7
    assert settings.repeat == 1  # an audit needs one try


@pytest.mark.parametrize(
    ("line", "option", "message"),
    [
        (
            "intercode_limit = x",
            "",
            "--intercode-limit=x (ini value intercode_limit of tox.ini): a whole number above 0 is "
            "needed, found 'x'",
        ),
        (
            "intercode_agent_arg = x",
            "",
            "--intercode-agent-arg x (ini value intercode_agent_arg of tox.ini): the form "
            "KEY=VALUE is needed, found 'x'",
        ),
        (
            "intercode_network = perhaps",
            "",
            "--intercode-network=perhaps (ini value intercode_network of tox.ini): true or false "
            "is needed",
        ),
        (
            "",
            "--intercode-registry=ada:s3cret@a.b/c",
            "--intercode-registry=(hidden)@a.b/c: credentials come from 'docker login'; "
            "HOST[:PORT][/PREFIX] is needed",
        ),
        (
            "",
            "--intercode-platform=darwin/arm64",
            "--intercode-platform=darwin/arm64: linux/ARCHITECTURE is needed, as linux/amd64 or "
            "linux/arm64; sandboxes run Linux",
        ),
        (
            "intercode_limit = x",
            "--intercode-limit=y",
            "--intercode-limit=y: a whole number above 0 is needed, found 'y'",
        ),
        (
            "intercode_agent = oracle",
            "--intercode-audit",
            "--intercode-audit: the tasks are audited and no agent is run; leave out "
            "--intercode-agent=oracle (ini value intercode_agent of tox.ini)",
        ),
        (
            "intercode_resume = yes",
            "",
            "--intercode-resume (ini value intercode_resume of tox.ini): needs "
            "--intercode-results=FILE.jsonl, the run to continue",
        ),
        (
            "intercode_rootfs = nowhere",
            "",
            "--intercode-rootfs={here}/nowhere (ini value intercode_rootfs of tox.ini): there is "
            "no such folder",
        ),
    ],
)
def test_a_message_says_where_the_value_is_from(
    pytester: pytest.Pytester, line: str, option: str, message: str
) -> None:
    pytester.makefile(".ini", tox=f"[pytest]\n{line}\n")
    config = pytester.parseconfig(*filter(None, [option]))
    with pytest.raises(ConfigurationError) as caught:
        Settings.of(config)
    assert str(caught.value) == message.replace("{here}", str(pytester.path))


# -- how long an episode has


@pytest.mark.parametrize(
    ("given", "of_task", "at_terminal", "seconds"),
    [
        (None, None, False, 600.0),
        (None, None, True, None),
        (None, 20.0, False, 20.0),
        (None, 20.0, True, 20.0),
        (5.0, None, True, 5.0),
        (5.0, 20.0, False, 5.0),
        (30.0, 20.0, False, 30.0),
    ],
)
def test_the_option_wins_over_the_task(
    pytester: pytest.Pytester,
    given: float | None,
    of_task: float | None,
    at_terminal: bool,
    seconds: float | None,
) -> None:
    settings = Settings.of(pytester.parseconfig()).replace(timeout=given)
    task = replace(_TASK, timeout=of_task)
    assert settings.episode_timeout(task, at_terminal=at_terminal) == seconds
