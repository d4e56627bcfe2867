"""Rows of SWE-bench and of its relatives as tasks, and what is said of rows that are wrong."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from pytest_intercode.core.patches import read_patch
from pytest_intercode.core.task import Task
from pytest_intercode.environments.swe.fields import repository_of
from pytest_intercode.environments.task_json import task_from_json, task_to_json
from pytest_intercode.errors import SuiteError
from pytest_intercode.rewards.eval_scripts import changed_tests
from pytest_intercode.suites.catalogue import data_folder, dataset_of, dataset_tasks, file_tasks
from pytest_intercode.suites.loader import FORMS, load_suite
from pytest_intercode.suites.swebench.manifest import SwebenchModel
from pytest_intercode.system.files import bundled_folder

_PATCH = (
    "diff --git a/calc.py b/calc.py\n--- a/calc.py\n+++ b/calc.py\n@@ -1,2 +1,2 @@\n"
    " def add(a, b):\n-    return a - b\n+    return a + b\n"
)
_TESTS = (
    "diff --git a/tests/test_calc.py b/tests/test_calc.py\n"
    "--- a/tests/test_calc.py\n+++ b/tests/test_calc.py\n@@ -1 +1,2 @@\n x\n+y\r\n"
    "diff --git a/tests/data/a.json b/tests/data/a.json\nnew file mode 100644\n"
    "--- /dev/null\n+++ b/tests/data/a.json\n@@ -0,0 +1 @@\n+1\n"
)


def _row(**changes: Any) -> dict[str, Any]:
    row = {
        "repo": "pallets/flask",
        "instance_id": "pallets__flask-1",
        "base_commit": "1234567",
        "patch": _PATCH,
        "test_patch": _TESTS,
        "problem_statement": "It subtracts.\r\nIt should add.\r\n",
        "hints_text": "Look at calc.py.",
        "version": "2.3",
        "FAIL_TO_PASS": '["tests/test_calc.py::test_add[it\'s]"]',
        "PASS_TO_PASS": "['tests/test_calc.py::test_mul', \"b's\"]",
    }
    return {name: value for name, value in {**row, **changes}.items() if value is not ...}


def _tasks(folder: Path, dataset: str, *rows: dict[str, Any]) -> list[Task]:
    text = "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows)
    (folder / f"{dataset}.jsonl").write_text(text, encoding="utf-8")
    return dataset_tasks(dataset, data_folder(folder, "--data"), "test")


def test_a_classic_row(tmp_path: Path) -> None:
    row = _row(problem_statement="a\u2028b\r\n", difficulty="<15 min fix")
    (task,) = _tasks(tmp_path, "swe-bench-verified", row)
    assert (task.id, task.env, task.query) == ("pallets__flask-1", "swe", "a\u2028b")
    assert task.gold == (_PATCH,)
    assert task.hardness == "<15 min fix"
    assert task.workdir == "/testbed"
    repository = repository_of(task)
    assert repository is not None
    assert (repository.at, repository.commit) == ("/testbed", "1234567")
    assert task.image is not None
    assert task.image.image == "swebench/sweb.eval.x86_64.pallets_1776_flask-1:latest"
    assert task.verification is not None
    assert task.verification.fail_to_pass == ("tests/test_calc.py::test_add[it's]",)
    assert task.verification.pass_to_pass == ("tests/test_calc.py::test_mul", "b's")
    assert task.verification.parser == "pytest"
    assert task.verification.sentinels
    lines = task.verification.command.split("\n")
    assert "pytest -rA tests/test_calc.py" in lines
    assert "+y\r" in lines
    assert lines.index("rm -rf -- tests/data/a.json") < lines.index(
        "git checkout 1234567 tests/test_calc.py"
    )
    assert lines[-2] == "exit $SWEBENCH_TEST_EXIT_CODE"
    assert set(task.metadata) == {
        *("repo", "instance_id", "base_commit", "hints_text", "version", "difficulty", "dataset"),
    } - {"dataset"}
    assert task_from_json(task_to_json(task)) == task
    assert _PATCH not in str(task.view())


@pytest.mark.parametrize(
    ("row", "needed"),
    [
        (
            _row(repo="django/django", version="3.1"),
            "--settings=test_sqlite --parallel 1 test_calc",
        ),
        (_row(repo="sympy/sympy", version="1.1"), "bin/test -C --verbose tests/test_calc.py"),
        (_row(repo="gin-gonic/gin", version="4003"), "git apply --verbose --reject - <<"),
        (_row(repo="pytest-dev/pytest", version="8.0"), "pytest -rA tests/test_calc.py"),
        (_row(repo="google/gson", version="2024"), "-Dtest="),
    ],
    ids=lambda value: value["repo"] if isinstance(value, dict) else "",
)
def test_commands_of_a_table(tmp_path: Path, row: dict[str, Any], needed: str) -> None:
    (task,) = _tasks(tmp_path, "swe-bench", row)
    assert task.verification is not None
    assert needed in task.verification.command
    assert task.verification.sentinels is False


def test_swe_gym(tmp_path: Path) -> None:
    mypy = _row(
        repo="python/mypy",
        instance_id="python__mypy-1",
        version="1.7",
        test_patch="--- a/t.test\n+++ b/t.test\n@@ -1 +1,2 @@\n x\n+[case testIt's]\n",
    )
    monai = _row(repo="Project-MONAI/MONAI", instance_id="Project-MONAI__MONAI-1", version="1.3")
    first, second = _tasks(tmp_path, "swe-gym", mypy, monai)
    assert first.image is not None
    assert second.image is not None
    assert first.verification is not None
    assert second.image.image == "xingyaoww/sweb.eval.x86_64.project-monai_s_monai-1:latest"
    assert "pytest -rA -k 'testIt'\"'\"'s'\n" in first.verification.command


def test_swe_smith_in_a_real_repository(tmp_path: Path) -> None:
    row = _row(
        repo="swesmith/pallets__flask.12345678",
        image_name="swesmith.x86_64.pallets__flask.12345678",
        FAIL_TO_PASS=["test_calc.py::test_add", "test_calc.py::test_more"],
        PASS_TO_PASS=[],
        patch=_PATCH.replace(
            "-    return a - b\n+    return a + b", "-    return a + b\n+    return a - b"
        ),
        test_patch=...,
        version=...,
    )
    (task,) = _tasks(tmp_path, "swe-smith", row)
    assert task.gold == (_PATCH,)
    assert task.verification is not None
    assert task.verification.absent == "passed"
    assert "git checkout HEAD -- test_calc.py\n" in task.verification.command
    assert "--verbose test_calc.py\n" in task.verification.command
    repository = tmp_path / "testbed"
    repository.mkdir()
    right = "def add(a, b):\n    return a + b\n"
    (repository / "calc.py").write_text(right)
    script = "git init -q; git add -A; git -c user.name=a -c user.email=a@b commit -qm 1"
    subprocess.run(["bash", "-c", script], cwd=repository, check=True)
    setup = task.setup[0].replace("/testbed", str(repository))
    subprocess.run(["bash", "-c", setup], check=True)
    assert "a - b" in (repository / "calc.py").read_text()
    everything = "git log -p --all --reflog; git fsck --lost-found --no-progress 2>/dev/null; "
    everything += "git cat-file --batch-all-objects --batch"
    seen = subprocess.run(["bash", "-c", everything], cwd=repository, capture_output=True).stdout
    assert b"a - b" in seen
    assert b"a + b" not in seen
    subprocess.run(["git", "apply", "-"], cwd=repository, input=task.gold[0].encode(), check=True)
    assert (repository / "calc.py").read_text() == right


_V1 = {
    "python": "3.9",
    "install": "pip install -e .[dev]",
    "log_parser": "parse_log_pytest",
    "test_cmd": "pytest --no-header -rA",
    "pre_install": None,
    "env_vars": None,
}
_V2 = {
    "base_image_name": "python:3.9",
    "docker_specs": None,
    "install": ["pip install -e ."],
    "log_parser": "parse_log_jest",
    "log_parsers": None,
    "test_cmd": ["npm run build", "npm test"],
}
_PRO: dict[str, Any] = {
    "fail_to_pass": "['test/a.js | it adds']",
    "pass_to_pass": "[]",
    "selected_test_files_to_run": "['test/a.js', \"test/b's.js\"]",
    "before_repo_set_cmd": "git reset --hard 1\ngit checkout 2 -- test/a.js\n",
    "dockerhub_tag": "nodebb.nodebb-NodeBB__NodeBB-1",
    **dict.fromkeys(("FAIL_TO_PASS", "PASS_TO_PASS", "version"), ...),
}


def test_swe_bench_pro(tmp_path: Path) -> None:
    folder = tmp_path / "run_scripts/pallets__flask-1"
    with pytest.raises(SuiteError, match=r"run_script\.sh is not a file; the rows need the folder"):
        _tasks(tmp_path, "swe-bench-pro", _row(**_PRO))
    folder.mkdir(parents=True)
    (folder / "run_script.sh").write_text("echo run\n")
    (folder / "parser.py").write_text("print(1)\n")
    (task,) = _tasks(tmp_path, "swe-bench-pro", _row(**_PRO))
    assert task.image is not None
    assert task.verification is not None
    assert task.image.image == "jefzda/sweap-images:nodebb.nodebb-NodeBB__NodeBB-1"
    assert task.verification.parser == "json_tests"
    assert task.verification.files["/workspace/parser.py"].content == b"print(1)\n"
    lines = task.verification.command.split("\n")
    assert "git checkout 2 -- test/a.js" in lines
    assert "git reset --hard 1" not in lines
    assert any("run_script.sh 'test/a.js,test/b'\"'\"'s.js' >" in line for line in lines)


def test_a_variant_of_ones_own(tmp_path: Path) -> None:
    """A new variant needs a manifest and no code."""
    (tmp_path / "own.yaml").write_text(
        "env: swe\nrows:\n  path: own.jsonl\n  format: swebench\n  id: '{instance_id}'\n"
        "  fields: {hardness: level}\n  swebench:\n    image: '{docker_image}'\n"
        "    gold: fix\n    test_patch: tests\n    commands: config.test_cmds\n"
        "    build: config.rebuild\n    parser: log_parser\n    split: test\n"
        "    dockerfile: 'images/{instance_id}/Dockerfile'\n"
    )
    row = _row(
        docker_image="Registry/Image__x:Tag",
        fix=_PATCH.rstrip("\n"),
        tests=_TESTS,
        test_patch=...,
        config={"test_cmds": ["make a", "make b"], "rebuild": "make"},
        log_parser="parse_log_gotest",
        level="easy",
        split="test",
    )
    (tmp_path / "own.jsonl").write_text(json.dumps(row))
    (task,) = load_suite(tmp_path / "own.yaml").tasks
    assert task.image is not None
    assert task.verification is not None
    assert (task.image.image, task.hardness) == ("registry/image__x:Tag", "easy")
    assert task.gold == (_PATCH,)
    text = task.verification.command
    assert text.index("\nmake\n") < text.index("Start Test") < text.index("\nmake a\nmake b\n")
    (tmp_path / "images/pallets__flask-1").mkdir(parents=True)
    (tmp_path / "images/pallets__flask-1/Dockerfile").write_text("FROM x\n")
    (task,) = load_suite(tmp_path / "own.yaml").tasks
    assert task.image is not None
    assert task.image.dockerfile == tmp_path / "images/pallets__flask-1/Dockerfile"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"patch": ...},
            "the column 'patch' is missing. Did you mean 'test_patch'? Its columns are:",
        ),
        ({"patch": ""}, "patch: is empty"),
        ({"patch": 3}, "patch: a text is needed, not 3"),
        (
            {"patch": _PATCH[: _PATCH.rindex("+    ")]},
            "patch: calc.py: hunk 1 (line 4 of the patch): ",
        ),
        ({"patch": "no patch"}, "patch: not a patch in git's format"),
        ({"patch": _PATCH.replace("-1,2", "-1,3")}, "hunk 1 (line 4 of the patch): says 3 lines"),
        ({"FAIL_TO_PASS": '["a", "b'}, "FAIL_TO_PASS: neither JSON nor a Python list, or cut"),
        ({"FAIL_TO_PASS": "__import__('os')"}, "FAIL_TO_PASS: neither JSON nor a Python list"),
        ({"PASS_TO_PASS": "{'a': 1}"}, "PASS_TO_PASS: a list of names is needed"),
        ({"PASS_TO_PASS": "[" * 100_000}, "PASS_TO_PASS: neither JSON nor a Python list"),
        ({"repo": "pallets/flaks"}, "does not say how 'pallets/flaks' is tested. Did you mean"),
        ({"version": "9.9"}, "does not say how version '9.9' of pallets/flask is tested."),
        ({"test_patch": "EOF_114329324912"}, "test_patch: not a patch"),
        (
            {"test_patch": _TESTS.replace("+1\n", "+EOF_114329324912\n")},
            "the test patch holds 'EOF_114329324912'",
        ),
        ({"instance_id": "a b"}, "a b:latest' is not the name of an image"),
        ({"instance_id": "a:b"}, "an id has letters, digits"),
        ({"base_commit": "1; true"}, "commit: '1; true' is not a commit"),
        ({"base_commit": "--orphan"}, "commit: '--orphan' is not a commit"),
    ],
)
def test_rows_that_are_wrong(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SuiteError) as raised:
        _tasks(tmp_path, "swe-bench", _row(**changes))
    text = str(raised.value)
    assert text.startswith(f"{tmp_path}/swe-bench.jsonl:1: ")
    assert message in text
    assert "\n" not in text


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"split": "deprecated"}, "its split is 'deprecated'"),
        ({"problem_statement": " \n"}, "it has no problem: problem_statement is empty"),
        ({"FAIL_TO_PASS": "[]"}, "FAIL_TO_PASS is empty, so that doing nothing would solve it"),
        (
            {"image_assets": "{'test_patch': [{'path': 'a'}]}"},
            "its tests need files (image_assets)",
        ),
        (
            {"patch": "diff --git a/a.png b/a.png\nBinary files a/a.png and b/a.png differ\n"},
            "is binary, and its content is not in the patch",
        ),
        ({"patch": _PATCH.replace("calc.py", "../calc.py")}, "leads out of the repository"),
    ],
)
def test_rows_that_are_skipped(tmp_path: Path, changes: dict[str, Any], reason: str) -> None:
    wrong, right = _tasks(
        tmp_path, "swe-bench", _row(**changes), _row(instance_id="pallets__flask-2")
    )
    assert right.skip is None
    assert wrong.skip is not None
    assert reason in wrong.skip


def test_another_split(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text(
        "env: swe\nrows:\n  path: own.jsonl\n  format: swebench\n  swebench:\n    image: x\n"
        "    table: swe-bench\n    test_patch: test_patch\n    split: test\n"
    )
    (tmp_path / "own.jsonl").write_text(json.dumps(_row(split="dev")))
    with pytest.raises(SuiteError, match="split: 'dev' is not 'test', the split of this"):
        load_suite(tmp_path / "own.yaml")


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        (
            "  swebench: {imgae: x}\n",
            "swebench.imgae: there is no such field. Did you mean 'image'",
        ),
        (
            "  swebench: {image: x, test_patch: test_patch, table: none}\n",
            "none.yaml: there is no such table; this fol",
        ),
        (
            "  swebench: {image: '{gone}', test_patch: test_patch, table: swe-bench}\n",
            "image: the pattern '{gone}' does not",
        ),
        ("", "format: swebench and swebench: (what the columns are) need each other"),
    ],
)
def test_manifests_that_are_wrong(tmp_path: Path, manifest: str, message: str) -> None:
    head = "env: swe\nrows:\n  path: own.jsonl\n  format: swebench\n"
    (tmp_path / "own.yaml").write_text(head + manifest)
    (tmp_path / "own.jsonl").write_text(json.dumps(_row()))
    with pytest.raises(SuiteError) as raised:
        load_suite(tmp_path / "own.yaml")
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("changes", "image"),
    [
        ({}, "swebench/sweb.eval.x86_64.pallets_1776_flask-1:latest"),
        ({"repo": "dask/dask", "version": "2.11"}, "xingyaoww/sweb.eval.x86_64.pallets_s_flask-1"),
        ({"eval_script": "true", "log_parser": "parse_log_tap", "image": "x"}, "x"),
        ({"image_name": "y", "repo": "swesmith/a__b.0123abcd", "test_patch": ...}, "jyangballin/y"),
        ({"image_name": "y", "repo": "swesmith/a__b.0123abcd", "test_patch": ""}, "jyangballin/y"),
        ({"docker_image": "Z/i:1", "install_config": _V1, "docker_specs": {}}, "z/i:1"),
        ({"docker_image": "z/i", "image_name": "z/i", "install_config": _V1}, "z/i"),
        ({"image_name": "docker.io/v/i:1", "install_config": _V2}, "docker.io/v/i:1"),
        (
            {"test_cmds": ["pytest -rA"], "log_parser": "pytest", "difficulty": {"files": 1}},
            "starryzhang/sweb.eval.x86_64.pallets_1776_flask-1",
        ),
        (
            {"docker_image": "y", "test_cmds": ["x"], "print_cmds": ["y"], "log_parser": "gotest"},
            "y",
        ),
        ({**_PRO}, "jefzda/sweap-images:nodebb"),
    ],
)
def test_a_file_of_rows_shows_what_it_is(
    tmp_path: Path, changes: dict[str, Any], image: str
) -> None:
    folder = tmp_path / "run_scripts/pallets__flask-1"
    folder.mkdir(parents=True)
    (folder / "run_script.sh").touch()
    (folder / "parser.py").touch()
    (tmp_path / "mine.jsonl").write_text(json.dumps(_row(**changes)))
    (task,) = file_tasks(tmp_path / "mine.jsonl", "swe")
    assert (task.suite, task.dataset, task.limits.memory) == ("mine", "mine", 4 * 1024**3)
    assert task.image is not None
    assert str(task.image.image).startswith(image)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"image_name": "y"}, "have no known format (swe-bench, swe-bench-5, "),
        ({"image_name": "y", "repo": "swesmith/a__b.0123abcd"}, "have no known format"),
        ({"docker_image": "y"}, "have no known format"),
        ({"docker_image": "", "install_config": _V1}, "have no known format"),
        ({"install_config": _V1}, "have no known format"),
        ({"image_name": "y", "docker_image": "z", "install_config": _V1}, "have no known format"),
        ({"image_name": "y", "install_config": {**_V2, "log_parsers": ["a"]}}, "no known format"),
        ({"image_name": "y", "install_config": {**_V2, "test_cmd": []}}, "no known format"),
        ({"image_name": "y", "install_config": "{}"}, "have no known format"),
        ({"eval_script": "true", "test_cmds": ["x"], "log_parser": "tap"}, "no known format"),
        ({"repo": "a/b"}, "have no known format"),
        ({"test_cmds": ["x"]}, "have no known format"),
        ({"instance_id": ..., "fix_patch": _PATCH, "patch": ...}, "look like those of Multi-SWE"),
        ({"expected_output_json": "{}", "docker_image": "x"}, "look like those of R2E-Gym"),
        ({"image_name": "y", "a\x1b[31m\nb" * 99: 1}, "Their columns are: repo, instance_id, "),
    ],
)
def test_rows_of_no_known_form(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    (tmp_path / "mine.jsonl").write_text(json.dumps(_row(**changes)))
    with pytest.raises(SuiteError) as raised:
        file_tasks(tmp_path / "mine.jsonl", "swe")
    text = str(raised.value)
    assert text.startswith(f"{tmp_path}/mine.jsonl:1: these rows ")
    assert message in text
    assert "docs/swe-bench.md, 'A manifest of your own'" in text
    assert len(text) < 1500
    assert text.isprintable()


@pytest.mark.parametrize(
    ("dataset", "changes", "message"),
    [
        ("swe-bench", {"image_name": "y"}, "'image_name': such columns say how a row is tested"),
        ("swe-bench-verified", {"docker_image": "y"}, "'docker_image': such columns say"),
        ("swe-bench", {"test_cmds": ["x"]}, "'test_cmds': such columns say"),
        (
            "swe-smith",
            {"image_name": "y", "install_config": _V2, "repo": "swesmith/a__b.0123abcd"},
            "'install_config', 'install_config.log_parser', 'install_config.test_cmd', 'test_",
        ),
        (
            "swe-smith",
            {"image_name": "y", "test_patch": ...},
            "repo: 'pallets/flask' does not have the form",
        ),
        (
            "swe-rebench-v2",
            {"image_name": "y", "install_config": {**_V2, "eval_commands": ["x"]}},
            "'install_config.eval_commands': such columns say how",
        ),
        (
            "swe-rebench",
            {"install_config": _V1},
            "image: the pattern '{docker_image}' does not fit: KeyError: 'docker_image'",
        ),
        (
            "swe-rebench-v2",
            {"image_name": "y", "install_config": {**_V2, "test_cmd": " "}},
            "install_config.test_cmd: is empty",
        ),
        (
            "swe-rebench-v2",
            {"image_name": "y", "install_config": {**_V2, "test_cmd": {"a": 1}}},
            "install_config.test_cmd: a list of names is needed",
        ),
        (
            "swe-rebench-v2",
            {"image_name": "y", "install_config": _V2, "FAIL_TO_PASS": {"a": 1}},
            "FAIL_TO_PASS: a list of names is needed",
        ),
        (
            "swe-rebench-v2",
            {"image_name": "y", "install_config": _V2, "PASS_TO_PASS": ["a", 1]},
            "PASS_TO_PASS: a list of names is needed",
        ),
        (
            "swe-rebench-v2",
            {"image_name": "y", "install_config": _V2, "repo": "a/.."},
            "at: '/..' is not a folder",
        ),
        (
            "swe-rebench-v2",
            {"image_name": "y", "install_config": _V2, "repo": "a/b; true"},
            "at: '/b; true' is not a folder",
        ),
        *(
            (
                "swe-rebench-v2",
                {"image_name": image, "install_config": _V2},
                f"image: {image!r} is not the name of an image",
            )
            for image in ("--privileged", "a b", "a;b", "a\nb", "$(a)", "../a", "/a", "a:b:")
        ),
        (
            "swe-rebench-v2",
            {"image_name": "y", "install_config": {**_V2, "log_parser": "parse_log_none"}},
            "install_config.log_parser: there is no parser of tests' results 'parse_log_none'",
        ),
    ],
)
def test_rows_of_another_form(
    tmp_path: Path, dataset: str, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(SuiteError) as raised:
        _tasks(tmp_path, dataset, _row(**changes))
    text = str(raised.value)
    assert text.startswith(f"{tmp_path}/{dataset}.jsonl:1: ")
    assert message in text
    assert text.isprintable()


def test_forms_are_those_of_bundled_datasets() -> None:
    """Each dataset has rows of a form that is known, or of a known form under another name."""
    forms = {}
    for path in (bundled_folder("tasks") / "datasets").glob("*.yaml"):
        rows = yaml.safe_load(path.read_text())["rows"]
        if isinstance(rows, dict) and rows.get("format") == "swebench":
            manifest = SwebenchModel.model_validate(rows["swebench"])
            forms[path.stem] = (manifest.table, sorted(manifest.columns()))
    assert forms.keys() >= set(FORMS)
    for name, form in forms.items():
        assert name in FORMS or form == forms["swe-bench"], name


def test_swe_rebench(tmp_path: Path) -> None:
    row = _row(
        docker_image="swerebench/sweb.eval.x86_64.a_1776_b-1",
        install_config={**_V1, "eval_commands": ["export X=1"]},
        environment="name: testbed",
        requirements="pytest==8",
    )
    without = _row(docker_image=None, install_config=_V1, instance_id="pallets__flask-2")
    first, second = _tasks(tmp_path, "swe-rebench", row, without)
    assert second.skip == "it names no image"
    assert first.skip is None
    assert first.image is not None
    assert first.verification is not None
    assert first.image.image == row["docker_image"]
    assert first.verification.parser == "pytest"
    assert first.verification.sentinels
    assert ("LC_ALL", "C.UTF-8") in first.verification.variables
    lines = first.verification.command.split("\n")
    installing = lines.index("pip install -e .[dev]")
    assert lines.index("export X=1") < installing
    assert installing < lines.index("pytest --no-header -rA tests/test_calc.py")
    assert lines[-2] == "exit $SWEBENCH_TEST_EXIT_CODE"


def test_swe_rebench_v2(tmp_path: Path) -> None:
    row = _row(
        repo="Ada/Calc.js",
        image_name="docker.io/swerebenchv2/ada-calc.js:1-1234567",
        install_config=_V2,
        FAIL_TO_PASS=["adds (3 ms)", "adds [0.1 s]"],
        PASS_TO_PASS=["runs in 29.08 msec well"],
        version=...,
    )
    other = {**row, "instance_id": "ada__calc-2"}
    other["install_config"] = {**_V2, "log_parser": "parse_log_haskell_v2"}
    first, second = _tasks(tmp_path, "swe-rebench-v2", row, other)
    assert second.skip is not None
    assert "read by 'parse_log_haskell_v2', which is not here" in second.skip
    assert first.skip is None
    assert first.image is not None
    assert first.verification is not None
    repository = repository_of(first)
    assert repository is not None
    assert first.image.image == row["image_name"]
    assert (repository.at, first.workdir) == ("/Calc.js", "/Calc.js")
    assert first.verification.parser == "jest+untimed"
    assert first.verification.fail_to_pass == ("adds",)
    assert first.verification.pass_to_pass == ("runs well",)
    command = first.verification.command
    assert "set +xuo pipefail\nset -x\n: '>>>>> Start" in command
    assert "\n(\nset -e\nnpm run build\nnpm test\n)\n" in command
    assert "pip install" not in command


_PROGRAM = "import json\n\ndef parser(log: str) -> dict[str, str]:\n    return json.loads(log)\n"


def test_swe_bench_live(tmp_path: Path) -> None:
    python = _row(test_cmds=["pytest -rA"], log_parser="pytest", version=...)
    multi = _row(
        instance_id="pallets__flask-2",
        docker_image="starryzhang/sweb.eval.x86_64.pallets_1776_flask-2",
        rebuild_cmds=["make"],
        test_cmds=["make test > log"],
        print_cmds=["cat log"],
        log_parser=_PROGRAM,
    )
    first, second = _tasks(tmp_path, "swe-bench-live", python, multi)
    assert first.image is not None
    assert first.verification is not None
    assert first.image.image == "starryzhang/sweb.eval.x86_64.pallets_1776_flask-1"
    assert first.verification.parser == "pytest"
    assert "set +x\npytest -rA\nset -x\n: '>>>>> End" in first.verification.command
    assert second.image is not None
    assert second.verification is not None
    assert second.image.image == multi["docker_image"]
    assert second.verification.parser == "json_tests"
    assert second.verification.files["/workspace/parser.py"].content == _PROGRAM.encode()
    command = second.verification.command
    order = ("\nmake\n", "\nmake test > log\n", "Start Test", "{\ncat log\n}", "read_log.py")
    places = [command.index(part) for part in order]
    assert places == sorted(places)


def test_other_rows_for_swe_are_what_they_were(tmp_path: Path) -> None:
    (tmp_path / "mine.jsonl").write_text('{"query": "q", "gold": "true"}')
    with pytest.raises(SuiteError, match="verification: a swe task needs one"):
        file_tasks(tmp_path / "mine.jsonl", "swe")


def test_data_that_are_not_here(tmp_path: Path) -> None:
    with pytest.raises(SuiteError, match="save them as JSON Lines, as docs/swe-bench"):
        dataset_tasks("swe-bench-lite", data_folder(tmp_path, "--data"), "test")
    (tmp_path / "rows.parquet").touch()
    with pytest.raises(SuiteError, match="parquet files are not read; save the rows as JSON Lines"):
        file_tasks(tmp_path / "rows.parquet", "swe")


def test_the_longest_name_is_the_dataset() -> None:
    assert dataset_of("swe-bench-lite") == "swe-bench-lite"
    assert dataset_of("swe-bench") == "swe-bench"
    assert dataset_of("nl2bash-fs2") == "nl2bash"


def test_files_that_are_no_tests_are_no_arguments() -> None:
    changes = read_patch(_TESTS)
    assert changed_tests(changes) == ["tests/test_calc.py"]
    assert changed_tests(changes, modules=True) == ["test_calc"]
