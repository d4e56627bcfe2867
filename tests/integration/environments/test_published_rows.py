"""One row of each published form, on an image of its own: gold solves it, and nothing else does.

The repository's files are in one layer of the image and its git in another, as in published images:
what git's index has noted of the files is not what the sandbox has.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_intercode.auditing.predictions import _build_apply_action, grade
from pytest_intercode.core.task import FileSpec, ImageSource, Task
from pytest_intercode.environments.swe.fields import repository_of
from pytest_intercode.environments.swe.gold import gold_actions
from pytest_intercode.errors import TaskError
from pytest_intercode.results.predictions import Prediction
from pytest_intercode.sandboxes.provider import SandboxProvider
from pytest_intercode.sandboxes.settings import SandboxSettings
from pytest_intercode.suites.catalogue import file_tasks
from pytest_intercode.system.files import bundled_folder
from tests.integration.environments.test_swe import Play

pytestmark = pytest.mark.slow

_CALC = "def add(a, b):\n    return {}\n\n\ndef mul(a, b):\n    return a * b\n"
_HUNK = (
    "diff --git a/calc.py b/calc.py\n--- a/calc.py\n+++ b/calc.py\n@@ -1,5 +1,5 @@\n"
    " def add(a, b):\n-    return {}\n+    return {}\n \n \n def mul(a, b):\n"
)
_FIX = _HUNK.format("a - b", "a + b")
_TESTS = (
    "diff --git a/tests/test_calc.py b/tests/test_calc.py\n--- a/tests/test_calc.py\n"
    "+++ b/tests/test_calc.py\n@@ -1,5 +1,9 @@\n-from calc import mul\n+from calc import add, mul\n"
    " \n \n def test_mul():\n     assert mul(2, 3) == 6\n+\n+\n+def test_add():\n"
    "+    assert add(2, 3) == 5\n"
)
_OLD_TEST = "from calc import mul\n\n\ndef test_mul():\n    assert mul(2, 3) == 6\n"
_NEW_TEST = (
    "from calc import add, mul\n\n\ndef test_mul():\n    assert mul(2, 3) == 6\n\n\n"
    "def test_add():\n    assert add(2, 3) == 5\n"
)
_ADD, _MUL = "tests/test_calc.py::test_add", "tests/test_calc.py::test_mul"


def _written(path: str, text: str) -> str:
    """Return a command that writes a file."""
    return f"echo {base64.b64encode(text.encode()).decode()} | base64 -d > {path}"


def _dockerfile(at: str, calc: str, test: str) -> str:
    files = {"calc.py": calc, "tests/test_calc.py": test, "pytest.ini": "[pytest]\npythonpath=.\n"}
    written = " && ".join(_written(f"{at}/{path}", text) for path, text in files.items())
    git = "git -c user.name=a -c user.email=a@b"
    ours = (bundled_folder("dockerfiles") / "swe.Dockerfile").read_text()
    return (
        f"{ours}\nRUN ln -s pytest-3 /usr/bin/pytest || true\n"
        f"RUN mkdir -p {at}/tests && {written}\n"
        f"RUN cd {at} && git init -q -b main && git add -A && {git} commit -qm one && git tag v1\n"
        f"RUN touch -d 2020-01-01 {at}/calc.py\n"
    )


def _row(**columns: Any) -> dict[str, Any]:
    row = {
        "repo": "ada/calc",
        "instance_id": "ada__calc-1",
        "base_commit": "v1",
        "patch": _FIX,
        "test_patch": _TESTS,
        "problem_statement": "Adding is wrong.",
        "FAIL_TO_PASS": [_ADD],
        "PASS_TO_PASS": [_MUL],
    }
    return {name: value for name, value in {**row, **columns}.items() if value is not ...}


_CONFIG = {"python": "3.11", "install": "true", "log_parser": "parse_log_pytest"}
_PYTEST = "pytest -rA -p no:cacheprovider"
_EVAL = f"""\
#!/bin/bash
set -uxo pipefail
cd /testbed
git checkout v1 tests/test_calc.py
git apply -v - <<'EOF_114329324912'
{_TESTS}
EOF_114329324912
: '>>>>> Start Test Output'
{_PYTEST} tests/test_calc.py
: '>>>>> End Test Output'
git checkout v1 tests/test_calc.py
"""
_PARSER = """\
import re


def parser(log: str) -> dict[str, str]:
    words = {"PASSED": "pass", "FAILED": "fail", "SKIPPED": "skip"}
    found = re.findall(r"^(PASSED|FAILED|SKIPPED) (\\S+)", log, re.MULTILINE)
    print({"a": "b"})
    return {name: words[word] for word, name in found}
"""
_ROWS: dict[str, dict[str, Any]] = {
    "swe-bench": _row(repo="pallets/flask", version="2.3", FAIL_TO_PASS=json.dumps([_ADD])),
    "swe-gym": _row(repo="iterative/dvc", version="1.0"),
    "swe-bench-5": _row(
        image="x", eval_script=_EVAL, log_parser="parse_log_pytest", eval_type="pass_and_fail"
    ),
    "swe-bench-pro": _row(
        dockerhub_tag="x",
        fail_to_pass=f"['{_ADD}']",
        pass_to_pass=f"['{_MUL}']",
        selected_test_files_to_run="['tests/test_calc.py']",
        before_repo_set_cmd="git reset --hard v1\ngit checkout tests -- tests/test_calc.py",
        **dict.fromkeys(("FAIL_TO_PASS", "PASS_TO_PASS"), ...),
    ),
    "swe-smith": _row(
        repo="swesmith/ada__calc.0123abcd",
        instance_id="ada__calc.0123abcd.one",
        image_name="x",
        patch=_HUNK.format("a + b", "a - b"),
        test_patch=...,
    ),
    "swe-rebench": _row(
        docker_image="x", install_config={**_CONFIG, "test_cmd": "pytest -rA"}, version="1"
    ),
    "swe-rebench-v2": _row(
        image_name="docker.io/swerebenchv2/ada-calc:1-1234567",
        install_config={
            "install": ["false"],
            "log_parser": "parse_log_pytest",
            "test_cmd": ['export MODE="it\'s\nset"', f'[ "$MODE" ] && {_PYTEST} tests $UNSET'],
        },
    ),
    "swe-bench-live": _row(test_cmds=[f"{_PYTEST} tests"], log_parser="pytest"),
    "swe-bench-live-multilang": _row(
        docker_image="x",
        rebuild_cmds=["mkdir build", "cd build"],
        test_cmds=[f"(cd ..; {_PYTEST} tests) > log 2>&1"],
        print_cmds=["cat log"],
        log_parser=_PARSER,
    ),
}


@pytest.fixture(scope="module")
def docker_provider(request: pytest.FixtureRequest) -> Iterator[SandboxProvider]:
    """Return a provider of sandboxes on Docker."""
    request.getfixturevalue("docker_engine")
    provider = SandboxProvider(SandboxSettings("docker"))
    yield provider
    provider.close()


def _task(folder: Path, form: str, **columns: Any) -> Task:
    row = {**_ROWS[form], **columns}
    (folder / "rows.jsonl").write_text(json.dumps(row))
    if form == "swe-bench-pro":
        scripts = folder / "run_scripts/ada__calc-1"
        scripts.mkdir(parents=True)
        (scripts / "run_script.sh").write_text(f"{_PYTEST} $1\n")
        (scripts / "parser.py").write_text(
            "import json, re, sys\n"
            "found = re.findall(r'^(PASSED|FAILED) (\\S+)', open(sys.argv[1]).read(), re.M)\n"
            "tests = [{'name': name, 'status': status} for status, name in found]\n"
            "json.dump({'tests': tests}, open(sys.argv[3], 'w'))\n"
        )
    (task,) = file_tasks(folder / "rows.jsonl", "swe")
    repository = repository_of(task)
    assert repository is not None
    at = repository.at
    smith = form == "swe-smith"
    text = _dockerfile(
        at, _CALC.format("a + b" if smith else "a - b"), _NEW_TEST if smith else _OLD_TEST
    )
    if form == "swe-bench-pro":
        brought = _written("tests/test_calc.py", _NEW_TEST)
        text += (
            f"RUN cd {at} && git checkout -qb tests && {brought} && git -c user.name=a "
            "-c user.email=a@b commit -qam tests && git checkout -q main\n"
        )
    (folder / "Dockerfile").write_text(text)
    return replace(task, image=ImageSource(dockerfile=folder / "Dockerfile"))


@pytest.mark.parametrize("form", _ROWS)
def test_gold_solves_and_nothing_else(
    docker_provider: SandboxProvider, tmp_path: Path, form: str
) -> None:
    task = _task(tmp_path, form)
    assert task.skip is None
    gold = Play(docker_provider, task, *gold_actions(task))
    assert gold.reward.value == 1.0, (gold.reward, gold.state)
    idle = Play(docker_provider, task)
    assert idle.reward.value == 0.0, (idle.reward, idle.state)
    wrong = Play(docker_provider, task, "sed -i 's/return a . b/return 5 - b/' calc.py")
    assert wrong.reward.value == 0.0, (wrong.reward, wrong.state)
    assert "of fail_to_pass pass" in wrong.reward.reason


def _blob(text: str) -> str:
    """Return git's hash of a file."""
    return hashlib.sha1(f"blob {len(text)}\0{text}".encode(), usedforsecurity=False).hexdigest()


def test_a_prediction_that_needs_a_merge(docker_provider: SandboxProvider, tmp_path: Path) -> None:
    """``git apply --3way`` compares files with the index, which has noted others."""
    task = _task(tmp_path, "swe-rebench-v2")
    path = tmp_path / "Dockerfile"
    git = "git -c user.name=a -c user.email=a@b"
    path.write_text(
        f"{path.read_text()}RUN cd /calc && sed -i 's/mul(a, b):/& # all/' calc.py\n"
        f"RUN cd /calc && {git} commit -qam two\nRUN touch -d 2021-01-01 /calc/calc.py\n"
    )
    blobs = "..".join(_blob(_CALC.format(body)) for body in ("a - b", "a + b"))
    # A patch of the first commit; without its blob only the last try, by patch, would do.
    patch = _FIX.replace("--- a/", f"index {blobs} 100644\n--- a/")
    action = _build_apply_action("/calc").replace("patch --batch", "false")
    play = Play(
        docker_provider,
        replace(task, files={"/tmp/.prediction.diff": FileSpec("file", patch.encode())}),
        action,
    )
    assert "the patch is applied" in play.said[0], play.said
    assert play.reward.value == 1.0
    graded = grade(docker_provider, task, Prediction(task.id, "model", patch))
    assert graded.resolved, graded.reason


@pytest.mark.parametrize(
    "action", ["true", "echo more >> tests/test_calc.py", "echo ok > conftest.py"]
)
def test_what_passes_before_anything_is_done_is_not_solved(
    docker_provider: SandboxProvider, tmp_path: Path, action: str
) -> None:
    task = _task(tmp_path, "swe-rebench-v2", FAIL_TO_PASS=[_MUL], PASS_TO_PASS=[])
    with pytest.raises(TaskError, match="its tests pass before anything is done"):
        Play(docker_provider, task, action)
    other = Play(docker_provider, task, "echo '# more' >> calc.py")
    assert other.reward.value == 1.0
