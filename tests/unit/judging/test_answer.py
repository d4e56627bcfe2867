"""Only a verdict is read as one."""

from __future__ import annotations

import pytest

from pytest_intercode.core.judge import Verdict
from pytest_intercode.judging.answer import read_verdict


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ('{"score": 1, "reason": "good"}', 1.0),
        (' {"reason": "half\\n of it", "score": 0.5}\n', 0.5),
        ('```json\n{"score": 0, "reason": ""}\n```', 0.0),
    ],
)
def test_a_verdict(text: str, score: float) -> None:
    assert read_verdict(text).score == score


def test_a_reason_is_one_harmless_line() -> None:
    verdict = read_verdict('{"score": 0, "reason": "a\\n\\u001b[2J::error::b ' + "x" * 900 + '"}')
    assert verdict.reason.startswith("a \\x1b[2J::error::b xxx")
    assert len(verdict.reason) == 500


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "it is not one JSON object"),
        ("The score is 1.", "it is not one JSON object: The score is 1."),
        ('{"score": 1, "reason": "a"} {"score": 0, "reason": "b"}', "not one JSON object"),
        ('Sure!\n{"score": 1, "reason": "a"}', "not one JSON object"),
        ('{"score": 0, "score": 1, "reason": "a"}', "not one JSON object"),
        ('{"score": NaN, "reason": "a"}', "not one JSON object"),
        ("[" * 10_000, "not one JSON object"),
        ('[{"score": 1, "reason": "a"}]', "not an object of score and reason"),
        ('{"score": 1}', "not an object of score and reason"),
        ('{"score": 1, "reason": "a", "sure": true}', "not an object of score and reason"),
        ('{"score": true, "reason": "a"}', "not a number from 0 to 1"),
        ('{"score": "1", "reason": "a"}', "not a number from 0 to 1"),
        ('{"score": 1.01, "reason": "a"}', "not a number from 0 to 1"),
        ('{"score": 1e999, "reason": "a"}', "not a number from 0 to 1"),
        (f'{{"score": 1{"0" * 400}, "reason": "a"}}', "not a number from 0 to 1"),
        ('{"score": 1, "reason": null}', "its reason is not a text"),
        ("x" * 20_001, "it has 20,001 characters"),
    ],
)
def test_what_is_not_a_verdict(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem) as raised:
        read_verdict(text)
    assert len(str(raised.value)) < 200


def test_verdicts_compare() -> None:
    assert read_verdict('{"score": 1, "reason": "r"}') == Verdict(1.0, "r")
