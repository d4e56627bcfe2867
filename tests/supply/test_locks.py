"""The lock files are what pyproject.toml asks for, hold a hash of everything, and name no place."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.supply.locks import FOLDER, LOCKS, ROOT, Pin, project, read_lock, requested
from tests.supply.sbom import SBOM

PYTHONS = ["3.10", "3.11", "3.12", "3.13"]
BUILD = ["hatchling", "editables"]


def environment(python: str) -> dict[str, str]:
    return {
        **{"python_version": python, "python_full_version": f"{python}.4", "extra": ""},
        **{"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix"},
        **{"platform_machine": "x86_64", "implementation_name": "cpython"},
        **{"platform_python_implementation": "CPython", "implementation_version": f"{python}.4"},
        **{"platform_release": "", "platform_version": ""},
    }


@pytest.mark.parametrize("name", LOCKS)
@pytest.mark.parametrize("python", PYTHONS)
def test_what_is_asked_for_is_locked(name: str, python: str) -> None:
    here = environment(python)
    pins: dict[str, Pin] = {}
    for pin in read_lock(name):
        if pin.fits(here):
            assert pin.name not in pins, f"{pin.name} is there twice"
            pins[pin.name] = pin
    for wanted in requested(LOCKS[name]):
        if wanted.marker is None or wanted.marker.evaluate(here):
            found = pins.get(canonicalize_name(wanted.name))
            assert found is not None, f"{wanted} is not locked; run scripts/lock"
            assert found.version in wanted.specifier, f"{wanted}: locked is {found.version}"
    assert set(BUILD) <= pins.keys()


@pytest.mark.parametrize(
    "name",
    ["frameworks", "mini-swe-agent", "inspect-ai", "verifiers", "trl", "skyrl", "ray", "release"],
)
@pytest.mark.parametrize("python", PYTHONS)
def test_agent_frameworks_are_locked(name: str, python: str) -> None:
    here = environment(python)
    pins = {pin.name: pin for pin in read_lock(name) if pin.fits(here)}
    lines = (FOLDER / f"{name}.in").read_text().splitlines()
    asked = [Requirement(line) for line in lines if not line.startswith("#")]
    for wanted in (*asked, *requested(())):
        if wanted.marker is None or wanted.marker.evaluate(here):
            found = pins.get(canonicalize_name(wanted.name))
            assert found is not None, f"{wanted} is not locked; run scripts/lock"
            assert found.version in wanted.specifier, f"{wanted}: locked is {found.version}"
    assert set(BUILD) <= pins.keys()


def test_one_environment_can_have_all() -> None:
    everything = {(pin.name, pin.version): pin.hashes for pin in read_lock("all")}
    for name in LOCKS:
        for pin in read_lock(name):
            assert everything.get((pin.name, pin.version)) == pin.hashes, f"{name}: {pin.name}"


def test_the_files_name_no_place() -> None:
    """No index, mirror or folder of whoever made them: hashes say what is right, from anywhere."""
    for path in FOLDER.iterdir():
        text = path.read_text()
        if path.suffix != ".json":
            assert "://" not in text, path
        assert not re.search(r"--(extra-|default-)?index|--find-links|(^|\s)/\w+/", text), path
        assert not re.search(r"file:|localhost|127\.0\.0\.1|@ ", text), path


def test_what_is_installed_is_checked() -> None:
    """All installations of the scripts take the lock files, and check their hashes."""
    for path in (ROOT / "scripts").iterdir():
        installs = [line for line in path.read_text().splitlines() if "pip install" in line]
        assert not installs or path.name == "_setup", path
    text = (ROOT / "scripts" / "_setup").read_text()
    calls = re.findall(r"^[^#\n]*\bpip_install (.*)", text, re.MULTILINE)
    # Our own sources are the only thing that has no hash.
    hashed, ours = "--require-hashes", "--no-build-isolation"
    assert [line.split()[0] for line in calls] == [hashed, ours, hashed, hashed]


@pytest.mark.slow
def test_a_changed_file_is_not_installed(tmp_path: Path) -> None:
    """The real set-up, in a copy whose lock has another hash for one package."""
    for name in ("scripts", "requirements", "pytest_intercode"):
        (tmp_path / name).mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE", "scripts/_setup"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    locked = (FOLDER / "run.txt").read_text()
    head, mark, rest = locked.partition("pluggy==")
    rest = re.sub(r"sha256:[0-9a-f]{64}", f"sha256:{'0' * 64}", rest, count=2)
    (tmp_path / "requirements/run.txt").write_text(f"{head}{mark}{rest}")
    done = subprocess.run(
        ["bash", "-c", "source scripts/_setup; setup_venv"],
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    if "No matching distribution" in done.stderr or "Connection" in done.stderr:
        pytest.skip(f"no package index answers: {done.stderr.strip()[-200:]}")
    assert done.returncode == 1
    assert "DO NOT MATCH THE HASHES" in done.stderr
    assert "pluggy" in done.stderr
    assert not list(tmp_path.glob(".venv/lib/python*/site-packages/pluggy*"))
    assert not (tmp_path / ".venv/.installed").exists()


def test_the_bill_is_of_what_is_locked() -> None:
    bill = json.loads(SBOM.read_text())
    about = project()
    root = bill["metadata"]["component"]
    assert (root["name"], root["version"]) == (about["name"], about["version"])
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    locked = {(pin.name, pin.version): pin.hashes for pin in read_lock("all")}
    names = {}
    for each in bill["components"]:
        assert {row["content"] for row in each["hashes"]} == locked[each["name"], each["version"]]
        assert each["licenses"]
        names[each["name"]] = each["scope"]
    required = {canonicalize_name(each.name) for each in requested(())}
    assert {name for name, scope in names.items() if scope == "required"} >= required
    extras = set(about["optional-dependencies"]) - {"test", "lint", "site", "supply", "ray"}
    wanted = {canonicalize_name(each.name) for each in requested(tuple(extras))}
    assert names.keys() >= wanted
    assert "scipy" not in names
    needs = {row["ref"]: row.get("dependsOn", []) for row in bill["dependencies"]}
    refs = {each["bom-ref"] for each in bill["components"]} | {root["bom-ref"]}
    assert needs.keys() == refs
    assert {ref for below in needs.values() for ref in below} <= refs
