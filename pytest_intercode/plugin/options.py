"""One table of the options: command line, ini values, ``--help`` and the README come from it.

It is loaded by every pytest run where the plugin is installed, so it imports nothing large.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest

from pytest_intercode.core.values import amount, choice, whole

__all__ = [
    "OPTIONS",
    "FailUnder",
    "Option",
    "add_options",
    "folder_of",
    "given",
    "ini_values",
    "on_command_line",
    "read_options",
]


_PASSWORD = re.compile(r"[^\s:/@=]*:[^\s/@]+@")  # and its user, before the host of an address


class FailUnder(NamedTuple):
    """The share of tries, in (0, 1], that must be solved for a run to pass."""

    rate: float
    lower: bool
    """It is the lower bound of the rate's interval that must reach it."""


class Option(NamedTuple):
    """One option, ``--intercode-NAME``, with its ini value ``intercode_NAME``.

    Attributes:
        form: its name, and how its value is written, if it has one: ``NAME=VALUE``, or
            ``NAME KEY=VALUE`` for pairs. Values in lower case are all that are allowed.
        help: what it means, in Markdown and in one line.
        parse: returns the value of a text, or raises a ValueError that says what is needed; None
            for what the form says. A path starts at :func:`folder_of` its option.
        default: the text of its value where the user gives none; empty for the value None.
        fallback: what holds where the user gives none, in words.
        listed: it is a list of values, separated by commas; also repeatable, as pairs are.
        distinct: a value that is given twice is a mistake.
        exists: the folder that it names must exist.
        starts: its ini value alone is a reason to start before the first item is collected.
        needs: the option that has to be given with it, and why.
        excludes: the option that cannot be given with it, and why.
    """

    form: str
    help: str
    parse: Callable[[str], object] | None = None
    default: str = ""
    fallback: str = ""
    listed: bool = False
    distinct: bool = False
    exists: bool = False
    starts: bool = False
    needs: tuple[str, str] | None = None
    excludes: tuple[str, str] | None = None

    @property
    def name(self) -> str:
        """The name, with hyphens."""
        return self.form.replace(" ", "=").partition("=")[0]

    @property
    def metavar(self) -> str:
        """How its value is written; empty for a flag."""
        return self.form[len(self.name) + 1 :]

    @property
    def pairs(self) -> bool:
        """Whether its values are pairs."""
        return " " in self.form

    @property
    def key(self) -> str:
        """The name, with underscores."""
        return self.name.replace("-", "_")

    @property
    def ini(self) -> str:
        """The name of the ini value; pytest also keeps the option under it."""
        return f"intercode_{self.key}"

    @property
    def description(self) -> str:
        """The help with the default, in Markdown."""
        default = f"`{self.default}`" if self.default else self.fallback
        note = f"default: {default}" if default else "repeatable" if self.pairs else ""
        note = "repeatable, comma-separated" if self.listed else note
        return f"{self.help} ({note})" if note else self.help

    def value(self, text: str) -> object:
        """Return the value of a text, or of one element of a list.

        Raises:
            ValueError: it is wrong; the message says what is needed.
        """
        if self.pairs:
            key, sign, content = text.partition("=")
            if not sign or not key.strip():
                raise ValueError(f"the form {self.metavar} is needed, found {text!r}")
            content = content.strip()
            return key.strip(), self.parse(content) if self.parse is not None else content
        if self.parse is not None:
            return self.parse(text)
        if not self.metavar:
            return _flag(text)
        return choice(*self.metavar.split("|"))(text) if self.metavar.islower() else text


# -- parsers


def _flag(value: str) -> bool:
    if value.lower() not in ("true", "false", "1", "0", "yes", "no", "on", "off"):
        raise ValueError("true or false is needed")
    return value.lower() in ("true", "1", "yes", "on")


def _environment(value: str) -> str:
    from pytest_intercode.suites.registered import environment_names, is_environment

    return value if is_environment(value) else choice(*environment_names(), "all")(value)


def _cluster(value: str) -> str:
    head, _, nodes = value.partition(":")
    if head == "local" and not (nodes.isdecimal() and 1 <= int(nodes) <= 64):
        raise ValueError("local:N is needed, with N from 1 to 64")
    if head != "local" and value != "auto" and not value.rpartition(":")[2].isdecimal():
        raise ValueError("auto, HOST:PORT or local:N is needed")
    return value


def _host(value: str) -> str:
    from pytest_intercode.core.hosts import parse_host

    return str(parse_host(value))


def _docker_host(value: str) -> object:
    from pytest_intercode.sandboxes.hosts import parse_host

    return parse_host(value)


def _registry(value: str) -> object:
    from pytest_intercode.sandboxes.hosts import parse_registry

    return parse_registry(value)


def _price(value: str) -> object:
    from pytest_intercode.gateway.prices import parse_price

    return parse_price(value)


def _shard(value: str) -> tuple[int, int]:
    part, _, parts = value.partition("/")
    try:
        shard = int(part), int(parts)
    except ValueError:
        shard = 0, 0
    if not 1 <= shard[0] <= shard[1]:
        raise ValueError("the form I/N is needed, with I from 1 to N, such as 2/8")
    return shard


def _fail_under(value: str) -> FailUnder:
    head, colon, number = value.rpartition(":")
    number = number.strip()
    try:
        rate = float(number.removesuffix("%")) / (100 if number.endswith("%") else 1)
    except ValueError:
        rate = 0.0
    if not 0 < rate <= 1 or (colon and head.strip() != "lower"):
        raise ValueError("a rate above 0 and up to 1 is needed, such as 0.8, 80% or lower:0.8")
    return FailUnder(rate, bool(colon))


_count = whole("a whole number above 0", 1)
_seconds = amount("a number of seconds above 0")
_money = amount("an amount above 0")


# -- the table

OPTIONS = (
    Option(
        "agent=AGENT",
        "the agent under test: `module:Attr`, `path/to/file.py:Attr`, `command:CMDLINE` (any "
        "language), `mcp:CMDLINE` (a coding agent that speaks MCP), `tools`, `react`, "
        "`plan-solve`, `try-again` or `single-turn` (a model behind an OpenAI-compatible API), "
        "`human`, `replay:FILE` (a recorded run) or `oracle` (gold)",
    ),
    Option("agent-arg KEY=VALUE", "an argument for the agent, such as `model=NAME`"),
    Option(
        "env=ENV",
        "bundled suites to run: `bash`, `sql`, `python`, `ctf`, `swe` or `all`, or an "
        "environment of your own",
        _environment,
        listed=True,
        starts=True,
    ),
    Option(
        "dataset=NAME|PATH",
        "a dataset such as `nl2bash`, a part such as `nl2bash-fs2`, a suite (`.yaml`), rows "
        "(`.json`, `.jsonl`, `.csv`, `.tsv`) with one `--intercode-env`, or a folder of task "
        "folders (Harbor, Terminal-Bench 1; `registry.json:NAME`)",
        listed=True,
        starts=True,
    ),
    Option(
        "data=DIR",
        "the folder laid out as InterCode's `data/`",
        Path,
        fallback="`INTERCODE_DATA`, else what `pytest-intercode fetch` got",
    ),
    Option(
        "profile=strict|paper",
        "`strict` runs actions as they are written and grades what they did; `paper` is InterCode "
        "1.0.2, defects included",
        default="strict",
    ),
    Option(
        "feedback=observation|reward",
        "what the agent sees; `reward` is InterCode's Try Again: every action is graded, the agent "
        "sees the reward, and 1.0 ends the episode",
        fallback="`observation`; `reward` for the agent `try-again`",
    ),
    Option("max-turns=N", "actions an episode has", _count, fallback="the task's own number"),
    Option("max-tokens=N", "tokens an episode has, as far as the agent reports them", _count),
    Option("max-cost=AMOUNT", "money an episode has, in the currency of the prices", _money),
    Option("timeout=SECONDS", "time an episode has", _seconds, fallback="the task's own, else 600"),
    Option(
        "action-timeout=SECONDS", "time an action has", _seconds, fallback="the task's own, else 10"
    ),
    Option("run-max-turns=N", "actions of all episodes together", _count, starts=True),
    Option("run-max-tokens=N", "tokens of all episodes together", _count, starts=True),
    Option("run-max-cost=AMOUNT", "money of all episodes together", _money, starts=True),
    Option("run-timeout=SECONDS", "time of the whole run", _seconds, starts=True),
    Option(
        "concurrency=N",
        "episodes that run at a time, in all workers of xdist together, or on all nodes",
        _count,
        fallback="1; on a cluster, as many as its nodes have CPUs",
    ),
    Option(
        "cluster=auto|HOST:PORT|local:N",
        "run episodes on the nodes of a Ray cluster: the one of `RAY_ADDRESS` or of this machine, "
        "the one at this address, or one of N nodes that is started here (docs/cluster.md); extra "
        "`ray`",
        _cluster,
        starts=True,
    ),
    Option(
        "cluster-env=NAME",
        "an environment variable of this process that nodes are to have; they get no others",
        listed=True,
        needs=("cluster", "whose nodes are to have it"),
    ),
    Option(
        "cluster-wait=SECONDS",
        "time that a run waits while no node takes work",
        _seconds,
        default="300",
    ),
    Option(
        "cluster-insecure",
        "use a cluster that asks nobody for a token",
        needs=("cluster", "which is to be used"),
    ),
    Option("limit=N", "only the first N tasks of each suite", _count),
    Option(
        "shard=I/N",
        "only the I-th of N parts of each suite, such as `2/8`: every N-th task from the I-th on, "
        "unless `--intercode-durations` is given",
        _shard,
    ),
    Option(
        "durations=FILE.jsonl",
        "make the parts of `--intercode-shard` by the times of an earlier results file, so that "
        "they take equally long",
        Path,
        needs=("shard", "whose parts it makes"),
    ),
    Option(
        "repeat=K",
        "tries at each task, each with a new agent and sandbox: items `[task-1]` to `[task-K]`",
        _count,
        default="1",
    ),
    Option("results=FILE.jsonl", "write one line of JSON for each episode, as it ends", Path),
    Option(
        "predictions=FILE.jsonl",
        "write the patch of each swe episode as SWE-bench's tools read it (`instance_id`, "
        "`model_patch`), as it ends",
        Path,
    ),
    Option(
        "resume",
        "continue the run that `--intercode-results` holds: episodes that are in it are not run "
        "again",
        starts=True,
        needs=("results", "the run to go on with"),
    ),
    Option(
        "baseline=FILE.jsonl",
        "results to compare with: tasks that were not always solved there may fail (xfail), and "
        "the summary says whether the agent got worse",
        Path,
        starts=True,
    ),
    Option(
        "gate=tasks|verdict",
        "what of that comparison fails the run: single tasks, or the verdict of the paired test",
        fallback="`tasks` with one try at each task, `verdict` with several",
    ),
    Option(
        "fail-under=RATE",
        "the share of tries that must be solved, such as `0.8`, or `lower:0.8` for the lower bound "
        "of its 95-percent interval; then single tasks do not fail the run",
        _fail_under,
        starts=True,
    ),
    Option(
        "html=FILE.html",
        "write a page with every trajectory, and with the changes to the baseline where there is "
        "one; extra `html`",
        Path,
        starts=True,
    ),
    Option(
        "run-name=NAME",
        "what the run is called on the page and in a job's summary",
        fallback="the agent and its suites",
    ),
    Option(
        "audit",
        "audit the tasks instead of running an agent",
        starts=True,
        excludes=("agent", "the tasks are audited and no agent is run"),
    ),
    Option(
        "sandbox=auto|docker|bubblewrap",
        "the backend of sandboxes; `auto` takes Docker if its engine answers, else bubblewrap, "
        "which needs no daemon and no root; the header says which and why",
        default="auto",
    ),
    Option(
        "rootfs=DIR",
        "an unpacked root file system for bubblewrap, or a folder with one for each image",
        Path,
        fallback="this machine's own programs",
        exists=True,
        excludes=("docker_host", "a root file system is bubblewrap's, and hosts are Docker's"),
    ),
    Option(
        "runtime=NAME",
        "the runtime that Docker starts sandboxes with, as its engine calls it: `runsc` (gVisor), "
        "`kata`, `crun`; docs/isolation.md says what each is for",
        fallback="the engine's own",
        excludes=("rootfs", "a runtime is Docker's, and a root file system is bubblewrap's"),
    ),
    Option(
        "docker-host=HOST[=SLOTS]",
        "start sandboxes on this Docker host: `ssh://USER@HOST`, `tcp://HOST:PORT`, `unix://PATH` "
        "or the name of a Docker context; several share them out by their slots, which by default "
        "come from their processors and memory (docs/hosts.md)",
        _docker_host,
        listed=True,
        distinct=True,
        excludes=("cluster", "a cluster's nodes have engines of their own"),
    ),
    Option(
        "registry=HOST[:PORT][/PREFIX]",
        "ask this registry for each image before it is built, and push there what was built, so "
        "that other hosts, nodes and jobs pull it; credentials are those of `docker login` "
        "(docs/hosts.md)",
        _registry,
        excludes=(
            "rootfs",
            "a registry has images of Docker's, and a root file system takes their place",
        ),
    ),
    Option(
        "verifier=fresh|shared",
        "where the tests of task folders run: in a `fresh` sandbox with what the agent left, or in "
        "the agent's own (`shared`), where its services still run, and where it can forge results",
        default="fresh",
    ),
    Option(
        "kit=auto|always|never",
        "where the tests of task folders get what they install: from the verifier kit if their "
        "sandbox has no network, else from there, as published (`auto`); `always` from the kit, "
        "or `never`",
        default="auto",
    ),
    Option("network", "let sandboxes reach the network, where their task does not say otherwise"),
    Option(
        "override-network",
        "let also those sandboxes reach the network that are to reach none or a few hosts, by what "
        "their task says",
        needs=("network", "which it gives to all sandboxes"),
    ),
    Option(
        "allow-host=HOST[:PORT]",
        "let sandboxes reach this host and nothing else: a name, `*.NAME`, an address or a network "
        "such as `10.0.0.0/8`; without a port, 443 and 80",
        _host,
        listed=True,
        excludes=("network", "sandboxes reach every host with the whole network"),
    ),
    Option(
        "allow-path=DIR",
        "a folder that suites may read besides their own; what a suite names elsewhere, by itself "
        "or by a link, is refused (docs/security.md)",
        Path,
        listed=True,
        exists=True,
    ),
    Option(
        "pass-env=NAME",
        "an environment variable whose value task folders may have; `${NAME}` in them is not set "
        "otherwise",
        listed=True,
    ),
    Option(
        "gateway",
        "let `command:` and `mcp:` agents reach models through a gateway, which counts their "
        "tokens and money, keeps the real keys from them, and refuses once a budget is used up "
        "(docs/gateway.md); extra `gateway`",
    ),
    Option(
        "gateway-price MODEL=INPUT/OUTPUT[/CACHED]",
        "what a model costs at the gateway, per million tokens, such as `gpt-5=1.25/10/0.125`; `*` "
        "is for all others",
        _price,
    ),
    Option(
        "gateway-model=NAME",
        "only these models are served by the gateway",
        listed=True,
    ),
    Option(
        "gateway-hosted-tools",
        "let requests use tools that run at the provider, such as web search; they are refused "
        "otherwise, as they leave the sandbox",
    ),
    Option(
        "gateway-allow=NAME",
        "let requests have a field, a type of tools or of contents, or a beta of this name; what "
        "the gateway does not know is refused (docs/gateway.md)",
        listed=True,
    ),
    Option("gateway-record=DIR", "write what the gateway is asked and what is answered", Path),
    Option(
        "gateway-replay=DIR",
        "have the gateway answer from a recording, without any model",
        Path,
        exists=True,
        excludes=("gateway_record", "a run is recorded, or it is replayed"),
    ),
    Option("base-image NAME=REPLACEMENT", "another base image, for mirrors"),
)


# -- pytest's side


def add_options(parser: pytest.Parser) -> None:
    """Add all options, each with its ini value."""
    group = parser.getgroup("intercode", "tests of coding agents")
    for option in OPTIONS:
        described = option.description.replace("`", "")
        kinds: dict[str, Any] = {"action": "store_true"}
        if option.metavar:
            action = "append" if option.listed or option.pairs else "store"
            kinds = {"action": action, "metavar": option.metavar}
        group.addoption(
            f"--intercode-{option.name}",
            dest=option.ini,
            default=None,
            help=described.replace("%", "%%"),
            **kinds,
        )
        kind: Literal["args", "string"] = "args" if option.listed or option.pairs else "string"
        parser.addini(option.ini, described, type=kind, default=None)


def given(config: pytest.Config) -> bool:
    """Whether an option is given that is a reason to start before the first item is collected."""
    return any(
        config.getoption(option.ini) or (option.starts and ini_values(config, option.ini))
        for option in OPTIONS
    )


def ini_values(config: pytest.Config, name: str) -> list[str]:
    """Return the texts of an ini value; of pytest 9's native TOML, of whatever type it is.

    Args:
        config: pytest's.
        name: the name of the ini value.
    """
    value: object
    try:
        value = config.getini(name)
    except (TypeError, pytest.UsageError):  # it is not of the one type that pytest takes
        native = _read_native_table(config)
        if name not in native:
            raise
        value = native[name]
    values = value if isinstance(value, list) else [] if value is None else [value]
    return [text for text in map(str, values) if text]


def _read_native_table(config: pytest.Config) -> dict[str, Any]:
    """Return the table of pytest in the TOML file that its options are in."""
    path = config.inipath
    if path is None or path.suffix != ".toml":
        return {}
    # What the standard library lacks before Python 3.11, pytest has installed.
    reader = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    content: dict[str, Any] = reader.loads(path.read_text(encoding="utf-8"))
    table: dict[str, Any] = content.get("pytest") or content.get("tool", {}).get("pytest", {})
    return table


def folder_of(config: pytest.Config, name: str) -> Path:
    """Return where an option's relative paths start: here, or where the ini file is."""
    if _from_command_line(config, f"intercode_{name}"):
        return config.invocation_params.dir
    return config.inipath.parent if config.inipath else config.rootpath


def on_command_line(config: pytest.Config, name: str) -> bool:
    """Whether an option is given on the command line (or by ``addopts``), not by its ini value."""
    return _from_command_line(config, f"intercode_{name}")


def read_options(config: pytest.Config) -> dict[str, Any]:
    """Return the values of all options by their keys, checked; None for what is not given.

    Lists are tuples without duplicates, pairs are dictionaries, and paths are not relative.

    Raises:
        ConfigurationError: a value is wrong, or two options do not go together.
    """
    values = {option.key: _read(config, option) for option in OPTIONS}
    by_key = {option.key: option for option in OPTIONS}
    for option in filter(lambda option: values[option.key], OPTIONS):
        for key, reason in filter(None, [option.needs]):
            if not values[key]:
                raise _error(
                    config, option, None, f"needs --intercode-{by_key[key].form}, {reason}"
                )
        for key, reason in filter(None, [option.excludes]):
            if values[key]:
                excluded = _describe(
                    config, by_key[key], values[key] if by_key[key].metavar else None
                )
                raise _error(config, option, None, f"{reason}; leave out {excluded}")
    return values


def _read(config: pytest.Config, option: Option) -> Any:
    if _from_command_line(config, option.ini):
        raw = config.getoption(option.ini)
        texts = raw if isinstance(raw, list) else [str(raw)]
    else:
        texts = ini_values(config, option.ini)
    if option.pairs:
        return dict(_parse(config, option, text) for text in texts)
    if option.listed:
        parts = [part.strip() for text in texts for part in text.split(",")]
        duplicate = next((part for part in parts if part and parts.count(part) > 1), None)
        if option.distinct and duplicate:
            raise _error(config, option, duplicate, "is given twice; name each once")
        parts = [*dict.fromkeys(filter(None, parts))]
        return tuple(_resolve_path(config, option, _parse(config, option, part)) for part in parts)
    if len(texts) > 1:
        raise _error(config, option, ", ".join(texts), "one value is needed, not several")
    value = "".join(texts).strip() or option.default
    if not value:
        return None if option.metavar else False
    return _resolve_path(config, option, _parse(config, option, value))


def _resolve_path(config: pytest.Config, option: Option, value: Any) -> Any:
    """Return a value; a path begins where paths of its option do."""
    if isinstance(value, Path):
        value = folder_of(config, option.key) / value.expanduser()
        if option.exists and not value.is_dir():
            raise _error(config, option, str(value), "there is no such folder")
    return value


def _parse(config: pytest.Config, option: Option, text: str) -> Any:
    try:
        return option.value(text)
    except ValueError as error:
        raise _error(config, option, text, str(error)) from None


def _from_command_line(config: pytest.Config, ini: str) -> bool:
    return config.getoption(ini) not in (None, [])


def _describe(config: pytest.Config, option: Option, text: str | None) -> str:
    """Return an option with its value as the user gave them, for a message."""
    value = ""
    if text is not None:  # what a parser has read already is not a text any more
        value = (" " if option.pairs else "=") + _PASSWORD.sub("(hidden)@", str(text))
    option_text = f"--intercode-{option.name}{value}"
    if _from_command_line(config, option.ini):
        return option_text
    file = f" of {config.inipath.name}" if config.inipath else ""
    return f"{option_text} (ini value {option.ini}{file})"


def _error(config: pytest.Config, option: Option, text: str | None, message: str) -> Exception:
    from pytest_intercode.errors import ConfigurationError

    return ConfigurationError(f"{_describe(config, option, text)}: {message}")
