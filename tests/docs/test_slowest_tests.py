"""CONTRIBUTING.md's table of the slowest tests is made from a run of pytest."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.slowest_tests import slowest_tests, with_table

CONTRIBUTING = Path(__file__).parents[2] / "CONTRIBUTING.md"


def test_the_table_is_made_of_what_a_run_took(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_some="""
        import time
        import pytest

        @pytest.mark.parametrize("text", ["a|b"])
        def test_long(text):
            time.sleep(0.05)

        def test_short():
            pass
        """
    )
    pytester.runpytest("--junitxml=run.xml")
    tests = slowest_tests(pytester.path / "run.xml")
    assert [name for _, name in tests] == ["test_some::test_long[a|b]", "test_some::test_short"]
    assert slowest_tests(pytester.path / "run.xml", 1) == tests[:1]
    text = with_table(CONTRIBUTING.read_text("utf-8"), [(2.0, "test_some::test_long[a|b]")])
    assert text.endswith("| 2.0 | `test_some::test_long[a\\|b]` |\n")
    assert with_table(text, tests[:1]).count("test_some::") == 1
