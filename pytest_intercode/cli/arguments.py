"""Arguments that several commands have, and the objects that are made from them.

Arguments that also exist as options of pytest are made from those.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pytest_intercode.cli.printing import note
from pytest_intercode.errors import ConfigurationError
from pytest_intercode.options.table import Options
from pytest_intercode.system.platform import check_platform

if TYPE_CHECKING:
    from pytest_intercode.core.permissions import Permissions
    from pytest_intercode.core.task import Task
    from pytest_intercode.options.option import Option
    from pytest_intercode.sandboxes.provider import SandboxProvider

__all__ = [
    *("add_concurrency_argument", "add_option", "add_options", "add_permission_arguments"),
    *("add_results_argument", "add_suites_argument", "count", "map_concurrently"),
    *("permissions_of", "results_stem", "sandboxes_of", "tasks_of"),
]

Argument = TypeVar("Argument")
Result = TypeVar("Result")


def add_options(parser: argparse.ArgumentParser, *options: Option[Any]) -> None:
    """Add options of pytest, each as ``--NAME``, with its values, its default and its help."""
    for option in options:
        add_option(parser, option, option.help)


def add_option(parser: argparse.ArgumentParser, option: Option[Any], help: str) -> None:
    """Add an option of pytest, with another help text for a command.

    For lists and pairs the argument is repeatable, and its value is a list.
    """
    settings: dict[str, Any] = {"action": "store_true"}
    default = option.default or option.fallback
    note = f"default: {default}" if default else ""
    if option.allowed:
        settings = {"choices": option.allowed, "default": option.default or None}
    elif option.metavar:
        settings = {"metavar": option.metavar, "type": _parser(option)}
        settings["default"] = option.default or None
        if option.listed or option.pairs:
            settings |= {"action": "append", "default": []}
            note = "repeatable"
    text = f"{help} ({note})" if note else help
    text = text.replace("`", "").replace("%", "%%")
    parser.add_argument(f"--{option.name}", help=text, **settings)


def _parser(option: Option[Any]) -> Callable[[str], object]:
    def parse(text: str) -> object:
        try:
            value = option.value(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
        if isinstance(value, Path):
            value = value.expanduser()
            if option.exists and not value.is_dir():
                raise argparse.ArgumentTypeError(f"{text}: there is no such folder")
        return value

    return parse


def add_suites_argument(parser: argparse.ArgumentParser) -> None:
    """Add the suites whose tasks a command works on; see :func:`tasks_of`."""
    parser.add_argument(
        "suites",
        metavar="SUITE",
        nargs="+",
        help="a suite (.yaml), a bundled one (bash, sql, python, ctf, swe), or a dataset: its name "
        "(spider) or a folder of task folders",
    )


def add_permission_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments for what suites may use of this machine, as in pytest's options."""
    add_options(parser, Options.allow_path, Options.pass_env)
    text = "let suites that list it reach this host of a private network"
    add_option(parser, Options.allow_host, text)


def permissions_of(options: argparse.Namespace) -> Permissions:
    """Return what suites may use of this machine, according to the arguments."""
    from pytest_intercode.core.permissions import Permissions

    return Permissions(
        paths=tuple(options.allow_path),
        variables=tuple(options.pass_env),
        network=getattr(options, "network", False),
        hosts=tuple(options.allow_host),
        prefix="--",
    )


def tasks_of(
    name: str, data: Path | None, permissions: Permissions, command: str
) -> Sequence[Task]:
    """Return the tasks of a suite, bundled or not, or of a dataset.

    Args:
        name: the name or path, as the user wrote it.
        data: the folder of InterCode's data that the user named, or None.
        permissions: what tasks may use of this machine, besides the files in their folder.
        command: the command's name, for messages.

    Raises:
        ConfigurationError: there is no such suite or dataset, or it is wrong.
    """
    from pytest_intercode.environments.registry import environment_names
    from pytest_intercode.errors import suggestion
    from pytest_intercode.suites.catalogue import (
        bundled_tasks,
        data_folder,
        dataset_names,
        dataset_of,
        named_tasks,
    )
    from pytest_intercode.suites.formats import find_format

    option = f"{command} {name}"
    if name in environment_names():
        return bundled_tasks(name, option)
    if dataset_of(name) is None and find_format(Path(name).expanduser()) is None:
        names = [*environment_names(), *dataset_names()]
        raise ConfigurationError(
            f"{option}: there is no such suite. Allowed: the path of a .yaml or of a folder of "
            f"task folders, or {', '.join(names)}.{suggestion(name, names)}"
        )
    folder = data_folder(data, "--data")
    return named_tasks(name, folder, option, folder=Path(), env=None, permissions=permissions)


@contextlib.contextmanager
def sandboxes_of(
    options: argparse.Namespace, progress: Callable[[str], None] = note
) -> Iterator[SandboxProvider]:
    """Yield the provider of sandboxes that the arguments describe; it is closed at the end.

    Args:
        options: the arguments.
        progress: takes a line about what is built.

    Raises:
        ConfigurationError: the runtime, the hosts or the registry cannot be used, or this system
            has no sandboxes.
    """
    check_platform()
    from pytest_intercode.sandboxes.provider import SandboxProvider
    from pytest_intercode.sandboxes.settings import SandboxSettings

    settings = SandboxSettings(
        backend=getattr(options, "sandbox", "auto"),
        base_images=dict(getattr(options, "base_image", ())),
        rootfs=getattr(options, "rootfs", None),
        runtime=getattr(options, "runtime", None),
        docker_hosts=options.docker_host,
        registry=options.registry,
        platform=options.platform,
        hidden=(Path.cwd(), *filter(None, [getattr(options, "data", None)])),
    )
    provider = SandboxProvider(settings, progress=progress)
    checked_options: tuple[Option[Any], ...] = (
        *(Options.runtime, Options.rootfs, Options.docker_hosts, Options.registry),
        Options.platform,
    )
    try:
        provider.check({option.attribute: f"--{option.name}" for option in checked_options})
        yield provider
    finally:
        provider.close()


# -- results files


def add_results_argument(parser: argparse.ArgumentParser) -> None:
    """Add the results file that a command reads."""
    parser.add_argument(
        "results", metavar="RESULTS", type=Path, help="a results file, ours or InterCode's"
    )


def results_stem(path: Path) -> str:
    """Return the name of a results file without its suffixes, to name files made from it."""
    name = path.name.removesuffix(".gz")
    return name.removesuffix(".jsonl").removesuffix(".json") or name


# -- several at a time


def add_concurrency_argument(parser: argparse.ArgumentParser, default: int, subject: str) -> None:
    """Add the argument for how many of these are processed at a time."""
    parser.add_argument(
        "--concurrency",
        metavar="N",
        type=count,
        default=default,
        help=f"{subject} at a time (default: {default})",
    )


def map_concurrently(
    function: Callable[[Argument], Result],
    arguments: Iterable[Argument],
    concurrency: int,
    report: Callable[[int], None] = lambda number: None,
    stop: Callable[[], None] = lambda: None,
) -> list[Result]:
    """Return a function's results for arguments; an interrupt cancels the calls not yet begun.

    Args:
        function: called on threads.
        arguments: its arguments, in the order of the results.
        concurrency: how many calls run at a time.
        report: called with the number of finished calls.
        stop: called on an error, to end what the running calls wait for.
    """
    from concurrent.futures import ThreadPoolExecutor

    threads = ThreadPoolExecutor(concurrency, thread_name_prefix="intercode-command")
    results = []
    try:
        for number, result in enumerate(threads.map(function, arguments), 1):
            results.append(result)
            report(number)
    except BaseException:
        threads.shutdown(wait=False, cancel_futures=True)
        stop()
        raise
    finally:
        threads.shutdown(wait=True, cancel_futures=True)
    return results


def count(text: str) -> int:
    """Return a text as a whole number from 1."""
    number = int(text) if text.isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: a whole number from 1 is needed")
    return number
