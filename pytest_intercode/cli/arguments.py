"""Types of arguments that more than one command has, and the arguments that lead to Docker."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_intercode.sandboxes.hosts import DockerHost
    from pytest_intercode.sandboxes.provider import SandboxProvider

__all__ = ["add_docker_arguments", "check_docker", "count", "pair"]


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


def pair(text: str) -> tuple[str, str]:
    """Return the halves of ``NAME=REPLACEMENT``."""
    name, sign, replacement = text.partition("=")
    if not (name and sign and replacement):
        raise argparse.ArgumentTypeError(f"{text}: the form NAME=REPLACEMENT is needed")
    return name, replacement
