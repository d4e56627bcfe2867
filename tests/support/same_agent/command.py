"""The agent of forms.py as a program."""

import json
import os
import sys
from pathlib import Path

left: list[str] = []
for line in sys.stdin:
    message = json.loads(line)
    if message["type"] == "task":
        left = json.loads(Path(os.environ["PLAN"]).read_text())[message["task"]["id"]]
    if message["type"] == "end":
        break
    print(json.dumps({"action": left.pop(0)}), flush=True)
