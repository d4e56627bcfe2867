"""What the page of ``pytest-intercode top`` is told, whatever agents and suites call things."""

from __future__ import annotations

import json
import re
from dataclasses import replace

from pytest_intercode.core.status import EpisodeStatus, RunStatus
from pytest_intercode.page.live import describe_runs, live_document
from pytest_intercode.page.sources import policy_hash
from tests.support import live_status

EPISODE = replace(live_status.EPISODE, agent="codex", treatment="skill", repeat=2, worker="gw1")
RUN = replace(live_status.RUN, name="nightly", episodes=(EPISODE,))


def test_what_is_known_of_a_run() -> None:
    described = describe_runs([RUN])
    assert described["title"] == "12 of 40 done"
    (run,) = described["runs"]
    assert (run["title"], run["folder"]) == ("nightly (run 4711)", "/home/me/project")
    assert (run["done"], run["solved"]) == ("30.00", "25.00")
    assert {measure["key"]: measure["value"] for measure in run["measures"]} == {
        "Under way": "1",
        "Done": "12 of 40",
        "Solved": "10",
        "Rate": "3/min",
        "Remaining": "9 min",
        "Tokens": "1.21M",
        "Cost": "0.861",
    }
    assert run["episodes"] == [
        {
            "key": "gw1 suite.yaml::test_solves[task-1]",
            "name": "suite.yaml::test_solves[task-1]",
            "item": "suite.yaml::test_solves[task-1]",
            "agent": "codex, skill, try 2",
            "turns": "3/30",
            "time": "1:23/10:00",
            "tokens": "12.3k",
            "cost": "0.021",
            "worker": "gw1",
            "action": "grep -rn main src",
        }
    ]


def test_what_is_not_known_is_left_out() -> None:
    episode = EpisodeStatus(item="a::test[x]", task="x", phase="start")
    described = describe_runs([RunStatus(pid=1, total=2, silent=1, episodes=(episode,))])
    (run,) = described["runs"]
    assert run["title"] == "run 1"
    names = [measure["key"] for measure in run["measures"]]
    assert names == ["Under way", "Done", "Solved", "Without an answer"]
    (shown,) = run["episodes"]
    assert (shown["tokens"], shown["cost"], shown["worker"], shown["agent"]) == ("", "", "", "")
    assert (shown["turns"], shown["action"]) == ("0/?", "(starts its sandbox)")


def test_several_runs_and_none() -> None:
    second_run = replace(RUN, pid=4712, episodes=(EPISODE, EPISODE))
    assert describe_runs([RUN, second_run])["title"] == "2 runs, 3 episodes under way"
    assert describe_runs([], ["no\x1b[2J"]) == {
        "title": "You have no runs on this machine",
        "notes": ["no\\x1b[2J"],
        "runs": [],
    }


def test_no_text_drives_anything() -> None:
    text = "<script>alert(1)</script>\x1b[2J\u202e\n\x07"
    episode = replace(EPISODE, item=text, agent=text, treatment=text, worker=text, action=text)
    (run,) = describe_runs([replace(RUN, name=text, folder=text, episodes=(episode,))])["runs"]
    (shown,) = run.pop("episodes")
    assert shown.pop("name") == text  # to stop it by; never shown
    shown.pop("key")
    printed = json.dumps([run, shown], ensure_ascii=False)
    assert "\\\\x1b[2J\\\\u202e\\\\n\\\\x07" in printed
    assert printed.isprintable()


def test_the_document_runs_its_own_script_alone() -> None:
    document = live_document()
    rules = dict(rule.partition(" ")[::2] for rule in document.policy.split("; "))
    for tag, rule in (("style", "style-src"), ("script", "script-src")):
        (source,) = re.findall(rf"<{tag}>(.*?)</{tag}>", document.html, re.DOTALL)
        assert rules[rule] == f"'{policy_hash(source)}'"
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'"
    assert rules["frame-ancestors"] == "'none'"
    assert rules["connect-src"] == "'self'"
    html = document.html.replace("http://www.w3.org/2000/svg", "")
    assert not re.findall(r"(?:src|href)=\"(?!data:,\")|https?://", html)
    assert not re.search(r"innerHTML|insertAdjacent|document\.write|eval\(", html)
