#!/usr/bin/env python3
"""Puts load on a server that it starts: the same texts whatever runs beside them, slow clients,
overload, clients that go away, broken requests, the key, outgoing connections, the end.

    python3 tools/stress_serve.py build/release/walsh models/walsh-tiny-13m [--scale 0.1]
        [--threads 1] [--only slow_clients,overload]

Prints what docs/reliability.md tells. `--scale` makes the runs shorter. Status 1 if a promise is
broken. Times are told and, but for the promised seconds of an end, not judged: they are the
machine's.
"""
import argparse
import http.client
import json
import multiprocessing
import os
import pathlib
import random
import re
import resource
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

from broken_requests import send_many

KEY = "a-key-that-must-not-be-seen"


class Server:
    """Runs a server of walsh at a free port."""

    def __init__(self, options, *flags, before=()):
        self.log = tempfile.NamedTemporaryFile(prefix="walsh_stress", suffix=".log")
        self.process = subprocess.Popen(
            [*before, options.walsh, "serve", options.model, "--device", "cpu", "--port", "0",
             *(["-t", str(options.threads)] if options.threads else []),
             *([] if "--ctx" in flags else ["--ctx", "512"]), *flags], stderr=self.log)
        for _ in range(1200):
            found = re.search(r"127\.0\.0\.1:(\d+)", self.said())
            if found:
                self.port = int(found.group(1))
                return
            time.sleep(0.05)
        raise SystemExit("the server did not start: " + self.said())

    def said(self):
        return pathlib.Path(self.log.name).read_text(errors="replace")

    def resident(self):
        """Returns the resident memory in MiB."""
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", status).group(1)) / 1024

    def busy(self):
        """Returns the processor time of the server in seconds."""
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1]
        return sum(int(ticks) for ticks in fields.split()[11:13]) / os.sysconf("SC_CLK_TCK")

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=60)

    def ask(self, method, path, body=None, headers=None, timeout=120):
        """Sends a request; returns status, headers and text of the answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        text = body if body is None or isinstance(body, (str, bytes)) else json.dumps(body)
        connection.request(method, path, text, headers or {})
        answer = connection.getresponse()
        result = answer.status, answer.headers, answer.read()
        connection.close()
        return result

    def complete(self, tokens=8, timeout=600, **more):
        body = {"prompt": "The city of", "max_tokens": tokens, "temperature": 0,
                "ignore_eos": True, **more}
        return self.ask("POST", "/v1/completions", body, timeout=timeout)

    def gauge(self, name):
        text = self.ask("GET", "/metrics")[2].decode()
        return float(re.search(rf"^walsh:{name} (\S+)$", text, re.M).group(1))

    def idle(self, patience=30.0):
        """Returns the seconds until nothing runs or waits; None if that does not happen."""
        start = time.monotonic()
        while time.monotonic() - start < patience:
            if self.gauge("requests_processing") == self.gauge("requests_deferred") == 0:
                return time.monotonic() - start
            time.sleep(0.005)
        return None

    def stop(self, number=signal.SIGTERM):
        """Returns exit status and seconds."""
        start = time.monotonic()
        self.process.send_signal(number)
        return self.process.wait(120), time.monotonic() - start


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def request_text(body, more=""):
    return (f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n{more}"
            f"Content-Length: {len(body)}\r\n\r\n{body}").encode()


def same_texts(options):
    """Repeats the same requests beside others of all lengths."""
    server = Server(options, "--drain", "0")
    wanted = [{"temperature": 0, "logprobs": 3}, {"temperature": 1, "seed": 7, "logprobs": 3}]
    try:
        alone = [json.loads(server.complete(32, **more)[2])["choices"] for more in wanted]
        different, over = [0], threading.Event()

        def neighbour(seed):
            rng = random.Random(seed)
            while not over.is_set():
                server.complete(rng.randrange(1, 40), prompt="word " * rng.randrange(1, 200),
                                temperature=1)

        def again(share):
            for _ in range(share):
                for more, text in zip(wanted, alone):
                    found = json.loads(server.complete(32, **more)[2])["choices"]
                    different[0] += found != text

        count = max(5, int(50 * options.scale))
        others = [threading.Thread(target=neighbour, args=(i,)) for i in range(6)]
        askers = [threading.Thread(target=again, args=(count,)) for _ in range(2)]
        for thread in others + askers:
            thread.start()
        for thread in askers:
            thread.join()
        over.set()
        for thread in others:
            thread.join()
        print(f"same texts: {2 * count} greedy and {2 * count} seeded ones beside 6 other clients, "
              f"{different[0]} with other tokens or log-probabilities than alone")
        yield "texts and log-probabilities are those of a text alone", different[0] == 0
    finally:
        server.stop()


def slow_clients(options):
    """Opens many connections that send a byte now and then, beside one ordinary client."""
    server = Server(options)
    try:
        def latencies(share=1.0):
            times = []
            for _ in range(max(50, int(1000 * share * options.scale))):
                start = time.monotonic()
                assert server.complete()[0] == 200
                times.append(time.monotonic() - start)
            return times

        latencies(0.5)
        alone, before = latencies(0.5), server.resident()
        count = 1000
        allowed = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(allowed[1], 4096), allowed[1]))
        slow = [server.connect() for _ in range(count)]
        for connection in slow:
            connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: l")
        # A connection has 10 s for its header; those that were closed connect again.
        over = threading.Event()

        def drip():
            while not over.wait(1):
                for i, connection in enumerate(slow):
                    try:
                        connection.sendall(b"o")
                    except OSError:
                        connection.close()
                        slow[i] = server.connect()
                        slow[i].sendall(b"POST /v1/completions HTTP/1.1\r\nHost: l")

        dripping = threading.Thread(target=drip)
        dripping.start()
        busy, start = server.busy(), time.monotonic()
        time.sleep(10)
        share = (server.busy() - busy) / (time.monotonic() - start)
        beside, after = latencies(), server.resident()
        over.set()
        dripping.join()
        start = time.monotonic()
        late = server.connect()
        late.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: l")
        late.settimeout(60)
        answer = late.recv(1000)
        told = time.monotonic() - start
        for connection in slow:
            connection.close()
        alone += latencies(0.5)  # the machine's speed may have changed
        print(f"slow clients: {count} connections with a byte per second each, a request's "
              f"median and p99 {1e3 * statistics.median(alone):.1f} and "
              f"{1e3 * percentile(alone, 0.99):.1f} ms alone, "
              f"{1e3 * statistics.median(beside):.1f} and "
              f"{1e3 * percentile(beside, 0.99):.1f} ms beside them, "
              f"{after - before:.1f} MiB more")
        print(f"  they alone take {100 * share:.1f} % of a processor; a further one was told "
              f"{answer.split(b' ')[1].decode()} after {told:.1f} s")
        yield "slow clients get 408", b" 408 " in answer
        yield "they take less than 64 MiB", after - before < 64
    finally:
        server.stop()


def overload(options):
    """Sends more requests than may wait, beside one client that retries."""
    places, waiting = 4, 4 * max(3, int(64 * options.scale))  # each client wants four texts
    server = Server(options, "-P", str(places), "--queue", str(waiting), "--drain", "0")
    try:
        results = []

        def client():  # each asks for four texts
            start = time.monotonic()
            status = server.complete(tokens=40, timeout=3600, n=4, temperature=1)[0]
            results.append((status, time.monotonic() - start))

        threads = [threading.Thread(target=client) for _ in range((places + waiting) // 4)]
        for thread in threads:
            thread.start()
        while server.gauge("requests_deferred") < waiting:
            time.sleep(0.01)
        refused, served, hints = [], 0, []
        while server.gauge("requests_deferred") == waiting:
            start = time.monotonic()
            status, headers, _ = server.complete(tokens=1)
            if status == 429:
                refused.append(time.monotonic() - start)
                hints.append(headers.get("Retry-After"))
            served += status == 200
        for thread in threads:
            thread.join()
        print(f"overload: {places} places and {waiting} to wait, all taken: {len(refused)} further "
              f"requests refused, median {1e3 * statistics.median(refused):.1f} ms, p99 "
              f"{1e3 * percentile(refused, 0.99):.1f} ms; of those that waited all {len(results)} "
              f"(of 4 texts each) were served, the last after {max(r[1] for r in results):.1f} s")
        yield "who waits is served", [r[0] for r in results] == [200] * len(threads)
        yield "refusals say when to come again", bool(hints) and all(hints)
    finally:
        server.stop()


def clients_that_leave(options):
    """Closes connections while their answer streams."""
    server = Server(options)
    try:
        def leave():
            connection = server.connect()
            connection.sendall(request_text(json.dumps(
                {"prompt": "The", "max_tokens": 400, "ignore_eos": True, "stream": True})))
            connection.recv(100)
            connection.close()

        def leave_often(count):
            for _ in range(count):
                leave()

        def all_leave(count):
            threads = [threading.Thread(target=leave_often, args=(count // 8,)) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            return server.idle()

        freed = []
        for _ in range(max(5, int(100 * options.scale))):
            leave()
            freed.append(server.idle())
        all_leave(max(80, int(1000 * options.scale)))
        before = server.resident()
        count = max(80, int(10000 * options.scale))
        seconds = all_leave(count)
        after = server.resident()
        print(f"clients that leave: one place is free again after "
              f"{1e3 * statistics.median(freed):.1f} ms, {1e3 * max(freed):.1f} at most; after "
              f"{count} clients, 8 at a time, resident {before:.1f} MiB before, {after:.1f} after")
        yield "no place stays taken", seconds is not None
        yield "no memory is lost", after < 1.01 * before + 1
        yield "and answers go on", server.complete()[0] == 200
    finally:
        server.stop()


def broken_requests(options):
    """Sends malformed requests of many kinds beside a valid one."""
    server = Server(options, "--ctx", "128")
    try:
        text = json.loads(server.complete(tokens=20)[2])["choices"][0]["text"]
        count, results = max(400, int(1_000_000 * options.scale)), multiprocessing.Queue()
        start = time.monotonic()
        senders = [multiprocessing.Process(target=send_many,
                                           args=(server.port, count // 4, seed, results))
                   for seed in range(4)]
        for sender in senders:
            sender.start()
        changed = asked = 0
        while any(sender.is_alive() for sender in senders) and results.qsize() < 4:
            status, _, answer = server.complete(20)
            if status == 429:  # the other requests come first
                continue
            asked += 1
            changed += status != 200 or json.loads(answer)["choices"][0]["text"] != text
        statuses = {}
        for _ in senders:
            for status, number in results.get(timeout=600).items():
                statuses[status] = statuses.get(status, 0) + number
        for sender in senders:
            sender.join()
        seconds = time.monotonic() - start
        told = ", ".join(f"{status}: {statuses[status]}" for status in sorted(statuses, key=str))
        print(f"broken requests: {sum(statuses.values())} in {seconds:.0f} s, answers by status: "
              f"{told}; {asked} right ones beside them, {changed} with another text")
        yield "no answer is a server error", not any(
            status >= 500 for status in statuses if isinstance(status, int))
        yield "no neighbour's text changes", changed == 0
        yield "health is good", server.ask("GET", "/health")[0] == 200
    finally:
        server.stop()


def the_key(options):
    """Checks that clients without a key learn nothing, and that the key appears nowhere."""
    server = Server(options, "--api-key", KEY)
    try:
        routes = [("GET", "/v1/models"), ("GET", "/props"), ("GET", "/metrics"),
                  ("POST", "/v1/completions"), ("POST", "/v1/chat/completions"),
                  ("POST", "/v1/responses"), ("POST", "/v1/messages"), ("POST", "/tokenize"),
                  ("POST", "/v1/messages/count_tokens"), ("POST", "/detokenize"),
                  ("POST", "/apply-template")]
        wrong = [{}, {"Authorization": "Bearer " + KEY[:-1]}, {"x-api-key": KEY + "x"}]
        yield "all endpoints want the key", all(
            server.ask(method, path, "{}", headers)[0] == 401
            for method, path in routes for headers in wrong)
        right = {"Authorization": "Bearer " + KEY}
        texts = [server.ask(method, path, "{}" if method == "POST" else None, right)[2]
                 for method, path in routes]
        texts += [server.ask("GET", path)[2] for path in ("/", "/health", "/openapi.json")]
        yield "and none shows it", not any(KEY.encode() in text for text in texts)
        yield "nor does what the server says", KEY not in server.said()
    finally:
        server.stop()


def guessed(server, victim, attacker, seed):
    """Returns how many of a prompt's 12 last tokens a client finds out by the numbers of cached
    tokens. `victim` and `attacker` are keys and cache salts."""
    def cached(who, prompt):
        body = {"prompt": prompt, "max_tokens": 1, "temperature": 0, "cache_salt": who[1]}
        text = server.ask("POST", "/v1/completions", body, {"Authorization": "Bearer " + who[0]})[2]
        return json.loads(text)["usage"]["prompt_tokens_details"]["cached_tokens"]

    draw = random.Random(seed)
    known = [draw.randrange(100, 2000) for _ in range(20)]
    alphabet = draw.sample(range(2000, 8000), 10)
    secret = [draw.choice(alphabet) for _ in range(12)]
    cached(victim, known + secret)
    guess = list(known)
    for place in range(len(secret)):
        # The last token of a prompt is always evaluated, so another one follows the guess.
        hit = next((one for one in alphabet
                    if cached(attacker, guess + [one, 50 + place]) > len(guess)), None)
        if hit is None:
            break
        guess.append(hit)
    return sum(one == other for one, other in zip(guess[len(known):], secret))


def others_prompts(options):
    """Lets a client guess the prompt of another one token by token."""
    server = Server(options, "--api-key", f"{KEY},{KEY}2", "--log-format", "off")
    try:
        one, other = (KEY, None), (KEY + "2", None)
        found = {"its own key": guessed(server, one, one, 1),
                 "another key": guessed(server, one, other, 2),
                 "another salt": guessed(server, (KEY, "a"), (KEY, "b"), 3),
                 "no salt": guessed(server, (KEY, "a"), one, 4)}
    finally:
        server.stop()
    print("others' prompts: of 12 tokens are found with " +
          ", ".join(f"{who} {count}" for who, count in found.items()))
    yield "the same key finds the tokens, so the attack works", found.pop("its own key") == 12
    yield "nobody else finds one", not any(found.values())


def the_end(options):
    """Sends SIGTERM while answers stream."""
    stream = request_text(json.dumps({"prompt": "The", "max_tokens": 500, "n": 8,
                                      "ignore_eos": True, "stream": True}))
    server = Server(options, "--drain", "1")
    connection = server.connect()
    connection.sendall(stream)
    connection.recv(1000)
    start = time.monotonic()
    server.process.send_signal(signal.SIGTERM)
    told = None
    while told is None and time.monotonic() - start < 10:
        try:
            if server.ask("GET", "/health")[0] == 503:
                told = time.monotonic() - start
        except OSError:
            break
    status = server.process.wait(120)
    yield "/health says 503 while it drains", told is not None
    print(f"the end: with a stream and --drain 1 /health says 503 after "
          f"{1e3 * (told or 0):.0f} ms, and it ends after {time.monotonic() - start:.2f} s")
    yield "an end with status 0", status == 0
    server = Server(options, "--drain", "60")
    connection = server.connect()
    connection.sendall(stream)
    connection.recv(1000)
    server.process.send_signal(signal.SIGTERM)
    time.sleep(0.4)
    status, seconds = server.stop()
    print(f"  a second signal ends it after {seconds:.2f} s")
    yield "a second signal ends it at once", status in (0, 130) and seconds < 10


def no_connections(options):
    """Watches the server's system calls: no outgoing connections, no files written."""
    if not shutil.which("strace"):
        print("no connections: skipped, there is no strace")
        return
    with tempfile.TemporaryDirectory() as folder:
        trace = os.path.join(folder, "trace")
        server = Server(options, before=["strace", "-f", "-qq", "-o", trace, "-e",
                                         "trace=connect,openat,open,creat,sendto,mkdir,mkdirat,"
                                         "unlink,unlinkat,rename,renameat,renameat2"])
        server.complete()
        server.ask("GET", "/")
        children = subprocess.run(["ps", "-o", "pid=", "--ppid", str(server.process.pid)],
                                  capture_output=True, text=True, check=True).stdout.split()
        os.kill(int(children[0]), signal.SIGTERM)
        server.process.wait(60)
        calls = pathlib.Path(trace).read_text()
    connects = [line for line in calls.splitlines() if "connect(" in line]
    writes = [line for line in calls.splitlines()
              if re.search(r"O_WRONLY|O_RDWR|O_CREAT|creat\(|mkdir|unlink|rename", line)
              and "/dev/" not in line]
    print(f"no connections: {len(connects)} outgoing, {len(writes)} files opened to write, made, "
          "removed or renamed")
    yield "it connects to nobody", not connects
    yield "it writes no file", not writes


def main():
    """Makes all runs and reports each promise that is broken."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("walsh")
    parser.add_argument("model")
    parser.add_argument("--scale", type=float, default=1)
    parser.add_argument("--threads", type=int, default=0, help="of the server; 0: as it will")
    parser.add_argument("--only", default="", help="names of runs, comma-separated")
    options = parser.parse_args()
    runs = [same_texts, slow_clients, overload, clients_that_leave, broken_requests, the_key,
            others_prompts, the_end, no_connections]
    only = [name for name in options.only.split(",") if name]
    if unknown := set(only) - {run.__name__ for run in runs}:
        parser.error(f"no such run: {', '.join(unknown)}")
    count = failed = 0
    for run in runs:
        if only and run.__name__ not in only:
            continue
        for name, holds in run(options):
            count += 1
            if not holds:
                failed += 1
                print(f"BROKEN: {name}")
    print(f"{count} promises, {failed} broken")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
