# SPDX-License-Identifier: Apache-2.0
"""The official client libraries, as an application uses them: libraries.py NAME URL prints what it saw as one line of JSON."""

import asyncio
import faulthandler
import json
import sys
import time

NAME, URL = sys.argv[1:]
# A library that waits for what never comes fails its test.
faulthandler.dump_traceback_later(60, exit=True)
SEEN = {}


def timed(call):
    begun = time.monotonic()
    return call(), time.monotonic() - begun


def error(kind, call):
    """The error of the library's own class, and for how long it was waited for."""
    begun = time.monotonic()
    try:
        call()
    except kind as raised:
        return raised, time.monotonic() - begun
    raise SystemExit(f"no {kind.__name__}")


def note(raised):
    """What the error tells an application."""
    response = raised.response
    headers = {name: value for name, value in response.headers.items() if "ratelimit" in name or "retry" in name}
    return {"text": str(raised), "status": raised.status_code, "headers": headers, "body": response.json()}


def rejections(package, client, models, question, daily, sent):
    """What an application sees that is over its limits. `models` gives the part of a client that asks models, `daily` spends the one
    request of a day, and `sent` lists the requests."""
    ask = lambda **options: models(client).create(**question, **options)
    limited, _ = error(package.RateLimitError, ask)
    SEEN["limited"] = note(limited)
    streamed, _ = error(package.RateLimitError, lambda: ask(stream=True))
    SEEN["limited_stream"] = note(streamed)
    patient = models(client.with_options(max_retries=1)).with_raw_response
    again, SEEN["waited"] = timed(lambda: patient.create(**question))
    SEEN["retries"] = again.retries_taken
    stubborn = client.with_options(max_retries=5)
    daily(stubborn)
    for name, kind, call in (
        ("daily", package.RateLimitError, lambda: daily(stubborn)),
        ("denied", package.PermissionDeniedError, stubborn.models.list),
    ):
        sent.clear()
        raised, _ = error(kind, call)
        SEEN[name] = {**note(raised), "sent": len(sent)}
    return limited


def openai():
    import openai

    sent = []
    http = openai.DefaultHttpxClient(event_hooks={"request": [sent.append]})
    client = openai.OpenAI(base_url=f"{URL}/v1", api_key="k-1", http_client=http, max_retries=0)
    question = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
    answer = client.chat.completions.with_raw_response.create(**question)
    SEEN["remaining"] = answer.headers["x-ratelimit-remaining-requests"]
    SEEN["answer"] = answer.parse().choices[0].message.content
    stream = client.chat.completions.create(**question, stream=True)
    SEEN["streamed"] = "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)
    embed = lambda client: client.embeddings.create(model="m", input="hi", encoding_format="float")
    limited = rejections(openai, client, lambda client: client.chat.completions, question, embed, sent)
    SEEN["limited"] |= {"code": limited.code, "type": limited.type}


def anthropic():
    import anthropic

    sent = []
    http = anthropic.DefaultHttpxClient(event_hooks={"request": [sent.append]})
    client = anthropic.Anthropic(base_url=URL, api_key="k-1", http_client=http, max_retries=0)
    question = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
    answer = client.messages.with_raw_response.create(**question)
    SEEN["remaining"] = answer.headers["anthropic-ratelimit-requests-remaining"]
    SEEN["answer"] = answer.parse().content[0].text
    with client.messages.stream(**question) as stream:
        SEEN["streamed"] = "".join(stream.text_stream)
    count = lambda client: client.messages.count_tokens(model="m", messages=question["messages"])
    rejections(anthropic, client, lambda client: client.messages, question, count, sent)


def gemini():
    from google import genai
    from google.genai import errors, types

    client = genai.Client(api_key="k-1", http_options=types.HttpOptions(base_url=URL))
    question = {"model": "m", "contents": "hi"}
    SEEN["answer"] = client.models.generate_content(**question).text
    SEEN["streamed"] = "".join(chunk.text for chunk in client.models.generate_content_stream(**question))
    limited, _ = error(errors.ClientError, lambda: client.models.generate_content(**question))
    SEEN["limited"] = {"code": limited.code, "status": limited.status, "message": limited.message, "body": limited.details}
    streamed, _ = error(errors.ClientError, lambda: list(client.models.generate_content_stream(**question)))
    SEEN["limited_stream"] = {"code": streamed.code, "status": streamed.status}
    # The library does not read the delay: its application does.
    details = {detail["@type"].rpartition(".")[2]: detail for detail in streamed.details["error"]["details"]}
    time.sleep(float(details["RetryInfo"]["retryDelay"].removesuffix("s")))
    SEEN["again"] = client.models.generate_content(**question).text


def mcp():
    from mcp import ClientSession, MCPError
    from mcp.client.streamable_http import streamable_http_client

    async def use():
        async with streamable_http_client(f"{URL}/mcp") as streams, ClientSession(*streams[:2]) as session:
            await session.initialize()
            call = lambda tool: session.call_tool(tool, {})
            SEEN["answer"] = (await call("search")).content[0].text
            SEEN["streamed"] = (await call("search")).content[0].text
            try:
                await call("search")
                raise SystemExit("no MCPError")
            except MCPError as raised:
                limited = raised
            SEEN["limited"] = {"code": limited.code, "message": limited.message, "data": limited.data}
            SEEN["other_tool"] = (await call("read")).content[0].text
            await asyncio.sleep(limited.data["retryAfterMs"] / 1000)
            SEEN["again"] = (await call("search")).content[0].text

    asyncio.run(use())


{"openai": openai, "anthropic": anthropic, "gemini": gemini, "mcp": mcp}[NAME]()
print(json.dumps(SEEN))
