"""A Ray cluster on this machine, for ``--intercode-cluster=local:N``: N nodes, without a dashboard.

It is a separate process in its own session, so that Ctrl-C does not reach it. It ends when its
standard input is closed, so also when the driver is killed; Ray's own processes end with it.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from pytest_intercode.errors import ConfigurationError, EngineUnavailable
from pytest_intercode.system.extras import has_extra, need

__all__ = ["NO_RAY", "LocalCluster"]

NO_RAY = need("ray", "--intercode-cluster")

_START_TIMEOUT = 120.0  # seconds to start
_CLOSE_TIMEOUT = 15.0  # seconds to end
_OBJECT_STORE = 100_000_000  # bytes of each node; Ray writes more to its disk
_ENVIRONMENT = frozenset(
    (
        *("HOME", "LANG", "LOGNAME", "PATH", "PYTHONPATH", "TMPDIR", "USER", "VIRTUAL_ENV", "TZ"),
        *("XDG_CACHE_HOME", "XDG_RUNTIME_DIR", "LD_LIBRARY_PATH", "DOCKER_HOST"),
        *("DOCKER_CONTEXT", "DOCKER_CONFIG", "DOCKER_CERT_PATH", "DOCKER_TLS_VERIFY"),
    )
)


class LocalCluster:
    """The cluster's process, as the driver sees it.

    Args:
        nodes: the number of nodes.

    Attributes:
        address: the address of Ray's control service.
        variables: the environment variables with which a driver may connect.

    Raises:
        ConfigurationError: Ray is not installed.
        EngineUnavailable: the cluster did not start.
    """

    def __init__(self, nodes: int) -> None:
        if not has_extra("ray"):
            raise ConfigurationError(NO_RAY)
        token = secrets.token_hex(32)
        self.variables = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token}
        environment = {
            name: value
            for name, value in os.environ.items()
            if name in _ENVIRONMENT or name.startswith("LC_")
        }
        ray_variables = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_memory_monitor_refresh_ms": "0"}
        self._folder = Path(tempfile.mkdtemp(prefix="ic-ray-", dir="/tmp"))  # sockets: short paths
        self._errors = (self._folder / "errors").open("w+b")
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(nodes), str(self._folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,
            env={**environment, **ray_variables, **self.variables},
            cwd="/",
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            error = self._last_error()
            self.close()
            raise EngineUnavailable(f"a Ray cluster on this machine did not start: {error}")
        self.address = str(json.loads(line)["address"])

    def _last_error(self) -> str:
        self._errors.seek(0)
        lines = self._errors.read().decode("utf-8", "replace").strip().splitlines()
        return lines[-1][:300] if lines else "it printed nothing"

    def close(self) -> None:
        """End it; may be called twice."""
        process = self._process
        if process.stdin is not None and not process.stdin.closed:
            process.stdin.close()
        try:
            process.wait(_CLOSE_TIMEOUT)
        except subprocess.TimeoutExpired:
            process.kill()  # the kernel kills Ray's processes with it
            process.wait()
        if process.stdout is not None:
            process.stdout.close()
        self._errors.close()
        shutil.rmtree(self._folder, ignore_errors=True)


def main(nodes: int, folder: str) -> None:
    """Start the cluster, print its address, and wait for the end of the standard input."""
    # Ray records there which cluster is the machine's own, and this one is not.
    os.environ["RAY_TMPDIR"] = folder
    Path(folder, "ray").mkdir()
    from ray.cluster_utils import Cluster

    stdout = os.dup(1)
    os.dup2(2, 1)  # because Ray prints to stdout
    cpus = max(1, (os.cpu_count() or 1) // nodes)
    node_options = {"num_cpus": cpus, "object_store_memory": _OBJECT_STORE}
    cluster = Cluster(
        initialize_head=True,
        head_node_args={**node_options, "include_dashboard": False, "temp_dir": folder},
    )
    for _ in range(nodes - 1):
        cluster.add_node(wait=False, temp_dir=folder, **node_options)
    cluster.wait_for_nodes(timeout=_START_TIMEOUT)
    with contextlib.suppress(BrokenPipeError):  # the driver is gone
        os.write(stdout, json.dumps({"address": cluster.address}).encode() + b"\n")
    os.close(stdout)
    while os.read(0, 4096):
        pass
    began = time.monotonic()
    cluster.shutdown()
    shutil.rmtree(folder, ignore_errors=True)  # the driver, which removes it, may have been killed
    print(f"ended in {time.monotonic() - began:.1f} s", file=sys.stderr)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
