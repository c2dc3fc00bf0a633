#!/usr/bin/env python3
"""Checks a running server with the official openai package (pip install openai).

    walsh serve models/walsh-tiny-13m --device cpu &
    python3 tools/check_openai.py [--url http://127.0.0.1:8080/v1] [--api-key KEY]

Every case is a call as users write it; the program ends with the number of cases, status 1 if one
failed.
"""
import argparse
import json
import sys

import openai


def chat(client, model, **more):
    """Asks for a short greedy chat."""
    options = {"model": model, "temperature": 0, "max_completion_tokens": 8,
               "messages": [{"role": "user", "content": "Name a river."}]}
    options.update(more)
    return client.chat.completions.create(**options)


def complete(client, model, **more):
    """Asks for a short greedy completion."""
    options = {"model": model, "temperature": 0, "max_tokens": 8, "prompt": "The city of"}
    options.update(more)
    return client.completions.create(**options)


def refused(call, kind):
    """Returns whether a call raises this error of the package."""
    try:
        call()
    except kind:
        return True
    return False


def streamed_chat(client, model):
    """Returns the text and the last chunk's usage of a streamed chat."""
    text, usage, reasons = "", None, []
    for chunk in chat(client, model, stream=True, stream_options={"include_usage": True}):
        usage = chunk.usage or usage
        for choice in chunk.choices:
            text += choice.delta.content or ""
            reasons.append(choice.finish_reason)
    return text, usage, reasons


WEATHER = {"type": "function", "function": {
    "name": "get_weather", "parameters": {
        "type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]},
                                         "days": {"type": "integer", "minimum": 1, "maximum": 9}},
        "required": ["city", "days"]}}}


def structured_cases(client, model):
    """Yields answers that match a schema, and calls of tools."""
    schema = {"type": "object", "properties": {"river": {"type": "string", "maxLength": 9},
                                               "long": {"type": "boolean"}},
              "required": ["river", "long"], "additionalProperties": False}
    wanted = {"type": "json_schema", "json_schema": {"name": "river", "strict": True,
                                                     "schema": schema}}
    value = json.loads(chat(client, model, response_format=wanted,
                            max_completion_tokens=200).choices[0].message.content)
    yield "an answer matches its schema", (list(value) == ["river", "long"] and
                                           isinstance(value["long"], bool))
    yield "a schema that cannot be enforced is refused", refused(
        lambda: chat(client, model, response_format={"type": "json_schema", "json_schema": {
            "name": "x", "schema": {"not": {}}}}), openai.BadRequestError)
    text = chat(client, model, extra_body={"grammar": 'root ::= "yes" | "no"'})
    yield "a grammar is enforced", text.choices[0].message.content in ("yes", "no")
    try:
        call = chat(client, model, tools=[WEATHER], tool_choice="required",
                    parallel_tool_calls=False, max_completion_tokens=80).choices[0]
    except openai.BadRequestError as error:
        yield "a template without tools refuses them", "does not show tools" in str(error)
        return
    arguments = json.loads(call.message.tool_calls[0].function.arguments)
    yield "a required tool is called", (call.finish_reason == "tool_calls" and
                                        arguments["city"] in ("Paris", "Rome"))
    named = {"type": "function", "function": {"name": "get_weather"}}
    for more in ({}, {"parallel_tool_calls": True}):
        calls = chat(client, model, tools=[WEATHER], tool_choice=named, max_completion_tokens=200,
                     temperature=1.5, seed=3, **more).choices[0].message.tool_calls
        yield "a named function is called once", len(calls) == 1
    for tokens in (1, 3, 9):
        half = chat(client, model, tools=[WEATHER], tool_choice=named,
                    max_completion_tokens=tokens).choices[0]
        yield "half a call is a call", half.finish_reason == "length" and (
            not half.message.content and
            half.message.tool_calls[0].function.name == "get_weather")
    pieces = []
    for chunk in chat(client, model, tools=[WEATHER], tool_choice="required", stream=True,
                      parallel_tool_calls=False, max_completion_tokens=80):
        for piece in chunk.choices[0].delta.tool_calls or []:
            pieces.append(piece.function.arguments or "")
    yield "a call is streamed", json.loads("".join(pieces)) == arguments


def cases(client, model):
    """Yields pairs of a name and whether the case holds."""
    answer = chat(client, model)
    message = answer.choices[0].message
    yield "a chat answers as the assistant", message.role == "assistant" and message.content
    yield "usage is told", answer.usage.total_tokens == (answer.usage.prompt_tokens +
                                                         answer.usage.completion_tokens)
    text, usage, reasons = streamed_chat(client, model)
    yield "a stream gives the same text", text == message.content
    yield "a stream tells its usage", usage.completion_tokens == answer.usage.completion_tokens
    yield "a stream tells its end once", [r for r in reasons if r] == [
        answer.choices[0].finish_reason]
    two = chat(client, model, n=2, temperature=1, seed=7)
    yield "n choices", [c.index for c in two.choices] == [0, 1]
    again = chat(client, model, n=2, temperature=1, seed=7)
    yield "a seed gives the same again", [c.message.content for c in two.choices] == [
        c.message.content for c in again.choices]
    scored = chat(client, model, logprobs=True, top_logprobs=3).choices[0].logprobs.content
    yield "log-probabilities of a chat", len(scored) == answer.usage.completion_tokens and all(
        len(t.top_logprobs) == 3 and t.logprob <= 0 for t in scored)
    parts = [{"role": "user", "content": [{"type": "text", "text": "Name a river."}]}]
    yield "texts in parts", chat(client, model, messages=parts).choices[0].message.content == (
        message.content)
    done = complete(client, model)
    yield "a completion", done.choices[0].finish_reason == "length" and done.choices[0].text
    pieces = "".join(c.choices[0].text for c in complete(client, model, stream=True))
    yield "a streamed completion", pieces == done.choices[0].text
    stop = done.choices[0].text[5:9]
    cut = complete(client, model, stop=[stop])
    yield "stop strings", cut.choices[0].finish_reason == "stop" and (
        cut.choices[0].text == done.choices[0].text.split(stop)[0])
    echoed = complete(client, model, echo=True, logprobs=2, max_tokens=1)
    lists = echoed.choices[0].logprobs
    yield "echo with log-probabilities", lists.token_logprobs[0] is None and (
        len(lists.tokens) == len(lists.token_logprobs) == len(lists.top_logprobs))
    batch = complete(client, model, prompt=["The city of", "A river"])
    yield "several prompts", batch.choices[0].text == done.choices[0].text and len(
        batch.choices) == 2
    yield "logit biases", complete(client, model, max_tokens=1,
                                   logit_bias={"100": 100}).choices[0].text is not None
    extra = {"xtc_probability": 1, "xtc_threshold": 0.001, "dry_multiplier": 2, "typical_p": 0.9,
             "top_n_sigma": 2, "min_p": 0, "repeat_last_n": 64}
    drawn = {"temperature": 1.3, "top_p": 0.9, "extra_body": dict(extra, seed=5)}
    here = chat(client, model, **drawn).choices[0].message.content
    there = client.responses.create(model=model, input="Name a river.", max_output_tokens=8,
                                    **drawn).output_text
    yield "all interfaces take all options", here == there and here != message.content
    yield "and refuse them by name", refused(
        lambda: client.responses.create(model=model, input="x", extra_body={"dry_base": 0}),
        openai.BadRequestError)
    yield "models", [m.id for m in client.models.list()] == [model]
    yield "a wrong temperature is refused", refused(
        lambda: chat(client, model, temperature=-1), openai.BadRequestError)
    yield "a wrong role is refused", refused(
        lambda: chat(client, model, messages=[{"content": "x"}]), openai.BadRequestError)
    yield from structured_cases(client, model)
    yield "an unknown model's description is not found", refused(
        lambda: client.models.retrieve("absent"), openai.NotFoundError)


def main():
    """Runs all cases and reports each that fails."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--url", default="http://127.0.0.1:8080/v1")
    parser.add_argument("--api-key", default="none")
    options = parser.parse_args()
    client = openai.OpenAI(base_url=options.url, api_key=options.api_key, max_retries=0)
    model = next(iter(client.models.list())).id
    count = failed = 0
    for name, holds in cases(client, model):
        count += 1
        if not holds:
            failed += 1
            print(f"FAILED: {name}")
    print(f"{count} cases, {failed} failed (openai {openai.__version__})")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
