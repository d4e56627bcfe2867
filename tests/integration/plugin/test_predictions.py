"""The file of predictions that a run writes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import PRETEND

_PATCHES = f"""{PRETEND}

Pretend.end_state = lambda self: {{"patch": f"diff of {{self.task.id}}"}}
"""


def test_a_run_writes_its_patches(pytester: pytest.Pytester, pretend: Path) -> None:
    (pytester.path / "conftest.py").write_text(_PATCHES)
    options = ["--intercode-agent=agents.py:Idle", "--intercode-predictions=out/p.jsonl"]
    pytester.runpytest_inprocess(str(pretend), *options).assert_outcomes(failed=3)
    lines = (pytester.path / "out/p.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [
        {
            "instance_id": name,
            "model_name_or_path": "agents.py:Idle",
            "model_patch": f"diff of {name}",
        }
        for name in ("prints", "writes", "both")
    ]
    again = pytester.runpytest_inprocess(str(pretend), options[0], "--intercode-predictions=.")
    assert again.ret == pytest.ExitCode.USAGE_ERROR
    again.stderr.fnmatch_lines(["*--intercode-predictions=*: cannot be written: Is a directory*"])


def test_a_resumed_run_has_the_patches_of_the_whole(
    pytester: pytest.Pytester, pretend: Path
) -> None:
    (pytester.path / "conftest.py").write_text(_PATCHES)
    options = [str(pretend), "--intercode-agent=agents.py:Idle"]
    options += ["--intercode-results=r.jsonl", "--intercode-predictions=p.jsonl"]
    pytester.runpytest_inprocess(*options, "-k", "writes").assert_outcomes(failed=1, deselected=2)
    file = pytester.path / "p.jsonl"
    file.write_text(file.read_text() + '{"instance_id": "pri')  # it was killed while it wrote
    pytester.runpytest_inprocess(*options, "--intercode-resume").assert_outcomes(failed=3)
    names = [json.loads(line)["instance_id"] for line in file.read_text().splitlines()]
    assert sorted(names) == ["both", "prints", "writes"]
