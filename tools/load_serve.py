#!/usr/bin/env python3
"""Loads a server that has OpenAI's completions endpoint, and reports what its clients see.

Closed loop (--clients N): so many clients, each with one request after the other. Open loop (--rate
R): requests at random times, R per second on average, whatever the server does. Prompts are random
words of the lengths asked for, different ones unless --shared-prefix says otherwise; with
--vocabulary they are token ids. Prints the figures that vLLM's bench_serving prints: time to first
token (TTFT), time between tokens (ITL), tokens per second, as means and percentiles; and the
processor time that the clients themselves take, which tells whether they or the server are slow:
--processes divides them. Nothing but Python's own library is needed.
"""
import argparse
import http.client
import json
import multiprocessing
import random
import statistics
import sys
import threading
import time
import urllib.parse

WORDS = ("the of and to in is was for on that with as by at from his it an were are which this "
         "also be had has one their not first but new its city river house garden small great "
         "old").split()
# Threads switch often, so that none delays the others while it reads its events.
SWITCH_SECONDS = 0.0005


class Result:
    """Holds one request as its client saw it."""

    def __init__(self):
        self.error = None
        self.events = []  # these are raw events with times, which are parsed after the load
        self.first = None  # the first token took this many seconds
        self.gaps = []  # these are seconds between tokens
        self.tokens = 0
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self.seconds = 0.0

    def read(self):
        """Reads the events of the stream."""
        last, rest = 0.0, b""
        for when, piece in self.events:
            lines = (rest + piece).split(b"\n")
            rest = lines.pop()
            for line in lines:
                if not line.startswith(b"data: {"):
                    continue
                chunk = json.loads(line[6:])
                if chunk.get("usage"):
                    usage = chunk["usage"]
                    self.tokens = usage["completion_tokens"]
                    self.prompt_tokens = usage["prompt_tokens"]
                    details = usage.get("prompt_tokens_details") or {}
                    self.cached_tokens = details.get("cached_tokens", 0)
                elif chunk["choices"] and chunk["choices"][0].get("text"):
                    if self.first is None:
                        self.first = when
                    else:
                        self.gaps.append(when - last)
                    last = when
                elif "error" in chunk:
                    self.error = str(chunk["error"])
        self.events = []


def ask(options, url, prompt, seed):
    """Sends one streaming request and returns its Result."""
    result = Result()
    body = {"model": options.model, "prompt": prompt, "max_tokens": options.tokens, "stream": True,
            "ignore_eos": True, "temperature": options.temperature, "seed": seed,
            "stream_options": {"include_usage": True}}
    headers = {"Content-Type": "application/json"}
    if options.api_key:
        headers["Authorization"] = "Bearer " + options.api_key
    start = time.perf_counter()
    try:
        connection = http.client.HTTPConnection(url.hostname, url.port, timeout=options.timeout)
        connection.request("POST", url.path.rstrip("/") + "/completions", json.dumps(body), headers)
        response = connection.getresponse()
        if response.status != 200:
            result.error = f"status {response.status}"
            response.read()
            return result
        while piece := response.read1():
            result.events.append((time.perf_counter() - start, piece))
        connection.close()
    except (OSError, http.client.HTTPException) as error:
        result.error = f"{type(error).__name__}: {error}"
    result.seconds = time.perf_counter() - start
    return result


def make_prompt(options, number):
    """Returns a prompt of about --prompt tokens, after what all prompts share."""
    words = range(options.vocabulary) if options.vocabulary else WORDS
    shared = random.Random(options.seed).choices(words, k=options.shared_prefix)
    own = random.Random(options.seed * 1_000_003 + number).choices(words, k=options.prompt)
    return shared + own if options.vocabulary else " ".join(shared + own)


def closed_loop(options, url, clients, numbers):
    """Lets every client send its next request when the last one has ended."""
    results, lock, rest = [], threading.Lock(), iter(numbers)

    def client():
        while True:
            with lock:
                number = next(rest, None)
            if number is None:
                return
            result = ask(options, url, make_prompt(options, number), number)
            with lock:
                results.append(result)

    threads = [threading.Thread(target=client) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def open_loop(options, url, numbers):
    """Sends requests at the times of a Poisson process."""
    results, lock, threads = [], threading.Lock(), []
    times = random.Random(options.seed + numbers[0])

    def client(number):
        result = ask(options, url, make_prompt(options, number), number)
        with lock:
            results.append(result)

    for number in numbers:
        threads.append(threading.Thread(target=client, args=(number,)))
        threads[-1].start()
        time.sleep(times.expovariate(options.rate / options.processes))
    for thread in threads:
        thread.join()
    return results


def share_of_load(options, url, number, gate, answers):
    """Does the work of one process: returns its results, its duration and its processor time."""
    sys.setswitchinterval(SWITCH_SECONDS)
    numbers = range(options.requests)[number::options.processes]
    clients = len(range(options.clients)[number::options.processes])
    gate.wait()
    start, busy = time.perf_counter(), time.process_time()
    results = (open_loop(options, url, numbers) if options.rate > 0
               else closed_loop(options, url, clients, numbers))
    seconds, busy = time.perf_counter() - start, time.process_time() - busy
    for result in results:
        result.read()
    answers.put((results, seconds, busy))


def run(options, url):
    """Runs the load; returns all results, the duration, and the clients' processor time."""
    options.processes = max(1, min(options.processes, options.requests,
                                   options.requests if options.rate > 0 else options.clients))
    answers, gate = multiprocessing.Queue(), multiprocessing.Barrier(options.processes)
    shares = [multiprocessing.Process(target=share_of_load,
                                      args=(options, url, number, gate, answers))
              for number in range(options.processes)]
    for share in shares:
        share.start()
    parts = [answers.get() for _ in shares]
    for share in shares:
        share.join()
    return ([result for part in parts for result in part[0]], max(part[1] for part in parts),
            sum(part[2] for part in parts))


def percentile(values, share):
    """Returns the value below which the given share of the values lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def line(name, values):
    """Returns one row of the table, in milliseconds."""
    if not values:
        return f"| {name} | - | - | - | - |"
    cells = [statistics.mean(values)] + [percentile(values, p) for p in (0.5, 0.9, 0.99)]
    return f"| {name} | " + " | ".join(f"{1e3 * v:.1f}" for v in cells) + " |"


def report(options, results, seconds, busy):
    """Returns the figures as text, or as one JSON object."""
    good = [r for r in results if r.error is None]
    tokens = sum(r.tokens for r in good)
    firsts = [r.first for r in good if r.first is not None]
    gaps = [g for r in good for g in r.gaps]
    if options.json:
        return json.dumps({
            "requests": len(results), "failed": len(results) - len(good), "seconds": seconds,
            "tokens": tokens, "tokens_per_second": tokens / seconds, "client_seconds": busy,
            "prompt_tokens": sum(r.prompt_tokens for r in good),
            "cached_tokens": sum(r.cached_tokens for r in good),
            "ttft_mean": statistics.mean(firsts) if firsts else None,
            "itl_mean": statistics.mean(gaps) if gaps else None})
    errors = sorted({r.error for r in results if r.error})
    head = (f"{len(good)} of {len(results)} requests in {seconds:.2f} s: "
            f"{tokens} tokens, {tokens / seconds:.1f} tokens/s; prompts "
            f"{sum(r.prompt_tokens for r in good)} tokens, of which "
            f"{sum(r.cached_tokens for r in good)} were known; clients took "
            f"{1e6 * busy / max(1, tokens):.0f} us of a processor per token\n")
    table = ["| ms | mean | p50 | p90 | p99 |", "|---|---|---|---|---|", line("TTFT", firsts),
             line("ITL", gaps), line("request", [r.seconds for r in good])]
    return head + "\n".join(table + [f"failed: {e}" for e in errors])


def make_parser():
    """Makes the parser of the options, also for those who call run()."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:8080/v1")
    parser.add_argument("--clients", type=int, default=4, help="closed loop: clients at a time")
    parser.add_argument("--rate", type=float, default=0, help="open loop: requests per second")
    parser.add_argument("--requests", type=int, default=32)
    parser.add_argument("--processes", type=int, default=1, help="that the clients are divided to")
    parser.add_argument("--prompt", type=int, default=64, help="words of a prompt")
    parser.add_argument("--shared-prefix", type=int, default=0, help="words that all begin with")
    parser.add_argument("--vocabulary", type=int, default=0,
                        help="prompts are token ids below this instead of words")
    parser.add_argument("--tokens", type=int, default=64, help="to generate")
    parser.add_argument("--temperature", type=float, default=0)
    parser.add_argument("--api-key", default="")
    parser.add_argument("--model", default="any", help="as the server calls it")
    parser.add_argument("--timeout", type=float, default=600)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    return parser


def main():
    """Parses the command line, loads, reports; status 1 if a request failed."""
    options = make_parser().parse_args()
    results, seconds, busy = run(options, urllib.parse.urlsplit(options.url))
    print(report(options, results, seconds, busy))
    return 1 if any(r.error for r in results) else 0


if __name__ == "__main__":
    sys.exit(main())
