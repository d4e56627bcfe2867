"""The tests lie as the package does, and what runs them lets none wait for ever."""

from __future__ import annotations

import ast
import signal
from pathlib import Path

import pytest

import pytest_intercode

_PACKAGE = Path(pytest_intercode.__file__).parent
_TESTS = Path(__file__).parents[1]

# What is tested beside the package's folders.
_BESIDE = {"integration": {"benchmarks"}, "unit": set()}
_KINDS = {
    "attacks",
    "campaigns",
    "conformance",
    "docs",
    "integration",
    "matrix",
    "portable",
    "supply",
    "support",
    "types",
    "unit",
}


def _folders(path: Path) -> set[str]:
    return {each.name for each in path.iterdir() if each.is_dir() and each.name[0] not in "._"}


@pytest.mark.parametrize("kind", ["integration", "unit"])
def test_each_folder_is_one_of_the_package(kind: str) -> None:
    found = _folders(_TESTS / kind)
    assert len(found) > 5
    assert found - _folders(_PACKAGE) == _BESIDE[kind]


def test_the_kinds_of_tests() -> None:
    assert _folders(_TESTS) == _KINDS


def test_support_holds_helpers_and_all_else_tests() -> None:
    for path in _TESTS.rglob("*.py"):
        kind = path.relative_to(_TESTS).parts[0]
        definitions = [
            node.name
            for node in ast.parse(path.read_text()).body
            if isinstance(node, (ast.FunctionDef, ast.ClassDef))
        ]
        holds = any(name.startswith(("test_", "Test")) for name in definitions)
        named = path.name.startswith("test_")
        assert holds == named, f"{path} should {'' if named else 'not '}hold tests"
        assert not (named and kind == "support"), path


def test_ctrl_c_reaches_what_tests_start(request: pytest.FixtureRequest) -> None:
    """Also where the shell that started the tests ignores it."""
    assert signal.getsignal(signal.SIGINT) is not signal.SIG_IGN
    assert request.node.get_closest_marker("timeout") is not None
