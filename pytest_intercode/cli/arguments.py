"""Types of arguments that more than one command has, and the arguments that lead to Docker."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_intercode.sandboxes.hosts import DockerHost
    from pytest_intercode.sandboxes.provider import SandboxProvider
    from pytest_intercode.suites.permissions import Permissions

__all__ = [
    *("add_base_image_argument", "add_docker_arguments", "add_permission_arguments"),
    *("check_docker", "count", "permissions_of"),
]


def add_base_image_argument(parser: argparse.ArgumentParser, text: str) -> None:
    """Add the option that replaces base images; ``text`` is its help."""
    parser.add_argument(
        "--base-image",
        metavar="NAME=REPLACEMENT",
        type=_pair,
        action="append",
        default=[],
        help=text,
    )


def add_docker_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what says on which engines sandboxes are started, and where their images come from."""
    parser.add_argument(
        "--docker-host",
        metavar="HOST[=SLOTS]",
        type=_docker_host,
        action="append",
        default=[],
        help="start sandboxes on this Docker host: ssh://USER@HOST, tcp://HOST:PORT, unix://PATH "
        "or the name of a Docker context (repeatable)",
    )
    parser.add_argument(
        "--registry",
        metavar="HOST[:PORT][/PREFIX]",
        type=_registry,
        help="ask this registry for each image before it is built, and push there what was built",
    )


def add_permission_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what says what suites may use of this machine, as the options of pytest do."""
    parser.add_argument(
        "--allow-path",
        metavar="DIR",
        type=_folder,
        action="append",
        default=[],
        help="let suites read this folder besides their own (repeatable)",
    )
    parser.add_argument(
        "--pass-env",
        metavar="NAME",
        action="append",
        default=[],
        help="let task folders have the value of this environment variable (repeatable)",
    )
    parser.add_argument(
        "--allow-host",
        metavar="HOST[:PORT]",
        type=_host,
        action="append",
        default=[],
        help="let suites that list it reach this host of a private network (repeatable)",
    )


def permissions_of(options: argparse.Namespace) -> Permissions:
    """Return what suites may use of this machine, as the arguments say."""
    from pytest_intercode.suites.permissions import Permissions

    return Permissions(
        paths=tuple(options.allow_path),
        variables=tuple(options.pass_env),
        network=getattr(options, "network", False),
        hosts=tuple(options.allow_host),
        prefix="--",
    )


def check_docker(provider: SandboxProvider) -> None:
    """See that hosts and registry answer, before anything is run.

    Raises:
        ConfigurationError: one does not.
    """
    provider.check_hosts("--docker-host")
    provider.check_registry("--registry")


def _docker_host(text: str) -> DockerHost:
    from pytest_intercode.sandboxes.hosts import parse_host

    try:
        return parse_host(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text}: {error}") from None


def _host(text: str) -> str:
    from pytest_intercode.core.hosts import parse_host

    try:
        return str(parse_host(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _folder(text: str) -> Path:
    path = Path(text).expanduser()
    if not path.is_dir():
        raise argparse.ArgumentTypeError(f"{text}: there is no such folder")
    return path


def _registry(text: str) -> str:
    from pytest_intercode.sandboxes.hosts import parse_registry

    try:
        return parse_registry(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def count(text: str) -> int:
    """Return a whole number from 1."""
    number = int(text) if text.isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: a whole number from 1 is needed")
    return number


def _pair(text: str) -> tuple[str, str]:
    """Return the halves of ``NAME=REPLACEMENT``."""
    name, sign, replacement = text.partition("=")
    if not (name and sign and replacement):
        raise argparse.ArgumentTypeError(f"{text}: the form NAME=REPLACEMENT is needed")
    return name, replacement
