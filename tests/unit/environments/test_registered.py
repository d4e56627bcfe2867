"""Environments that others add: what is refused, and how each mistake is told."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pytest_intercode
from pytest_intercode.core.task import ImageSource
from pytest_intercode.environments import registry
from pytest_intercode.environments.base import Environment
from pytest_intercode.environments.fields import CodeTest, InterpreterFields
from pytest_intercode.environments.kind import EnvironmentKind
from pytest_intercode.environments.recorded import NotRecorded, RecordedEpisode
from pytest_intercode.environments.registry import (
    BUILTIN_ENVIRONMENTS,
    environment_class,
    environment_names,
    is_environment,
    register_environment,
)
from pytest_intercode.errors import ConfigurationError, ImageError, SuiteError, TaskError
from pytest_intercode.sandboxes.bubblewrap.images import Systems
from pytest_intercode.sandboxes.protocol import HOST
from pytest_intercode.suites.catalogue import bundled_tasks
from pytest_intercode.suites.loader import load_suite


@pytest.fixture(autouse=True)
def _nothing_added(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_added", {})
    monkeypatch.setattr(registry, "_watching", [])


def environment(**attributes: Any) -> type[Environment]:
    """Return a class that has all that is needed, and what is given."""
    names = ("sandboxes", "start", "execute", "grade", "stop", "interrupt")
    body = {"name": "perl", **dict.fromkeys(names, lambda *_: None)}
    body |= {"sandboxes": classmethod(lambda *_: []), **attributes}
    return type("Perl", (Environment,), {k: v for k, v in body.items() if v is not ...})


def test_it_is_like_ours_from_then_on(tmp_path: Path) -> None:
    suite = tmp_path / "p.yaml"
    suite.write_text("env: perl\ntasks: [{id: a, query: q, gold: g, tests: [print 1]}]\n")
    with pytest.raises(SuiteError, match=r"p.yaml:1: env: 'perl' is not one of bash, sql, pyth"):
        load_suite(suite)
    cls = environment(suite=suite, fields=InterpreterFields)
    assert register_environment(cls) is cls
    assert is_environment("perl")
    assert environment_names() == (*BUILTIN_ENVIRONMENTS, "perl")
    assert environment_class("perl", "strict") is cls
    (task,) = load_suite(suite).tasks
    assert (task.env, task.fields) == ("perl", InterpreterFields((CodeTest("print 1"),)))
    assert bundled_tasks("perl", "asked") == (task,)


def test_one_that_is_imported_anew_takes_its_own_place() -> None:
    register_environment(environment())
    again = register_environment(environment())
    assert environment_class("perl", "strict") is again


@pytest.mark.parametrize(
    ("attributes", "told"),
    [
        ({"name": "bash"}, "name: 'bash' is reserved; choose another"),
        ({"name": "all"}, "name: 'all' is reserved; choose another"),
        (
            {"name": "Perl 5"},
            "name: lower-case letters, digits and _ are needed, such as 'perl'; found",
        ),
        (
            {"name": ...},
            "name: lower-case letters, digits and _ are needed, such as 'perl'; found None",
        ),
        ({"grade": ..., "stop": ...}, "it does not define grade, stop"),
        ({"sandboxes": lambda *_: []}, "sandboxes(cls, task, provider) needs @classmethod"),
        ({"profile": "lax"}, "profile: allowed are strict, paper, found 'lax'"),
        ({"suite": Path("no.yaml")}, "suite: no.yaml is not a file"),
        ({"dockerfile": Path("no.Dockerfile")}, "dockerfile: no.Dockerfile is not a file"),
        ({"kind": EnvironmentKind()}, "kind: a subclass of EnvironmentKind is needed, found <pyt"),
        ({"kind": "perl"}, "kind: a subclass of EnvironmentKind is needed, found 'perl'"),
        ({"kind": object}, "kind: a subclass of EnvironmentKind is needed, found <class 'obj"),
        ({"kind": type("Kind", (EnvironmentKind,), {"labels": "perl"})}, "labels: a tuple of nam"),
        (
            {"kind": type("Kind", (EnvironmentKind,), {"__init__": lambda self: None})},
            "kind: Kind raised TypeError: ",
        ),
    ],
)
def test_what_is_refused(attributes: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigurationError, match=f"Perl: {re.escape(told)}"):
        register_environment(environment(**attributes))
    assert environment_names() == BUILTIN_ENVIRONMENTS


@pytest.mark.parametrize("program", [(), "perl repl.pl"])
def test_an_interpreter_needs_the_words_of_its_command(program: Any) -> None:
    body = {"name": "perl", "compare": staticmethod(lambda *_: None), "program": program}
    with pytest.raises(ConfigurationError, match="Perl: program: the words of a command are nee"):
        register_environment(type("Perl", (pytest_intercode.InterpreterEnvironment,), body))


def test_what_methods_of_a_kind_raise_is_not_the_agents_fault() -> None:
    class Kind(EnvironmentKind):
        def example_of(self, task: Any) -> str:
            raise KeyError("x")

        def describe_code(self) -> str:  # type: ignore[override]
            return ""

    register_environment(environment(kind=Kind))
    kind = registry.kind_of("perl")
    with pytest.raises(TaskError, match=r"'perl': example_of\(\) raised KeyError: 'x' \(.*:\d+\)"):
        kind.example_of(None)  # type: ignore[arg-type]
    with pytest.raises(TaskError, match=r"'perl': describe_code\(\) raised TypeError: .*:\d+\)"):
        kind.describe_code(None)  # type: ignore[arg-type]
    assert kind.missing_input("", "") == ""


def test_scoring_again_says_what_graded_again_raises_and_which_profile_there_is() -> None:
    def graded_again(state: Any) -> None:
        raise RuntimeError("x")

    register_environment(environment(graded_again=staticmethod(graded_again)))
    record: Any = None
    for profile, message in (
        ("strict", r"'perl': graded_again\(\) raised RuntimeError: x \(.*:\d+\)"),
        ("paper", "perl: it has only the profile strict"),
    ):
        with pytest.raises(NotRecorded, match=message):
            registry.kind_of("perl").score(RecordedEpisode(record, {}, profile, profile, None))


def test_what_is_no_environment() -> None:
    with pytest.raises(ConfigurationError, match=r"a subclass of pytest_intercode\.Environment is"):
        register_environment(object)  # type: ignore[type-var]


def test_a_name_is_taken_once() -> None:
    register_environment(environment())
    other = environment(__qualname__="Other")
    with pytest.raises(ConfigurationError, match=r"Other: the environment 'perl' already exist"):
        register_environment(other)


def test_an_unknown_name() -> None:
    register_environment(environment())
    with pytest.raises(ConfigurationError) as told:
        pytest_intercode.make("prl")
    assert str(told.value) == (
        "the environment 'prl' is not installed; allowed are bash, "
        "sql, python, ctf, swe, perl. Did you mean 'perl'?"
    )
    with pytest.raises(ConfigurationError, match=r"perl\. Register your own with regis"):
        pytest_intercode.make("awk")


def test_one_without_a_suite_needs_one() -> None:
    register_environment(environment())
    env = pytest_intercode.make("perl")
    try:
        with pytest.raises(ConfigurationError, match=r"has no suite of its own; give a \."):
            env.reset()
    finally:
        env.close()


def test_one_with_a_dataset_names_it() -> None:
    with pytest.raises(ConfigurationError, match=r"give the dataset tau2, or a \.yaml with e"):
        bundled_tasks("tau2", "--intercode-env=tau2")


def test_one_profile_alone() -> None:
    register_environment(environment())
    with pytest.raises(ConfigurationError, match="with the profile 'paper'; it has only 'strict'"):
        environment_class("perl", "paper")


def test_who_watches_is_told_of_all() -> None:
    names: list[str] = []
    registry.watch_environments(names.append)
    register_environment(environment())
    assert names == [*BUILTIN_ENVIRONMENTS, "perl"]


# -- its image, where there are none

PLAIN = """\
# A comment.
ARG BASE=debian:bookworm-slim
FROM ${BASE}
RUN apt-get update \\
    && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \\
        coreutils PACKAGE \\
    && rm -rf /var/lib/apt/lists/*
"""


def test_packages_that_the_host_has_need_no_image(tmp_path: Path) -> None:
    path = tmp_path / "own.Dockerfile"
    path.write_text(PLAIN.replace("PACKAGE", "bash"))
    assert Systems(tmp_path / "ours").resolve(ImageSource(dockerfile=path)) == HOST


@pytest.mark.skipif(not Path("/var/lib/dpkg/status").is_file(), reason="this is no Debian")
def test_packages_that_the_host_lacks(tmp_path: Path) -> None:
    path = tmp_path / "own.Dockerfile"
    path.write_text(PLAIN.replace("PACKAGE", "no-such-package"))
    with pytest.raises(
        ImageError, match=r"own\.Dockerfile installs: apt-get install no-such-packa"
    ):
        Systems(tmp_path / "ours").resolve(ImageSource(dockerfile=path))


@pytest.mark.parametrize(
    "more",
    [
        "RUN useradd ada",
        "RUN apt-get update; useradd ada",
        "RUN apt-get update || useradd ada",
        "RUN apt-get update && useradd ada",
        "RUN rm $(useradd ada)",
        "COPY notes.txt /",
        "ENV A=1",
        "FROM mine:1",
        "USER ada",
    ],
)
def test_whatever_else_is_done_needs_an_image(more: str, tmp_path: Path) -> None:
    path = tmp_path / "own.Dockerfile"
    path.write_text(f"{PLAIN.replace('PACKAGE', 'bash')}{more}\n")
    with pytest.raises(ImageError, match="is made by Docker; for bubblewrap, unpack"):
        Systems(tmp_path / "ours").resolve(ImageSource(dockerfile=path))


# -- an installed package


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Install a package with two entry points, one of which cannot be loaded."""
    info = tmp_path / "installed_perl-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: installed-perl\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        f"[{registry.GROUP}]\nperl = installed_perl:Perl\nraku = installed_perl:Raku\n"
        "lua = installed_perl:Perl\nMy Env = installed_perl:Perl\n"
    )
    module = tmp_path / "installed_perl.py"
    module.write_text(
        "from tests.unit.environments.test_registered import environment\nPerl = environment()\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield module
    sys.modules.pop("installed_perl", None)


def test_an_entry_point_is_enough(package: Path) -> None:
    assert environment_names() == (*BUILTIN_ENVIRONMENTS, "lua", "perl", "raku")
    assert "installed_perl" not in sys.modules  # names need no import
    assert environment_class("perl", "strict").__name__ == "Perl"


def test_a_class_of_an_entry_point_may_have_the_decorator_too(package: Path) -> None:
    package.write_text(
        "from pytest_intercode import register_environment\n"
        "from tests.unit.environments.test_registered import environment\n"
        "Perl = register_environment(environment(__module__=__name__))\n"
    )
    assert environment_class("perl", "strict").__module__ == "installed_perl"


def test_an_entry_point_that_cannot_be_loaded(package: Path) -> None:
    with pytest.raises(
        ConfigurationError, match=r"'raku' \(installed_perl:Raku of installed-perl\) can"
    ):
        environment_class("raku", "strict")
    with pytest.raises(ConfigurationError, match="its name is 'perl', but its entry point calls"):
        environment_class("lua", "strict")
    sys.modules.pop("installed_perl", None)
    package.write_text("import sys\nsys.exit(3)\n")
    with pytest.raises(ConfigurationError, match=r"SystemExit: 3 \(.*/installed_perl.py:2\)"):
        environment_class("perl", "strict")


def test_a_name_of_two_packages_is_refused(package: Path) -> None:
    info = package.parent / "other_perl-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other-perl\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{registry.GROUP}]\nperl = other_perl:Perl\n")
    with pytest.raises(
        ConfigurationError,
        match=r"'perl' is defined twice .*: installed_perl:Perl of installed-perl and "
        r"other_perl:Perl of other-perl; uninstall one of them",
    ):
        environment_class("perl", "strict")


def test_a_package_with_the_name_of_ours_is_refused(package: Path) -> None:
    points = package.parent / "installed_perl-1.0.dist-info" / "entry_points.txt"
    points.write_text(f"[{registry.GROUP}]\nbash = installed_perl:Perl\n")
    registry._entry_points_on.cache_clear()
    message = (
        r"^the environment 'bash' is defined twice \(pytest_intercode.environments\): it is built "
        "in, and installed_perl:Perl of installed-perl has the same name; uninstall or rename that "
        "one$"
    )
    with pytest.raises(ConfigurationError, match=message):
        environment_class("bash", "strict")
    assert environment_class("sql", "strict").name == "sql"


def test_our_own_names_look_for_no_entry_points(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_entry_points", lambda: pytest.fail("they were looked for"))
    assert is_environment("bash")
    assert registry.kind_of("bash").name == "bash"
