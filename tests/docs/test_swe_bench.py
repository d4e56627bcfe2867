"""docs/swe-bench.md: its commands run as they are shown, on one row with an image of its own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_intercode.rewards.test_logs.registry import parser_names
from pytest_intercode.suites.loader import load_suite
from tests.docs.test_commands import COMMAND, ROOT

PAGE = (ROOT / "docs/swe-bench.md").read_text(encoding="utf-8")
_GOLD = (
    "diff --git a/calc.py b/calc.py\n--- a/calc.py\n+++ b/calc.py\n@@ -1,2 +1,2 @@\n"
    " def add(a, b):\n-    return a - b\n+    return a + b\n"
)
_TESTS = (
    "diff --git a/tests/test_add.py b/tests/test_add.py\nnew file mode 100644\n"
    "--- /dev/null\n+++ b/tests/test_add.py\n@@ -0,0 +1,5 @@\n+from calc import add\n+\n+\n"
    "+def test_add():\n+    assert add(2, 3) == 5\n"
)
_IMAGE = r"""
RUN mkdir -p /testbed/tests && cd /testbed \
    && printf 'def add(a, b):\n    return a - b\n' > calc.py \
    && printf 'from calc import add\n\n\ndef test_zero():\n    assert add(1, 0) == 1\n' \
        > tests/test_zero.py \
    && printf '[pytest]\npythonpath = .\n' > pytest.ini \
    && git init -q -b main && git add -A \
    && git -c user.name=a -c user.email=a@b commit -qm one && git tag v1 \
    && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m SWE-bench
"""
_ROW = {
    "repo": "pallets/flask",
    "version": "2.3",
    "instance_id": "ada__calc-1",
    "base_commit": "v1",
    "patch": _GOLD,
    "test_patch": _TESTS,
    "problem_statement": "Adding is wrong.",
    "FAIL_TO_PASS": '["tests/test_add.py::test_add"]',
    "PASS_TO_PASS": "[]",
}


@pytest.mark.slow
@pytest.mark.usefixtures("needs_docker")
def test_commands(tmp_path: Path) -> None:
    folder = tmp_path / "rows/dockerfiles/ada__calc-1"
    folder.mkdir(parents=True)
    ours = (ROOT / "dockerfiles/swe.Dockerfile").read_text()
    (folder / "Dockerfile").write_text(f"{ours}{_IMAGE}")
    (tmp_path / "rows/swe-bench-verified.jsonl").write_text(json.dumps(_ROW))
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    commands = COMMAND.findall(PAGE)
    assert len(commands) == 3
    # Of the run comes the file that is graded later on the page.
    variables = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    for command in commands:
        done = subprocess.run(
            ["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, env=variables
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        assert "1 passed" in done.stdout or "1 of 1 prediction resolved" in done.stdout
    report = json.loads((tmp_path / "report.jsonl").read_text())
    assert report["resolved"] is True
    assert report["model_name_or_path"] == "oracle"


def test_the_manifest_is_read(tmp_path: Path) -> None:
    text = re.findall(r"```yaml own.yaml\n(.*?)```", PAGE, re.DOTALL)[0]
    (tmp_path / "own.yaml").write_text(text)
    config = {"test_cmd": "go test -v ./...", "log_parser": "gotest"}
    row = {**_ROW, "docker_image": "x", "install_config": config}
    (tmp_path / "own.jsonl").write_text(json.dumps(row))
    (task,) = load_suite(tmp_path / "own.yaml").tasks
    assert task.verification is not None
    assert task.verification.parser == "gotest"


def test_every_parser_is_named() -> None:
    part = PAGE[PAGE.index("## Parsers") :]
    named = set(re.findall(r"`([a-z0-9_]+)`", part))
    of_projects = {"astropy", "astroid", "carbon", "flask", "marshmallow", "pvlib", "pydicom"}
    of_projects |= {"pylint", "pyvista", "requests", "scikit", "sphinx", "sqlfluff", "xarray"}
    of_projects |= {"gradle_custom", "prismjs", "react_pdf", "rspec_transformed_json"}
    assert set(parser_names()) - named == of_projects
