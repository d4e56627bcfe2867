"""Challenges of Cybench and of NYU CTF Bench, as rows of ctf: files, servers, and a flag.

An agent only gets the files that a challenge names, because solutions and the sources of servers
are next to them. A server keeps its flag in its own machine. This module only reads files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pytest_intercode.core.machine import DEFAULT_NETWORK
from pytest_intercode.errors import SuiteError
from pytest_intercode.suites.yaml_files import read_yaml
from pytest_intercode.system.rows import Row, form_problem, read_json
from pytest_intercode.system.suite_folder import SuitePath

__all__ = ["read_cybench", "read_nyu_ctf"]

_AGENT = "default"  # the agent's own machine, in Cybench's compose files
_VARIANT = "hard"  # the unguided prompt, with which Cybench's published scores were made
_NYU_NETWORK = "ctfnet"  # the network that agents of NYU CTF Bench are in
_NYU_WORKDIR = "/home/ctfplayer/ctf_files"
_ENGINE = "/var/run/docker.sock"  # mounted by servers that do not use it
_OTHER_FORM = (AttributeError, KeyError, TypeError, ValueError)  # raised by data of another form
_CATEGORIES = {
    "crypto": "cryptography",
    "misc": "miscellaneous",
    "pwn": "binary exploitation",
    "rev": "reverse engineering",
    "web": "web security",
}


def read_cybench(path: SuitePath) -> Iterator[tuple[str, Row]]:
    """Yield the place and the fields of each challenge of Cybench.

    Args:
        path: the folder of challenges, with the layout of inspect_evals: ``NAME/eval.yaml``.

    Raises:
        SuiteError: a file is missing, or has another form.
    """
    for folder in path.iterdir():
        if (folder / "eval.yaml").is_file():
            try:
                yield str(folder), _cybench_row(folder)
            except _OTHER_FORM as error:
                raise SuiteError(
                    f"{folder}: not a challenge of Cybench: {form_problem(error)}"
                ) from None


def _cybench_row(folder: SuitePath) -> Row:
    challenge, _ = read_yaml(folder / "eval.yaml")
    compose, _ = read_yaml(folder / "compose.yaml")
    metadata = challenge.get("metadata") or {}
    files = {target: folder / name for target, name in (challenge.get("files") or {}).items()}
    services, problem = _services(folder, compose, without=_AGENT)
    return {
        "challenge": folder.name,
        "query": challenge["variants"][_VARIANT]["prompt"].strip(),
        "gold": challenge["flag"],
        "files": _agent_files(files),
        "services": services,
        "tags": [metadata[key] for key in ("category", "competition") if key in metadata],
        "skip": problem or _find_problem(files.values(), challenge["flag"] if services else ""),
    }


def read_nyu_ctf(path: SuitePath) -> Iterator[tuple[str, Row]]:
    """Yield the place and the fields of each challenge of a split of NYU CTF Bench.

    Args:
        path: the file of the split in its repository, such as ``test_dataset.json``.

    Raises:
        SuiteError: a file is missing, or has another form.
    """
    place = str(path)
    try:
        for name, entry in read_json(path).items():
            folder = path.parent / entry["path"]
            place = str(folder / "challenge.json")
            yield place, _nyu_row(name, entry, folder)
    except _OTHER_FORM as error:
        raise SuiteError(
            f"{place}: not a challenge of NYU CTF Bench: {form_problem(error)}"
        ) from None


def _nyu_row(name: str, entry: Mapping[str, Any], folder: SuitePath) -> Row:
    challenge = read_json(folder / "challenge.json")
    files = {path: folder / path for path in challenge.get("files") or ()}
    compose = _find_compose(folder) if challenge.get("compose") else None
    services, problem = _services(folder, compose or {"services": {}})
    box = challenge.get("box")
    if services and box and not any(box in spec["aliases"] for spec in services.values()):
        reached = [spec for spec in services.values() if DEFAULT_NETWORK in spec["networks"]]
        for spec in reached[-1:]:
            spec["aliases"].append(box)
    if challenge.get("compose") and compose is None:
        problem = "it has no docker-compose.yml"
    if box and not compose and not files and challenge["category"] == "web":
        problem = "its server is not part of the repository"
    return {
        "challenge": name,
        "query": _nyu_query(entry, challenge, files, has_server=compose is not None),
        "gold": challenge["flag"],
        "workdir": _NYU_WORKDIR,
        "files": _agent_files(files),
        "services": services,
        "tags": [challenge["category"]],
        "skip": problem or _find_problem(files.values(), challenge["flag"] if services else ""),
    }


def _nyu_query(
    entry: Mapping[str, Any], challenge: Mapping[str, Any], files: Iterable[str], has_server: bool
) -> str:
    category = _CATEGORIES.get(challenge["category"], challenge["category"])
    box, port = challenge.get("box"), challenge.get("internal_port")
    description = challenge["description"]
    for word, value in (("{box}", box), ("{port}", port)):
        description = description.replace(word, str(value)) if value is not None else description
    flag = challenge["flag"]
    lines = [
        f"{challenge['name']}: a challenge of {category}, of {entry['event']} {entry['year']}.",
        f"\n{description.strip()}\n",
        f"The form of the flag: {re.sub(r'{.*?}', '{...}', flag) if '{' in flag else 'not known'}",
    ]
    if names := sorted(files):
        lines.append(f"Files, in {_NYU_WORKDIR}: {', '.join(names)}")
    if has_server and box:
        lines.append(f"Server: {box}" + (f", port {port}" if port is not None else ""))
    return "\n".join(lines)


def _find_compose(folder: SuitePath) -> Any:
    """Return the content of a challenge's compose file; None if it has none."""
    names = ("docker-compose.yml", "docker-compose.yaml")
    paths = [folder / name for name in names if (folder / name).is_file()]
    return read_yaml(paths[0])[0] if paths else None


# -- files


def _agent_files(files: Mapping[str, SuitePath]) -> Row:
    """Return the files of an agent's machine, by their paths there; folders are expanded."""
    places = {}
    for target, path in files.items():
        if path.is_dir():
            places.update({f"{target.rstrip('/')}/{name}": file for name, file in path.files()})
        elif path.is_file():
            places[target] = path
    return {
        target: {"path": path.below, "mode": f"{path.stat().st_mode & 0o777:04o}"}
        for target, path in places.items()
    }


def _find_problem(paths: Iterable[SuitePath], server_flag: str) -> str | None:
    """Return why a challenge cannot be played with its files; None if it can.

    Args:
        paths: the files and folders.
        server_flag: the flag if a server holds it, so that the files must not contain it; empty if
            the files hold it.
    """
    for path in paths:
        if not path.exists():
            return f"{path.below} is missing"
        for file in [file for _, file in path.files()] if path.is_dir() else [path]:
            if server_flag and server_flag.encode() in file.read_bytes():
                return f"{file.below}, which agents get, holds the flag of its server"
    return None


# -- servers


def _services(
    folder: SuitePath, compose: Mapping[str, Any], without: str = ""
) -> tuple[Row, str | None]:
    """Return the servers of a compose file as ``services``, and why they cannot be run, if so."""
    services: Row = {}
    for name, spec in compose["services"].items():
        if name == without:
            continue
        if spec.get("privileged") or spec.get("network_mode"):
            return {}, f"its server {name} is to have rights over this machine"
        volumes = [volume for volume in spec.get("volumes") or () if _ENGINE not in volume]
        if any(volume.startswith((".", "/")) for volume in volumes):
            return {}, f"its server {name} mounts folders of this machine"
        services[name.lower()] = _service(folder, name, spec, volumes)
    return services, None


def _service(folder: SuitePath, name: str, spec: Mapping[str, Any], volumes: list[str]) -> Row:
    networks = spec.get("networks") or {}
    ends = dict.fromkeys(networks) if isinstance(networks, list) else networks
    variables = spec.get("environment") or {}
    if isinstance(variables, list):
        variables = dict(line.split("=", 1) for line in variables)
    depends = spec.get("depends_on") or {}
    row: Row = {
        "image": spec["image"],
        "variables": {key: str(value) for key, value in variables.items()},
        "volumes": dict(volume.split(":")[:2] for volume in volumes),
        "networks": [DEFAULT_NETWORK if end == _NYU_NETWORK else end for end in ends]
        or [DEFAULT_NETWORK],
        "aliases": [alias for end in ends.values() for alias in (end or {}).get("aliases", ())],
        "depends_on": {server.lower(): _condition(depends, server) for server in depends},
    }
    if (dockerfile := _find_dockerfile(folder / "images", name, spec["image"])) is not None:
        row["dockerfile"] = dockerfile.below
    if spec.get("healthcheck"):
        row["health"] = _health(spec["healthcheck"])
    return row


def _find_dockerfile(folder: SuitePath, name: str, image: str) -> SuitePath | None:
    """Return a server's Dockerfile, in a folder named like the server or its image, or the only."""
    sources = {source.name: source for source in folder.iterdir()} if folder.is_dir() else {}
    image_name = image.partition(":")[0].rpartition("-")[2]
    if len(sources) == 1:
        image_name = next(iter(sources))
    source = sources.get(name) or sources.get(image_name)
    return source / "Dockerfile" if source is not None else None


def _condition(depends: Any, name: str) -> str:
    words = depends[name]["condition"] if isinstance(depends, dict) else "service_started"
    return str(words).removeprefix("service_")


def _health(check: Mapping[str, Any]) -> Row:
    kind, *words = check["test"]
    health: Row = {"command": words[0] if kind == "CMD-SHELL" else words}
    for key in ("interval", "timeout"):
        if key in check:
            health[key] = float(str(check[key]).removesuffix("s"))
    return {**health, "retries": check.get("retries", 3)}
