#!/usr/bin/env python3
"""Asks a running server for answers to random JSON schemas and validates every one.

    walsh serve models/walsh-tiny-13m --device cpu &
    python3 tools/check_schemas.py [--count 1000] [--url http://127.0.0.1:8080/v1]

Needs the package jsonschema. The schemas come from a seed; answers are sampled at a high
temperature, so that the model chooses anything that it may. Ends with status 1 if an answer is
invalid or does not end by itself.
"""
import argparse
import concurrent.futures
import json
import random
import sys
import urllib.error
import urllib.request

import jsonschema

NAMES = ["id", "name", "a\"b", "value", "x y", "tags", "gr\u00f6\u00dfe"]
FORMATS = ["date", "time", "date-time", "uuid", "ipv4", "email"]
PATTERNS = ["^[A-F]{1,4}(-[0-9]+)?$", "^(red|green|blue)$", r"^\d{3}-\d{4}$", "^[^\"x]{2,6}$"]


def text_schema(draw):
    """A schema of strings with an end."""
    kind = draw.randrange(4)
    if kind == 0:
        return {"type": "string", "format": draw.choice(FORMATS)}
    if kind == 1:
        return {"type": "string", "pattern": draw.choice(PATTERNS), "maxLength": 12}
    least = draw.randrange(4)
    return {"type": "string", "minLength": least, "maxLength": least + draw.randrange(12)}


def number_schema(draw):
    """A schema of integers or numbers, perhaps with bounds."""
    integer = draw.random() < 0.5
    schema = {"type": "integer" if integer else "number"}
    least = draw.randrange(-2000, 2000) * (1 if integer else 0.25)
    if draw.random() < 0.5:
        schema[draw.choice(["minimum", "exclusiveMinimum"])] = least
    if draw.random() < 0.5:
        schema[draw.choice(["maximum", "exclusiveMaximum"])] = least + 10 + draw.randrange(500)
    if integer and draw.random() < 0.2:
        schema["multipleOf"] = draw.randrange(1, 9)
    return schema


def array_schema(draw, depth):
    """A schema of lists or of tuples."""
    if draw.random() < 0.3:
        return {"type": "array", "items": False,
                "prefixItems": [random_schema(draw, depth - 1) for _ in range(2)]}
    least = draw.randrange(3)
    return {"type": "array", "items": random_schema(draw, depth - 1), "minItems": least,
            "maxItems": least + draw.randrange(3)}


def object_schema(draw, depth):
    """A schema of objects."""
    schema = {"type": "object", "properties": {}, "required": []}
    for name in NAMES:
        if draw.random() < 0.5:
            schema["properties"][name] = random_schema(draw, depth - 1)
            if draw.random() < 0.5:
                schema["required"].append(name)
    if draw.random() < 0.5:
        schema["additionalProperties"] = False
    if draw.random() < 0.2:
        return {"allOf": [schema, {"type": "object", "minProperties": len(schema["required"])}]}
    return schema


def random_schema(draw, depth):
    """A schema that allows something, with all its answers of bounded length."""
    kinds = [lambda: {"type": draw.choice(["null", "boolean"])}, lambda: text_schema(draw),
             lambda: number_schema(draw),
             lambda: {"enum": ["red", 7, None, "a\"b", [1, "x"], {"k": 0.5}]},
             lambda: {"const": draw.choice(["fixed", -12.5, [True]])}]
    if depth > 0:
        kinds += [lambda: array_schema(draw, depth), lambda: object_schema(draw, depth),
                  lambda: object_schema(draw, depth),
                  lambda: {"anyOf": [random_schema(draw, depth - 1) for _ in range(2)]},
                  lambda: {"type": "object", "required": ["next"], "properties": {
                      "next": {"$ref": "#/$defs/leaf"}}}]
    return draw.choice(kinds)()


def answer(url, schema, seed):
    """The text of the answer and why it ended."""
    body = {"prompt": "Answer: ", "max_tokens": 1500, "temperature": 1.5, "top_k": 0, "top_p": 1,
            "min_p": 0, "seed": seed, "json_schema": schema}
    request = urllib.request.Request(url + "/completions", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=600) as reply:
        choice = json.load(reply)["choices"][0]
    return choice["text"], choice["finish_reason"]


def problem(url, schema, seed):
    """What is wrong with the answer, or nothing."""
    try:
        text, reason = answer(url, schema, seed)
        if reason != "stop":
            return f"ended by {reason}: {text[:200]}"
        jsonschema.validate(json.loads(text), schema, cls=jsonschema.Draft202012Validator,
                            format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)
    except (urllib.error.URLError, ValueError, jsonschema.ValidationError) as error:
        return str(error)[:400]
    return None


def main():
    """Checks all schemas, eight at a time."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--url", default="http://127.0.0.1:8080/v1")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    draw = random.Random(options.seed)
    schemas = []
    for _ in range(options.count):
        schema = random_schema(draw, 3)
        schema["$defs"] = {"leaf": {"type": ["integer", "null"]}}
        schemas.append(schema)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda one: problem(options.url, one[1], one[0]),
                              enumerate(schemas)))
    failed = [(schema, text) for schema, text in zip(schemas, found) if text]
    for schema, text in failed[:10]:
        print(f"FAILED: {json.dumps(schema)}\n    {text}")
    print(f"{len(schemas)} schemas, {len(failed)} answers invalid or unfinished")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
