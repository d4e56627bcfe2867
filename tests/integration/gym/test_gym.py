"""Gymnasium's face on real sandboxes: its checker, vectors of environments, what is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker
import gymnasium
import pytest
from gymnasium.utils.env_checker import check_env

import pytest_intercode
import pytest_intercode.gym
from pytest_intercode.environments.registry import BUILTIN_ENVIRONMENTS
from pytest_intercode.gym import IntercodeEnv
from pytest_intercode.sandboxes.provider import SandboxProvider
from tests.conftest import owned_by, wait_until_gone
from tests.support import puzzles

quick_provider = puzzles.quick_provider  # fixture
pytestmark = pytest.mark.usefixtures("needs_docker")

_ROOT = Path(pytest_intercode.__file__).parents[1]
SOON = 60


def made(**options: Any) -> IntercodeEnv:
    env = gymnasium.make("InterCode/Bash-v0", **options).unwrapped
    assert isinstance(env, IntercodeEnv)
    return env


@pytest.mark.parametrize(
    "env",
    [  # the others' actions are texts for a sandbox, too, as bash's are
        pytest.param(env, marks=() if env in ("bash", "sql") else pytest.mark.slow)
        for env in BUILTIN_ENVIRONMENTS
    ],
)
def test_gymnasium_finds_nothing_wrong(env: str) -> None:
    """Every warning is an error here; none is filtered."""
    made = gymnasium.make(f"InterCode/{env.capitalize()}-v0").unwrapped
    try:
        check_env(made)
    finally:
        made.close()


def test_an_episode() -> None:
    env = gymnasium.make("InterCode/Bash-v0", render_mode="ansi")
    try:
        query, info = env.reset(options={"task": "tools-executable"})
        assert "Give every file under tools/" in query
        observation, reward, terminated, truncated, info = env.step("ls tools; printf '\\377\\1'")
        assert observation == "README.sh.md\nlint.sh\nrelease\nrun.sh\n\\xff\x01"
        assert (reward, terminated, truncated, info["executed"]) == (0.0, False, False, True)
        env.step("find tools -name '*.sh' -exec chmod 755 {} +")
        _, reward, terminated, truncated, info = env.step("submit")
        assert (reward, terminated, truncated) == (1.0, True, False)
        assert info["parts"] == {"files": 1.0}
        assert str(env.render()).endswith("3 > submit\nreward 1.00")
    finally:
        env.close()


def test_a_seed_is_a_sequence_of_tasks(quick_provider: SandboxProvider) -> None:
    first, second = (made(provider=quick_provider) for _ in range(2))
    try:
        ids = [[env.reset(seed=seed)[1]["task_id"]] for env, seed in ((first, 1), (second, 1))]
        for env, seen in zip((first, second), ids, strict=True):
            seen += [env.reset()[1]["task_id"] for _ in range(3)]
        assert ids[0] == ids[1]
        other = [first.reset(seed=2)[1]["task_id"], *(first.reset()[1]["task_id"] for _ in "xx")]
        assert other != ids[0][:3]
    finally:
        first.close()
        second.close()


def test_environments_side_by_side(docker_api: docker.APIClient) -> None:
    first, second = made(), made()
    try:
        assert first.environment.provider is second.environment.provider
        for env, word in ((first, "one"), (second, "two")):
            env.reset(options={"task": "tools-executable"})
            env.step(f"echo {word} > own")
        assert first.step("cat own")[0] == "one\n"
        second.close()
        assert first.step("cat own")[0] == "one\n"
    finally:
        first.close()
        second.close()


def test_sync_vector() -> None:
    envs: Any = gymnasium.make_vec(
        "InterCode/Bash-v0", num_envs=2, vectorization_mode="sync", max_turns=2
    )
    try:
        observations, infos = envs.reset(seed=[3, 3])
        assert observations[0] == observations[1]
        assert list(infos["task_id"]) == [infos["task_id"][0]] * 2
        observations, rewards, terminated, truncated, infos = envs.step(("pwd", "submit"))
        assert observations == ("/work\n", "")
        assert (list(rewards), list(terminated), list(truncated)) == (
            [0] * 2,
            [False, True],
            [0, 0],
        )
        observations, _, terminated, truncated, _ = envs.step(("pwd", "pwd"))
        assert (list(terminated), list(truncated)) == ([False, False], [True, False])
        assert observations[0] == "/work\n"
        assert len(observations[1]) > 20  # the next task's query
    finally:
        envs.close()


# -- worker processes

WORKERS = """
    import os, signal, sys
    import gymnasium
    import pytest_intercode.gym

    def main(context, then):
        own = gymnasium.make("InterCode/Bash-v0")
        own.reset(seed=1)
        envs = gymnasium.make_vec(
            "pytest_intercode.gym:InterCode/Bash-v0",
            num_envs=2,
            vectorization_mode="async",
            vector_kwargs={"context": context},
        )
        _, infos = envs.reset(seed=[4, 4])
        assert infos["task_id"][0] == infos["task_id"][1]
        observations, rewards, *_ = envs.step(("echo caf\\u00e9; printf '\\\\1'", "seq 3"))
        assert observations == ("caf\\u00e9\\n\\x01", "1\\n2\\n3\\n"), observations
        observations, *_ = envs.step(("pwd", "cat nowhere"))
        assert observations[0] == "/work\\n"
        workers = [process.pid for process in envs.processes]
        print(os.getpid(), *workers, flush=True)
        if then == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if then == "a worker killed":
            os.kill(workers[0], signal.SIGKILL)
            envs.processes[0].join()
            envs.parent_pipes[0].close()
            envs.parent_pipes[0] = None
        assert own.step("echo alive")[0] == "alive\\n"
        envs.close(terminate=then == "a worker killed")
        assert own.step("echo still alive")[0] == "still alive\\n"
        input()
        own.close()

    if __name__ == "__main__":
        main(*sys.argv[1:])
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "workers.py"
    path.write_text(textwrap.dedent(WORKERS))
    return path


@pytest.mark.parametrize("context", [pytest.param("fork", marks=pytest.mark.slow), "spawn"])
@pytest.mark.parametrize(
    "then",
    [
        *(pytest.param(how, marks=pytest.mark.slow) for how in ("closed", "killed")),
        "a worker killed",
    ],
)
def test_workers(docker_api: docker.APIClient, script: Path, context: str, then: str) -> None:
    """Each process has sandboxes of its own, and they end with it, and with no other."""
    with (script.parent / "stderr").open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, script, context, then],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    assert process.stdout is not None
    try:
        words = process.stdout.readline().split()
        assert len(words) == 3, (script.parent / "stderr").read_text()[-3000:]
        parent, *workers = map(int, words)
        if then != "killed":
            assert wait_until_gone(docker_api, set(workers)) == []
            assert len(owned_by(docker_api, {parent})) == 2  # the agent's and gold's
        process.communicate("\n", timeout=SOON)
        said = (script.parent / "stderr").read_text()
        assert process.returncode == (-signal.SIGKILL if then == "killed" else 0), said
        assert then == "killed" or "Traceback" not in said
        assert wait_until_gone(docker_api, {parent, *workers}) == []
    finally:
        process.kill()
        process.communicate()


FORKED = """
    import os, signal, sys, time
    import gymnasium
    import pytest_intercode.gym
    from pytest_intercode.errors import SandboxError

    env = gymnasium.make("InterCode/Bash-v0")
    env.reset(seed=1)
    child = os.fork()
    if not child:
        for use in (lambda: env.step("true"), env.reset):
            try:
                use()
            except SandboxError as error:
                print(error, flush=True)
        env.close()
        print("done", flush=True)
        if sys.argv[1] == "outlives":
            time.sleep(60)
        sys.exit()  # with all that ends a process in order
    if sys.argv[1] == "outlives":
        time.sleep(0.5)
        print(os.getpid(), child, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    print(env.step("echo alive")[0])
    env.close()
"""


QUIET = "ignore::DeprecationWarning"  # Python 3.12 warns of forks where there are threads


@pytest.mark.slow
def test_a_forked_child_has_no_part_in_its_parents_sandboxes() -> None:
    process = [sys.executable, "-W", QUIET, "-c", textwrap.dedent(FORKED), "ends"]
    done = subprocess.run(process, capture_output=True, text=True, timeout=SOON)
    assert done.stderr == ""
    step, reset, done_so, alive, _ = done.stdout.splitlines()
    assert "belongs to the process that this one was forked from" in step
    assert reset == step
    assert (done_so, alive) == ("done", "alive")


def test_sandboxes_end_with_their_process_though_a_forked_child_lives(
    docker_api: docker.APIClient,
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-W", QUIET, "-c", textwrap.dedent(FORKED), "outlives"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(4)]
    parent, child = map(int, lines[-1].split())
    try:
        assert process.wait(SOON) == -signal.SIGKILL
        assert wait_until_gone(docker_api, {parent}) == []
        os.kill(child, 0)  # it is there all the while
    finally:
        os.kill(child, signal.SIGKILL)
        process.stdout.close()


# -- a policy that knows nothing


@pytest.fixture
def temporary(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_random_policy_leaves_nothing(docker_api: docker.APIClient, temporary: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-W", "error", _ROOT / "examples/random_policy.py", "--steps", "60"],
        env={**os.environ, "TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert errors == ""
    first, second = output.splitlines()
    assert first.startswith("60 steps, ")
    assert second == (
        "more than before: {'threads': 0, 'open files': 0, 'processes': 0, 'temporary files': 0}"
    )
    assert wait_until_gone(docker_api, {process.pid}) == []
