"""What we install has no known vulnerability and a licence that is allowed; both take long."""

from __future__ import annotations

import http.server
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.supply import sbom
from tests.supply.licences import LIST, installed, licence_of, refused
from tests.supply.locks import FOLDER, read_lock

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        find_spec("pip_audit") is None or find_spec("cyclonedx") is None,
        reason="the extra supply is not installed: scripts/test --all does it",
    ),
]


def test_licences() -> None:
    found = {name: licence_of(package) for name, package in installed().items()}
    unknown = [name for name, licence in found.items() if not licence]
    assert not unknown, "these state no licence that is known"
    bad = {name: said for name, licence in found.items() if (said := refused(licence))}
    assert not bad, "these licences are not on the list of those that are allowed"


def test_the_list_of_licences_is_current() -> None:
    listed = LIST.read_text()
    here = installed()
    for pin in read_lock("all"):
        if pin.name in here:
            assert f"| {pin.name} | {licence_of(here[pin.name])} |" in listed, "run scripts/lock"


def test_refused() -> None:
    assert refused("MIT AND (Apache-2.0 OR BSD-3-Clause)") == []
    assert refused("MIT AND GPL-3.0-only") == ["GPL-3.0-only"]
    assert refused("Proprietary") == ["Proprietary"]


def test_the_bill_is_valid_and_made_again_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    text = sbom.SBOM.read_text()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    python = json.loads(text)["metadata"]["properties"][0]["value"]
    if python != f"{sys.version_info[0]}.{sys.version_info[1]}":
        pytest.skip(f"it was made with Python {python}")
    monkeypatch.setattr(sbom, "SBOM", tmp_path / "bill")
    sbom.main()
    assert (tmp_path / "bill").read_text() == text, "run scripts/lock"


# -- vulnerabilities


class Unreachable(Exception):
    """The database does not answer, or knows of none of the packages, as a mirror of the index."""


def audit(*words: str) -> dict[str, list[str]]:
    """Return the vulnerabilities of all that is locked, by package."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pip_audit", "--format", "json", "--progress-spinner", "off"),
            *("--disable-pip", "--require-hashes", "-r", str(FOLDER / "all.txt")),
            *("--timeout", "10", *words),
        ],
        capture_output=True, text=True,
    )  # fmt: skip
    if not done.stdout.strip():
        last = done.stderr.strip().splitlines()[-1]
        assert "onnect" in last, done.stderr
        raise Unreachable(last[:300])
    rows = json.loads(done.stdout)["dependencies"]
    # What the database does not know is left out, and the exit code is 0 all the same.
    unknown = [row["skip_reason"] for row in rows if "skip_reason" in row]
    if len(unknown) == len(rows):
        raise Unreachable(unknown[0])
    assert not unknown
    assert rows
    return {row["name"]: [each["id"] for each in row["vulns"]] for row in rows if row["vulns"]}


def test_vulnerabilities() -> None:
    """Of all that is locked, by the database of the package index or, without it, OSV's."""
    said = []
    for service in ("pypi", "osv"):
        try:
            assert audit("--vulnerability-service", service) == {}, "scripts/lock --upgrade"
            return
        except Unreachable as why:
            said.append(f"{service}: {why}")
    pytest.skip(f"no database of vulnerabilities answers from here: {'; '.join(said)}")


@pytest.fixture
def database() -> Iterator[str]:
    """Serve OSV's interface with one vulnerability, of pluggy."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            name, version = asked["package"]["name"], asked["version"]
            entry = {
                **{"id": "PYSEC-0000-1", "summary": "made up", "details": "made up", "aliases": []},
                "affected": [
                    {
                        "package": {"name": name, "ecosystem": "PyPI"},
                        "versions": [version],
                        "ranges": [],
                    }
                ],
            }
            answer = json.dumps({"vulns": [entry]} if name == "pluggy" else {}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/v1/query"
        server.shutdown()
        thread.join()


def test_a_vulnerability_is_found(database: str) -> None:
    found = audit("--vulnerability-service", "osv", "--osv-url", database)
    assert found == {"pluggy": ["PYSEC-0000-1"]}


def test_no_database() -> None:
    with pytest.raises(Unreachable):
        audit("--vulnerability-service", "osv", "--osv-url", "http://127.0.0.1:9/v1/query")
