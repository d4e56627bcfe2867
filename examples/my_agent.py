"""An agent in ten lines: it asks a model (here: a table) for commands until it is content."""

from __future__ import annotations

COMMANDS = {"list": "ls -1", "count": "wc -l < notes.txt", "sort": "sort notes.txt | head -n 1"}


class Agent:
    def reset(self, task):
        self.plan = [command for word, command in COMMANDS.items() if word in task.query.lower()]

    def act(self, observation):
        return self.plan.pop(0) if self.plan else "submit"
