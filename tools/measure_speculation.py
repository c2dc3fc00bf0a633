#!/usr/bin/env python3
"""Measures benefit and cost of --spec: two servers, one with it and one without, answer the same
requests in turns, with texts that repeat themselves and with ordinary ones.

    python3 tools/measure_speculation.py build/release/walsh MODEL [--spec DRAFT_MODEL]

Prints per kind of text and temperature how many tokens a step gave, which share of the guessed
tokens was right, and by which factor the server's time per token fell: its processor time (what
else runs on the machine does not count), or on a GPU the time of the requests. Status 1 if a text
differs between the two, but for a GPU, where several tokens at once are rounded differently.
"""
import argparse
import http.client
import json
import os
import pathlib
import re
import subprocess
import sys
import time


class Server:
    """Runs a server of walsh at a free port, which takes one request after the other."""

    def __init__(self, options, *flags):
        self.process = subprocess.Popen(
            [options.walsh, "serve", options.model, "--device", options.device, "--port", "0",
             "--ctx", "2048", "-t", str(options.threads), "-P", "1", "--no-prefix-cache",
             *options.flags.split(), *flags],
            stderr=subprocess.PIPE, text=True)
        self.seconds = 0.0
        found = None
        while not found:
            line = self.process.stderr.readline()
            if not line:
                raise SystemExit("the server did not start")
            found = re.search(r"127\.0\.0\.1:(\d+)", line)
        self.port = int(found.group(1))
        self.by_processor = options.device == "cpu"

    def ask(self, method, path, body=None):
        start = time.monotonic()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        connection.request(method, path, body and json.dumps(body))
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        if method == "POST":
            self.seconds += time.monotonic() - start
        if answer.status != 200:
            raise SystemExit(f"{path}: {answer.status} {text}")
        return text

    def counts(self):
        """Returns the server's counters and the time that it has taken, in seconds."""
        text = self.ask("GET", "/metrics")
        names = ("steps", "tokens_predicted", "drafted_tokens", "drafted_right_tokens")
        values = [float(re.search(rf"^walsh:{name}_total (\S+)$", text, re.M).group(1))
                  for name in names]
        if not self.by_processor:
            return values + [self.seconds]
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(") ", 1)[1]
        user, system = (int(field) for field in fields.split()[11:13])
        return values + [(user + system) / os.sysconf("SC_CLK_TCK")]

    def stop(self):
        self.process.terminate()
        self.process.wait(60)


def prompts(text, count):
    """Returns pairs of prompts: a passage that starts to repeat, and the passage alone."""
    words = text.split()
    size = len(words) // count
    passages = [" ".join(words[i * size:i * size + 160]) for i in range(count)]
    repeated = [passage + "\n\n" + " ".join(passage.split()[:20]) for passage in passages]
    return {"that repeats a passage": repeated, "ordinary": passages}


def measure(options, servers, kind, texts, temperature):
    """Prints a row of the table; returns whether all texts were equal."""
    before = [server.counts() for server in servers]
    same = True
    for number, text in enumerate(texts):
        body = {"prompt": text, "max_tokens": options.tokens, "ignore_eos": True,
                "temperature": temperature, "seed": number}
        found = [json.loads(server.ask("POST", "/v1/completions", body))["choices"][0]["text"]
                 for server in (servers if number % 2 else servers[::-1])]
        same = same and found[0] == found[1]
    change = [[b - a for a, b in zip(old, server.counts())]
              for old, server in zip(before, servers)]
    (_, tokens, _, _, plain), (steps, _, drafted, right, guessed) = change
    share = f"{100 * right / drafted:.0f} %" if drafted else "none"
    print(f"| {kind} | {temperature} | {tokens / max(1, steps):.2f} | {share} | "
          f"{plain / guessed:.2f} | {'the same' if same else 'DIFFERENT'} |", flush=True)
    return same


def main():
    """Starts both servers and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("walsh")
    parser.add_argument("model")
    parser.add_argument("--text", default="models/eval.txt")
    parser.add_argument("--prompts", type=int, default=12)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--spec", default="ngram", help="ngram, or a smaller model")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--flags", default="", help="further flags of both servers")
    options = parser.parse_args()
    text = pathlib.Path(options.text).read_text()
    servers = [Server(options), Server(options, "--spec", options.spec)]
    start = time.monotonic()
    print("| text | temperature | tokens per step | of the guesses right | speed | texts |\n"
          "|---|---|---|---|---|---|")
    try:
        same = [measure(options, servers, kind, texts, temperature)
                for kind, texts in prompts(text, options.prompts).items()
                for temperature in (0, 0.7, 1)]
    finally:
        for server in servers:
            server.stop()
    print(f"{time.monotonic() - start:.0f} s")
    return 0 if all(same) or options.device != "cpu" else 1


if __name__ == "__main__":
    sys.exit(main())
