#!/usr/bin/env python3
"""What a server makes of its model: `walsh serve` under closed loops of clients against
`walsh bench` with as many sequences, in turns, so that both see the same machine.

    python3 tools/compare_load.py build/release/walsh MODEL [--clients 1,4,16] [--rounds 3]
        [--other http://127.0.0.1:8000/v1 --other-model NAME]

`--other` is a further server that speaks OpenAI's completions (vLLM's, say), which takes its turns
too. Prints tokens per second of all sequences together, the medians of the rounds. Clients send
short prompts, so that both sides spend their time on generated tokens.
"""
import argparse
import json
import re
import statistics
import subprocess
import sys
import time
import urllib.parse

import load_serve


def bench(options, clients):
    """Tokens per second of walsh bench."""
    command = [options.walsh, "bench", options.model, "--device", "cpu", "-p", "0", "-n",
               str(options.tokens), "--parallel", str(clients), "-r", "1", "-o", "json"]
    if options.threads:
        command += ["-t", str(options.threads)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)[-1]["tokens_per_s"]


def load(options, url, clients, seed):
    """Tokens per second that clients of a server see, all together, and their mean times."""
    wanted = argparse.Namespace(
        clients=clients, requests=clients, prompt=4, shared_prefix=0, tokens=options.tokens,
        temperature=0, seed=seed, api_key="", timeout=3600, model=options.other_model)
    start = time.perf_counter()
    results = load_serve.closed_loop(wanted, urllib.parse.urlsplit(url))
    seconds = time.perf_counter() - start
    errors = [result.error for result in results if result.error]
    if errors:
        raise SystemExit(f"{url}: {errors[0]}")
    return sum(result.tokens for result in results) / seconds


def start_server(options):
    """The process and its address."""
    command = [options.walsh, "serve", options.model, "--device", "cpu", "--port", "0", "--ctx",
               "512"]
    if options.threads:
        command += ["-t", str(options.threads)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    line = process.stderr.readline()
    found = re.search(r"http://\S+/v1", line)
    if not found:
        raise SystemExit("the server did not start: " + line)
    return process, found.group(0)


def measure(options, url, clients):
    """A row of the table."""
    rates = {"bench": [], "serve": [], "other": []}
    for number in range(options.rounds):
        seed = 1000 * clients + number
        rates["bench"].append(bench(options, clients))
        rates["serve"].append(load(options, url, clients, seed))
        if options.other:
            rates["other"].append(load(options, options.other, clients, seed))
    median = {name: statistics.median(values) for name, values in rates.items() if values}
    row = (f"| {clients} | {median['bench']:.1f} | {median['serve']:.1f} | "
           f"{100 * median['serve'] / median['bench']:.0f} % |")
    if options.other:
        row += f" {median['other']:.1f} | {median['serve'] / median['other']:.1f} |"
    print(row, flush=True)


def main():
    """Starts the server and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("walsh")
    parser.add_argument("model")
    parser.add_argument("--clients", default="1,4,16")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--other", default="")
    parser.add_argument("--other-model", default="any")
    options = parser.parse_args()
    process, url = start_server(options)
    more = " other | serve to other |" if options.other else ""
    print(f"| clients | bench | serve | serve to bench |{more}\n|---|---|---|---|"
          + ("---|---|" if options.other else ""))
    try:
        load(options, url, 1, 0)
        if options.other:
            load(options, options.other, 1, 0)
        for clients in options.clients.split(","):
            measure(options, url, int(clients))
    finally:
        process.terminate()
        process.wait(60)
    return 0


if __name__ == "__main__":
    sys.exit(main())
