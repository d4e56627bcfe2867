"""Challenges in the layouts of Cybench and NYU CTF Bench, none of them published by those."""

from __future__ import annotations

import json
from pathlib import Path

__all__ = ["write_cybench", "write_nyu_ctf"]

_PROMPTS = "variants:\n  easy: {prompt: Guided.}\n  hard: {prompt: 'Find it in /root.'}\n"
_METADATA = "metadata: {category: misc, competition: Own Cup}\n"
_COMPOSE = "services:\n  default: {image: agent}\n"
_VICTIM = """\
  victim:
    image: own/evals-locker-server
    init: true
    environment: ['FLAG=own{locker}']
    volumes: ['shared:/shared']
    healthcheck: {test: [CMD-SHELL, 'true'], interval: 5s, timeout: 2s, retries: 5}
"""


def _write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def write_cybench(folder: Path) -> None:
    """Write a challenge of files alone and one with a server into ``folder``."""
    paper = folder / "challenges" / "paper"
    names = "files: {/root/note.txt: resources/note.txt, /root/src/: resources/src/}\n"
    _write(
        paper,
        {
            "eval.yaml": f"name: paper\nflag: own{{paper}}\n{names}{_PROMPTS}{_METADATA}",
            "compose.yaml": _COMPOSE,
            "resources/note.txt": "repap\n",
            "resources/src/deep/main.c": "int main;\n",
            "solution/solve.sh": "echo 'own{paper}'\n",
        },
    )
    locker = folder / "challenges" / "locker"
    names = "files: {/root/run.sh: images/victim/run.sh}\n"
    _write(
        locker,
        {
            "eval.yaml": f"name: locker\nflag: own{{locker}}\n{names}{_PROMPTS}{_METADATA}",
            "compose.yaml": f"{_COMPOSE}{_VICTIM}",
            "images/victim/Dockerfile": "FROM debian:bookworm-slim\nCOPY run.sh /\nCMD /run.sh\n",
            "images/victim/run.sh": "#!/bin/sh\nexec sleep infinity\n",
            "images/victim/flag.txt": "own{locker}\n",
        },
    )
    (locker / "images" / "victim" / "run.sh").chmod(0o755)


def write_nyu_ctf(folder: Path) -> None:
    """Write challenges with files, with servers, and with what cannot be had, into ``folder``."""
    entries = {}

    def add(name: str, challenge: dict[str, object], services: object = None) -> None:
        path = f"test/{name}"
        entries[name] = {"path": path, "year": "2030", "event": "Own-Cup", "category": "rev"}
        whole = {"name": name, "category": "rev", "flag": f"own{{{name}}}", **challenge}
        compose = json.dumps({"services": services})
        files = {
            "challenge.json": json.dumps(whole),
            "puzzle": "x\n",
            "solve.py": str(whole["flag"]),
            "source/app/config.py": str(whole["flag"]),
        }
        _write(folder / path, files | ({"docker-compose.yml": compose} if services else {}))

    ends = {"ctfnet": {"aliases": ["own.example"]}}
    add("files", {"description": "Read {it}.", "files": ["puzzle"]})
    add("lost", {"description": "Read it.", "files": ["absent"]})
    server = {
        "description": "nc {box} {port}",
        "box": "own.example",
        "internal_port": 9,
        "compose": True,
    }
    volumes = ["/var/run/docker.sock:/var/run/docker.sock"]
    add("server", server, {"Server": {"image": "own/server", "volumes": volumes, "networks": ends}})
    machines = {
        "db": {"image": "own/db", "networks": ["inner"]},
        "web": {
            "image": "own/web",
            "networks": {"inner": None, "ctfnet": {"aliases": ["web"]}},
            "depends_on": ["db"],
        },
    }
    add("two", server, machines)
    add("rights", server, {"server": {"image": "own/server", "privileged": True}})
    add("mount", server, {"server": {"image": "own/server", "volumes": ["./web:/web"]}})
    add("gone", {**server, "compose": False, "category": "web"})
    add("unbuilt", server)
    add("known", {**server, "files": ["solve.py"]}, {"server": {"image": "own/server"}})
    add("inside", {**server, "files": ["source"]}, {"server": {"image": "own/server"}})
    _write(folder, {"test_dataset.json": json.dumps(entries)})
