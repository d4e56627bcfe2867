"""What agents did, from the exchanges of each API."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pytest_intercode.core.usage import Usage
from pytest_intercode.gateway.exchange import Api, Exchange
from pytest_intercode.gateway.trajectory import count_calls, final_message, turns

USED = Usage(1, 100, 7, cached_tokens=40)
TOOLS = [{"name": "bash"}]


def chat(history: list[Any], text: str = "", *calls: tuple[str, str, str], **more: Any) -> Exchange:
    message: dict[str, Any] = {"role": "assistant", "content": text or None}
    if calls:
        message["tool_calls"] = [
            {"id": i, "type": "function", "function": {"name": name, "arguments": given}}
            for i, name, given in calls
        ]
    request = {"model": "m", "messages": history, "tools": more.pop("tools", TOOLS)}
    answer = {"choices": [{"message": message}]}
    return Exchange(
        **{
            "api": "chat",
            "model": "m",
            "request": request,
            "answer": answer,
            "status": 200,
            "usage": USED,
            **more,
        }
    )


def result(identity: str, text: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": identity, "content": text}


def after(exchange: Exchange, *more: Any) -> list[Any]:
    """Return the history that follows an exchange of chat."""
    return [*exchange.request["messages"], exchange.answer["choices"][0]["message"], *more]


def test_an_agent_of_chat() -> None:
    title = chat([{"role": "user", "content": "name this"}], "A title", tools=None)
    one = chat([], "First.", ("c1", "bash", '{"command": "ls"}'))
    two = chat(
        after(one, result("c1", "a.txt")),
        "",
        ("c2", "bash", '{"command": "cat a.txt"}'),
        ("c3", "edit", '{"path": "a", "n": 1}'),
    )
    three = chat(
        after(two, result("c3", [{"type": "text", "text": "edited"}]), result("c2", "")), "Done."
    )
    exchanges = [title, one, two, three]
    found = turns(exchanges)
    assert [(t.thought, t.action, t.observation, bool(t.usage)) for t in found] == [
        ("First.", "ls", "a.txt", True),
        ("", "cat a.txt", "", True),
        ("", 'edit({"path": "a", "n": 1})', "edited", False),
    ]
    assert final_message(exchanges) == "Done."
    assert final_message(exchanges[:3]) == ""
    assert final_message([title]) == "A title"
    assert list(map(count_calls, exchanges)) == [0, 1, 2, 0]


def test_a_request_without_an_answer_is_not_the_last_word() -> None:
    one = chat([], "Done.")
    two = chat(after(one), answer={}, complete=False)
    assert final_message([one, two]) == "Done."


def test_an_agent_with_functions_of_the_older_kind() -> None:
    def call(command: str) -> dict[str, Any]:
        arguments = f'{{"command": "{command}"}}'
        message = {"role": "assistant", "function_call": {"name": "bash", "arguments": arguments}}
        return {"choices": [{"message": message}]}

    def function_result(text: str) -> dict[str, Any]:
        return {"role": "function", "name": "bash", "content": text}

    one = chat([], tools=None, answer=call("a"))
    two = chat(after(one, function_result("A")), tools=None, answer=call("b"))
    three = chat(after(two, function_result("B")), "Done.", tools=None)
    three = replace(three, request={**three.request, "functions": TOOLS})
    title = chat([], "A title", tools=None)
    exchanges = [one, two, three, title]
    observed = [(turn.action, turn.observation) for turn in turns(exchanges)]
    assert observed == [("a", "A"), ("b", "B")]
    assert list(map(count_calls, exchanges)) == [1, 1, 0, 0]
    assert final_message(exchanges) == "Done."


def test_a_call_in_both_kinds_is_one_turn() -> None:
    one = chat([], "", ("c", "bash", '{"command": "a"}'))
    message = one.answer["choices"][0]["message"]
    message["function_call"] = message["tool_calls"][0]["function"]
    assert count_calls(one) == 1


def test_ids_that_come_back() -> None:
    """A small server calls the first call of each answer the same."""
    one = chat([], "", ("call_1", "bash", '{"command": "a"}'))
    two = chat(after(one, result("call_1", "A")), "", ("call_1", "bash", '{"command": "b"}'))
    three = chat(after(two, result("call_1", "B")), "end")
    assert [(t.action, t.observation) for t in turns([one, two, three])] == [("a", "A"), ("b", "B")]


def test_a_call_that_was_asked_again_is_one_turn() -> None:
    broken = chat([], "", ("x", "bash", '{"command": "a"}'), complete=False)
    lost = chat([], "", ("y", "bash", '{"command": "a"}'))
    one = chat([], "", ("z", "bash", '{"command": "a"}'))
    refused = chat([], "", status=429)
    two = chat(after(one, result("z", "A")), "end")
    assert [t.observation for t in turns([broken, lost, one, refused, two])] == ["A"]
    assert count_calls(broken) == count_calls(refused) == 0


def test_the_last_call_may_have_no_result() -> None:
    one = chat([], "", ("a", "bash", '{"command": "echo COMPLETE"}'))
    [turn] = turns([one])
    assert (turn.action, turn.observation) == ("echo COMPLETE", "")


def test_agents_side_by_side_keep_their_results() -> None:
    one, two = (
        chat([{"role": "user", "content": n}], "", (n, "bash", f'{{"command": "{n}"}}'))
        for n in "ab"
    )
    next_two = chat(after(two, result("b", "B")), "two is done")
    next_one = chat(after(one, result("a", "A")), "one is done")
    found = turns([one, two, next_two, next_one])
    assert [(t.action, t.observation) for t in found] == [("a", "A"), ("b", "B")]
    assert final_message([one, two, next_two, next_one]) == "one is done"


def _other(api: Api, request: dict[str, Any], answer: dict[str, Any]) -> Exchange:
    return Exchange(api, "m", {"tools": TOOLS, **request}, answer, 200, USED)


def test_an_agent_of_messages() -> None:
    content = [
        {"type": "thinking", "thinking": "hm"},
        {
            "type": "tool_use",
            "id": "t1",
            "name": "Bash",
            "input": {"command": "ls", "description": "x"},
        },
        {
            "type": "tool_use",
            "id": "t2",
            "name": "str_replace_based_edit_tool",
            "input": {"command": "view", "path": "a"},
        },
    ]
    one = _other("messages", {"messages": []}, {"content": content})
    results = [
        {"type": "tool_result", "tool_use_id": "t1", "content": "a.txt"},
        {
            "type": "tool_result",
            "tool_use_id": "t2",
            "content": [{"type": "text", "text": "1"}, {"type": "image"}],
        },
        {"type": "text", "text": "a reminder"},
    ]
    history = [{"role": "assistant", "content": content}, {"role": "user", "content": results}]
    two = _other(
        "messages", {"messages": history}, {"content": [{"type": "text", "text": "Done."}]}
    )
    assert [(t.thought, t.action, t.observation) for t in turns([one, two])] == [
        ("hm", "ls", "a.txt"),
        ("", 'str_replace_based_edit_tool({"command": "view", "path": "a"})', "1\n[image]"),
    ]
    assert final_message([one, two]) == "Done."


def test_an_agent_of_responses() -> None:
    output = [
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
        {
            "type": "function_call",
            "call_id": "1",
            "name": "exec_command",
            "arguments": '{"cmd": "ls"}',
        },
        {
            "type": "function_call",
            "call_id": "2",
            "name": "shell",
            "arguments": '{"command": ["bash", "-lc", "a | b"]}',
        },
        {
            "type": "local_shell_call",
            "call_id": "3",
            "action": {"type": "exec", "command": ["echo", "a b"]},
        },
        {"type": "custom_tool_call", "call_id": "4", "name": "apply_patch", "input": "*** Begin"},
        {"type": "web_search_call", "id": "ws"},
    ]
    one = _other("responses", {"input": "hello"}, {"output": output})
    history = [
        *output,
        {"type": "function_call_output", "call_id": "1", "output": "one"},
        {
            "type": "function_call_output",
            "call_id": "2",
            "output": '{"output": "two", "metadata": {}}',
        },
        {
            "type": "local_shell_call_output",
            "call_id": "3",
            "output": [{"type": "input_text", "text": "three"}],
        },
        {"type": "custom_tool_call_output", "call_id": "4", "output": "four"},
    ]
    text = [{"type": "message", "content": [{"type": "output_text", "text": "Done."}]}]
    two = _other("responses", {"input": history}, {"output": text})
    assert [(t.thought, t.action, t.observation) for t in turns([one, two])] == [
        ("hm", "ls", "one"),
        ("", "a | b", "two"),
        ("", "echo 'a b'", "three"),
        ("", 'apply_patch("*** Begin")', "four"),
    ]
    assert final_message([one, two]) == "Done."


@pytest.mark.parametrize(
    ("output", "shown"),
    [
        (
            "Chunk ID: 7ae3b3\nWall time: 0.1 seconds\nProcess exited with code 0\nOutput:\na\n",
            "a\n",
        ),
        (
            "Wall time: 0.1 seconds\nProcess exited with code 2\nOriginal token count: 4\n"
            "Output:\nOutput:\n",
            "Process exited with code 2\nOutput:\n",
        ),
        ("Chunk ID: 7ae3b3\n", "Chunk ID: 7ae3b3\n"),
    ],
)
def test_what_codex_writes_around_an_output_is_left_out(output: str, shown: str) -> None:
    call = {"type": "function_call", "call_id": "1", "name": "exec", "arguments": "{}"}
    one = _other("responses", {"input": []}, {"output": [call]})
    said = {"type": "function_call_output", "call_id": "1", "output": output}
    [turn] = turns([one, _other("responses", {"input": [call, said]}, {"output": []})])
    assert turn.observation == shown


def test_a_turn_has_its_tool_and_its_status() -> None:
    one = chat([], "", ("1", "run_shell_command", '{"command": "a"}'), ("2", "edit", '{"n": 1}'))
    text = "Output: x\nExit Code: 2\nSignal: (none)"
    two = chat(after(one, result("1", text), result("2", text)), "end")
    assert [(t.tool, t.status, t.observation) for t in turns([one, two])] == [
        ("run_shell_command", 2, text),
        ("edit", None, text),
    ]


def test_a_tool_in_a_namespace_has_its_name() -> None:
    call = _called("1", "create", '{"title": "x"}')
    for namespace, tool in (
        ("mcp__t", "mcp__t__create"),
        ("mcp__t__", "mcp__t__create"),
        (1, "create"),
    ):
        [turn] = turns([_other("responses", {}, {"output": [{**call, "namespace": namespace}]})])
        assert (turn.tool, turn.action) == (tool, f'{tool}({{"title": "x"}})')


def _called(identity: str, name: str, arguments: str) -> dict[str, Any]:
    return {
        "type": "function_call",
        "call_id": identity,
        "name": name,
        "arguments": arguments,
    }


def _returned(identity: str, line: str) -> dict[str, Any]:
    output = f"Wall time: 1 seconds\n{line}\nOutput:\nx"
    return {"type": "function_call_output", "call_id": identity, "output": output}


def test_a_command_of_codex_that_goes_on_has_the_status_of_its_end() -> None:
    items = [
        _called("1", "exec_command", '{"cmd": "make"}'),
        _returned("1", "Process running with session ID 7"),
        _called("2", "write_stdin", '{"session_id": 7}'),
        _returned("2", "Process running with session ID 7"),
        _called("3", "exec_command", '{"cmd": "ls"}'),
        _returned("3", "Process exited with code 0"),
        _called("4", "write_stdin", '{"session_id": 7}'),
        _returned("4", "Process exited with code 2"),
    ]
    exchanges = [
        _other("responses", {"input": items[:index]}, {"output": items[index : index + 1]})
        for index in range(0, len(items) + 1, 2)
    ]
    found = turns(exchanges)
    assert [(t.tool, t.status) for t in found] == [
        ("exec_command", 2),
        ("write_stdin", None),
        ("exec_command", 0),
        ("write_stdin", None),
    ]
    assert [t.status for t in turns(exchanges[:3])] == [None] * 3


@pytest.mark.parametrize("api", ["chat", "responses", "messages"])
@pytest.mark.parametrize(
    "part",
    [
        *(None, 1, "x", [], {}, [1, None, "x"], [{"type": "message"}], [{"type": "tool_use"}]),
        [{"message": {"tool_calls": [{"function": {}}, 3]}}],
        [{"role": "user", "content": [{"type": "tool_result"}, 1]}],
    ],
)
def test_whatever_was_sent_is_read(api: Api, part: Any) -> None:
    keys = ("choices", "output", "content", "input", "messages")
    exchange = Exchange(api, "m", dict.fromkeys(keys, part), dict.fromkeys(keys, part), 200)
    for found in (turns([exchange] * 3), final_message([exchange]), count_calls(exchange)):
        assert found is not None


def test_a_long_episode_is_read_quickly() -> None:
    exchanges = [chat([], "", ("0", "bash", '{"command": "0"}'))]
    for n in range(1, 400):
        history = after(exchanges[-1], result(str(n - 1), "x" * 100))
        exchanges.append(chat(history, "", (str(n), "bash", '{"command": "x"}')))
    assert len(turns(exchanges)) == 400
