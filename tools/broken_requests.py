"""Makes slightly malformed requests, and sends many of them in a row.

Used by stress_serve.py: valid requests of every endpoint in which a part is replaced, removed or
repeated, and bytes of which are changed.
"""
import copy
import json
import random
import socket

SCHEMA = {"type": "object", "properties": {"a": {"type": "string", "maxLength": 4},
                                           "b": {"enum": [1, None]}}, "required": ["a"]}
FUNCTION = {"name": "f", "description": "d", "parameters": SCHEMA, "strict": True}
CHAT = [{"role": "system", "content": "s"},
        {"role": "user", "content": [{"type": "text", "text": "a"}]},
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "1", "content": "r"}]
SAMPLING = {"temperature": 0.5, "top_k": 3, "top_p": 0.9, "min_p": 0.1, "seed": 1, "n": 1,
            "stop": ["x"], "logit_bias": {"5": 1}, "presence_penalty": 0.5, "samplers": ["top_k"],
            "dry_multiplier": 1, "dry_sequence_breakers": ["\n"], "stream": False,
            "stream_options": {"include_usage": True}, "repeat_penalty": 1.1}
BODIES = [
    ("/v1/completions", {"prompt": "a", "max_tokens": 1, **SAMPLING}),
    ("/v1/completions", {"prompt": [[1, 2], [3]], "max_tokens": 0, "echo": True, "logprobs": 2}),
    ("/v1/completions", {"prompt": "a", "max_tokens": 1, "json_schema": SCHEMA}),
    ("/v1/completions", {"prompt": "a", "max_tokens": 1, "grammar": 'root ::= "a" [b-d]{1,3} | r\n'
                                                                    'r ::= "x" r?'}),
    ("/v1/completions", {"prompt": "a", "max_tokens": 1, "guided_regex": "(a|[b-d]+){1,3}\\d$"}),
    ("/v1/chat/completions", {"messages": CHAT[:2], "max_tokens": 1, **SAMPLING}),
    ("/v1/chat/completions", {"messages": CHAT, "max_tokens": 1, "logprobs": True,
                              "top_logprobs": 1, "chat_template_kwargs": {"a": 1}}),
    ("/v1/chat/completions", {"messages": CHAT[:1], "max_tokens": 1, "tool_choice": "required",
                              "tools": [{"type": "function", "function": FUNCTION}]}),
    ("/v1/chat/completions", {"messages": CHAT[:1], "max_tokens": 1, "response_format": {
        "type": "json_schema", "json_schema": {"name": "n", "strict": True, "schema": SCHEMA}}}),
    ("/v1/responses", {"input": "a", "max_output_tokens": 1, "text": {"format": {
        "type": "json_schema", "name": "n", "schema": SCHEMA}}}),
    ("/v1/responses", {"max_output_tokens": 1, "instructions": "i", "reasoning": {"effort": "low"},
                       "input": [{"role": "user", "content": [{"type": "input_text", "text": "a"}]},
                                 {"type": "function_call", "call_id": "1", "name": "f",
                                  "arguments": "{}"},
                                 {"type": "function_call_output", "call_id": "1", "output": "r"}],
                       "tools": [{"type": "function", **FUNCTION}],
                       "tool_choice": {"type": "function", "name": "f"}}),
    ("/v1/messages", {"max_tokens": 1, "system": [{"type": "text", "text": "s"}], "messages": [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "f",
                                           "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1",
                                      "content": "r"}]}],
                      "tools": [{"name": "f", "input_schema": SCHEMA}],
                      "tool_choice": {"type": "any"}}),
    ("/v1/messages/count_tokens", {"messages": [{"role": "user", "content": "a"}]}),
    ("/tokenize", {"content": "a", "add_special": True, "with_pieces": True}),
    ("/detokenize", {"tokens": [1, 2, 3]}),
    ("/apply-template", {"messages": CHAT, "documents": [{"a": 1}]}),
]
VALUES = [None, True, False, 0, -1, 7, 10 ** 30, 1e308, -0.5, "", "x", "\ud800", "a" * 1000, [], {},
          [[]], [{}], {"a": "b"}, ["x"] * 20, {"1": 200}, [None], {"type": 5}, {"type": "text"}]


def places(value, found):
    """Returns every container inside a value with each of its keys."""
    if isinstance(value, (dict, list)):
        for key in value if isinstance(value, dict) else range(len(value)):
            found.append((value, key))
            places(value[key], found)
    return found


def change(body, rng):
    """Replaces, removes or repeats a part of a request."""
    found = places(body, [])
    if not found:
        return
    container, key = rng.choice(found)
    what = rng.random()
    if what < 0.7:
        container[key] = copy.deepcopy(rng.choice(VALUES))
    elif what < 0.85:
        del container[key]
    else:
        container[key] = [container[key]] * rng.randrange(1, 4)


def broken_request(rng):
    """Returns the bytes of a request."""
    path, valid = rng.choice(BODIES)
    body = copy.deepcopy(valid)
    for _ in range(rng.choice([1, 1, 2, 4])):
        change(body, rng)
    data = bytearray(json.dumps(body).encode())
    for _ in range(rng.choice([0, 0, 0, 1, 3])):
        if data:
            at = rng.randrange(len(data))
            data[at:at + rng.randrange(2)] = bytes([rng.randrange(256)])
    if rng.random() < 0.0005:
        data = bytearray(b"[" * 100000)
    method = "POST" if rng.random() < 0.97 else rng.choice(["GET", "PUT", "DELETE", "HEAD"])
    path = path if rng.random() < 0.98 else rng.choice(["/", "/x", "/v1/models/%00", "/props?a=%"])
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(data)}\r\n\r\n"
    return method, head.encode() + data


def read_answer(stream, method):
    """Returns the status of the next answer, and whether the connection stays open; None at its
    end."""
    line = stream.readline()
    if not line:
        return None
    status, length, chunked, goes_on = int(line.split()[1]), 0, False, True
    while (field := stream.readline()) not in (b"\r\n", b""):
        name, _, value = field.decode("latin-1").partition(":")
        value = value.strip().lower()
        if name.lower() == "content-length":
            length = int(value)
        chunked = chunked or (name.lower() == "transfer-encoding" and value == "chunked")
        goes_on = goes_on and not (name.lower() == "connection" and value == "close")
    if method == "HEAD":
        return status, goes_on
    if not chunked:
        stream.read(length)
    while chunked:
        length = int(stream.readline() or b"0", 16)
        stream.read(length + 2)
        chunked = length > 0
    return status, goes_on


def send_garbage(port, rng):
    """Sends bytes that are no request."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        try:
            connection.sendall(rng.randbytes(rng.randrange(1, 200)) + b"\r\n\r\n")
            connection.shutdown(socket.SHUT_WR)
            connection.recv(1000)
        except OSError:  # the server may close before everything was sent
            pass


def send_many(port, count, seed, results):
    """Sends `count` requests, 32 per connection; records the counts by status."""
    rng = random.Random(seed)
    statuses = {}
    sent = 0
    while sent < count:
        if rng.random() < 0.1:
            send_garbage(port, rng)
            statuses["garbage"] = statuses.get("garbage", 0) + 1
            sent += 1
            continue
        requests = [broken_request(rng) for _ in range(min(32, count - sent))]
        with socket.create_connection(("127.0.0.1", port), timeout=120) as connection:
            try:
                connection.sendall(b"".join(data for _, data in requests))
            except OSError:  # the server has closed after a refusal
                pass
            stream = connection.makefile("rb")
            for method, _ in requests:
                try:
                    answer = read_answer(stream, method)
                except ConnectionError:
                    break
                if answer is None:
                    break
                sent += 1
                statuses[answer[0]] = statuses.get(answer[0], 0) + 1
                if not answer[1]:
                    break
    results.put(statuses)
