#!/usr/bin/env python3
"""Checks that all texts which a JSON schema's grammar allows are valid.

    walsh serve models/walsh-tiny-13m --device cpu &
    python3 tools/check_schemas.py [--count 1000] [--url http://127.0.0.1:8080/v1]

asks a running server for answers to random schemas, sampled at a high temperature, so that the
model chooses anything that it may. Without a server, and so much faster, a program tries them:

    cmake --build build/dev --target schema_probe
    python3 tools/check_schemas.py --probe build/dev/tools/schema_probe
        [--suite JSON-Schema-Test-Suite/tests]   JSON Schema's own tests instead
        [--files 'folder/**/*.json']             schemas of these files instead

Needs the package jsonschema[format], which validates every text. Ends with status 1 if one is
invalid (or, of a server, does not end by itself), or if an instance of the suite that is invalid is
accepted. Counts what is refused, with the reasons.
"""
import argparse
import collections
import concurrent.futures
import decimal
import glob
import json
import pathlib
import random
import re
import subprocess
import sys
import urllib.error
import urllib.request

import jsonschema

NAMES = ["id", "name", "a\"b", "value", "x y", "tags", "gr\u00f6\u00dfe"]
FORMATS = ["date", "time", "date-time", "uuid", "ipv4", "email"]
PATTERNS = ["^[A-F]{1,4}(-[0-9]+)?$", "^(red|green|blue)$", r"^\d{3}-\d{4}$", "^[^\"x]{2,6}$"]


def text_schema(draw):
    """Draws a schema of strings with an end."""
    kind = draw.randrange(4)
    if kind == 0:
        return {"type": "string", "format": draw.choice(FORMATS)}
    if kind == 1:
        return {"type": "string", "pattern": draw.choice(PATTERNS), "maxLength": 12}
    least = draw.randrange(4)
    return {"type": "string", "minLength": least, "maxLength": least + draw.randrange(12)}


def number_schema(draw):
    """Draws a schema of integers or numbers, perhaps with bounds."""
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
    """Draws a schema of lists or of tuples."""
    if draw.random() < 0.3:
        return {"type": "array", "items": False,
                "prefixItems": [random_schema(draw, depth - 1) for _ in range(2)]}
    least = draw.randrange(3)
    return {"type": "array", "items": random_schema(draw, depth - 1), "minItems": least,
            "maxItems": least + draw.randrange(3)}


def object_schema(draw, depth):
    """Draws a schema of objects."""
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
    """Draws a schema that allows something, with all its answers of bounded length."""
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
    """Returns the text of the answer and why it ended."""
    body = {"prompt": "Answer: ", "max_tokens": 1500, "temperature": 1.5, "top_k": 0, "top_p": 1,
            "min_p": 0, "seed": seed, "json_schema": schema}
    request = urllib.request.Request(url + "/completions", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=600) as reply:
        choice = json.load(reply)["choices"][0]
    return choice["text"], choice["finish_reason"]


def problem(url, schema, seed):
    """Returns the reason why the answer is invalid, or nothing."""
    try:
        text, reason = answer(url, schema, seed)
        if reason != "stop":
            return f"ended by {reason}: {text[:200]}"
        jsonschema.validate(json.loads(text), schema, cls=jsonschema.Draft202012Validator,
                            format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)
    except (urllib.error.URLError, ValueError, jsonschema.ValidationError) as error:
        return str(error)[:400]
    return None


class Probe:
    """Talks to the program schema_probe: one line asks, one line answers."""

    def __init__(self, path):
        self.process = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True, encoding="utf-8")

    def ask(self, schema, instances=(), samples=0, seed=1):
        """Returns the probe's answer: "error", or "accepted" and "texts"."""
        self.process.stdin.write(json.dumps(
            {"schema": schema, "instances": list(instances), "samples": samples,
             "seed": seed}) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


DRAFTS = {"draft2020-12": jsonschema.Draft202012Validator,
          "draft2019-09": jsonschema.Draft201909Validator, "draft7": jsonschema.Draft7Validator,
          "draft6": jsonschema.Draft6Validator, "draft4": jsonschema.Draft4Validator}


def multiple_of(validator, unit, instance, schema):
    """Yields an error if a number is no multiple in decimals, as JSON writes it: the package
    divides doubles, for which 0.07 is no multiple of 0.01."""
    del schema
    if validator.is_type(instance, "number") and decimal.Decimal(repr(instance)) % \
            decimal.Decimal(repr(unit)) != 0:
        yield jsonschema.ValidationError(f"{instance!r} is not a multiple of {unit!r}")


def judge_of(draft):
    """Returns the package's validator of a draft with two defects mended: multiples, and 2019-09's
    unevaluatedProperties, which does not know what a schema in additionalProperties evaluates."""
    mended = {"multipleOf": multiple_of}
    if draft is jsonschema.Draft201909Validator:
        newer = jsonschema.Draft202012Validator.VALIDATORS
        mended["unevaluatedProperties"] = newer["unevaluatedProperties"]
    # 300 digits are more than doubles have before and behind the point.
    decimal.getcontext().prec = 700
    return jsonschema.validators.extend(draft, mended)


def invalid(text, schema, draft):
    """Returns the reason why a text is invalid, or nothing; also for classes unknown to Python."""
    try:
        judge_of(draft)(schema, format_checker=draft.FORMAT_CHECKER).validate(json.loads(text))
    except re.error:
        return None
    except (ValueError, jsonschema.ValidationError) as error:
        return str(error)[:300]
    return None


class Tally:
    """Counts the results of all schemas."""

    def __init__(self):
        self.compiled = self.texts = self.unheard = 0
        self.refused, self.wrong = collections.Counter(), []

    def refuse(self, reason):
        """Counts a refusal by its last keyword and its message."""
        place, _, words = reason.partition(": ")
        keyword = place.rpartition("/")[2] if "/" in place else ""
        self.refused[f"{keyword}: " + re.sub(r"'[^']*'|[0-9]+", "...", words)[:70]] += 1

    def sample(self, reply, schema, draft):
        """Validates the texts of an answer; false if the schema was refused."""
        if "error" in reply:
            self.refuse(reply["error"])
            return False
        self.compiled += 1
        for text in reply["texts"]:
            self.texts += 1
            if problem_found := invalid(text, schema, draft):
                self.wrong.append((schema, text, problem_found))
        return True

    def report(self):
        """Prints all counts; returns the exit status."""
        for schema, text, reason in self.wrong[:20]:
            print(f"WRONG: {json.dumps(schema)[:600]}\n    {text[:300]}\n    {reason}")
        for reason, count in self.refused.most_common(40):
            print(f"{count:6} refused: {reason}")
        print(f"{self.compiled} schemas compiled, {sum(self.refused.values())} refused, "
              f"{self.texts} texts, {len(self.wrong)} wrong, "
              f"{self.unheard} valid instances not accepted")
        return 1 if self.wrong else 0


def check_suite(probe, folder, samples, verbose):
    """Runs JSON Schema's own tests: no invalid instance may be accepted."""
    tally = Tally()
    for name, draft in DRAFTS.items():
        for path in sorted((pathlib.Path(folder) / name).rglob("*.json")):
            for group in json.loads(path.read_text(encoding="utf-8")):
                schema = group["schema"]
                if isinstance(schema, dict) and "$schema" not in schema:
                    schema = {"$schema": draft.META_SCHEMA["$schema"], **schema}
                texts = [json.dumps(test["data"], ensure_ascii=False) for test in group["tests"]]
                reply = probe.ask(schema, texts, samples)
                if not tally.sample(reply, schema, draft):
                    continue
                for test, text, accepted in zip(group["tests"], texts, reply["accepted"]):
                    if accepted and not test["valid"]:
                        tally.wrong.append((schema, text, "an invalid instance is accepted"))
                    tally.unheard += test["valid"] and not accepted
                    if verbose and test["valid"] and not accepted:
                        print(f"not accepted: {path.stem}: {json.dumps(schema)[:200]}: {text}")
    return tally.report()


def check_files(probe, pattern, samples):
    """Checks the schemas in files; files without a schema of a known draft are skipped."""
    tally = Tally()
    for path in sorted(glob.glob(pattern, recursive=True)):
        try:
            schema = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
            draft = jsonschema.validators.validator_for(schema, jsonschema.Draft202012Validator)
            draft.check_schema(schema)
        except (ValueError, OSError, jsonschema.SchemaError):
            continue
        try:
            tally.sample(probe.ask(schema, (), samples), schema, draft)
        except Exception as error:  # pylint: disable=broad-except
            print(f"{path}: the validator: {type(error).__name__}: {str(error)[:100]}")
    return tally.report()


def check_random(probe, count, seed, samples):
    """Checks random schemas without a server."""
    tally = Tally()
    for number, schema in enumerate(random_schemas(count, seed)):
        tally.sample(probe.ask(schema, (), samples, number), schema,
                     jsonschema.Draft202012Validator)
    return tally.report()


def random_schemas(count, seed):
    """Returns schemas from a seed."""
    draw = random.Random(seed)
    schemas = []
    for _ in range(count):
        schema = random_schema(draw, 3)
        schema["$defs"] = {"leaf": {"type": ["integer", "null"]}}
        schemas.append(schema)
    return schemas


def main():
    """Checks all schemas, eight at a time."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--url", default="http://127.0.0.1:8080/v1")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--probe")
    parser.add_argument("--suite")
    parser.add_argument("--files")
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    if options.probe:
        probe = Probe(options.probe)
        if options.suite:
            return check_suite(probe, options.suite, options.samples, options.verbose)
        if options.files:
            return check_files(probe, options.files, options.samples)
        return check_random(probe, options.count, options.seed, options.samples)
    schemas = random_schemas(options.count, options.seed)
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
