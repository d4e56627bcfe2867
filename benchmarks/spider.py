"""Spider with the oracle, against a plain loop over its golds and pytest's own time.

Ours is a whole ``pytest`` process: start of the interpreter and of the server's container, reading
the data set, 1034 episodes (gold once for the reward and once as the agent's action, each on a
session of its own), the table, the end of the container. Only the build of the image is left out,
which is made once.

The reference is what cannot be saved: PyMySQL running each gold twice on one connection to the
same kind of server, which is up already, and a ``pytest`` process with 1034 empty tests.

It needs InterCode's data (``INTERCODE_DATA``) and PyMySQL.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.measuring import seconds, show
from pytest_intercode.databases.mysql import image_source
from pytest_intercode.databases.mysql_server import MySqlServer
from pytest_intercode.sandboxes.provider import SandboxProvider
from pytest_intercode.suites.loader import bundled_folder, load_suite
from pytest_intercode.suites.task import Limits, Task

ROUNDS = 5


def each_gold_twice(connection: Any, tasks: Iterable[Task]) -> None:
    import pymysql

    for task in tasks:
        assert task.database is not None
        connection.select_db(task.database.name)
        for _ in range(2):
            with connection.cursor() as cursor, contextlib.suppress(pymysql.err.MySQLError):
                cursor.execute(task.gold[0])  # 19 golds fail on any server
                cursor.fetchall()


def main() -> None:
    import pymysql

    data = os.environ.get("INTERCODE_DATA")
    if not data:
        print("skipped: INTERCODE_DATA names no folder with InterCode's data")
        return
    suite = load_suite(bundled_folder("tasks") / "datasets" / "spider.yaml", Path(data).resolve())
    database = suite.tasks[0].database
    assert database is not None
    provider = SandboxProvider()
    plain, empty, ours = [], [], []
    with tempfile.TemporaryDirectory() as name, contextlib.closing(provider):
        folder = Path(name)
        folder.chmod(0o777)
        (folder / "test_plain.py").write_text(
            f"import pytest\n@pytest.mark.parametrize('n', range({len(suite.tasks)}))\n"
            "def test_nothing(n):\n    pass\n"
        )
        image = provider.image(image_source(database.scripts))
        server = MySqlServer(provider, image, Limits(), "reading", folder)
        connection = pymysql.connect(unix_socket=str(folder / "mysql.sock"), user="root")

        def run(*arguments: str) -> None:
            command = [sys.executable, "-m", "pytest", "-q", "-c", "/dev/null", *arguments]
            subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)

        options = ("--intercode-dataset=spider", f"--intercode-data={Path(data).resolve()}")
        for _ in range(ROUNDS):
            plain.append(seconds(lambda: each_gold_twice(connection, suite.tasks)))
            empty.append(seconds(lambda: run("test_plain.py", "-p", "no:intercode")))
            ours.append(seconds(lambda: run(*options, "--intercode-agent=oracle")))
        connection.close()
        server.close()
    reference = statistics.median(plain) + statistics.median(empty)
    show("each gold twice, one connection", statistics.median(plain))
    show(f"{len(suite.tasks)} empty tests", statistics.median(empty))
    show("both (reference)", reference)
    show(f"{len(suite.tasks)} oracle episodes", statistics.median(ours), reference)
    rounds = zip(ours, plain, empty, strict=True)
    print("rounds: " + ", ".join(f"{o / (p + e):.2f}" for o, p, e in rounds))
