"""The public names, each with the module that it is in: the one list of them.

Type checkers read it; at run time ``__init__.py`` does, when a name is first asked for.
"""

from pytest_intercode.agents.agent_environment import AgentEnvironment as AgentEnvironment
from pytest_intercode.agents.answers import Question as Question
from pytest_intercode.agents.choice import AgentChoice as AgentChoice
from pytest_intercode.agents.ledger import ModelUsage as ModelUsage
from pytest_intercode.agents.ledger import log as log
from pytest_intercode.agents.ledger import spend as spend
from pytest_intercode.agents.ledger import think as think
from pytest_intercode.agents.protocol import Agent as Agent
from pytest_intercode.agents.protocol import AgentLike as AgentLike
from pytest_intercode.agents.protocol import LoopAgent as LoopAgent
from pytest_intercode.agents.protocol import StepAgent as StepAgent
from pytest_intercode.core.call import ShimCall as ShimCall
from pytest_intercode.core.conversation import Conversation as Conversation
from pytest_intercode.core.conversation import Exchange as Exchange
from pytest_intercode.core.conversation import Reply as Reply
from pytest_intercode.core.facts import Fact as Fact
from pytest_intercode.core.judge import Judge as Judge
from pytest_intercode.core.judge import JudgeRecord as JudgeRecord
from pytest_intercode.core.permissions import Permissions as Permissions
from pytest_intercode.core.platforms import Platform as Platform
from pytest_intercode.core.record import EpisodeRecord as EpisodeRecord
from pytest_intercode.core.record import FirstScore as FirstScore
from pytest_intercode.core.record import Outcome as Outcome
from pytest_intercode.core.record import ShardRecord as ShardRecord
from pytest_intercode.core.record import TaskRecord as TaskRecord
from pytest_intercode.core.reward import Reward as Reward
from pytest_intercode.core.task import Archive as Archive
from pytest_intercode.core.task import Artifact as Artifact
from pytest_intercode.core.task import Database as Database
from pytest_intercode.core.task import FileSpec as FileSpec
from pytest_intercode.core.task import FormatName as FormatName
from pytest_intercode.core.task import Hook as Hook
from pytest_intercode.core.task import ImageSource as ImageSource
from pytest_intercode.core.task import Limits as Limits
from pytest_intercode.core.task import Normaliser as Normaliser
from pytest_intercode.core.task import Repository as Repository
from pytest_intercode.core.task import RewardOptions as RewardOptions
from pytest_intercode.core.task import Step as Step
from pytest_intercode.core.task import Task as Task
from pytest_intercode.core.task import TaskFields as TaskFields
from pytest_intercode.core.task import Verification as Verification
from pytest_intercode.core.task_view import TaskView as TaskView
from pytest_intercode.core.turn import Command as Command
from pytest_intercode.core.turn import CommandResult as CommandResult
from pytest_intercode.core.turn import Feedback as Feedback
from pytest_intercode.core.turn import Observation as Observation
from pytest_intercode.core.turn import Profile as Profile
from pytest_intercode.core.turn import SandboxInfo as SandboxInfo
from pytest_intercode.core.turn import StepResult as StepResult
from pytest_intercode.core.turn import Turn as Turn
from pytest_intercode.core.usage import Budget as Budget
from pytest_intercode.core.usage import Usage as Usage
from pytest_intercode.environments.action_space import User as User
from pytest_intercode.environments.answer import Answer as Answer
from pytest_intercode.environments.base import Environment as Environment
from pytest_intercode.environments.fields import InterpreterFields as InterpreterFields
from pytest_intercode.environments.fields import Test as Test
from pytest_intercode.environments.interpreter import (
    InterpreterEnvironment as InterpreterEnvironment,
)
from pytest_intercode.environments.kind import EnvironmentKind as EnvironmentKind
from pytest_intercode.environments.kind import Tool as Tool
from pytest_intercode.environments.project.environment import Commit as Commit
from pytest_intercode.environments.project.environment import ProgramRecorder as ProgramRecorder
from pytest_intercode.environments.project.environment import (
    ProjectEnvironment as ProjectEnvironment,
)
from pytest_intercode.environments.recorded import NotRecorded as NotRecorded
from pytest_intercode.environments.recorded import RecordedEpisode as RecordedEpisode
from pytest_intercode.environments.registry import register_environment as register_environment
from pytest_intercode.environments.sections import Section as Section
from pytest_intercode.environments.shell import ShellEnvironment as ShellEnvironment
from pytest_intercode.errors import BudgetExhausted as BudgetExhausted
from pytest_intercode.errors import IntercodeError as IntercodeError
from pytest_intercode.plugin.fixtures import PendingEpisode as PendingEpisode
from pytest_intercode.plugin.project_cells import ProjectCell as ProjectCell
from pytest_intercode.plugin.project_cells import RunOptions as RunOptions
from pytest_intercode.plugin.project_tests import Project as Project
from pytest_intercode.projects.fakes import Fake as Fake
from pytest_intercode.projects.fakes import FakeAnswer as FakeAnswer
from pytest_intercode.projects.fakes import refuse as refuse
from pytest_intercode.projects.run import ProjectRun as ProjectRun
from pytest_intercode.projects.treatments import Treatment as Treatment
from pytest_intercode.rescoring.function import RewardFunction as RewardFunction
from pytest_intercode.rescoring.rescored import Change as Change
from pytest_intercode.rescoring.rescored import Rescored as Rescored
from pytest_intercode.rescoring.rescored import rescore as rescore
from pytest_intercode.results.files import read_records as read_records
from pytest_intercode.results.files import read_results as read_results
from pytest_intercode.rollouts.agent_thread import SharedLoop as SharedLoop
from pytest_intercode.rollouts.cluster.connection import Cluster as Cluster
from pytest_intercode.rollouts.cluster.nodes import NodeCounts as NodeCounts
from pytest_intercode.rollouts.stream import RolloutStream as RolloutStream
from pytest_intercode.rollouts.stream import run_rollouts as run_rollouts
from pytest_intercode.rollouts.turn_loop import run_episode as run_episode
from pytest_intercode.sandboxes.attached import AttachedSandbox as AttachedSandbox
from pytest_intercode.sandboxes.backend import Backend as Backend
from pytest_intercode.sandboxes.backend import BackendEvents as BackendEvents
from pytest_intercode.sandboxes.images import Images as Images
from pytest_intercode.sandboxes.protocol import Changes as Changes
from pytest_intercode.sandboxes.protocol import Entry as Entry
from pytest_intercode.sandboxes.protocol import Execution as Execution
from pytest_intercode.sandboxes.protocol import Sandbox as Sandbox
from pytest_intercode.sandboxes.protocol import SandboxSpec as SandboxSpec
from pytest_intercode.sandboxes.provider import SandboxProvider as SandboxProvider
from pytest_intercode.sandboxes.settings import DockerHost as DockerHost
from pytest_intercode.sandboxes.settings import SandboxSettings as SandboxSettings
from pytest_intercode.sandboxes.transport import Chunk as Chunk
from pytest_intercode.sandboxes.transport import Transport as Transport
from pytest_intercode.suites.formats import SuiteFormat as SuiteFormat
from pytest_intercode.suites.loader import Suite as Suite
from pytest_intercode.suites.loader import load_suite as load_suite
from pytest_intercode.suites.making import make as make
