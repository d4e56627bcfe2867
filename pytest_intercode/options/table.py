"""The table of the options: command line, ini values, ``--help``, README and settings come from it.

It is loaded by every pytest run where the plugin is installed, so it imports nothing large.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_intercode.core.presets import PRESETS
from pytest_intercode.core.values import amount, text, whole
from pytest_intercode.options.option import (
    Option,
    Values,
    choices,
    flag,
    listed,
    option,
    optional,
    pairs,
    repeated,
    switch,
)
from pytest_intercode.options.parsers import (
    parse_agent,
    parse_backend,
    parse_cluster,
    parse_docker_host,
    parse_environment,
    parse_fail_under,
    parse_host,
    parse_platform,
    parse_price,
    parse_rate,
    parse_registry,
    parse_shard,
)

if TYPE_CHECKING:
    from pytest_intercode.core.turn import Feedback, Profile
    from pytest_intercode.gateway.tokens import TokenServer

__all__ = ["OPTIONS", "Options"]


_count = whole("a whole number above 0", 1)
_seconds = amount("a number of seconds above 0")
_money = amount("an amount above 0")
_presets = ", ".join(f"`{name}`" for name in PRESETS)


# -- the table


class _RunOptions(Values):
    """What is run, within which limits, and what comes of it."""

    requested_agents = repeated(
        "agent=AGENT",
        "the agent under test, or several, each of which plays every task: `module:Attr`, "
        "`path/to/file.py:Attr`, `command:CMDLINE` (any language), `mcp:CMDLINE` (a coding agent "
        "that speaks MCP), `acp:CMDLINE` (one that speaks the Agent Client Protocol), `tools`, "
        "`react`, `plan-solve`, `try-again` or `single-turn` (a model behind an OpenAI-compatible "
        f"API), {_presets} (coding agents that are installed into the sandbox), `human`, "
        "`replay:FILE` (a recorded run) or `oracle` (gold); with arguments of its own, "
        "`react:model=NAME` (docs/agents.md)",
        parse_agent,
        same_in_parts=True,
    )
    agent_arguments = pairs(
        "agent-arg KEY=VALUE", "an argument for all agents, such as `model=NAME`", str
    )
    user_model = optional(
        "user-model=NAME",
        "the model that plays the users of tasks (`user:` in suites), in place of the one that a "
        "suite names (docs/conversations.md); extras `chat` and `gateway`",
        str,
        fallback="the suite's",
        same_in_parts=True,
    )
    requested_environments = listed(
        "env=ENV",
        "bundled suites to run: `bash`, `sql`, `python`, `ctf`, `swe` or `all`, or an "
        "environment of your own",
        parse_environment,
        starts=True,
        same_in_parts=True,
    )
    datasets = listed(
        "dataset=NAME|PATH",
        "a dataset such as `nl2bash`, a part such as `nl2bash-fs2`, a suite (`.yaml`), rows "
        "(`.json`, `.jsonl`, `.csv`, `.tsv`) with one `--intercode-env`, or a folder of task "
        "folders (Harbor, Terminal-Bench 1; `registry.json:NAME`)",
        str,
        starts=True,
        same_in_parts=True,
    )
    data_path = optional(
        "data=DIR",
        "the folder laid out as InterCode's `data/`",
        Path,
        fallback="`INTERCODE_DATA`, else what `pytest-intercode fetch` got",
    )
    profile: Option[Profile] = choices(
        "profile=strict|paper",
        "`strict` runs actions as they are written and grades what they did; `paper` is InterCode "
        "1.0.2, defects included",
        default="strict",
    )
    feedback: Option[Feedback | None] = choices(
        "feedback=observation|reward",
        "what the agent sees; `reward` is InterCode's Try Again: every action is graded, the agent "
        "sees the reward, and 1.0 ends the episode",
        fallback="`observation`; `reward` for the agent `try-again`",
        same_in_parts=True,
    )
    max_turns = optional(
        "max-turns=N",
        "actions an episode has",
        _count,
        fallback="the task's own number",
        same_in_parts=True,
    )
    max_tokens = optional(
        "max-tokens=N",
        "tokens an episode has, as far as the agent reports them",
        _count,
        same_in_parts=True,
    )
    max_cost = optional(
        "max-cost=AMOUNT",
        "money an episode has, in the currency of the prices",
        _money,
        same_in_parts=True,
    )
    timeout = optional(
        "timeout=SECONDS",
        "time an episode has",
        _seconds,
        fallback="the task's own, else 600",
        same_in_parts=True,
    )
    action_timeout = optional(
        "action-timeout=SECONDS",
        "time an action has",
        _seconds,
        fallback="the task's own, else 10",
        same_in_parts=True,
    )
    run_max_turns = optional(
        "run-max-turns=N", "actions of all episodes together", _count, starts=True
    )
    run_max_tokens = optional(
        "run-max-tokens=N", "tokens of all episodes together", _count, starts=True
    )
    run_max_cost = optional(
        "run-max-cost=AMOUNT", "money of all episodes together", _money, starts=True
    )
    run_timeout = optional("run-timeout=SECONDS", "time of the whole run", _seconds, starts=True)
    requested_concurrency = optional(
        "concurrency=N",
        "episodes that run at a time, in all workers of xdist together, or on all nodes",
        _count,
        fallback="1; on a cluster, as many as its nodes have CPUs",
    )
    cluster = optional(
        "cluster=auto|HOST:PORT|local:N",
        "run episodes on the nodes of a Ray cluster: the one of `RAY_ADDRESS` or of this machine, "
        "the one at this address, or one of N nodes that is started here (docs/cluster.md); extra "
        "`ray`",
        parse_cluster,
        starts=True,
    )
    cluster_env = listed(
        "cluster-env=NAME",
        "an environment variable of this process that nodes are to have; they get no others",
        str,
        needs=("cluster", "whose nodes are to have it"),
    )
    cluster_wait = option(
        "cluster-wait=SECONDS",
        "time that a run waits while no node takes work",
        _seconds,
        default="300",
    )
    cluster_insecure = flag(
        "cluster-insecure",
        "use a cluster that asks nobody for a token",
        needs=("cluster", "which is to be used"),
    )
    limit = optional("limit=N", "only the first N tasks of each suite", _count, same_in_parts=True)
    shard = optional(
        "shard=I/N",
        "only the I-th of N parts of each suite, such as `2/8`: every N-th task from the I-th on, "
        "unless `--intercode-durations` is given",
        parse_shard,
    )
    durations_path = optional(
        "durations=FILE.jsonl",
        "make the parts of `--intercode-shard` by the times of an earlier results file, so that "
        "they take equally long",
        Path,
        needs=("shard", "whose parts it makes"),
    )
    treatments = listed(
        "treatment=NAME",
        "only these treatments of project tests; `control` is the project without one "
        "(docs/project-tests.md)",
        str,
        same_in_parts=True,
    )
    requested_repeat = option(
        "repeat=K",
        "tries at each task, each with a new agent and sandbox: items `[task-1]` to `[task-K]`",
        _count,
        default="1",
        same_in_parts=True,
    )
    requested_pass_rate = optional(
        "pass-rate=RATE",
        "the share of the tries at a task that must be solved, such as `0.8`: the others may miss, "
        "and are then reported as expected failures (docs/results.md)",
        parse_rate,
        same_in_parts=True,
    )
    stop_early = switch(
        "stop-early=true|false",
        "leave out the tries of a task that can no longer change whether it reaches its pass rate",
        default="true",
    )
    plan = flag(
        "plan",
        "say what would be run, how often, and about how many tokens and how much money it would "
        "take, and run nothing",
        starts=True,
    )
    plan_from = optional(
        "plan-from=FILE.jsonl",
        "the earlier results whose tokens and money the plan goes by",
        Path,
        fallback="`--intercode-baseline`, else `--intercode-results`",
        needs=("plan", "which it is for"),
    )
    results = optional(
        "results=FILE.jsonl", "write one line of JSON for each episode, as it ends", Path
    )
    predictions = optional(
        "predictions=FILE.jsonl",
        "write the patch of each swe episode as SWE-bench's tools read it (`instance_id`, "
        "`model_patch`), as it ends",
        Path,
    )
    otel = optional(
        "otel=URL|FILE|env",
        "send spans of each episode, its turns, its requests to a model and its grading to a "
        "collector of OpenTelemetry over HTTP, or write them to a file; `env` takes the address of "
        "`OTEL_EXPORTER_OTLP_ENDPOINT` (docs/opentelemetry.md); extra `otel`",
        str,
    )
    otel_content = flag(
        "otel-content",
        "let spans of `--intercode-otel` have the texts of tasks, actions and observations",
    )
    resume = flag(
        "resume",
        "continue the run that `--intercode-results` holds: episodes that are in it are not run "
        "again",
        starts=True,
        needs=("results", "the run to go on with"),
    )
    baseline = optional(
        "baseline=FILE.jsonl",
        "results to compare with: tasks that were not always solved there may fail (xfail), and "
        "the summary says whether the agent got worse",
        Path,
        starts=True,
    )
    requested_gate: Option[str | None] = choices(
        "gate=tasks|verdict",
        "what of that comparison fails the run: single tasks, or the verdict of the paired test",
        fallback="`tasks` with one try at each task, `verdict` with several",
    )
    fail_under = optional(
        "fail-under=RATE",
        "the share of tries that must be solved, such as `0.8`, or `lower:0.8` for the lower bound "
        "of its 95-percent interval; then single tasks do not fail the run",
        parse_fail_under,
        starts=True,
    )
    html = optional(
        "html=FILE.html",
        "write a page with every trajectory, and with the changes to the baseline where there is "
        "one; extra `html`",
        Path,
        starts=True,
    )
    run_name = optional(
        "run-name=NAME",
        "what the run is called on the page and in a job's summary",
        str,
        fallback="the agent and its suites",
    )
    progress_interval = option(
        "progress=SECONDS",
        "time between two lines that say how far a run is, where there is no terminal; 0 for none",
        amount("a number of seconds from 0 up", zero=True),
        default="30",
    )
    audit = flag(
        "audit",
        "audit the tasks instead of running an agent",
        starts=True,
        excludes=("agent", "the tasks are audited and no agent is run"),
    )


class Options(_RunOptions):
    """All options: also what sandboxes are made of and may reach, and how models are reached."""

    backend = option(
        "sandbox=auto|docker|bubblewrap|kubernetes|NAME",
        "the backend of sandboxes; `auto` takes Docker if its engine answers, else bubblewrap, "
        "which needs no daemon and no root; the header says which and why. `kubernetes` starts "
        "pods (docs/kubernetes.md). NAME is that of an installed package (docs/backends.md)",
        parse_backend,
        default="auto",
    )
    rootfs = optional(
        "rootfs=DIR",
        "an unpacked root file system for bubblewrap, or a folder with one for each image",
        Path,
        fallback="this machine's own programs",
        exists=True,
        excludes=("docker_host", "a root file system is bubblewrap's, and hosts are Docker's"),
    )
    runtime = optional(
        "runtime=NAME",
        "the runtime that Docker starts sandboxes with, as its engine calls it: `runsc` (gVisor), "
        "`kata`, `crun`; docs/isolation.md says what each is for. With Kubernetes, a RuntimeClass",
        str,
        fallback="the engine's own",
        excludes=("rootfs", "a runtime is Docker's, and a root file system is bubblewrap's"),
    )
    docker_hosts = listed(
        "docker-host=HOST[=SLOTS]",
        "start sandboxes on this Docker host: `ssh://USER@HOST`, `tcp://HOST:PORT`, `unix://PATH` "
        "or the name of a Docker context; several share them out by their slots, which by default "
        "come from their processors and memory (docs/hosts.md)",
        parse_docker_host,
        distinct=True,
        excludes=("cluster", "a cluster's nodes have engines of their own"),
    )
    kube_context = optional(
        "kube-context=NAME",
        "the context of kubeconfig whose cluster has the pods; extra `kubernetes`",
        str,
        fallback="the current one, or in a pod without kubeconfig, its own cluster",
    )
    kube_namespace = optional(
        "kube-namespace=NAME", "the namespace of the pods", str, fallback="the context's own"
    )
    kube_pull_secrets = listed(
        "kube-pull-secret=NAME", "a secret of that namespace by which the nodes pull images", str
    )
    kube_nodes = pairs("kube-node LABEL=VALUE", "a label that the pods' nodes have to have", text)
    platform = optional(
        "platform=PLATFORM",
        "the platform of images whose suite names none (`platform:`): `linux/amd64`, "
        "`linux/arm64`; another one than the engine's runs under emulation, and slower",
        parse_platform,
        fallback="the engine's own",
        same_in_parts=True,
    )
    registry = optional(
        "registry=HOST[:PORT][/PREFIX]",
        "ask this registry for each image before it is built, and push there what was built, so "
        "that other hosts, nodes and jobs pull it; credentials are those of `docker login` "
        "(docs/hosts.md)",
        parse_registry,
        excludes=(
            "rootfs",
            "a registry has images of Docker's, and a root file system takes their place",
        ),
    )
    verifier: Option[str] = choices(
        "verifier=fresh|shared",
        "where the tests of task folders run: in a `fresh` sandbox with what the agent left, or in "
        "the agent's own (`shared`), where its services still run, and where it can forge results",
        default="fresh",
        same_in_parts=True,
    )
    kit: Option[str] = choices(
        "kit=auto|always|never",
        "where the tests of task folders get what they install: from the verifier kit if their "
        "sandbox has no network, else from there, as published (`auto`); `always` from the kit, "
        "or `never`",
        default="auto",
        same_in_parts=True,
    )
    network = flag(
        "network",
        "let sandboxes reach the network, where their task does not say otherwise",
        same_in_parts=True,
    )
    override_network = flag(
        "override-network",
        "let also those sandboxes reach the network that are to reach none or a few hosts, by what "
        "their task says",
        needs=("network", "which it gives to all sandboxes"),
        same_in_parts=True,
    )
    allow_host = listed(
        "allow-host=HOST[:PORT]",
        "let sandboxes reach this host and nothing else: a name, `*.NAME`, an address or a network "
        "such as `10.0.0.0/8`; without a port, 443 and 80",
        parse_host,
        excludes=("network", "sandboxes reach every host with the whole network"),
        same_in_parts=True,
    )
    allow_path = listed(
        "allow-path=DIR",
        "a folder that suites may read besides their own; what a suite names elsewhere, by itself "
        "or by a link, is refused (docs/security.md)",
        Path,
        exists=True,
    )
    pass_env = listed(
        "pass-env=NAME",
        "an environment variable whose value task folders may have; `${NAME}` in them is not set "
        "otherwise",
        str,
    )
    gateway_programs = flag(
        "gateway",
        "let `command:`, `mcp:` and `acp:` agents reach models through a gateway, which counts "
        "their tokens and money, keeps the real keys from them, and refuses once a budget is used "
        "up (docs/gateway.md); extra `gateway`",
    )
    gateway_prices = pairs(
        "gateway-price MODEL=INPUT/OUTPUT[/CACHED]",
        "what a model costs at the gateway, per million tokens, such as `gpt-5=1.25/10/0.125`; `*` "
        "is for all others; `MODEL=shipped` or `*=shipped` takes the dated list prices that are "
        "shipped (docs/gateway.md)",
        parse_price,
    )
    gateway_models = listed(
        "gateway-model=NAME", "only these models are served by the gateway", str
    )
    gateway_hosted_tools = flag(
        "gateway-hosted-tools",
        "let requests use tools that run at the provider, such as web search; they are refused "
        "otherwise, as they leave the sandbox",
    )
    gateway_allowed = listed(
        "gateway-allow=NAME",
        "let requests have a field, a type of tools or of contents, or a beta of this name; what "
        "the gateway does not know is refused (docs/gateway.md)",
        str,
    )
    gateway_logins = listed(
        "gateway-login=claude|codex",
        "ask with your own login of Claude Code or of Codex instead of a key: tokens without a "
        "price; read docs/logins.md on what the vendors allow first",
        str,
    )
    tokens: Option[TokenServer | None] = choices(
        "tokens=vllm|sglang",
        "keep the token ids and log-probabilities of each request in the records, for training: "
        "the server of `OPENAI_BASE_URL` is asked for them, as this kind of server wants it; "
        "programs are led through the gateway (docs/tokens.md); extra `gateway`",
        fallback="none are asked for",
    )
    gateway_record = optional(
        "gateway-record=DIR", "write what the gateway is asked and what is answered", Path
    )
    gateway_replay = optional(
        "gateway-replay=DIR",
        "have the gateway answer from a recording, without any model",
        Path,
        exists=True,
        excludes=("gateway_record", "a run is recorded, or it is replayed"),
    )
    record: Option[str | None] = choices(
        "record=none|missing|all",
        "what project tests do about recordings: `none` calls no model, `missing` records what has "
        "no current one, `all` records again (docs/recordings.md)",
        fallback="what is recorded is replayed, and nothing is recorded",
    )
    base_images = pairs("base-image NAME=REPLACEMENT", "another base image, for mirrors", text)


OPTIONS: tuple[Option[Any], ...] = tuple(
    value
    for cls in reversed(Options.__mro__)
    for value in vars(cls).values()
    if isinstance(value, Option)
)
"""All of them, in the order of the README."""
