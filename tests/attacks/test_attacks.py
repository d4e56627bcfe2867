"""The attack table: every case of ``cases/``, on each backend, by each profile, as this user.

``scripts/test --attacks`` plays all of them, as root and as an ordinary user, and writes what
came of it into docs/reference/attacks.md. The quick ones are part of the everyday tests.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pytest_intercode.errors import EngineUnavailable
from pytest_intercode.sandboxes.bubblewrap.engine import Bubblewrap
from pytest_intercode.sandboxes.docker.engine import connect
from tests.attacks import faults
from tests.attacks.cases import Area, Case, Place, User, areas, places
from tests.attacks.pytest_runs import play_run
from tests.attacks.runner import play
from tests.support.second_engine import SecondEngine
from tests.support.world import obstacle

USER: User = "root" if os.geteuid() == 0 else "user"
RECORD = os.environ.get("INTERCODE_ATTACKS")
"""The file that gets a line for each case, for the table."""


# The engine's SDK leaves its socket open when no engine answers.
_UNCLOSED = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")


def _parameters() -> Iterator[object]:
    for name, area in areas():
        for case in area.cases:
            for place in places(area, case, USER):
                # Docker's are as slow as they are many; what has bubblewrap, too, is enough.
                first = place.backend == (case.backends or area.backends)[-1]
                everyday = case.quick and place.profile == "strict" and first
                yield pytest.param(
                    *(name, area, case, place),
                    id=f"{name}-{case.id}-{place}",
                    marks=[
                        *([] if everyday else [pytest.mark.slow]),
                        *([_UNCLOSED] if case.own_engine else []),
                    ],
                )


@pytest.fixture(scope="module")
def obstacles() -> dict[str, str]:
    """Return why a backend cannot be used here."""
    reasons = {"none": ""}
    for name, start in (("docker", connect), ("bubblewrap", Bubblewrap)):
        try:
            start().close()
            reasons[name] = ""
        except EngineUnavailable as reason:
            reasons[name] = str(reason)
    return reasons


def _skip_without_server() -> None:
    if not any(shutil.which(name, path="/usr/sbin:/usr/bin") for name in ("mariadbd", "mysqld")):
        pytest.skip("this machine has no mariadbd and no mysqld")
    with contextlib.closing(Bubblewrap()) as engine:
        if not engine.all_ids:
            pytest.skip("a server runs as a user of its own, and sandboxes have root alone here")


@pytest.fixture(scope="module")
def engines() -> Iterator[Callable[[], SecondEngine]]:
    """Return a function that returns the engine of our own, and makes it when it is first used."""
    started: list[SecondEngine] = []
    bridge = Path("/sys/class/net/docker0/ifindex")  # of the machine's own engine
    setting = bridge.read_text() if bridge.exists() else ""

    def engine() -> SecondEngine:
        image = faults.bash_image()
        if not started:
            started.append(SecondEngine(Path(tempfile.mkdtemp(prefix="engine-", dir="/tmp"))))
        started[0].load(image)
        return started[0]

    yield engine
    for second_engine in started:
        second_engine.close()
    assert (bridge.read_text() if bridge.exists() else "") == setting


@pytest.mark.parametrize(("name", "area", "case", "place"), list(_parameters()))
def test_attack(
    name: str,
    area: Area,
    case: Case,
    place: Place,
    tmp_path: Path,
    obstacles: dict[str, str],
    engines: Callable[[], SecondEngine],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if USER not in case.users:
        pytest.skip(f"it needs to be {' or '.join(case.users)}")
    if obstacles[place.backend]:
        pytest.skip(obstacles[place.backend])
    if case.world is not None and obstacle():
        pytest.skip(obstacle())
    if "mysql" in name and place.backend == "bubblewrap":
        _skip_without_server()
    engine = None
    if case.own_engine:
        if missing := SecondEngine.obstacle():
            pytest.skip(missing)
        engine = engines()
        monkeypatch.setenv("DOCKER_HOST", engine.url)
    verdict = play_run(case, place, tmp_path) if case.run else play(area, case, place, engine)
    if engine is not None:
        verdict.must(not (containers := engine.containers()), f"left in the engine: {containers}")
    gc.collect()  # what a case left open is of this test, and not of the next
    limit = place.limit(case)
    if RECORD:
        line = {
            **{"area": name, "case": case.id, "backend": place.backend, "user": USER},
            **{"profile": place.profile, "seen": verdict.seen, "problems": verdict.problems},
            **{"limit": limit, "seconds": round(verdict.seconds, 1)},
        }
        with Path(RECORD).open("a") as file:
            file.write(json.dumps(line) + "\n")
    if limit:
        assert verdict.problems, f"it holds by now, and is no limit any more: {limit}"
        pytest.xfail(f"known limit: {limit} ({'; '.join(verdict.problems)})")
    assert not verdict.problems, f"{'; '.join(verdict.problems)} [{verdict.seen}]"
