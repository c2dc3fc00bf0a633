#!/usr/bin/env python3
"""Checks a running server with lm-evaluation-harness' local-completions.

    walsh serve models/walsh-tiny-13m --device cpu &
    python3 tools/check_lm_eval.py [--url http://127.0.0.1:8080/v1] [--tokenizer FOLDER]

Needs the packages lm-eval[api] (0.4.13) and transformers. Tasks of our own (choices, rolling
likelihoods, generated texts) are run from a temporary folder; what the harness makes of each
example has to be what the server says when it is asked directly, with other requests. Ends with
status 1 if a case fails.
"""
import argparse
import json
import os
import pathlib
import sys
import tempfile
import urllib.request

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_DATASETS_OFFLINE", "1")

import lm_eval  # noqa: E402
from lm_eval.tasks import TaskManager  # noqa: E402
from transformers import AutoTokenizer  # noqa: E402

CHOICES = [("The city of", [" London is", " xq zzv", " the be"]),
           ("In the year", [" of the", " purple of of"]),
           ("He went to the", [" house", " of", "\u00e9t\u00e9"])]
TEXTS = ["The river runs through the town.\nIt is wide and slow, and boats go down to the sea.",
         "Na\u00efve caf\u00e9s \u2014 \u4f60\u597d \U0001f600 and some plain words at the end."]
PROMPTS = ["The city of London is", "Once upon a time", "It was the"]
STOP, TOKENS = "the", 24

TASK = """task: {name}
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: {kind}
"""
KINDS = {
    "choices": ("multiple_choice",
                'doc_to_text: "{{context}}"\ndoc_to_choice: "{{choices}}"\ndoc_to_target: 0\n'
                'target_delimiter: ""\nmetric_list: [{metric: acc}]\n'),
    "rolling": ("loglikelihood_rolling",
                'doc_to_text: ""\ndoc_to_target: "{{text}}"\n'
                'metric_list: [{metric: word_perplexity}]\n'),
    "texts": ("generate_until",
              'doc_to_text: "{{text}}"\ndoc_to_target: ""\nmetric_list: [{metric: exact_match}]\n'
              'generation_kwargs: {until: ["%s"], max_gen_toks: %d, temperature: 0}\n'
              % (STOP, TOKENS)),
}


class Server:
    """Asks the server directly, one request per value."""

    def __init__(self, url, tokenizer):
        self.url, self.tokenizer = url, tokenizer

    def complete(self, **request):
        """Returns the only choice of a completion."""
        data = json.dumps({"model": "walsh", "temperature": 0, **request}).encode()
        head = {"Content-Type": "application/json"}
        call = urllib.request.Request(self.url + "/completions", data, head)
        with urllib.request.urlopen(call, timeout=120) as answer:
            return json.load(answer)["choices"][0]

    def likelihood(self, context, rest):
        """Returns the log-probability of tokens given the tokens before them."""
        got = self.complete(prompt=context + rest, echo=True, logprobs=0, max_tokens=0)
        return sum(got["logprobs"]["token_logprobs"][len(context):])


def expected(server, bos):
    """Returns the expected result for each task and example."""
    def encode(text):
        return server.tokenizer.encode(text, add_special_tokens=bos)

    def choice(context, rest):
        first = encode(context)
        return server.likelihood(first, encode(context + rest)[len(first):])

    start = [server.tokenizer.bos_token_id or server.tokenizer.eos_token_id]
    return {"choices": [[choice(context, c) for c in choices] for context, choices in CHOICES],
            "rolling": [server.likelihood(start, encode(t)) for t in TEXTS],
            "texts": [server.complete(prompt=encode(p), max_tokens=TOKENS, stop=[STOP])["text"]
                      for p in PROMPTS]}


def write_tasks(folder):
    """Writes the data and descriptions of all tasks."""
    data = {"choices": [{"context": c, "choices": list(o)} for c, o in CHOICES],
            "rolling": [{"text": t} for t in TEXTS], "texts": [{"text": p} for p in PROMPTS]}
    for name, rows in data.items():
        path = folder / f"{name}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        kind, more = KINDS[name]
        task = TASK.format(name=f"walsh_{name}", data=path, kind=kind) + more
        (folder / f"{name}.yaml").write_text(task)


def found(result, name):
    """Returns the answers that the harness received, in the order of the examples."""
    samples = sorted(result["samples"][f"walsh_{name}"], key=lambda sample: sample["doc_id"])
    if name == "choices":
        return [[float(one[0][0]) for one in sample["resps"]] for sample in samples]
    if name == "rolling":
        return [float(first(sample["resps"])) for sample in samples]
    return [first(sample["resps"]) for sample in samples]


def first(value):
    """Returns the innermost first element of nested lists."""
    while isinstance(value, (list, tuple)):
        value = value[0]
    return value


def same(one, other):
    """Returns whether two answers agree: texts exactly, likelihoods to rounding."""
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other if isinstance(one, str) else abs(one - other) <= 1e-3 * (1 + abs(one))


def main():
    """Runs all tasks with and without a token before texts, one at a time and concurrently."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--url", default="http://127.0.0.1:8080/v1")
    parser.add_argument("--tokenizer", default="models/walsh-tiny-13m")
    options = parser.parse_args()
    tokenizer = AutoTokenizer.from_pretrained(options.tokenizer)
    server = Server(options.url, tokenizer)
    cases = failed = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        os.environ["HF_DATASETS_CACHE"] = str(folder / "cache")
        write_tasks(folder)
        for bos, concurrent, batch in [(False, 1, 1), (True, 1, 1), (True, 4, 2)]:
            right = expected(server, bos)
            arguments = {"model": "walsh", "base_url": options.url + "/completions",
                         "tokenizer": options.tokenizer, "tokenizer_backend": "huggingface",
                         "add_bos_token": bos, "num_concurrent": concurrent, "max_retries": 1,
                         "max_length": 512}
            result = lm_eval.simple_evaluate(
                model="local-completions", model_args=arguments, batch_size=batch,
                tasks=[f"walsh_{kind}" for kind in KINDS], bootstrap_iters=0,
                task_manager=TaskManager(include_path=str(folder), include_defaults=False))
            for kind in KINDS:
                cases += 1
                if not same(right[kind], found(result, kind)):
                    failed += 1
                    print(f"FAILED {kind} (begin {bos}, {concurrent} at a time): "
                          f"{found(result, kind)}, expected {right[kind]}")
    print(f"{cases} cases, {failed} failed (lm_eval {lm_eval.__version__})")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
