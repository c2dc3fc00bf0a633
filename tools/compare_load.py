#!/usr/bin/env python3
"""Compares `walsh serve` under closed loops of clients with `walsh bench` with as many sequences,
in turns, so that both see the same machine.

    python3 tools/compare_load.py build/release/walsh MODEL [--clients 1,4,16] [--rounds 3]
        [--other http://127.0.0.1:8000/v1 --other-model NAME] [--prefix 2000]

MODEL may be synthetic:SHAPE:TYPE. `--other` is a further server with OpenAI's completions
endpoint (vLLM, for example), which takes its turns too. Prints tokens per second of all sequences
together, as medians over the rounds, and the clients' own processor time per token. Clients send
short prompts, so that both sides spend their time on generated tokens. `--prefix` adds the time to
the first token after prompts of that length: different ones, and ones with a common prefix.
"""
import argparse
import json
import re
import statistics
import subprocess
import sys
import urllib.parse

import load_serve

OWN_TOKENS = 16  # a prompt has this many tokens after the prefix


def machine(options):
    """Returns the flags that both commands get."""
    return ["--device", options.device] + (["-t", str(options.threads)] if options.threads else [])


def bench(options, clients):
    """Returns the tokens per second of walsh bench."""
    command = [options.walsh, "bench", options.model, *machine(options), "-p", "0", "-n",
               str(options.tokens), "--parallel", str(clients), "-r", "1", "-o", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)[-1]["tokens_per_s"]


def load(options, url, clients, seed, **more):
    """Returns the results of one load, its duration, and the clients' processor time."""
    wanted = load_serve.make_parser().parse_args([])
    vars(wanted).update({"clients": clients, "requests": clients * options.requests, "prompt": 8,
                         "vocabulary": 256, "tokens": options.tokens, "seed": seed,
                         "timeout": 3600, "processes": options.processes,
                         "model": options.other_model} | more)
    results, seconds, busy = load_serve.run(wanted, urllib.parse.urlsplit(url))
    errors = [result.error for result in results if result.error]
    if errors:
        raise SystemExit(f"{url}: {errors[0]}")
    return results, seconds, busy


def start_server(options):
    """Returns the process and its address."""
    most = max(options.clients, default=1)
    context = max(512, options.tokens + 64, options.prefix + 2 * OWN_TOKENS)
    command = [options.walsh, "serve", options.model, *machine(options), "--port", "0", "--ctx",
               str(context), "-P", str(max(16, most)), "--cache-positions",
               str(max(16, most) * max(512, options.tokens + 64) + 8 * options.prefix)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    said = ""
    for line in process.stderr:
        said += line
        found = re.search(r"http://\S+/v1", line)
        if found:
            return process, found.group(0)
    raise SystemExit("the server did not start: " + said)


def measure(options, url, clients):
    """Prints a row of the table."""
    rates, busy = {"bench": [], "serve": [], "other": []}, []

    def add(name, address, seed):
        results, seconds, took = load(options, address, clients, seed)
        tokens = sum(result.tokens for result in results)
        rates[name].append(tokens / seconds)
        busy.append(1e6 * took / tokens)

    # Warms up: kernels, and on a GPU recorded steps for each length of context.
    load(options, url, clients, 10 ** 6 + clients, requests=clients)
    for number in range(options.rounds):
        seed = 1000 * clients + number
        rates["bench"].append(bench(options, clients))
        add("serve", url, seed)
        if options.other:
            add("other", options.other, seed)
    median = {name: statistics.median(values) for name, values in rates.items() if values}
    row = (f"| {clients} | {median['bench']:.1f} | {median['serve']:.1f} | "
           f"{100 * median['serve'] / median['bench']:.0f} % | {statistics.median(busy):.0f} |")
    if options.other:
        row += f" {median['other']:.1f} | {median['serve'] / median['other']:.1f} |"
    print(row, flush=True)


def measure_prefix(options, url):
    """Prints the milliseconds to the first token, for one client with one prompt after the
    other."""
    times = {}
    for name, shared, own in (("different", 0, options.prefix + OWN_TOKENS),
                              ("alike", options.prefix, OWN_TOKENS)):
        results, _, _ = load(options, url, 1, 7, requests=options.prefix_requests + 1, prompt=own,
                             shared_prefix=shared, vocabulary=256, tokens=8, processes=1)
        # The first prompt finds nothing in the prefix cache.
        firsts = [1e3 * result.first for result in results[1:] if result.first is not None]
        times[name] = statistics.median(firsts)
        print(f"prompts of {options.prefix + OWN_TOKENS} tokens, {name}: first token after "
              f"{times[name]:.1f} ms (median of {len(firsts)}, "
              f"{min(firsts):.1f} to {max(firsts):.1f}), "
              f"{sum(result.cached_tokens for result in results[1:]) // len(results[1:])} known")
    print(f"a shared prefix takes {100 * times['alike'] / times['different']:.1f} % of the time")


def main():
    """Starts the server and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("walsh")
    parser.add_argument("model")
    parser.add_argument("--clients", default="1,4,16",
                        type=lambda text: [int(number) for number in text.split(",") if number])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--requests", type=int, default=1, help="of each client in a round")
    parser.add_argument("--processes", type=int, default=1, help="of the clients")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--other", default="")
    parser.add_argument("--other-model", default="any")
    parser.add_argument("--prefix", type=int, default=0, help="tokens that prompts may share")
    parser.add_argument("--prefix-requests", type=int, default=8, help="of each kind")
    options = parser.parse_args()
    process, url = start_server(options)
    more = " other | serve to other |" if options.other else ""
    print(f"| clients | bench | serve | serve to bench | us of a client per token |{more}\n"
          "|---|---|---|---|---|" + ("---|---|" if options.other else ""))
    try:
        if options.other:
            load(options, options.other, 1, 0)
        for clients in options.clients:
            measure(options, url, clients)
        if options.prefix:
            measure_prefix(options, url)
    finally:
        process.terminate()
        process.wait(60)
    return 0


if __name__ == "__main__":
    sys.exit(main())
