#!/usr/bin/env python3
"""Checks a running server with the official anthropic package, and the responses of the official
openai package (pip install anthropic openai).

    walsh serve models/walsh-tiny-13m --device cpu &
    python3 tools/check_anthropic.py [--url http://127.0.0.1:8080] [--api-key KEY]

Every case is a call as users write it; the program ends with the number of cases, status 1 if one
failed.
"""
import argparse
import json
import sys
import typing

import anthropic
import openai
import pydantic
from check_openai import refused

# Newer versions of the package have no arguments for sampling.
GREEDY = {"temperature": 0}


def ask(client, model, **more):
    """Asks for a short greedy message."""
    options = {"model": model, "max_tokens": 8, "extra_body": GREEDY,
               "messages": [{"role": "user", "content": "Name a river."}]}
    options.update(more)
    return client.messages.create(**options)


class River(pydantic.BaseModel):
    """The fields of a structured answer."""
    name: typing.Annotated[str, pydantic.Field(max_length=9)]
    long: bool
    banks: typing.Literal["left", "right"]


def structured(client, model):
    """Yields answers that match a schema, in all the ways in which the package asks for them."""
    said = [{"role": "user", "content": "Name a river."}]
    common = {"model": model, "max_tokens": 120, "extra_body": GREEDY, "messages": said}
    parsed = client.messages.parse(output_format=River, **common)
    yield "an answer is parsed", isinstance(parsed.parsed_output, River) and (
        parsed.stop_reason == "end_turn")
    older = client.beta.messages.parse(output_format=River, **common)
    yield "the beta interface parses it too", older.parsed_output == parsed.parsed_output
    with client.messages.stream(output_format=River, **common) as stream:
        final = stream.get_final_message()
    yield "a stream gives the same answer", final.parsed_output == parsed.parsed_output
    schema = {"type": "object", "properties": {"a": {"enum": ["x", "y"]}}, "required": ["a"],
              "additionalProperties": False}
    plain = client.messages.create(output_config={"format": {"type": "json_schema",
                                                             "schema": schema}}, **common)
    yield "a schema in output_config", json.loads(plain.content[0].text)["a"] in ("x", "y")
    yield "what cannot be enforced is refused", refused(
        lambda: client.messages.create(output_config={"format": {
            "type": "json_schema", "schema": {"not": {}}}}, **common), anthropic.BadRequestError)


def tools(client, model):
    """Checks tools of clients and of Anthropic's servers."""
    common = {"model": model, "max_tokens": 120, "extra_body": GREEDY,
              "messages": [{"role": "user", "content": "What is the weather in Paris?"}]}
    for kind in ("web_search_20250305", "code_execution_20250825"):
        try:
            client.messages.create(tools=[{"type": kind, "name": kind[:-9]}], **common)
            yield f"{kind} is refused", False
        except anthropic.BadRequestError as error:
            yield f"{kind} is refused by its name", kind in str(error)
    weather = {"name": "get_weather", "input_schema": {
        "type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}},
        "required": ["city"], "additionalProperties": False}}
    try:
        answer = client.messages.create(
            tools=[weather, {"type": "bash_20250124", "name": "bash"}],
            tool_choice={"type": "tool", "name": "get_weather"}, **common)
    except anthropic.BadRequestError as error:
        yield "a template without tools refuses them", "does not show tools" in str(error)
        return
    calls = [block for block in answer.content if block.type == "tool_use"]
    yield "a named tool is called once", answer.stop_reason == "tool_use" and (
        len(calls) == 1 and calls[0].input["city"] in ("Paris", "Rome"))
    yield "with nothing beside it", all(b.type == "tool_use" for b in answer.content)
    command = client.messages.create(tools=[{"type": "bash_20250124", "name": "bash"}],
                                     tool_choice={"type": "any"}, **common)
    yield "a shell's tool is called", command.content[-1].type == "tool_use" and (
        command.content[-1].name == "bash")
    common["max_tokens"] = 4
    half = client.messages.create(tools=[weather], tool_choice={"type": "any"}, **common)
    yield "half a call is a call", half.stop_reason == "max_tokens" and [
        (b.type, b.name) for b in half.content] == [("tool_use", "get_weather")]


def messages(client, model):
    """Yields cases of Anthropic's interface: pairs of a name and whether the case holds."""
    answer = ask(client, model)
    text = answer.content[0].text
    yield "a message is answered", answer.role == "assistant" and text and (
        answer.stop_reason == "max_tokens" and answer.id.startswith("msg_"))
    usage = answer.usage
    yield "usage is told", usage.output_tokens == 8 and (
        usage.input_tokens + usage.cache_read_input_tokens > 0)
    parts = [{"role": "user", "content": [{"type": "text", "text": "Name a "},
                                          {"type": "text", "text": "river."}]}]
    yield "texts in blocks", ask(client, model, messages=parts).content[0].text == text
    with client.messages.stream(model=model, max_tokens=8, extra_body=GREEDY,
                                messages=parts) as stream:
        pieces = list(stream.text_stream)
        final = stream.get_final_message()
    yield "a stream gives the same text", "".join(pieces) == text and len(pieces) > 1
    yield "and ends as the whole", final.stop_reason == "max_tokens" and (
        final.usage.output_tokens == 8 and final.content[0].text == text)
    kinds = [e.type for e in client.messages.create(
        model=model, max_tokens=8, extra_body=GREEDY, messages=parts, stream=True)]
    yield "events come in their order", kinds[:2] == ["message_start", "content_block_start"] and (
        kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"]) and (
            set(kinds[2:-3]) == {"content_block_delta"})
    stop = text[3:6]
    cut = ask(client, model, stop_sequences=[stop])
    yield "stop sequences", cut.stop_reason == "stop_sequence" and cut.stop_sequence == stop and (
        cut.content[0].text == text.split(stop)[0])
    tokens = client.messages.count_tokens(model=model, messages=parts)
    usage = ask(client, model).usage
    yield "tokens are counted", tokens.input_tokens == (usage.input_tokens +
                                                        usage.cache_read_input_tokens)
    longer = client.messages.count_tokens(model=model, messages=parts, system="Be brief.")
    yield "the system prompt counts", longer.input_tokens > tokens.input_tokens
    turns = parts + [{"role": "assistant", "content": text}, {"role": "user", "content": "More."}]
    yield "several turns", bool(ask(client, model, messages=turns).content[0].text)
    yield "a wrong temperature is refused", refused(
        lambda: ask(client, model, extra_body={"temperature": -1}), anthropic.BadRequestError)
    yield from structured(client, model)
    yield from tools(client, model)
    image = [{"role": "user", "content": [{"type": "image", "source": {
        "type": "base64", "media_type": "image/png", "data": "AA=="}}]}]
    yield "a broken image is refused", refused(
        lambda: ask(client, model, messages=image), anthropic.BadRequestError)


def respond(client, model, **more):
    """Asks for a short greedy response."""
    options = {"model": model, "max_output_tokens": 8, "temperature": 0, "input": "Name a river."}
    options.update(more)
    return client.responses.create(**options)


def responses(client, model):
    """Yields cases of OpenAI's responses."""
    answer = respond(client, model)
    text = answer.output_text
    yield "a response", text and answer.status == "incomplete" and (
        answer.incomplete_details.reason == "max_output_tokens")
    yield "its usage", answer.usage.output_tokens == 8 and answer.usage.total_tokens == (
        answer.usage.input_tokens + 8)
    chat = client.chat.completions.create(
        model=model, temperature=0, max_completion_tokens=8,
        messages=[{"role": "user", "content": "Name a river."}])
    yield "is the answer of a chat", text == chat.choices[0].message.content
    items = [{"role": "user", "content": [{"type": "input_text", "text": "Name a river."}]}]
    yield "input as items", respond(client, model, input=items).output_text == text
    told = respond(client, model, instructions="Be brief.")
    yield "instructions are evaluated", told.usage.input_tokens > answer.usage.input_tokens
    events = list(respond(client, model, stream=True))
    deltas = "".join(e.delta for e in events if e.type == "response.output_text.delta")
    yield "a stream gives the same text", deltas == text
    kinds = [e.type for e in events if e.type != "response.output_text.delta"]
    yield "events come in their order", kinds == [
        "response.created", "response.in_progress", "response.output_item.added",
        "response.content_part.added", "response.output_text.done", "response.content_part.done",
        "response.output_item.done", "response.incomplete"]
    yield "they are numbered", [e.sequence_number for e in events] == list(range(len(events)))
    yield "the last one is the response", events[-1].response.output_text == text and (
        events[-1].response.usage.output_tokens == 8)
    stop = text[3:6]
    with client.responses.stream(model=model, input="Name a river.", temperature=0,
                                 max_output_tokens=8, extra_body={"stop": [stop]}) as stream:
        final = stream.get_final_response()
    yield "the package's own stream", final.status == "completed" and (
        final.output_text == text.split(stop)[0])
    yield "earlier responses are refused", refused(
        lambda: respond(client, model, previous_response_id="resp_1"), openai.BadRequestError)


def main():
    """Runs all cases and reports each that fails."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--url", default="http://127.0.0.1:8080")
    parser.add_argument("--api-key", default="none")
    options = parser.parse_args()
    client = anthropic.Anthropic(base_url=options.url, api_key=options.api_key, max_retries=0)
    other = openai.OpenAI(base_url=options.url + "/v1", api_key=options.api_key, max_retries=0)
    model = next(iter(other.models.list())).id
    count = failed = 0
    for suite, user in ((messages, client), (responses, other)):
        for name, holds in suite(user, model):
            count += 1
            if not holds:
                failed += 1
                print(f"FAILED: {suite.__name__}: {name}")
    print(f"{count} cases, {failed} failed (anthropic {anthropic.__version__}, "
          f"openai {openai.__version__})")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
