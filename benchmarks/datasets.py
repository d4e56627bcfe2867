"""InterCode's data sets with the oracle: MBPP on Docker, and Spider on a MySQL server.

They run only by name (``python -m benchmarks datasets``), as they need InterCode's data:
``INTERCODE_DATA`` names the folder, or ``pytest-intercode fetch`` downloaded it.

MBPP is compared with as many bare container cycles, one by one, as it has sandboxes. Spider, as a
whole pytest process, is compared with the work that cannot be avoided: PyMySQL running each gold
twice on one connection to a running server of the same kind, and a pytest process with as many
empty tests. Its gold runs once for the reward and once as the agent's action, each in its own
session.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.bare import bare_containers
from benchmarks.collection import empty_tests, pytest_process
from benchmarks.machine import needs
from benchmarks.measuring import Scale, Unavailable, in_turn, seconds
from benchmarks.runs import temporary_folder
from benchmarks.table import Part, against
from pytest_intercode.core.task import Limits, Task
from pytest_intercode.databases.mysql.engine import image_source
from pytest_intercode.databases.mysql.server import MySqlServer
from pytest_intercode.environments.sql.fields import database_of
from pytest_intercode.sandboxes.provider import SandboxProvider
from pytest_intercode.sandboxes.settings import SandboxSettings
from pytest_intercode.suites.catalogue import default_data
from pytest_intercode.suites.loader import load_suite
from pytest_intercode.system.files import bundled_folder


def measure(scale: Scale) -> Part:
    """Measure both data sets."""
    needs("docker")
    data = Path(os.environ.get("INTERCODE_DATA") or default_data()).resolve()
    if not data.is_dir():
        raise Unavailable("INTERCODE_DATA names no folder with InterCode's data")
    part = Part("InterCode's data sets with the oracle, on docker")
    _mbpp(scale, data, part)
    _spider(scale, data, part)
    return part


def _mbpp(scale: Scale, data: Path, part: Part) -> None:
    episodes = scale.pick(40, 2)
    what = ("--intercode-dataset=mbpp", "--intercode-agent=oracle", "--intercode-sandbox=docker")
    options = (*what, f"--intercode-data={data}", f"--intercode-limit={episodes}")
    with bare_containers() as bare, temporary_folder() as folder:
        folder.pytest(*options)
        times = in_turn(
            {
                "bare": lambda: bare.cycles(2 * episodes),
                "ours": lambda: folder.pytest(*options).loop,
            },
            scale.pick(3, 1),
        )
    reference = f"{2 * episodes} bare cycles, one by one, networking disabled"
    name = f"{episodes} MBPP episodes, the run loop"
    part.rows.append(against(name, times["ours"], reference, times["bare"]))


def _spider(scale: Scale, data: Path, part: Part) -> None:
    try:
        import pymysql
    except ImportError:
        raise Unavailable("PyMySQL is not installed") from None
    suite = load_suite(bundled_folder("tasks") / "datasets" / "spider.yaml", data)
    tasks = suite.tasks[: scale.pick(len(suite.tasks), 20)]
    database = database_of(tasks[0])
    with contextlib.ExitStack() as stack:
        provider = stack.enter_context(
            contextlib.closing(SandboxProvider(SandboxSettings("docker")))
        )
        folder = stack.enter_context(temporary_folder())
        shared = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="benchmark-")))
        shared.chmod(0o777)
        image = provider.image(image_source(database.scripts))
        server = MySqlServer(provider, image, Limits(), "reading", shared)
        stack.callback(server.close)
        connection: Any = pymysql.connect(unix_socket=str(shared / "mysql.sock"), user="root")
        stack.callback(connection.close)
        empty_tests(folder.path, len(tasks))
        options = ("--intercode-dataset=spider", f"--intercode-data={data}")
        selection = ("--intercode-agent=oracle", f"--intercode-limit={len(tasks)}")
        times = in_turn(
            {
                "golds": lambda: seconds(lambda: _each_gold_twice(connection, tasks)),
                "empty": lambda: pytest_process(folder.path, "test_empty.py", "-p", "no:intercode"),
                "ours": lambda: pytest_process(folder.path, *options, *selection),
            },
            scale.pick(5, 1),
        )
    part.rows.append(
        against(
            f"{len(tasks)} Spider episodes, the whole process",
            times["ours"],
            "each gold twice by raw PyMySQL, and as many empty tests",
            times["golds"] + times["empty"],
        )
    )


def _each_gold_twice(connection: Any, tasks: Sequence[Task]) -> None:
    import pymysql

    for task in tasks:
        connection.select_db(database_of(task).name)
        for _ in range(2):
            with connection.cursor() as cursor, contextlib.suppress(pymysql.err.MySQLError):
                cursor.execute(task.gold[0])  # 19 golds fail on any server
                cursor.fetchall()
