"""Docker's runtimes compared: all that the engine knows, against its default.

A start is that of one sandbox, until its shell has answered. A grading compares the changes on
disk, which the host reads if the runtime lets it, and otherwise the sandbox itself.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from benchmarks.machine import needs
from benchmarks.measuring import Scale, Unavailable, in_turn, seconds
from benchmarks.table import Part, against
from pytest_intercode.core.task import ImageSource
from pytest_intercode.errors import SandboxError
from pytest_intercode.sandboxes.attached import AttachedSandbox
from pytest_intercode.sandboxes.docker.engine import DockerEngine, connect
from pytest_intercode.sandboxes.docker.images import DockerImages
from pytest_intercode.sandboxes.protocol import SandboxSpec
from pytest_intercode.system.files import bundled_folder

TIMEOUT = 60.0
SOURCE = ImageSource(dockerfile=bundled_folder("dockerfiles") / "bash.Dockerfile")


def known() -> tuple[str, list[str]]:
    """Return the engine's default runtime, and the others that it knows."""
    with contextlib.closing(connect()) as link:
        facts = link.api.info()
    own = str(facts["DefaultRuntime"])
    return own, sorted(name for name in facts["Runtimes"] if name != own and "." not in name)


def measure(scale: Scale) -> Part:
    """Measure each runtime."""
    needs("docker")
    own, others = known()
    if not others:
        raise Unavailable(f"the engine knows no runtime but {own}")
    part = Part("sandboxes of Docker by their runtime")
    with contextlib.ExitStack() as stack:
        works: dict[str, Callable[[], float]] = {}
        started = []
        for name in (own, *others):
            engine = stack.enter_context(contextlib.closing(DockerEngine(runtime=name)))
            spec = SandboxSpec(DockerImages(engine.api).resolve(SOURCE))
            try:
                sandbox = engine.launch(spec)
            except SandboxError as error:
                part.notes.append(f"{name} starts nothing here: {error}")
                continue
            started.append(name)
            works |= _works(name, engine, spec, sandbox)
        times = in_turn(works, scale.pick(7, 1))
    for what in ("a start", "`:`", "`/bin/true`", "a grading"):
        for name in started[1:]:
            theirs = times[f"{own} {what}"]
            part.rows.append(against(f"{what}, {name}", times[f"{name} {what}"], own, theirs))
    return part


def _works(
    name: str, engine: DockerEngine, spec: SandboxSpec, sandbox: AttachedSandbox
) -> dict[str, Callable[[], float]]:
    def start() -> float:
        fresh: list[AttachedSandbox] = []
        took = seconds(lambda: fresh.append(engine.launch(spec)))
        fresh[0].close()
        return took

    sandbox.mark()
    return {
        f"{name} a start": start,
        f"{name} `:`": lambda: seconds(lambda: sandbox.run(":", TIMEOUT)),
        f"{name} `/bin/true`": lambda: seconds(lambda: sandbox.run("/bin/true", TIMEOUT)),
        f"{name} a grading": lambda: seconds(sandbox.changes),
    }
