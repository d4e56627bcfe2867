"""The command of docs/opentelemetry.md runs as it is shown, with a receiver for a collector."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.conftest import ADDOPTS
from tests.docs.shell import run
from tests.support.otlp_receiver import OtlpReceiver

TEXT = (Path(__file__).parents[2] / "docs" / "opentelemetry.md").read_text(encoding="utf-8")
[COMMAND] = re.findall(r"^    (pytest .*)$", TEXT, re.MULTILINE)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["http://localhost:4318", "env"])
def test_the_command(target: str, tmp_path: Path, quick_sandbox: str) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    with OtlpReceiver() as receiver:
        command = COMMAND.replace("http://localhost:4318", receiver.url if "/" in target else "env")
        done = run(
            command,
            tmp_path,
            f"{ADDOPTS} --intercode-limit=1 {quick_sandbox}",
            OTEL_EXPORTER_OTLP_ENDPOINT=receiver.url,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    names = [re.sub(r"\d+", "N", span.name) for span in receiver.spans]
    rows = re.findall(r"^\| (`.*?) \|", TEXT, re.MULTILINE)
    shown = {word.split()[0] for row in rows for word in re.findall(r"`([^`]*)`", row)}
    assert {name.split()[0] for name in names} <= shown
    assert {"rollout", "invoke_agent", "turn", "execute_tool", "verifier"} <= {
        name.split()[0] for name in names
    }
