"""Options for the agent, its tasks, and the limits of episodes.

Each class is a group of options, as ``--intercode-help`` shows them.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pytest_intercode.core.presets import PRESETS
from pytest_intercode.options.option import (
    Option,
    Values,
    choices,
    flag,
    listed,
    optional,
    pairs,
    repeated,
)
from pytest_intercode.options.parsers import (
    parse_agent,
    parse_count,
    parse_environment,
    parse_money,
    parse_seconds,
    parse_shard,
)

if TYPE_CHECKING:
    from pytest_intercode.core.turn import Feedback, Profile

__all__ = ["AgentOptions", "LimitOptions", "TaskOptions"]

_presets = ", ".join(f"`{name}`" for name in PRESETS)


class AgentOptions(Values):
    """The agent under test, and the model that plays its user."""

    title = "the agent"

    requested_agents = repeated(
        "agent=AGENT",
        "the agent under test; given several times, every agent plays every task: `module:Attr`, "
        "`path/to/file.py:Attr`, `command:CMDLINE` (any language), `mcp:CMDLINE` (a coding agent "
        "that speaks MCP), `acp:CMDLINE` (one that speaks the Agent Client Protocol), `tools`, "
        "`react`, `plan-solve`, `try-again` or `single-turn` (a model behind an OpenAI-compatible "
        f"API), {_presets} (coding agents that are installed into the sandbox), `human`, "
        "`replay:FILE` (a recorded run) or `oracle` (gold); arguments follow the name, as in "
        "`react:model=NAME` (docs/agents.md)",
        parse_agent,
        same_in_parts=True,
        everyday=True,
    )
    agent_arguments = pairs(
        "agent-arg KEY=VALUE", "an argument for every agent, such as `model=NAME`", str
    )
    feedback: Option[Feedback | None] = choices(
        "feedback=observation|reward",
        "what the agent sees after an action; `reward` is InterCode's Try Again: every action is "
        "graded, the agent sees the reward, and a reward of 1.0 ends the episode",
        fallback="`observation`; `reward` for the agent `try-again`",
        same_in_parts=True,
    )
    user_model = optional(
        "user-model=NAME",
        "the model that plays the users of tasks (`user:` in suites), instead of the one that "
        "the suite names (docs/conversations.md); needs the extras `chat` and `gateway`",
        str,
        fallback="the suite's",
        same_in_parts=True,
    )


class TaskOptions(Values):
    """The tasks that the agent plays."""

    title = "tasks"

    requested_environments = listed(
        "env=ENV",
        "bundled suites to run: `bash`, `sql`, `python`, `ctf`, `swe` or `all`, or an "
        "environment of your own",
        parse_environment,
        starts=True,
        same_in_parts=True,
        everyday=True,
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
    limit = optional(
        "limit=N",
        "run only the first N tasks of each suite",
        parse_count,
        same_in_parts=True,
        everyday=True,
    )
    shard = optional(
        "shard=I/N",
        "run only part I of the N parts of each suite, such as `2/8`: every N-th task from the "
        "I-th on, unless `--intercode-durations` is given",
        parse_shard,
    )
    durations_path = optional(
        "durations=FILE.jsonl",
        "balance the parts of `--intercode-shard` by the times in an earlier results file, so "
        "that they take equally long",
        Path,
        needs=("shard", "whose parts it balances"),
    )
    treatments = listed(
        "treatment=NAME",
        "run only these treatments of project tests; `control` is the project without a "
        "treatment (docs/project-tests.md)",
        str,
        same_in_parts=True,
    )
    audit = flag(
        "audit",
        "audit the tasks instead of running an agent",
        starts=True,
        excludes=("agent", "the tasks are audited and no agent is run"),
    )
    profile: Option[Profile] = choices(
        "profile=strict|paper",
        "`strict` runs actions as written and grades their effect; `paper` reproduces InterCode "
        "1.0.2, defects included",
        default="strict",
    )
    data_path = optional(
        "data=DIR",
        "a folder laid out as InterCode's `data/`",
        Path,
        fallback="`INTERCODE_DATA`, else what `pytest-intercode fetch` downloaded",
    )
    allow_path = listed(
        "allow-path=DIR",
        "a folder that suites may read besides their own; any other path outside their own "
        "folder, also through a link, is refused (docs/security.md)",
        Path,
        exists=True,
    )
    pass_env = listed(
        "pass-env=NAME",
        "an environment variable whose value task folders may use; otherwise `${NAME}` is not "
        "set in them",
        str,
    )


class LimitOptions(Values):
    """The limits of an episode, and of all episodes together."""

    title = "limits"

    timeout = optional(
        "timeout=SECONDS",
        "time limit of an episode",
        parse_seconds,
        fallback="the task's own, else 600",
        same_in_parts=True,
        everyday=True,
    )
    max_turns = optional(
        "max-turns=N",
        "maximum number of actions in an episode",
        parse_count,
        fallback="the task's own number",
        same_in_parts=True,
    )
    max_tokens = optional(
        "max-tokens=N",
        "maximum number of tokens in an episode, as far as the agent reports them",
        parse_count,
        same_in_parts=True,
    )
    max_cost = optional(
        "max-cost=AMOUNT",
        "maximum cost of an episode, in the currency of the prices",
        parse_money,
        same_in_parts=True,
    )
    action_timeout = optional(
        "action-timeout=SECONDS",
        "time limit of an action",
        parse_seconds,
        fallback="the task's own, else 10",
        same_in_parts=True,
    )
    run_timeout = optional(
        "run-timeout=SECONDS", "time limit of the whole run", parse_seconds, starts=True
    )
    run_max_turns = optional(
        "run-max-turns=N",
        "maximum number of actions of all episodes together",
        parse_count,
        starts=True,
    )
    run_max_tokens = optional(
        "run-max-tokens=N",
        "maximum number of tokens of all episodes together",
        parse_count,
        starts=True,
    )
    run_max_cost = optional(
        "run-max-cost=AMOUNT",
        "maximum cost of all episodes together",
        parse_money,
        starts=True,
        everyday=True,
    )
