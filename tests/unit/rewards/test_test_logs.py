"""Parsers of logs: a small log of each kind, garbage, and how long hostile logs take."""

from __future__ import annotations

import time
from importlib.metadata import EntryPoint
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_intercode.errors import ConfigurationError, UngradableState
from pytest_intercode.rewards.test_logs import (
    MAX_LOG_LENGTH,
    Status,
    junit_name,
    parse,
    read_junit,
    registry,
)
from pytest_intercode.rewards.test_logs.registry import parser_of_row
from pytest_intercode.rewards.test_logs.results import Results

_NAMES = {registry.plain_parser(name) for name in registry.parser_names()}

_KARMA = """\
Starting browser Chrome
  Anchor
    when it is there
      ✔ scrolls
      ✖ stops
  Badge
    ✔ counts
SUMMARY:
      ✔ not this one
"""
_MOCHA = """\
running 2 test files
files
  Audit
    ✔ passes (12ms)
    1) fails
  2 passing
    ✔ not this one
"""
_PRISM = """\
+ ./node_modules/.bin/mocha tests/run.js --reporter json
{"passes": [{"fullTitle": "a b"}, {"fullTitle": 3}], "failures": [{"fullTitle": "c"}]}
"""
_LIGHTHOUSE = """\
./node_modules/.bin/mocha --reporter json
  "failures": [
      "fullTitle": "bad",
  ],
  "passes": [
      "fullTitle": "good",
  ]
"""
_DOCTEST = """\
noise <doctest binary="x"><TestCase name="a"><SubCase name="b"><Expression success="true"/>
<SubCase name="c"><Expression success="false"/></SubCase></SubCase><SubCase name="d"/>
</TestCase></doctest> noise
"""

CASES: list[tuple[str, str, dict[str, str]]] = [
    (
        "pytest",
        "PASSED a.py::b\nFAILED a.py::c - x\nSKIPPED [2] a.py:3: y\nXPASS a.py::d",
        {
            "a.py::b": "PASSED",
            "a.py::c": "FAILED",
        },
    ),
    ("pytest", "PASSED t[a b]\r\nFAILED t[a - b] - x\r\nERROR: not a test", {"t[a": "FAILED"}),
    (
        "pytest_options",
        "PASSED t[/a/b/c]x\nPASSED t[//a]\nPASSED u[/a/*]\nPASSED v]w[",
        {
            "t[/c]": "PASSED",
            "t[//a]": "PASSED",
            "u[/a/*]": "PASSED",
            "v]w[": "PASSED",
        },
    ),
    (
        "pytest_v2",
        "\x1b[32mPASSED\x1b[0m t[a b]\nold.py::t FAILED\nFAILED u - v - w\nPASSED",
        {
            "t[a b]": "PASSED",
            "old.py::t": "FAILED",
            "u": "FAILED",
        },
    ),
    (
        "pydantic",
        "a.py::b PASSED [ 10%]\na.py::c PASSED\nFAILED [ 50%] d e",
        {
            "a.py::c": "PASSED",
            "d": "FAILED",
        },
    ),
    (
        "pytest_verbose",
        "a.py::b PASSED [ 10%]\n c PASSED\nd ERRORS",
        {
            "a.py::b": "PASSED",
            "d": "ERROR",
        },
    ),
    ("matplotlib", "PASSED t[MouseButton.LEFT]", {"t[1]": "PASSED"}),
    (
        "seaborn",
        "a PASSED [1%]\nb PASSED\nFAILED c - d\nPASSED e\nERROR f",
        {
            "a": "PASSED",
            "c": "FAILED",
            "e": "PASSED",
        },
    ),
    (
        "unittest",
        "t (a.B) ... ok\nu (a.B) ... noise\nok\nv ... skipped 'x'\nERROR: w (a.B)\nFAIL:",
        {
            "t (a.B)": "PASSED",
            "u (a.B)": "PASSED",
            "v": "SKIPPED",
            "w": "ERROR",
        },
    ),
    (
        "parse_log_django",
        "a ... Internal Server Error: /x/\nok\n"
        "b ... Testing against Django installed in 'x'\n(2 silenced).\nok\n"
        "c ... System check identified no issues (0 silenced)\nok\n",
        {"a": "PASSED", "b": "PASSED", "c": "PASSED"},
    ),
    (
        "sympy",
        "test_a ok\ntest_b F\ntest_c E\ntest_d s\n___ a/b.py:test_b ___",
        {
            "a/b.py:test_b": "FAILED",
            "test_a": "PASSED",
            "test_b": "FAILED",
            "test_c": "ERROR",
        },
    ),
    ("autograd", "[gw0] PASSED a\nPASSED b", {"a": "PASSED"}),
    ("paramiko", "SKIPPED a\nPASSEDb", {"a": "SKIPPED"}),
    ("mypy", "[gw1] PASSED a::b\nsome FAILED c", {"a::b": "PASSED", "c": "FAILED"}),
    (
        "python_slugify",
        "t (a.B) ... ok\nu ... ERROR\n<v> ... ok",
        {"t (a.B)": "PASSED", "u": "ERROR"},
    ),
    (
        "tornado",
        "a ... ok\nb ... skipped 'x'\nFAIL: c (d)",
        {
            "a": "PASSED",
            "b": "SKIPPED",
            "c (d)": "FAILED",
        },
    ),
    (
        "jest",
        "  ✓ a (3 ms)\n  ✕ b (1.5 s)\n  ○ skipped c",
        {
            "a": "PASSED",
            "b (1.5 s)": "FAILED",
            "skipped c": "SKIPPED",
        },
    ),
    ("jest_json", "[PASSED] a > b\n[SKIPPED] c", {"a > b": "PASSED"}),
    ("vitest", " ✓ a > b 12ms\n ↓ c [skipped]", {"a > b": "PASSED", "c": "SKIPPED"}),
    ("tap", "ok 1 a # SKIP b\nnot ok 2 c\nok d", {"a # SKIP b": "PASSED", "c": "FAILED"}),
    (
        "carbon",
        "PASS a.js (1.2 s)\nFAIL b.js (3ms) x\nPASS c.js",
        {
            "a.js": "PASSED",
            "b.js": "FAILED",
            "c.js": "PASSED",
        },
    ),
    ("react_pdf", "FAIL a.js (5.01s)", {"a.js": "FAILED"}),
    ("grommet", "FAIL a.js\nPASS a.js (1 s)\nFAIL b.js", {"a.js": "PASSED", "b.js": "FAILED"}),
    (
        "karma",
        _KARMA,
        {
            "Anchor > when it is there > scrolls": "PASSED",
            "Anchor > when it is there > stops": "FAILED",
            "Anchor > counts": "PASSED",
        },
    ),
    (
        "calypso",
        "+ ./node_modules/.bin/jest x\n  suite\n    ✓ a (3ms)\n    ✕ b\nTest Suites: 1",
        {
            "suite - a": "PASSED",
            "suite - b": "FAILED",
        },
    ),
    (
        "highlightjs",
        "  suite\n    ✓ a (3ms)\n    1) b\n  1 passing\n    ✓ c",
        {
            "suite.a": "PASSED",
            "suite.b": "FAILED",
        },
    ),
    ("prismjs", _PRISM, {"c": "FAILED", "a b": "PASSED"}),
    ("lighthouse_json", _LIGHTHOUSE, {"good": "PASSED", "bad": "FAILED"}),
    ("lighthouse_mocha", _MOCHA, {"Audit - passes": "PASSED", "Audit - fails": "FAILED"}),
    (
        "next_karma",
        "+ xvfb-run x\nStarting browser Chrome\n  s\n    ✓ a\n    ✗ b\nTOTAL\n    ✓ c",
        {
            "s - a": "PASSED",
            "s - b": "FAILED",
        },
    ),
    (
        "next_mocha",
        "Running: a)\n\n\n  suite\n    ✓ b (3ms)\n    1) c\n",
        {
            "suite: b": "PASSED",
            "suite: c": "FAILED",
        },
    ),
    (
        "quarto_cli",
        "[unit] a /tmp/x1/ ... 32mok\n[smoke] b ... 31mFAILED\nERRORS\n[unit] c 32mok",
        {
            "[unit] a /tmp/0": "PASSED",
            "[smoke] b": "FAILED",
        },
    ),
    ("chart_js", "Chrome 1.2 (Linux x) a b FAILED", {"a b ": "FAILED"}),
    ("bpmn_js", "HeadlessChrome 1.2 (Linux 0.0.0) a b FAILED\n", {"a b ": "FAILED"}),
    (
        "openlayers",
        "Chrome 1.2 (Linux 0) a FAILED\n\n  1) b\n  c:\n AssertionError: x\ncase d: mismatch",
        {
            "a": "FAILED",
            "b c: Assertion": "FAILED",
            "d": "FAILED",
        },
    ),
    ("eslint", "  1) a\n       b:\n\n      AssertionError: x", {"a b:": "FAILED"}),
    ("marked", "1) a b\n 2) c", {"a b": "FAILED"}),
    (
        "p5js",
        "<b>\n  1) x:\n</b>\n  1) suite\n       deep:\n{\n  2) y:\n}\n 3)\n z:",
        {"suite:deep": "FAILED"},
    ),
    (
        "gotest",
        "    --- PASS: A/b (0.00s)\n--- FAIL: C (1 (s))\nok x",
        {"A/b": "PASSED", "C (1": "FAILED"},
    ),
    (
        "cargo",
        "test a::b ... ok\ntest c ... FAILED\ntest d ... ignored\ntest e - f ... ok",
        {
            "a::b": "PASSED",
            "c": "FAILED",
        },
    ),
    (
        "maven",
        "+ mvn -Dtest=a.B -q\nBUILD SUCCESS\n-Dtest=c\nBUILD FAILURE",
        {
            "a.B": "PASSED",
            "c": "FAILED",
        },
    ),
    ("ant", "[junit] [PASS] a\n  [junit]  [ERR] b c", {"a": "PASSED", "b c": "FAILED"}),
    (
        "gradle",
        "a > b PASSED\nc > d\nnoise\nFAILED\n> Task x PASSED",
        {
            "a > b": "PASSED",
            "c > d": "FAILED",
        },
    ),
    (
        "phpunit",
        "Suite (A\\B)\n ✔ a\n ✘ b\n ↩ c",
        {
            "Suite > a": "PASSED",
            "Suite > b": "FAILED",
            "Suite > c": "SKIPPED",
        },
    ),
    ("minitest", "A#b = 0.01 s = .\nC. d = 0.01 s = F", {"C": "FAILED"}),
    ("cucumber", "a b ....\nc .F", {"a b": "PASSED", "c": "FAILED"}),
    (
        "ruby_unit",
        "test: a b: .: (0.1)\nc: F\nd: O",
        {"a b": "PASSED", "c": "FAILED", "d": "SKIPPED"},
    ),
    ("rspec", "a - b - passed\nc - failed", {"a - b": "PASSED", "c": "FAILED"}),
    (
        "redis",
        "[ok]: a (3 ms)\n[err]: b in tests/x.tcl\n[skip]: c",
        {
            "a": "PASSED",
            "b": "FAILED",
            "c": "SKIPPED",
        },
    ),
    ("jq", "PASS: a b\nFAIL: c", {"a b": "PASSED", "c": "FAILED"}),
    (
        "micropython_test",
        "pass  a.py\nFAIL b.py\nskip c.py",
        {
            "a.py": "PASSED",
            "b.py": "FAILED",
            "c.py": "SKIPPED",
        },
    ),
    (
        "googletest",
        "[       OK ] A.b (0 ms)\n[  FAILED  ] A.c (1 ms)\n[  FAILED  ] A.d",
        {
            "A.b": "PASSED",
            "A.c": "FAILED",
        },
    ),
    ("doctest", _DOCTEST, {"a > b": "FAILED", "a > c": "FAILED", "a > d": "PASSED"}),
    (
        "parse_log_js",
        "  ✔ a (3ms)\n- b\n 1) c:\n [W] 2) d\n3) e\n ✔ c",
        {"a": "PASSED", "b": "SKIPPED", "c": "FAILED", "d": "FAILED"},
    ),
    ("parse_log_js_2", "✔ a\n1) b 3ms\n- c", {"a": "PASSED", "b": "FAILED", "c": "SKIPPED"}),
    (
        "parse_log_js_4",
        "✓ [x]: a (1.5s)\n✖ b\n○ c\nd [pending]",
        {"a": "PASSED", "b": "FAILED", "c": "SKIPPED", "d": "SKIPPED"},
    ),
    ("parse_log_npx", "✔ a (3ms)\n1) b (c) (d)", {"a": "PASSED", "b (c)": "FAILED"}),
    (
        "parse_log_elixir",
        "* test a (1.2ms) [L#3]\n* test b (skipped) [L#4]\n 1) test c (A.B)\n* test c [L#5]",
        {"a": "PASSED", "b": "SKIPPED", "c": "FAILED"},
    ),
    (
        "parse_log_swift",
        "Test Case 'A.b' passed (0.1 seconds)\nTest Case 'A.c' failed (1 seconds)",
        {"A.b": "PASSED", "A.c": "FAILED"},
    ),
    (
        "parse_log_csharp",
        "  Passed A.b(x: 1) [< 1 ms]\n  Failed A.c [2 s]\n  Skipped A.d\n"
        "[xUnit.net 00:00:01.2]   A.e [FAIL]\n  Passed A.e [1 ms]\nPassed! - 1",
        {"A.b(x: 1)": "PASSED", "A.c": "FAILED", "A.d": "SKIPPED", "A.e": "FAILED"},
    ),
    (
        "parse_log_pytest_nebo",
        "[gw0] [ 5%] PASSED a.py::b \nc.py::d FAILED [ 9%] in 0.1s\nERROR e.py::f in 3",
        {"a.py::b": "PASSED", "c.py::d": "FAILED", "e.py::f": "ERROR"},
    ),
    (
        "parse_log_sbt",
        '<testcase classname="A" name="b"/> x <testcase name="c"><failure/></testcase>\n'
        '<testcase name="d" classname="A"><skipped/></testcase><testcase name="e"><error>',
        {"A b": "PASSED", "c": "FAILED", "A d": "SKIPPED", "e": "ERROR"},
    ),
    (
        "json_tests",
        'x {"tests": [{"name": "a", "status": "PASSED"}, {"name": "b", "status": "?"}]}',
        {
            "a": "PASSED",
        },
    ),
    ("junit", '<testsuite><testcase classname="a.B" name="c"/></testsuite>', {"a.B::c": "PASSED"}),
]


@pytest.mark.parametrize(("name", "log", "expected"), CASES, ids=[name for name, _, _ in CASES])
def test_statuses(name: str, log: str, expected: dict[str, str]) -> None:
    assert {test: status.value for test, status in parse(name, log).items()} == expected


def test_names_without_times() -> None:
    log = "✓ a (3 ms)\n✓ b (1.5 s)\n✕ c runs in 2.5 msec here\n"
    assert parse("parse_log_jest+untimed", log) == {
        "a": Status.PASSED,
        "b": Status.PASSED,
        "c runs here": Status.FAILED,
    }
    assert registry.untimed("a [1.34 ms] ") == "a"
    assert registry.untimed("a (3 ms) [0.1s]") == "a"
    assert registry.untimed("a (b) [1] (3)") == "a (b) [1] (3)"


def test_names_of_publishers() -> None:
    assert parser_of_row("parse_log_junit", "a-1", "") == "junit_text"
    assert parser_of_row("pytest", "a-1", "") == "pytest"
    for name in ("parse_log_haskell_v2", "parse_java_mvn", "parse_logs_r_junit", "parse_lue_nvim"):
        with pytest.raises(registry.UnknownParser, match=f"read by '{name}', which is not he"):
            parser_of_row(name, "a-1", "")


def test_every_parser_is_listed_and_tried() -> None:
    assert {registry.plain_parser(name) for name, _, _ in CASES} == _NAMES


# -- hostile logs

_PIECES = sorted({piece for _, log, _ in CASES for piece in log.replace(" ", " \0").split("\0")})


@given(st.lists(st.sampled_from([*_PIECES, "\n", " ", "\x00", "\ud800"]) | st.text(max_size=9)))
@settings(max_examples=10, deadline=None)
def test_garbage_is_read(pieces: list[str]) -> None:
    log = "".join(pieces)
    for name in _NAMES - {"junit"}:
        for test, status in parse(name, log).items():
            assert isinstance(test, str)
            assert isinstance(status, Status)


# What a parser that goes back over its text would need minutes for: each piece begins a result.
_HOSTILE = [
    *("  1)", "1", " ", "\n", "a \n", "<b>", "</b>", "<b></b>", "[ OK ] x (", "\x1b[0", "  a\n"),
    *(
        "Chrome 1 (",
        "Chrome Headless 1 (Linux x) ",
        " ... ",
        "AssertionError: #",
        "Running:)\n\n\n",
    ),
    *(
        ":\t.",
        " . = ",
        "-Dtest= ",
        "/tmp/a",
        '"fullTitle": "',
        "\n  1) a",
        "FAILED [",
        " - ",
        "  ✔ x\n",
    ),
    *(
        " ... Testing against Django installed in ",
        "case : mismatch ",
        " in  ",
        ". = F",
        " .",
        "{\n[",
        '<testcase name="1">',
        " PASSED [",
        "✔ 1ms ",
    ),
]


@pytest.mark.parametrize("piece", _HOSTILE)
def test_time_grows_with_the_length(piece: str) -> None:
    log = piece * (30_000 // len(piece))
    for name in _NAMES - {"junit"}:
        before = time.process_time()
        parse(name, f"Starting browser\nrunning 1 test files\n + xvfb-run {log}\nFAILED\n")
        assert time.process_time() - before < 1, name  # 0.03 s; a quadratic one takes longer


def test_time_grows_with_the_length_of_a_line() -> None:
    long_checks = " ... Testing against Django installed in " * 60_000 + "\n0 silenced).\nok\n"
    server_errors = " ... Internal Server Error: /" * 80_000 + "\nok\n"
    before = time.process_time()
    assert parse("django", long_checks + server_errors)
    assert time.process_time() - before < 3  # 0.3 s; a quadratic one takes longer


def _filled(results: Results, length: int) -> None:
    for number in range(100):
        results[f"{number}" + "x" * length] = Status.PASSED


def test_limits() -> None:
    with pytest.raises(UngradableState, match="a log of more than 32 Mi characters"):
        parse("pytest", "\n" * (MAX_LOG_LENGTH + 1))
    with pytest.raises(UngradableState, match="names of more than"):
        _filled(Results(), 1024**2)


# -- names


def test_a_parser_that_is_not_there() -> None:
    with pytest.raises(ConfigurationError, match=r"'pytets'\. Did you mean 'pytest'"):
        parse("pytets", "")
    with pytest.raises(ConfigurationError, match="it means one of several, by the row"):
        parse("parse_log_jekyll", "")


@pytest.mark.parametrize(
    ("name", "instance", "version", "expected"),
    [
        ("parse_log_jekyll", "jekyll__jekyll-8761", "8761", "cucumber"),
        ("parse_log_immutable_js", "immutable-js__immutable-js-2005", "2005", "jest_json"),
        ("parse_log_next", "alibaba-fusion__next-1", "1.27", "next_mocha"),
        ("parse_log_next", "alibaba-fusion__next-1", "1.2", "next_karma"),
        ("parse_log_lighthouse", "GoogleChrome__lighthouse-1", "2.9", "lighthouse_json"),
        ("parse_log_lighthouse", "GoogleChrome__lighthouse-1", "9.5", "lighthouse_mocha"),
        ("parse_log_lighthouse", "GoogleChrome__lighthouse-1", "5.0", "carbon"),
        ("parse_log_flask", "pallets__flask-1", "2.3", "pytest"),
    ],
)
def test_the_parser_of_a_row(name: str, instance: str, version: str, expected: str) -> None:
    assert parser_of_row(name, instance, version) == expected


def test_a_parser_for_another_row() -> None:
    with pytest.raises(ConfigurationError, match="is for the rows 8047, 8167"):
        parser_of_row("jekyll", "jekyll__jekyll-1", "1")


def words_of(log: str) -> Any:
    """A parser of one's own: each line is a name and a status."""
    return dict(line.split() for line in log.splitlines())


def test_a_parser_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    value = f"{__name__}:words_of"
    points = {
        name: EntryPoint(name, where, registry.GROUP)
        for name, where in (("words", value), ("gone", "no_such_module:x"))
    }
    monkeypatch.setattr(registry, "added_parsers", lambda: points)
    assert parse("words", "a PASSED\nb XFAIL") == {"a": Status.PASSED, "b": Status.XFAIL}
    message = "the status of 'a' is one of PASSED, FAILED, SKIPPED, ERROR, XFAIL, found 'pass'"
    with pytest.raises(UngradableState, match=f"the parser 'words' .* the log: {message}"):
        parse("words", "a pass")
    with pytest.raises(
        UngradableState, match=r"the log: ValueError: .* \(.*test_test_logs.py:\d+\)"
    ):
        parse("words", "nonsense")
    with pytest.raises(ConfigurationError, match=r"'gone' \(no_such_module:x\) cannot be loaded"):
        parse("gone", "")


@pytest.mark.parametrize("added", ["pytest", "parse_log_pytest"])
def test_a_parser_that_is_called_as_ours(monkeypatch: pytest.MonkeyPatch, added: str) -> None:
    points = {added: EntryPoint(added, f"{__name__}:words_of", registry.GROUP)}
    monkeypatch.setattr(registry, "added_parsers", lambda: points)
    message = f"the parser '{added}' is defined twice .*: it is built in, and {__name__}:words_of"
    with pytest.raises(ConfigurationError, match=message):
        parse("parse_log_pytest", "")


# -- JUnit's XML


def test_junit_xml() -> None:
    found = read_junit(
        b"""<?xml version="1.0" encoding="utf-8"?>
        <testsuites><testsuite>
          <testcase classname="a.b.C" name="d[x::y/z]"/>
          <testcase classname="a.b.C" name="d[x::y/z]"><skipped/></testcase>
          <testcase classname="" name="e"><error>x</error></testcase>
          <testcase name="f"><failure/><error/></testcase>
          <testcase name="f"/>
        </testsuite></testsuites>"""
    )
    assert found == {
        "a.b.C::d[x::y/z]": Status.SKIPPED,
        "e": Status.ERROR,
        "f": Status.FAILED,
    }
    assert junit_name("a/b.py::C::d[x::y/z]") in found
    assert junit_name("e") == "e"


_BOMB = b"""<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;">]>
<testsuite><testcase name="&b;"/></testsuite>"""


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not XML: no element found"),
        (b"<testsuite>", "not XML: no element found"),
        (b"<html/>", "begins with testsuites, not with 'html'"),
        (b"\xff\xfe", "not XML"),
        (b'<?xml version="1.0" encoding="nonsense"?><testsuite/>', "not XML"),
        (_BOMB, "a document type, which could define entities, is refused"),
        (b'<!DOCTYPE x SYSTEM "file:///etc/passwd"><testsuite/>', "a document type"),
        (b"<testsuite>" * 100, "64 within each other"),
        (b" " * (32 * 1024**2 + 1), "XML of more than 32 MiB"),
    ],
    ids=["empty", "cut", "html", "bytes", "encoding", "bomb", "external", "deep", "long"],
)
def test_xml_that_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(UngradableState, match=message):
        read_junit(data)
