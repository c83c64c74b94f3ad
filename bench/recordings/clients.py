"""`python -m bench.recordings.clients NAME PORT`: make one call with a stock client.

A function for each recording made in Python, with its name; those of Node are in `clients.mjs`.
Each imports its own client: the others may not be installed where it runs.
"""

import asyncio
import sys
from collections.abc import Callable
from typing import Any

from bench.recordings import KEY, MODEL, USER, prompts

LIMITS: dict[str, Any] = {"temperature": 0.2, "max_tokens": 256}


def _openai(port: int) -> Any:
    import openai

    return openai.OpenAI(base_url=f"http://localhost:{port}/v1", api_key=KEY).chat.completions


def openai_chat(port: int) -> None:
    _openai(port).create(model=MODEL, messages=prompts.CHAT)


def openai_chat_user(port: int) -> None:
    options = {"user": USER, "stream": False, **LIMITS}
    _openai(port).create(model=MODEL, messages=prompts.CHAT, **options)


def openai_stream(port: int) -> None:
    list(_openai(port).create(model=MODEL, messages=prompts.CHAT, stream=True, **LIMITS))


def _openai_async(port: int) -> Any:
    import openai

    return openai.AsyncOpenAI(base_url=f"http://localhost:{port}/v1", api_key=KEY)


def openai_async_chat(port: int) -> None:
    completions = _openai_async(port).chat.completions
    asyncio.run(completions.create(model=MODEL, messages=prompts.CHAT_NOT_ASCII, max_tokens=256))


def openai_async_stream_user(port: int) -> None:
    options = {"stream": True, "stream_options": {"include_usage": True}, "user": USER, **LIMITS}

    async def read_stream() -> None:
        completions = _openai_async(port).chat.completions
        async for _ in await completions.create(model=MODEL, messages=prompts.CHAT, **options):
            pass

    asyncio.run(read_stream())


def openai_agent(port: int) -> None:
    options = {"tools": prompts.tools(), "tool_choice": "auto", "user": USER, "temperature": 0}
    _openai(port).create(model=MODEL, messages=prompts.agent_turn(), **options)


def openai_agent_stream(port: int) -> None:
    options = {"tools": prompts.tools(), "parallel_tool_calls": True, "stream": True}
    list(_openai(port).create(model=MODEL, messages=prompts.agent_turn(), **options))


def openai_picture(port: int) -> None:
    _openai(port).create(model=MODEL, messages=prompts.PICTURE, max_tokens=256)


def openai_embeddings(port: int) -> None:
    import openai

    client = openai.OpenAI(base_url=f"http://localhost:{port}/v1", api_key=KEY)
    client.embeddings.create(model=MODEL, input=prompts.texts())


def _anthropic(port: int) -> Any:
    import anthropic

    return anthropic.Anthropic(base_url=f"http://localhost:{port}", api_key=KEY).messages


_ANTHROPIC: dict[str, Any] = {
    "model": MODEL,
    "max_tokens": 256,
    "system": prompts.CHAT[0]["content"],
    "messages": prompts.CHAT[1:],
}


def anthropic_chat_user(port: int) -> None:
    _anthropic(port).create(**_ANTHROPIC, metadata={"user_id": USER})


def anthropic_stream(port: int) -> None:
    with _anthropic(port).stream(**_ANTHROPIC) as stream:
        stream.until_done()


def _ollama(port: int) -> Any:
    import ollama

    headers = {"Authorization": f"Bearer {KEY}"}
    return ollama.Client(host=f"http://localhost:{port}", headers=headers)


def ollama_chat(port: int) -> None:
    options = {"num_predict": 256, "temperature": 0.2}
    _ollama(port).chat(model=MODEL, messages=prompts.CHAT, options=options)


def ollama_stream(port: int) -> None:
    list(_ollama(port).chat(model=MODEL, messages=prompts.CHAT, stream=True))


def _langchain(port: int, **options: Any) -> Any:
    from langchain_openai import ChatOpenAI  # type: ignore[import-not-found, unused-ignore]

    url = f"http://localhost:{port}/v1"
    return ChatOpenAI(model=MODEL, base_url=url, api_key=KEY, temperature=0.2, **options)


def langchain_chat(port: int) -> None:
    _langchain(port, max_tokens=256).invoke(prompts.CHAT)


def langchain_stream(port: int) -> None:
    list(_langchain(port).stream(prompts.CHAT))


CALLS: dict[str, Callable[[int], None]] = {
    call.__name__.replace("_", "-"): call
    for call in (
        openai_chat,
        openai_chat_user,
        openai_stream,
        openai_async_chat,
        openai_async_stream_user,
        langchain_chat,
        langchain_stream,
        anthropic_chat_user,
        anthropic_stream,
        ollama_chat,
        ollama_stream,
        openai_agent,
        openai_agent_stream,
        openai_picture,
        openai_embeddings,
    )
}

if __name__ == "__main__":
    CALLS[sys.argv[1]](int(sys.argv[2]))
