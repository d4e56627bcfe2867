"""What docs/statistics.md says of several agents and treatments: its example and its numbers."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

from pytest_intercode.statistics.paired import fisher_exact, mcnemar_exact, paired_tests

_DOCUMENT = Path(__file__).parents[2] / "docs" / "statistics.md"
_BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)


def test_examples() -> None:
    blocks = "".join(_BLOCK.findall(_DOCUMENT.read_text(encoding="utf-8")))
    example = doctest.DocTestParser().get_doctest(blocks, {}, _DOCUMENT.name, None, 0)
    assert example.examples
    failures, _ = doctest.DocTestRunner().run(example)
    assert not failures


def test_how_many_tasks_are_the_least_for_several_comparisons() -> None:
    most = {6: 1, 7: 3, 8: 6, 9: 12}
    for tasks, comparisons in most.items():
        p = mcnemar_exact(tasks, 0)
        assert comparisons * p <= 0.05 < (comparisons + 1) * p


def test_five_tries_of_one_task() -> None:
    assert round(fisher_exact((0, 5), (5, 5)), 3) == 0.008
    (verdict,) = paired_tests([({"t": [False] * 5}, {"t": [True] * 5})], symmetric=True)
    assert verdict.kind == "too few samples"
