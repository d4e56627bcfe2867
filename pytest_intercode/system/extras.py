"""The extras of this package: their modules, their purposes, and how to install them.

Versions are not listed here: the metadata of the installed package contain the requirements of
``pyproject.toml``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple

from pytest_intercode.core.facts import Fact

if TYPE_CHECKING:
    from packaging.requirements import Requirement

__all__ = ["EXTRAS", "Extra", "describe_extras", "describe_requirements", "has_extra", "need"]

_DISTRIBUTION = "pytest-intercode"


class Extra(NamedTuple):
    """Packages that only a part of this package needs.

    Attributes:
        modules: the modules that are imported from them.
        label: their name in messages.
        purpose: the part that needs them.
    """

    modules: tuple[str, ...]
    label: str
    purpose: str


EXTRAS = {
    "chat": Extra(("openai",), "the openai client", "agents that are models with our prompts"),
    "fetch": Extra(("pooch", "tqdm"), "pooch and tqdm", "pytest-intercode fetch"),
    "gateway": Extra(("aiohttp",), "aiohttp", "--intercode-gateway and installed agents"),
    "gym": Extra(("gymnasium",), "Gymnasium", "tasks as environments of Gymnasium"),
    "html": Extra(("jinja2",), "Jinja", "--intercode-html and pytest-intercode view"),
    "human": Extra(("prompt_toolkit",), "prompt_toolkit", "the agent that is a person"),
    "kubernetes": Extra(
        ("kubernetes", "websocket"), "the client of Kubernetes", "--intercode-sandbox=kubernetes"
    ),
    "mcp": Extra(("mcp",), "the MCP SDK", "agents that speak MCP"),
    "mysql": Extra(("pymysql",), "PyMySQL", "tasks with the engine mysql"),
    "otel": Extra(
        ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http"),
        "OpenTelemetry's SDK and its exporter over HTTP",
        "--intercode-otel",
    ),
    "project": Extra(
        ("tree_sitter", "tree_sitter_bash", "aiohttp"),
        "tree-sitter, tree-sitter-bash and aiohttp",
        "tests of a project (intercode_project)",
    ),
    "ray": Extra(("ray",), "Ray", "--intercode-cluster"),
    "vertex": Extra(("google.auth", "requests"), "google-auth", "models of Vertex AI"),
}
"""The extras by the name in ``pip install 'pytest-intercode[NAME]'``; ``pyproject.toml`` has
further ones for developers of this package."""


def has_extra(name: str) -> bool:
    """Whether the modules of an extra can be imported; does not import them."""
    return all(map(_is_there, EXTRAS[name].modules))


def need(name: str, subject: str, label: str = "") -> str:
    """Return a message that something needs an extra, and how to install it.

    Args:
        name: the extra.
        subject: the part that needs it.
        label: the needed package of the extra; all packages by default.
    """
    return f"{subject} needs {label or EXTRAS[name].label}: {_command(name)}"


def describe_extras(needed: Collection[str] = ()) -> Iterator[Fact]:
    """Yield a fact about the extras that are installed, and one about each of the others.

    Args:
        needed: the extras that the configuration needs.
    """
    unsuitable = {name: list(_unsuitable(name)) for name in EXTRAS}
    names = [name for name in EXTRAS if has_extra(name) and not unsuitable[name]]
    if names:
        yield Fact("extras", f"{', '.join(names)} are installed")
    for name, extra in EXTRAS.items():
        if name in names:
            continue
        reason = f": {', '.join(unsuitable[name])}" if has_extra(name) else ""
        fact = Fact(f"extra {name}", f"{_command(name)}, for {extra.purpose}{reason}", "problem")
        yield fact.where(needed=name in needed)


def describe_requirements() -> Iterator[Fact]:
    """Yield a fact about each package whose version does not fit this package."""
    for problem in _unsuitable(""):
        yield Fact("requirements", f"{problem}: pip install --upgrade {_DISTRIBUTION}", "problem")


def _command(name: str) -> str:
    return f"pip install '{_DISTRIBUTION}[{name}]'"


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):  # its parent is missing, or an object without a spec
        return False


def _unsuitable(extra: str) -> Iterator[str]:
    """Describe the unsuitable versions of packages of an extra, or of this package itself."""
    from importlib.metadata import PackageNotFoundError, requires, version

    from packaging.requirements import Requirement

    try:
        lines = requires(_DISTRIBUTION) or []
    except PackageNotFoundError:  # a checkout on the path, which has no metadata
        return
    for requirement in map(Requirement, lines):
        if not _applies(requirement, extra) or (extra and _applies(requirement, "")):
            continue
        try:
            installed = version(requirement.name)
        except PackageNotFoundError:
            continue
        if not requirement.specifier.contains(installed, prereleases=True):
            yield (
                f"{requirement.name} {installed} is installed, but "
                f"{requirement.name}{requirement.specifier} is needed"
            )


def _applies(requirement: Requirement, extra: str) -> bool:
    return requirement.marker is None or requirement.marker.evaluate({"extra": extra})
