"""What the recorded calls ask: short chats, an agent's turn, a picture, texts to embed."""

import json
import random
from typing import Any

from bench.recordings import base64_text

PICTURE_LENGTH = 2 * 2**20
"""Characters of base64: the size of a photograph from a telephone."""
TEXTS = 64
_VOCABULARY = """the queue request node slot user waits returns before after module test function
reads writes argument value and of a to in is that one every second list error path line when"""
_WORDS = _VOCABULARY.split()

PROSE = (
    "A forebay is the pool of still water above a mill or a power station. It takes what the "
    "river brings, in gusts, and gives the wheel what the wheel can use, evenly. "
)
CHAT: list[Any] = [
    {"role": "system", "content": PROSE + "Answer in one short paragraph."},
    {"role": "user", "content": PROSE * 2 + "What is a forebay?"},
]
CHAT_NOT_ASCII: list[Any] = [
    {"role": "system", "content": "Antworte höflich, in einem kurzen Absatz — ohne Aufzählung."},
    {"role": "user", "content": "Was heißt „Forebay“ auf Deutsch, und was auf Chinesisch (前池)?"},
]
PICTURE: list[Any] = [
    {
        "role": "user",
        "content": [
            {"type": "text", "text": "What is in this picture?"},
            {
                "type": "image_url",
                "image_url": {
                    "url": "data:image/jpeg;base64," + base64_text(PICTURE_LENGTH).decode()
                },
            },
        ],
    }
]


def _text(random_: random.Random, words: int) -> str:
    """Return text of that many words, with the line breaks and quotes that tools give back."""
    chosen = [random_.choice(_WORDS) for _ in range(words)]
    for at in range(9, words, 13):
        chosen[at] = f'"{chosen[at]}",\n    {chosen[at]}_{at} ='
    return " ".join(chosen)


def texts() -> list[str]:
    """Return paragraphs to embed, each of 20 to 120 words."""
    random_ = random.Random(64)
    return [_text(random_, random_.randint(20, 120)) for _ in range(TEXTS)]


_TOOLS = {
    "read_file": ("path", "first_line", "last_line"),
    "write_file": ("path", "content"),
    "replace_in_file": ("path", "old_text", "new_text", "occurrences"),
    "list_folder": ("path", "pattern", "depth"),
    "search_text": ("pattern", "path", "ignore_case", "context_lines"),
    "search_symbols": ("name", "kind"),
    "run_command": ("command", "folder", "timeout_seconds"),
    "run_tests": ("paths", "filter", "stop_at_first"),
    "read_web_page": ("url", "format"),
    "search_web": ("query", "results"),
    "show_difference": ("base", "path"),
    "commit": ("summary", "description", "paths"),
    "ask_user": ("question", "choices"),
    "write_plan": ("steps", "done"),
    "query_database": ("statement", "parameters", "rows"),
}


def tools() -> list[Any]:
    """Return the definitions of an agent's fifteen tools."""
    random_ = random.Random(15)
    return [_tool(random_, name, given) for name, given in _TOOLS.items()]


def _tool(random_: random.Random, name: str, given: tuple[str, ...]) -> dict[str, object]:
    properties = {
        argument: {"type": "string", "description": f"The {argument}: {_text(random_, 12)}."}
        for argument in given
    }
    parameters = {
        "type": "object",
        "properties": properties,
        "required": [given[0]],
        "additionalProperties": False,
    }
    description = f"{name.replace('_', ' ').capitalize()}. {_text(random_, 50)}."
    function = {"name": name, "description": description, "parameters": parameters}
    return {"type": "function", "function": function}


def agent_turn() -> list[Any]:
    """Return twenty messages: instructions, a task, and nine tool calls with their results."""
    random_ = random.Random(20)
    messages: list[Any] = [
        {"role": "system", "content": f"You are a coding agent.\n\n{_text(random_, 600)}"},
        {"role": "user", "content": f"Make the tests pass.\n\n{_text(random_, 80)}"},
    ]
    for number, name in enumerate(list(_TOOLS)[:9]):
        arguments = {argument: _text(random_, 4) for argument in _TOOLS[name]}
        function = {"name": name, "arguments": json.dumps(arguments)}
        call = {"id": f"call_{number:024d}", "type": "function", "function": function}
        messages += [
            {"role": "assistant", "content": _text(random_, 15), "tool_calls": [call]},
            {"role": "tool", "tool_call_id": call["id"], "content": _text(random_, 140)},
        ]
    return messages
