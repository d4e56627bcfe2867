"""The field ``user`` of a suite, which says who answers a task's agent; checked by pydantic."""

from __future__ import annotations

from pydantic import Field, StrictBool, StrictStr, model_validator

from pytest_intercode.core.conversation import Conversation
from pytest_intercode.environments.fields import FileForm, Texts
from pytest_intercode.system.suite_folder import SuitePath

__all__ = ["UserModel"]


class UserModel(FileForm):
    """``user``: who answers an agent that hands back."""

    replies: Texts | None = None
    persona: StrictStr = ""
    goal: StrictStr = ""
    model: StrictStr = ""
    stop: Texts | None = None
    max_turns: int | None = Field(None, ge=1, le=100000)
    instructions: StrictStr = ""
    opening: StrictStr = ""
    stops_anywhere: StrictBool = False

    @model_validator(mode="after")
    def _one_kind(self) -> UserModel:
        names = self.model_fields_set - {"replies"}
        if self.replies is not None:
            if names:
                raise ValueError(
                    f"{', '.join(sorted(names))}: only for a model that plays the user, not for "
                    "replies, which are given as they are"
                )
            if not all(reply.strip() for reply in self.replies):
                raise ValueError("replies: a reply must not be empty")
        elif self.instructions.strip() and (self.persona or self.goal):
            raise ValueError("the model is told nothing but instructions; remove persona and goal")
        elif not (self.persona.strip() or self.goal.strip() or self.instructions.strip()):
            raise ValueError("give replies, or persona and goal for a model that plays the user")
        if not all(word.strip() for word in self.stop or ()):
            raise ValueError("stop: a word that ends the conversation must not be empty")
        return self

    def build(self, folder: SuitePath) -> Conversation:
        """Return the conversation."""
        values = {name: value for name, value in dict(self).items() if value is not None}
        if self.stop is not None:
            values["stop"] = tuple(word.strip() for word in self.stop)
        return Conversation(**values)
