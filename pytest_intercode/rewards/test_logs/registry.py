"""Finds the parser of a name, and gives it a log; the names are in ``suites/parser_names.py``."""

from __future__ import annotations

import json
from functools import cache

from pytest_intercode.errors import ConfigurationError, UngradableState
from pytest_intercode.rewards.test_logs.junit import read_junit
from pytest_intercode.rewards.test_logs.results import (
    MAX_LOG_LENGTH,
    Parser,
    Results,
    Status,
    Statuses,
)
from pytest_intercode.suites.parser_names import (
    GROUP,
    UNTIMED,
    added_parsers,
    plain_parser,
    untimed,
)

__all__ = ["built_in", "parse"]


def _parse_junit(log: str) -> Statuses:
    return read_junit(log.encode("utf-8", "replace"))


def _parse_json_tests(log: str) -> Statuses:
    """Read ``{"tests": [{"name": ..., "status": ...}]}``, from the first brace to the last."""
    statuses = Results()
    try:
        tests = json.loads(log[log.find("{") : log.rfind("}") + 1])["tests"]
        for test in tests:
            name, status = test["name"], test["status"]
            if isinstance(name, str) and status in Status.__members__:
                statuses[name] = Status(status)
    except (ValueError, RecursionError, KeyError, TypeError):
        return {}
    return statuses


@cache
def built_in() -> dict[str, Parser]:
    """Return the built-in parsers by their names; they are imported when a log is read."""
    from pytest_intercode.rewards.test_logs import javascript as js
    from pytest_intercode.rewards.test_logs import javascript_failures as failures
    from pytest_intercode.rewards.test_logs import others, python, rebench

    return {
        # Python
        "autograd": python.parse_autograd,
        "django": python.parse_django,
        "matplotlib": python.parse_matplotlib,
        "mypy": python.parse_mypy,
        "paramiko": python.parse_paramiko,
        "pydantic": python.parse_pydantic,
        "pytest": python.parse_pytest,
        "pytest_options": python.parse_pytest_options,
        "pytest_v2": python.parse_pytest_v2,
        "pytest_verbose": python.parse_pytest_verbose,
        "python_slugify": python.parse_slugify,
        "seaborn": python.parse_seaborn,
        "sympy": python.parse_sympy,
        "tornado": python.parse_tornado,
        # JavaScript
        "bpmn_js": failures.parse_bpmn_js,
        "calypso": js.parse_calypso,
        "carbon": js.parse_jest_files,
        "chart_js": failures.parse_chart_js,
        "eslint": failures.parse_eslint,
        "grommet": js.parse_grommet,
        "highlightjs": js.parse_highlightjs,
        "jest": js.parse_jest,
        "jest_json": js.parse_jest_json,
        "karma": js.parse_karma,
        "lighthouse_json": js.parse_lighthouse,
        "lighthouse_mocha": js.parse_lighthouse_mocha,
        "marked": failures.parse_marked,
        "next_karma": js.parse_next,
        "next_mocha": js.parse_next_mocha,
        "openlayers": failures.parse_openlayers,
        "p5js": failures.parse_p5js,
        "prismjs": js.parse_mocha_json,
        "quarto_cli": js.parse_quarto,
        "tap": js.parse_tap,
        "vitest": js.parse_vitest,
        # others
        "ant": others.parse_ant,
        "cargo": others.parse_cargo,
        "cucumber": others.parse_cucumber,
        "doctest": others.parse_doctest,
        "googletest": others.parse_googletest,
        "gotest": others.parse_gotest,
        "gradle_custom": others.parse_gradle,
        "jq": others.parse_jq,
        "maven": others.parse_maven,
        "micropython_test": others.parse_micropython,
        "minitest": others.parse_minitest,
        "phpunit": others.parse_phpunit,
        "redis": others.parse_redis,
        "rspec_transformed_json": others.parse_rspec,
        "ruby_unit": others.parse_ruby_unit,
        # of SWE-rebench V2
        "csharp": rebench.parse_csharp,
        "elixir": rebench.parse_elixir,
        "js": rebench.parse_js,
        "js_2": rebench.parse_js_2,
        "js_4": rebench.parse_js_4,
        "junit_text": rebench.parse_junit_text,
        "npx": rebench.parse_npx,
        "pytest_nebo": rebench.parse_pytest_nebo,
        "swift": rebench.parse_swift,
        # what a runner writes for programs
        "json_tests": _parse_json_tests,
        "junit": _parse_junit,
    }


def parse(name: str, log: str) -> Statuses:
    """Return the status of each test in a log, by the test's name.

    Args:
        name: a parser's: a built-in one, the same with SWE-bench's ``parse_log_`` before it, or one
            that an installed package adds. After it may be :data:`UNTIMED`.
        log: the output of the tests. Its line ends become those of text that is read from a file.

    Raises:
        ConfigurationError: there is no such parser, or an added one cannot be loaded.
        UngradableState: the log is longer than :data:`MAX_LOG_LENGTH`, or has too many results, or
            an added parser gave something else than statuses by name.
    """
    plain = plain_parser(name.removesuffix(UNTIMED))
    parser = built_in().get(plain) or _load_parser(plain)
    if len(log) > MAX_LOG_LENGTH:
        raise UngradableState(f"a log of more than {MAX_LOG_LENGTH // 1024**2} Mi characters")
    statuses = parser(log.replace("\r\n", "\n").replace("\r", "\n"))
    if name.endswith(UNTIMED):
        return {untimed(test): status for test, status in statuses.items()}
    return statuses


@cache
def _load_parser(name: str) -> Parser:
    point = added_parsers()[name]
    try:
        function = point.load()
    except Exception as error:
        raise ConfigurationError(
            f"the parser {name!r} cannot be loaded from the entry point {point.value} ({GROUP}): "
            f"{type(error).__name__}: {error}"
        ) from None

    def parser(log: str) -> Statuses:
        statuses = Results()
        try:
            for test, status in function(log).items():
                statuses[str(test)] = Status(status)
        except UngradableState:
            raise
        except Exception as error:  # of code that is not ours, on a log of somebody else's
            raise UngradableState(
                f"the parser {name!r} ({point.value}) cannot read the log: "
                f"{type(error).__name__}: {error}"
            ) from None
        return statuses

    return parser
