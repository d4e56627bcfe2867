"""A small domain in the form of tau2-bench's: a library, its tools, its members and their cards.

::

    write_library(tmp_path)  # then --intercode-data=tmp_path, and the suite library.yaml there
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.support.task_folders import write_texts

__all__ = ["RENEW", "UNLOCK", "call", "write_library"]

_DATA_MODEL = '''
from datetime import date
from typing import Dict, Literal, Optional, Union
from pydantic import BaseModel, Field
from tau2.environment.db import DB

class Fee(BaseModel):
    kind: Literal["fee"]
    amount: float = Field(description="In euros")

class Free(BaseModel):
    kind: Literal["free"]

class Loan(BaseModel):
    """A book that somebody has."""
    title: str
    due: date = Field(description="The day by which it has to be back")
    renewals: int = 0
    price: Union[Fee, Free]
    note: Optional[str] = None

class LibraryDB(DB):
    loans: Dict[str, Loan]
'''
_USER_MODEL = """
from enum import Enum
from tau2.environment.db import DB

class Card(str, Enum):
    OPEN = "open"
    LOCKED = "locked"

class MemberDB(DB):
    card: Card = Card.OPEN
    may_renew: bool = True
"""
_TOOLS = '''
from datetime import timedelta
from loguru import logger
from tau2.domains.library.data_model import LibraryDB, Loan
from tau2.environment.toolkit import ToolKitBase, ToolType, is_tool

class LibraryTools(ToolKitBase):
    db: LibraryDB

    def _get(self, book_id: str) -> Loan:
        if book_id not in self.db.loans:
            raise ValueError("No such loan")
        return self.db.loans[book_id]

    @is_tool(ToolType.READ)
    def get_loan(self, book_id: str) -> Loan:
        """Look at a loan.

        Args:
            book_id: The number of the book, such as 'b1'.

        Returns:
            The loan.
        """
        return self._get(book_id)

    @is_tool(ToolType.WRITE)
    def renew_loan(self, book_id: str, weeks: int = 2) -> Loan:
        """Let somebody keep a book. It is due later then.

        Args:
            book_id: The number of the book, such as 'b1'.
            weeks: How long.
        """
        loan = self._get(book_id)
        loan.due += timedelta(weeks=weeks)
        loan.renewals += 1
        logger.info(f"{book_id} was renewed")
        return loan

    @is_tool(ToolType.GENERIC)
    def calculate(self, expression: str) -> str:
        """Calculate.

        Args:
            expression: Such as '2 + 2'.
        """
        if not all(char in "0123456789+-*/(). " for char in expression):
            raise ValueError("Invalid characters in expression")
        return str(eval(expression, {"__builtins__": None}, {}))

    def lose_everything(self) -> str:
        self.db.loans.clear()
        return "lost"
'''
_USER_TOOLS = '''
from tau2.domains.library.user_data_model import Card, MemberDB
from tau2.environment.toolkit import ToolKitBase, ToolType, is_tool

class MemberTools(ToolKitBase):
    db: MemberDB

    @is_tool(ToolType.READ)
    def check_card(self) -> str:
        """Look at your card."""
        return f"It is {self.db.card.value}."

    @is_tool(ToolType.WRITE)
    def unlock_card(self) -> str:
        """Unlock your card."""
        self.db.card = Card.OPEN
        return "Done."

    def lock_card(self) -> None:
        self.db.card = Card.LOCKED

    def assert_may_renew(self, expected: bool) -> bool:
        return self.db.may_renew is expected
'''
_ENVIRONMENT = """
from tau2.domains.library.data_model import LibraryDB
from tau2.domains.library.tools import LibraryTools
from tau2.domains.library.user_data_model import Card, MemberDB
from tau2.domains.library.user_tools import MemberTools
from tau2.environment.environment import Environment
from tau2.utils.utils import DATA_DIR

class LibraryEnvironment(Environment):
    def sync_tools(self):
        self.user_tools.db.may_renew = self.user_tools.db.card == Card.OPEN

def get_environment():
    db = LibraryDB.load(DATA_DIR / "tau2" / "domains" / "library" / "db.json")
    return LibraryEnvironment("library", "", LibraryTools(db), MemberTools(MemberDB()))
"""
_DB = {
    "loans": {
        "b1": {"title": "Dune", "due": "2025-03-01", "price": {"kind": "free"}},
        "b2": {"title": "Emma", "due": "2025-03-02", "price": {"kind": "fee", "amount": 1}},
    }
}
_SUITE = """\
env: tau2
defaults: {max_turns: 50, action_timeout: 2}
rows: {path: tau2/domains/library/tasks.json, format: tau2, id: "{number}"}
"""


def call(_tool: str, _side: str = "", /, **arguments: Any) -> str:
    """Return the action that calls a tool, for one side."""
    side = {"requestor": _side} if _side else {}
    return json.dumps({"name": _tool, "arguments": arguments, **side})


RENEW = call("renew_loan", book_id="b1")
UNLOCK = call("unlock_card", "user")


def _task(name: str, wish: str, **more: Any) -> dict[str, Any]:
    criteria = {"actions": [], **more}
    locks = {"env_type": "user", "func_name": "lock_card", "arguments": {}}
    return {
        "id": f"[{name}]",
        "user_scenario": {
            "persona": "You are in a hurry.",
            "instructions": {
                "domain": "library",
                "reason_for_call": wish,
                "task_instructions": "-",
            },
        },
        "initial_state": {"initialization_actions": [locks]} if name == "unlock" else None,
        "evaluation_criteria": criteria,
    }


def _tasks() -> list[dict[str, Any]]:
    renew = {"action_id": "1", **json.loads(RENEW)}
    unlock = {"action_id": "1", "requestor": "user", "name": "unlock_card", "arguments": {}}
    holds = {"env_type": "user", "func_name": "assert_may_renew", "arguments": {"expected": True}}
    return [
        _task(
            "renew",
            "Keep Dune for longer.",
            actions=[renew],
            communicate_info=["due 15 march"],
            reward_basis=["DB", "COMMUNICATE"],
        ),
        _task(
            "unlock",
            "Your card does not work.",
            actions=[unlock],
            env_assertions=[holds],
            reward_basis=["ENV_ASSERTION", "ACTION"],
        ),
        _task(
            "refuse",
            "You want Emma for nothing.",
            nl_assertions=["The agent says that it costs one euro."],
            reward_basis=["DB", "NL_ASSERTION"],
        ),
    ]


def write_library(folder: Path) -> Path:
    """Write the domain and its suite into a folder; return the suite's path."""
    guidelines = "Play a member of a library.\n<PERSONA_GUIDELINES>"
    texts = {
        "tau2/domains/library/db.json": json.dumps(_DB),
        "tau2/domains/library/tasks.json": json.dumps(_tasks()),
        "tau2/domains/library/policy.md": "Be kind.\n",
        "tau2/user_simulator/simulation_guidelines_tools.md": guidelines,
        "library.yaml": _SUITE,
    }
    modules = {
        "data_model": _DATA_MODEL,
        "user_data_model": _USER_MODEL,
        "tools": _TOOLS,
        "user_tools": _USER_TOOLS,
        "environment": _ENVIRONMENT,
    }
    for name, text in modules.items():
        texts[f"tau2/src/tau2/domains/library/{name}.py"] = text
    return write_texts(folder, texts) / "library.yaml"
