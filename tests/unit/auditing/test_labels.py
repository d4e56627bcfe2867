"""``labels.jsonl``: what people say, and mistakes in it, in one line each."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_intercode.auditing.labels import Label, read_labels
from pytest_intercode.core.permissions import Permissions
from pytest_intercode.errors import ConfigurationError


def test_labels(tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    assert read_labels(path) == []
    path.write_text(
        '{"task": "a", "text": "Hi!", "label": "pass", "note": "by Ada"}\n\n'
        '{"task": "b", "evidence": "3f0c9a5be7712d40", "label": "fail"}\n'
    )
    assert read_labels(path) == [
        Label(f"{path}:1", "a", True, text="Hi!"),
        Label(f"{path}:3", "b", False, evidence="3f0c9a5be7712d40"),
    ]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("a", "not JSON"),
        ("[]", "a row must be an object"),
        ('{"task": "a", "text": "x", "labels": "pass"}', "no 'labels'. Did you mean 'label'?"),
        ('{"task": "a", "text": "x"}', "label is missing"),
        ('{"text": "x", "label": "pass"}', "task is missing"),
        ('{"task": "a", "text": "x", "label": "ok"}', "'ok' is not one of pass, fail"),
        ('{"task": "a", "text": "", "label": "pass"}', "text: a text is needed, found ''"),
        ('{"task": 1, "text": "x", "label": "pass"}', "task: a text is needed, found 1"),
        ('{"task": "a", "label": "pass"}', "either text, which is judged, or evidence"),
        (
            '{"task": "a", "label": "pass", "text": "x", "evidence": "y"}',
            "either text, which is judged, or evidence",
        ),
    ],
)
def test_mistakes(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "labels.jsonl"
    path.write_text(f"{line}\n")
    with pytest.raises(ConfigurationError) as raised:
        read_labels(path)
    assert str(raised.value).startswith(f"{path}:1: ")
    assert message in str(raised.value)


def test_what_leads_out_of_its_folder_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "private.jsonl").write_text('{"secret": 1}\n')
    (tmp_path / "suite").mkdir()
    path = tmp_path / "suite" / "labels.jsonl"
    path.symlink_to("../private.jsonl")
    with pytest.raises(ConfigurationError, match="leads out of"):
        read_labels(path)
    with pytest.raises(ConfigurationError, match="no 'secret'"):
        read_labels(path, Permissions(paths=(tmp_path,)))
