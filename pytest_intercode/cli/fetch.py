"""``pytest-intercode fetch``: downloads datasets. Nothing else in this package does so."""

from __future__ import annotations

import argparse
import itertools
import os
import shlex
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_intercode.cli.arguments import add_option, add_options, sandboxes_of
from pytest_intercode.cli.printing import note, say
from pytest_intercode.core.text import pluralize
from pytest_intercode.errors import EngineUnavailable, FetchError, suggestion
from pytest_intercode.options.table import Options
from pytest_intercode.suites.download import download, install, is_whole, unpack, workplace
from pytest_intercode.suites.upstream import (
    DATASETS,
    ELSEWHERE,
    Dataset,
    RemoteFile,
    files_of,
)

if TYPE_CHECKING:
    from pytest_intercode.sandboxes.provider import SandboxProvider

__all__ = ["HELP", "add_arguments", "run"]

HELP = "download datasets: InterCode's, AgentBench, Cybench, tau2, ..."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    parser.add_argument(
        "datasets",
        nargs="+",
        metavar="NAME",
        type=_dataset,
        help=f"{', '.join(DATASETS)}, or all",
    )
    parser.add_argument(
        "--to",
        metavar="DIR",
        type=_folder,
        help="folder to download them into (default: the one that --intercode-data falls back to, "
        "~/.cache/pytest-intercode/data)",
    )
    parser.add_argument(
        "--url",
        metavar="BASE",
        type=_url,
        default=os.environ.get("INTERCODE_URL"),
        help="address of a mirror of the datasets' repositories (default: $INTERCODE_URL, else the "
        "repositories)",
    )
    add_option(
        parser,
        Options.base_images,
        "another base image for the sandbox that makes the file systems of nl2bash and alfa",
    )
    add_options(parser, Options.docker_hosts, Options.registry, Options.platform)


def run(options: argparse.Namespace) -> int:
    """Download what is missing, and print what there is then.

    Raises:
        ConfigurationError: a Docker host or the registry cannot be used.
        FetchError: a download failed.
        InfrastructureError: there is no sandbox to make the file systems in.
    """
    from pytest_intercode.suites.catalogue import data_folder, default_data

    folder = options.to or default_data()
    names = list(DATASETS) if "all" in options.datasets else list(dict.fromkeys(options.datasets))
    with workplace(folder) as workspace:
        fetch = _Fetch(
            folder, workspace, options.url, partial(sandboxes_of, options, _report_progress)
        )
        for name in names:
            fetch.dataset(name, DATASETS[name])
    data = data_folder(None, "")
    data_option = [] if data and data.path == folder else [f"--intercode-data={folder}"]
    command = shlex.join(["pytest", f"--intercode-dataset={','.join(names)}", *data_option])
    say(f"run: {command} --intercode-agent=...")
    return 0


class _Fetch:
    """One run of the command, for a folder that it has locked."""

    def __init__(
        self,
        folder: Path,
        workspace: Path,
        mirror: str | None,
        sandboxes: Callable[[], AbstractContextManager[SandboxProvider]],
    ) -> None:
        self._folder = folder
        self._workspace = workspace
        self._mirror = mirror
        self._sandboxes = sandboxes
        self._base = ""

    def dataset(self, name: str, dataset: Dataset) -> None:
        """Download one dataset."""
        self._base = self._mirror or dataset.url
        files = files_of(*dataset.paths)
        missing = [file for file in files if not is_whole(self._folder / file.target, file)]
        trees = {path: dataset.archive(path) for path, _ in dataset.filesystems}
        unmade = [path for path, tree in trees.items() if not (self._folder / tree).is_file()]
        scripts = {file.path: file for file in files_of(*unmade)} if unmade else {}
        self._steps = itertools.count(1)
        self._total = len(missing) + len(unmade)
        installed_count = 0
        try:
            for file in missing:
                install(self._download(file), self._folder / file.target, file.mode)
                installed_count += 1
            for start, place in dataset.unpacked:
                for file in files:
                    unpack(self._folder / file.target, start, self._folder / place)
            if scripts:
                installed_count += self._make_filesystems(dataset, scripts)
            if dataset.tables:
                self._make_databases(dataset.tables)
        except EngineUnavailable as error:
            raise FetchError(
                f"{name}: its files are downloaded, but the file systems of its tasks are made in "
                f"a sandbox: {error}"
            ) from None
        except FetchError as error:
            count = len(files) + len(trees)
            whole = count - len(missing) - len(unmade) + installed_count
            raise FetchError(
                f"{name}: {error}. {whole} of {count} files are complete; run the same command "
                "again to continue"
            ) from None
        count = len(files) + len(trees)
        say(f"{name}: {pluralize(count, 'file')} in {self._folder} ({installed_count:,} new)")
        if dataset.note:
            say(f"{name}: {dataset.note}")

    def _download(self, file: RemoteFile) -> Path:
        label = f"[{next(self._steps)}/{self._total}] {file.path}"
        return download(file, self._base, self._workspace, label)

    def _make_filesystems(self, dataset: Dataset, scripts: dict[str, RemoteFile]) -> int:
        """Make the missing file trees, and return how many there were."""
        from pytest_intercode.environments.bash.filesystems import pack_filesystem

        with self._sandboxes() as provider:
            for path, roots in dataset.filesystems:
                if path in scripts:
                    script = self._download(scripts[path]).read_text("utf-8")
                    packed = self._workspace / "archive"
                    name = Path(path).name
                    packed.write_bytes(pack_filesystem(script, roots, provider, name))
                    install(packed, self._folder / dataset.archive(path), 0o644)
        return len(scripts)

    def _make_databases(self, rows: str) -> None:
        """Write the script that makes the databases for a file of rows, next to the file."""
        from pytest_intercode.suites.agentbench import databases_script
        from pytest_intercode.system.rows import read_rows

        [file] = files_of(rows)
        script = self._workspace / "script"
        script.write_text(databases_script(read_rows(self._folder / file.target)), "utf-8")
        install(script, (self._folder / file.target).with_suffix(".sql"), 0o644)


def _report_progress(line: str) -> None:
    if sys.stderr.isatty():
        note(line)


# -- types of the arguments


def _dataset(value: str) -> str:
    if value == "all" or value in DATASETS:
        return value
    if value in ELSEWHERE:
        raise argparse.ArgumentTypeError(f"{value}: {ELSEWHERE[value]}")
    names = [*DATASETS, "all"]
    raise argparse.ArgumentTypeError(
        f"{value}: there is no such dataset. Allowed: {', '.join(names)}.{suggestion(value, names)}"
    )


def _folder(value: str) -> Path:
    return Path(value).expanduser()


def _url(value: str) -> str:
    if not value.startswith(("http://", "https://")):
        raise argparse.ArgumentTypeError(f"{value}: an address with http:// or https:// is needed")
    return value
