#!/usr/bin/env python3
"""Load runs against a server that it starts: slow clients, overload, clients that go away, broken
requests, the key, outgoing connections, the end.

    python3 tools/stress_serve.py build/release/walsh models/walsh-tiny-13m [--scale 0.1]

Prints what docs/reliability.md tells. `--scale` makes the runs shorter. Status 1 if a promise is
broken. Times are told and, but for the promised seconds of an end, not judged: they are the
machine's.
"""
import argparse
import http.client
import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

KEY = "a-key-that-must-not-be-seen"


class Server:
    """A server of walsh at a free port."""

    def __init__(self, options, *flags, before=()):
        self.log = tempfile.NamedTemporaryFile(prefix="walsh_stress", suffix=".log")
        self.process = subprocess.Popen(
            [*before, options.walsh, "serve", options.model, "--device", "cpu", "--port", "0",
             "--ctx", "512", *flags], stderr=self.log)
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
        """MiB of memory."""
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", status).group(1)) / 1024

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=60)

    def ask(self, method, path, body=None, headers=None, timeout=120):
        """Status, headers and text of an answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        text = body if body is None or isinstance(body, (str, bytes)) else json.dumps(body)
        connection.request(method, path, text, headers or {})
        answer = connection.getresponse()
        result = answer.status, answer.headers, answer.read()
        connection.close()
        return result

    def complete(self, tokens=8, **more):
        body = {"prompt": "The city of", "max_tokens": tokens, "temperature": 0,
                "ignore_eos": True, **more}
        return self.ask("POST", "/v1/completions", body)

    def gauge(self, name):
        text = self.ask("GET", "/metrics")[2].decode()
        return float(re.search(rf"^walsh:{name} (\S+)$", text, re.M).group(1))

    def idle(self, patience=30.0):
        """Seconds until nothing runs or waits; None if that does not come."""
        start = time.monotonic()
        while time.monotonic() - start < patience:
            if self.gauge("requests_processing") == self.gauge("requests_deferred") == 0:
                return time.monotonic() - start
            time.sleep(0.005)
        return None

    def stop(self, number=signal.SIGTERM):
        """Exit status and seconds."""
        start = time.monotonic()
        self.process.send_signal(number)
        return self.process.wait(120), time.monotonic() - start


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def request_text(body, more=""):
    return (f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n{more}"
            f"Content-Length: {len(body)}\r\n\r\n{body}").encode()


def slow_clients(options):
    """Many connections that send a byte now and then, and one that wants an answer."""
    server = Server(options)
    try:
        def latencies():
            times = []
            for _ in range(max(10, int(100 * options.scale))):
                start = time.monotonic()
                assert server.complete()[0] == 200
                times.append(time.monotonic() - start)
            return times

        latencies()
        alone, before = latencies(), server.resident()
        count = max(50, int(900 * options.scale))
        slow = [server.connect() for _ in range(count)]
        for connection in slow:
            connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: l")
        beside, after = latencies(), server.resident()
        print(f"slow clients: {count} connections, a request's median and p99 "
              f"{1e3 * statistics.median(alone):.0f} and {1e3 * percentile(alone, 0.99):.0f} ms "
              f"alone, {1e3 * statistics.median(beside):.0f} and "
              f"{1e3 * percentile(beside, 0.99):.0f} ms beside them, "
              f"{after - before:.1f} MiB more")
        start = time.monotonic()
        slow[0].settimeout(60)
        answer = slow[0].recv(1000)
        print(f"  the first was told {answer.split(b' ')[1:2]} and closed after "
              f"{time.monotonic() - start:.1f} s more")
        for connection in slow:
            connection.close()
        yield "slow clients get 408", b" 408 " in answer
        yield "they take less than 64 MiB", after - before < 64
    finally:
        server.stop()


def overload(options):
    """More requests than may wait."""
    server = Server(options, "-P", "2", "--queue", "4", "--drain", "0")
    try:
        results = []

        def client():
            start = time.monotonic()
            status, headers, _ = server.complete(tokens=100)
            results.append((status, time.monotonic() - start, headers.get("Retry-After")))

        threads = [threading.Thread(target=client) for _ in range(64)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        refused = [r for r in results if r[0] == 429]
        served = [r for r in results if r[0] == 200]
        print(f"overload: 64 clients, 2 places and 4 to wait: {len(served)} served, "
              f"{len(refused)} refused, median {1e3 * statistics.median(r[1] for r in refused):.0f}"
              f" ms; the longest wait of one that was served {max(r[1] for r in served):.1f} s")
        yield "everybody gets an answer", len(served) + len(refused) == 64 and len(served) >= 6
        yield "refusals say when to come again", all(r[2] for r in refused)
    finally:
        server.stop()


def clients_that_leave(options):
    """Connections that are closed while their answer streams."""
    server = Server(options)
    try:
        def leave():
            connection = server.connect()
            connection.sendall(request_text(json.dumps(
                {"prompt": "The", "max_tokens": 400, "ignore_eos": True, "stream": True})))
            connection.recv(100)
            connection.close()

        for _ in range(50):
            leave()
        server.idle()
        before = server.resident()
        count = max(50, int(2000 * options.scale))
        for _ in range(count):
            leave()
        seconds = server.idle()
        after = server.resident()
        print(f"clients that leave: {count}, all places free after {seconds:.3f} s, "
              f"resident {before:.1f} MiB before, {after:.1f} after")
        yield "no place stays taken", seconds is not None
        yield "no memory is lost", after < 1.02 * before + 4
        yield "and answers go on", server.complete()[0] == 200
    finally:
        server.stop()


def broken_body(rng):
    """A request that is nearly right."""
    body = {"prompt": "a", "max_tokens": 1, "messages": [{"role": "user", "content": "a"}],
            "input": "a", "tokens": [1], "content": "a"}
    for _ in range(rng.randrange(3)):
        key = rng.choice([*body, "temperature", "top_k", "stop", "n", "seed", "logit_bias",
                          "stream", "logprobs", "samplers", "dry_sequence_breakers", "tools",
                          "system"])
        body[key] = rng.choice([None, True, -1, 10 ** 30, 1e308, "x", "\ud800", [], {}, [[]], [{}],
                                {"a": "b"}, ["x"] * 20, {"1": 200}, [None], "a" * 1000])
    data = bytearray(json.dumps(body).encode())
    for _ in range(rng.choice([0, 0, 1, 3])):
        at = rng.randrange(len(data))
        data[at:at + rng.randrange(2)] = bytes([rng.randrange(256)])
    if rng.random() < 0.01:
        return b"[" * 100000
    return bytes(data)


def broken_requests(options):
    """Requests that are wrong in many ways beside one that is right."""
    server = Server(options)
    paths = ["/v1/completions", "/v1/chat/completions", "/v1/responses", "/v1/messages",
             "/v1/messages/count_tokens", "/tokenize", "/detokenize", "/apply-template", "/", "/x"]
    try:
        rng = random.Random(1)
        good = server.complete(tokens=20)[2]
        text = json.loads(good)["choices"][0]["text"]
        statuses, changed, count = {}, 0, max(300, int(20000 * options.scale))
        for i in range(count):
            if i % 100 == 0:
                changed += json.loads(server.complete(20)[2])["choices"][0]["text"] != text
            if rng.random() < 0.1:  # no HTTP at all
                connection = server.connect()
                connection.sendall(rng.randbytes(rng.randrange(1, 200)) + b"\r\n\r\n")
                connection.shutdown(socket.SHUT_WR)
                connection.recv(1000)
                connection.close()
                continue
            status = server.ask(rng.choice(["POST", "POST", "POST", "GET", "PUT"]),
                                rng.choice(paths), broken_body(rng))[0]
            statuses[status] = statuses.get(status, 0) + 1
        print(f"broken requests: {count}, answers by status {dict(sorted(statuses.items()))}")
        yield "no answer is a server error", not any(s >= 500 for s in statuses)
        yield "no neighbour's text changes", changed == 0
        yield "health is good", server.ask("GET", "/health")[0] == 200
    finally:
        server.stop()


def the_key(options):
    """Who has no key learns nothing, and the key is seen nowhere."""
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


def the_end(options):
    """SIGTERM while answers stream."""
    server = Server(options, "--drain", "1")
    connection = server.connect()
    connection.sendall(request_text(json.dumps(
        {"prompt": "The", "max_tokens": 500, "ignore_eos": True, "stream": True})))
    connection.recv(1000)
    status, seconds = server.stop()
    print(f"the end: with a stream and --drain 1 after {seconds:.2f} s")
    yield "an end with status 0", status == 0
    server = Server(options, "--drain", "60")
    connection = server.connect()
    connection.sendall(request_text(json.dumps(
        {"prompt": "The", "max_tokens": 500, "n": 8, "ignore_eos": True, "stream": True})))
    connection.recv(1000)
    server.process.send_signal(signal.SIGTERM)
    time.sleep(0.4)
    status, seconds = server.stop()
    print(f"  a second signal ends it after {seconds:.2f} s")
    yield "a second signal ends it at once", status in (0, 130) and seconds < 10


def no_connections(options):
    """What the server asks of the system."""
    if not shutil.which("strace"):
        print("no connections: skipped, there is no strace")
        return
    with tempfile.TemporaryDirectory() as folder:
        trace = os.path.join(folder, "trace")
        server = Server(options, before=["strace", "-f", "-qq", "-o", trace, "-e",
                                         "trace=connect,openat,open,creat,sendto"])
        server.complete()
        server.ask("GET", "/")
        children = subprocess.run(["ps", "-o", "pid=", "--ppid", str(server.process.pid)],
                                  capture_output=True, text=True, check=True).stdout.split()
        os.kill(int(children[0]), signal.SIGTERM)
        server.process.wait(60)
        calls = pathlib.Path(trace).read_text()
    connects = [line for line in calls.splitlines() if "connect(" in line]
    writes = [line for line in calls.splitlines()
              if re.search(r"O_WRONLY|O_RDWR|O_CREAT|creat\(", line) and "/dev/" not in line]
    print(f"no connections: {len(connects)} outgoing, {len(writes)} files opened to write")
    yield "it connects to nobody", not connects
    yield "it writes no file", not writes


def main():
    """Makes all runs and tells of each promise that is broken."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("walsh")
    parser.add_argument("model")
    parser.add_argument("--scale", type=float, default=1)
    options = parser.parse_args()
    count = failed = 0
    for run in (slow_clients, overload, clients_that_leave, broken_requests, the_key, the_end,
                no_connections):
        for name, holds in run(options):
            count += 1
            if not holds:
                failed += 1
                print(f"BROKEN: {name}")
    print(f"{count} promises, {failed} broken")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
