#!/usr/bin/env python3
"""Loads a server that speaks OpenAI's completions and tells what its clients see.

Closed loop (--clients N): so many clients, each with one request after the other. Open loop (--rate
R): requests at random times, R per second on average, whatever the server does. Prompts are random
words of the lengths asked for, different ones unless --shared-prefix says otherwise. Prints the
figures that vLLM's bench_serving prints: time to first token (TTFT), time between tokens (ITL),
tokens per second, as means and percentiles. Nothing but Python's own library is needed.
"""
import argparse
import http.client
import json
import random
import statistics
import sys
import threading
import time
import urllib.parse

WORDS = ("the of and to in is was for on that with as by at from his it an were are which this "
         "also be had has one their not first but new its city river house garden small great "
         "old").split()


class Result:
    """One request as its client saw it."""

    def __init__(self):
        self.error = None
        self.first = None  # seconds to the first token
        self.gaps = []  # seconds between tokens
        self.tokens = 0
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self.seconds = 0.0


def ask(options, url, prompt, seed):
    """Sends one streaming request and returns its Result."""
    result = Result()
    body = {"model": options.model, "prompt": prompt, "max_tokens": options.tokens, "stream": True,
            "ignore_eos": True, "temperature": options.temperature, "seed": seed,
            "stream_options": {"include_usage": True}}
    headers = {"Content-Type": "application/json"}
    if options.api_key:
        headers["Authorization"] = "Bearer " + options.api_key
    start = last = time.perf_counter()
    try:
        connection = http.client.HTTPConnection(url.hostname, url.port, timeout=options.timeout)
        connection.request("POST", url.path.rstrip("/") + "/completions", json.dumps(body), headers)
        response = connection.getresponse()
        if response.status != 200:
            result.error = f"status {response.status}"
            response.read()
            return result
        for line in response:
            if not line.startswith(b"data: {"):
                continue
            chunk = json.loads(line[6:])
            now = time.perf_counter()
            if chunk.get("usage"):
                usage = chunk["usage"]
                result.tokens = usage["completion_tokens"]
                result.prompt_tokens = usage["prompt_tokens"]
                details = usage.get("prompt_tokens_details", {})
                result.cached_tokens = details.get("cached_tokens", 0)
            elif chunk["choices"] and chunk["choices"][0].get("text"):
                if result.first is None:
                    result.first = now - start
                else:
                    result.gaps.append(now - last)
                last = now
        connection.close()
    except (OSError, http.client.HTTPException, ValueError, KeyError) as error:
        result.error = f"{type(error).__name__}: {error}"
    result.seconds = time.perf_counter() - start
    return result


def make_prompt(options, number):
    """A prompt of about --prompt tokens, after what all prompts share."""
    shared = random.Random(options.seed).choices(WORDS, k=options.shared_prefix)
    own = random.Random(options.seed * 1_000_003 + number).choices(WORDS, k=options.prompt)
    return " ".join(shared + own)


def closed_loop(options, url):
    """Every client sends its next request when the last one has ended."""
    results, lock, numbers = [], threading.Lock(), iter(range(options.requests))

    def client():
        while True:
            with lock:
                number = next(numbers, None)
            if number is None:
                return
            result = ask(options, url, make_prompt(options, number), number)
            with lock:
                results.append(result)

    threads = [threading.Thread(target=client) for _ in range(options.clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def open_loop(options, url):
    """Requests come at the times of a Poisson process."""
    results, lock, threads = [], threading.Lock(), []
    times = random.Random(options.seed)

    def client(number):
        result = ask(options, url, make_prompt(options, number), number)
        with lock:
            results.append(result)

    for number in range(options.requests):
        threads.append(threading.Thread(target=client, args=(number,)))
        threads[-1].start()
        time.sleep(times.expovariate(options.rate))
    for thread in threads:
        thread.join()
    return results


def percentile(values, share):
    """The value below which so many of the values are."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def line(name, values):
    """One row of the table, in milliseconds."""
    if not values:
        return f"| {name} | - | - | - | - |"
    cells = [statistics.mean(values)] + [percentile(values, p) for p in (0.5, 0.9, 0.99)]
    return f"| {name} | " + " | ".join(f"{1e3 * v:.1f}" for v in cells) + " |"


def report(options, results, seconds):
    """The figures as text, or as one JSON object."""
    good = [r for r in results if r.error is None]
    tokens = sum(r.tokens for r in good)
    firsts = [r.first for r in good if r.first is not None]
    gaps = [g for r in good for g in r.gaps]
    if options.json:
        return json.dumps({
            "requests": len(results), "failed": len(results) - len(good), "seconds": seconds,
            "tokens": tokens, "tokens_per_second": tokens / seconds,
            "prompt_tokens": sum(r.prompt_tokens for r in good),
            "cached_tokens": sum(r.cached_tokens for r in good),
            "ttft_mean": statistics.mean(firsts) if firsts else None,
            "itl_mean": statistics.mean(gaps) if gaps else None})
    errors = sorted({r.error for r in results if r.error})
    head = (f"{len(good)} of {len(results)} requests in {seconds:.2f} s: "
            f"{tokens} tokens, {tokens / seconds:.1f} tokens/s; prompts "
            f"{sum(r.prompt_tokens for r in good)} tokens, of which "
            f"{sum(r.cached_tokens for r in good)} were known\n")
    table = ["| ms | mean | p50 | p90 | p99 |", "|---|---|---|---|---|", line("TTFT", firsts),
             line("ITL", gaps), line("request", [r.seconds for r in good])]
    return head + "\n".join(table + [f"failed: {e}" for e in errors])


def main():
    """Parses the command line, loads, reports; status 1 if a request failed."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:8080/v1")
    parser.add_argument("--clients", type=int, default=4, help="closed loop: clients at a time")
    parser.add_argument("--rate", type=float, default=0, help="open loop: requests per second")
    parser.add_argument("--requests", type=int, default=32)
    parser.add_argument("--prompt", type=int, default=64, help="words of a prompt")
    parser.add_argument("--shared-prefix", type=int, default=0, help="words that all begin with")
    parser.add_argument("--tokens", type=int, default=64, help="to generate")
    parser.add_argument("--temperature", type=float, default=0)
    parser.add_argument("--api-key", default="")
    parser.add_argument("--model", default="any", help="as the server calls it")
    parser.add_argument("--timeout", type=float, default=600)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    url = urllib.parse.urlsplit(options.url)
    start = time.perf_counter()
    results = open_loop(options, url) if options.rate > 0 else closed_loop(options, url)
    print(report(options, results, time.perf_counter() - start))
    return 1 if any(r.error for r in results) else 0


if __name__ == "__main__":
    sys.exit(main())
