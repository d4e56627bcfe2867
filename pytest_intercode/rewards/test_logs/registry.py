"""Parsers of test logs by their names: the built-in ones, and those that installed packages add.

An installed package adds a parser by an entry point, which is looked up when a name is not built
in. Checking a suite needs only the names; a parser is imported when a log is read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points

from pytest_intercode.errors import ConfigurationError, UngradableState, suggestion
from pytest_intercode.rewards.test_logs.results import (
    MAX_LOG_LENGTH,
    Parser,
    Results,
    Status,
    Statuses,
)
from pytest_intercode.system.imports import (
    check_namesake,
    describe_error,
    describe_point,
    load_point,
)

__all__ = [
    *("GROUP", "UNTIMED", "UnknownParser", "added_parsers", "parse", "parser_names"),
    *("parser_of_row", "plain_parser", "untimed"),
]

GROUP = "pytest_intercode.log_parsers"
"""The group of entry points: each names a function that maps a log to statuses by test name."""

_PARSERS_BY_MODULE = {
    "python": (
        *("autograd", "django", "matplotlib", "mypy", "paramiko", "pydantic", "pytest"),
        *("pytest_options", "pytest_v2", "pytest_verbose", "python_slugify", "seaborn", "sympy"),
        "tornado",
    ),
    "javascript": (
        *("calypso", "carbon", "grommet", "highlightjs", "jest", "jest_json", "karma"),
        *("lighthouse_json", "lighthouse_mocha", "next_karma", "next_mocha", "prismjs"),
        *("quarto_cli", "tap", "vitest"),
    ),
    "javascript_failures": ("bpmn_js", "chart_js", "eslint", "marked", "openlayers", "p5js"),
    "others": (
        *("ant", "cargo", "cucumber", "doctest", "googletest", "gotest", "gradle_custom", "jq"),
        *("maven", "micropython_test", "minitest", "phpunit", "redis", "rspec_transformed_json"),
        "ruby_unit",
    ),
    # of SWE-rebench V2
    "rebench": (
        *("csharp", "elixir", "js", "js_2", "js_4", "junit_text", "npx", "pytest_nebo", "swift"),
    ),
    # what a runner writes for programs
    "junit": ("json_tests", "junit"),
}
_MODULES = {name: module for module, names in _PARSERS_BY_MODULE.items() for name in names}
"""The module of each built-in parser, which is imported when a log is read. The function's name is
``parse_`` and the parser's name; SWE-bench's names have ``parse_log_`` before the parser's name."""

_ALIASES = {
    **dict.fromkeys(("flask", "marshmallow", "pvlib", "pyvista", "sqlfluff"), "pytest"),
    **dict.fromkeys(("astroid", "xarray"), "pytest"),
    **dict.fromkeys(("pydicom", "pylint", "requests"), "pytest_options"),
    **dict.fromkeys(("astropy", "scikit", "sphinx"), "pytest_v2"),
    **{"unittest": "django", "gradle": "gradle_custom", "rspec": "rspec_transformed_json"},
    "sbt": "junit_text",
    **{"jest_files": "carbon", "react_pdf": "carbon", "mocha_json": "prismjs"},
}

_BY_NUMBER: Mapping[str, Mapping[str, str]] = {
    "immutable_js": {"2005": "jest_json", "2006": "jest"},
    "jekyll": {
        **dict.fromkeys(("8047", "8167", "9141"), "minitest"),
        **dict.fromkeys(("8761", "8771"), "cucumber"),
    },
}

_BY_ROW = (*_BY_NUMBER, "lighthouse", "next")
"""SWE-bench's names that mean one of several parsers, depending on a row's number or version."""


_MISSING = frozenset(
    (
        *("combined_test_reports", "cpp", "cpp_v2", "cpp_v3", "cpp_v4", "dart", "dart_v2"),
        *("dart_v3", "gradlew_v1", "haskell", "haskell_v2", "java_mvn", "java_mvn_v2", "js_3"),
        *("julia", "kotlin_junit", "lein", "lua_nvim", "lue_nvim", "ocaml", "ocaml_v2"),
        *("ocaml_v3", "ocaml_v4", "ocaml_v5", "php_v1", "r", "r_junit", "r_v2", "ruby_v1"),
        *("ruby_v2", "scala", "scala_v2", "scala_v3"),
    )
)
"""SWE-rebench's names that have no parser here."""

UNTIMED = "+untimed"
"""The suffix of a parser's name that removes durations from the names of tests."""

_PREFIX = re.compile("parse_(?:logs?_)?")
_WITHIN = re.compile(r"\sin\s\d+(?:\.\d+)?\sm?sec\b", re.IGNORECASE)
_DURATION = re.compile(r"\d+(?:\.\d+)?\s?m?s", re.IGNORECASE)


class UnknownParser(ConfigurationError):
    """A row names a parser that its publisher has, but that does not exist here."""


def untimed(name: str) -> str:
    """Return the name of a test without its duration: ``a (3 ms)``, ``a [0.1s]``."""
    name = _WITHIN.sub("", name).strip()
    for opening, closing in ("[]", "()"):
        head, bracket, duration = name.removesuffix(closing).rpartition(opening)
        if bracket and name.endswith(closing) and _DURATION.fullmatch(duration.strip()):
            name = head.rstrip()
    return name


def parser_names() -> tuple[str, ...]:
    """Return the names of all parsers, the added ones last."""
    return (*sorted({*_MODULES, *_ALIASES}), *sorted(added_parsers()))


def plain_parser(name: str) -> str:
    """Return the main name of a parser, which may have several names.

    Raises:
        UnknownParser: a publisher of rows has it, but it does not exist here.
        ConfigurationError: there is no such parser, or a package adds one with a built-in name.
    """
    plain = _PREFIX.sub("", name, count=1)
    plain = _ALIASES.get(plain, plain)
    if plain in _MODULES:
        for own_name in {name, plain}:
            check_namesake(added_parsers().get(own_name), f"the parser {own_name!r}")
        return plain
    if name in added_parsers():
        return name
    if plain in _MISSING:
        raise UnknownParser(
            f"its tests' results are read by {name!r}, which is not here; a package can add it by "
            "an entry point (docs/swe-bench.md, 'Parsers')"
        )
    hint = " In SWE-bench it means one of several, by the row." if plain in _BY_ROW else ""
    names = parser_names()
    raise ConfigurationError(
        f"there is no parser of tests' results {name!r}.{hint}{suggestion(plain, names)} Allowed: "
        f"{', '.join(names)}"
    )


def parser_of_row(name: str, instance: str, version: str) -> str:
    """Return the parser that a name of SWE-bench means for one of its rows.

    Args:
        name: the name in the row, or of the row's repository.
        instance: the row's id, which ends with a number.
        version: the row's version.

    Raises:
        ConfigurationError: there is no such parser, or none for this row.
    """
    plain = _PREFIX.sub("", name, count=1)
    if plain in _BY_NUMBER:
        parsers, number = _BY_NUMBER[plain], instance.rpartition("-")[2]
        if number not in parsers:
            raise ConfigurationError(
                f"the parser {name!r} is for the rows {', '.join(parsers)}, not for {number!r}"
            )
        return parsers[number]
    if plain == "junit":
        return "junit_text"  # for rows, it reads the log
    if plain == "next":
        return "next_mocha" if version == "1.27" else "next_karma"
    if plain == "lighthouse":
        if version in ("9.5", "10.0", "10.2"):
            return "lighthouse_mocha"
        return "lighthouse_json" if version.partition(".")[0] in ("0", "1", "2") else "carbon"
    return plain_parser(name)


@cache
def added_parsers() -> Mapping[str, EntryPoint]:
    """Return the entry points of parsers that installed packages add, by their names."""
    return {point.name: point for point in entry_points(group=GROUP)}


def parse(name: str, log: str) -> Statuses:
    """Return the status of each test in a log, by the test's name.

    Args:
        name: the name of a parser: a built-in one, the same with SWE-bench's ``parse_log_`` before
            it, or one that an installed package adds. :data:`UNTIMED` may follow it.
        log: the output of the tests. Its line ends are converted to newlines.

    Raises:
        ConfigurationError: there is no such parser, or an added one cannot be loaded.
        UngradableState: the log is longer than :data:`MAX_LOG_LENGTH`, or has too many results, or
            an added parser returned anything other than statuses by name.
    """
    plain = plain_parser(name.removesuffix(UNTIMED))
    parser = _builtin_parser(plain) if plain in _MODULES else _added_parser(plain)
    if len(log) > MAX_LOG_LENGTH:
        raise UngradableState(f"a log of more than {MAX_LOG_LENGTH // 1024**2} Mi characters")
    statuses = parser(log.replace("\r\n", "\n").replace("\r", "\n"))
    if name.endswith(UNTIMED):
        return {untimed(test): status for test, status in statuses.items()}
    return statuses


@cache
def _builtin_parser(name: str) -> Parser:
    parser: Parser = getattr(import_module(f"{__package__}.{_MODULES[name]}"), f"parse_{name}")
    return parser


@cache
def _added_parser(name: str) -> Parser:
    point = added_parsers()[name]
    function = load_point(point, f"the parser {name!r}")
    label = f"the parser {name!r} ({describe_point(point)}) cannot read the log"

    def parser(log: str) -> Statuses:
        statuses = Results()
        try:
            for test, status in function(log).items():
                if status not in list(Status):
                    raise UngradableState(
                        f"{label}: the status of {str(test)!r:.80} is one of "
                        f"{', '.join(Status.__members__)}, found {status!r:.40}"
                    )
                statuses[str(test)] = Status(status)
        except UngradableState:
            raise
        except Exception as error:  # from third-party code, on an untrusted log
            raise UngradableState(f"{label}: {describe_error(error, function)}") from None
        return statuses

    return parser
