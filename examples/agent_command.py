"""An agent that is a program: it reads a JSON line, writes one, and so on until it submits.

pytest --intercode-env=sql --intercode-agent="command:python3 examples/agent_command.py"
"""

import json
import re
import sys

LOOK = {"bash": "ls", "ctf": "ls", "python": "print(*dir())", "mysql": "SHOW TABLES"}
LOOK["sqlite"] = "SELECT name FROM sqlite_master ORDER BY name"
READ = {"bash": "cat {}", "ctf": "cat {}", "python": "help({})"}

for line in sys.stdin:
    message = json.loads(line)
    if message["type"] == "task":
        task, read = message["task"], False
        answer = {"thought": "What is there?", "action": LOOK[task["engine"] or task["env"]]}
    else:  # your model goes here; this one reads something that the query names
        words = re.findall(r"[\w.-]+", message["observation"])
        named = [word for word in words if word in task["query"]]
        flag = re.search(r"flag\{.*?\}", message["observation"])
        answer = {"submit": flag[0] if flag else ""}
        if named and not read:
            read = True
            answer = {
                "action": READ.get(task["env"], "SELECT * FROM {}").format(max(named, key=len))
            }
    print(json.dumps(answer), flush=True)
    if "submit" in answer:
        break
