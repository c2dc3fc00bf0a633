#!/usr/bin/env python3
"""Runs the tests of llama.cpp's server against `walsh serve`, as far as they apply.

The tests come from a checkout of llama.cpp (tools/server/tests), which is not part of this
repository; this file takes the place of their module `utils`, which starts a server. They ask for
models of the network, so each gets the embedded one: what a text says cannot agree, and is not
compared. Tests of what walsh does not have are skipped with the name of it. DIFFERENT lists where
walsh answers otherwise on purpose. Any other failure ends the run with status 1.

    python3 tools/llama_server_tests.py CHECKOUT build/dev/walsh models/walsh-tiny-13m

needs pytest, requests, filelock, openai, prometheus-client and wget (of PyPI).
"""
import argparse
import atexit
import collections
import fnmatch
import functools
import json
import os
import re  # noqa: F401  (the tests take these names from `utils`)
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, as_completed  # noqa: F401
from typing import *  # noqa: F401,F403

import pytest
import requests

TMP_DIR = "/tmp"
TEMPLATE = "../../../models/templates/Qwen-Qwen3-0.6B.jinja"
DEFAULT_HTTP_TIMEOUT, DEFAULT_REQUEST_TIMEOUT = 60, 120
server_instances = set()
program, model, most_positions = "", "", 0

# Says why a test that fails is right to fail, by patterns of names.
DIFFERENT = {
    "the number of tokens or the text is that of another model": [
        "*test_completion[[]*", "*test_completion_stream[[]*", "*test_chat_completion[[]*",
        "*test_chat_completion_stream[[]*", "*test_chat_completion_cached_tokens",
        "*test_completion_prompt_cache", "*test_completion_response_fields*response_fields1[]]",
        "*test_tokenize_with_bos", "*test_completion_unified*", "*with_openai_library*",
        "*test_completion_with_response_format*-3000*", "*test_nocache_long_input_prompt",
        "*test_ctx_shift_disabled*", "*test_responses_stream_with_llama_telemetry",
        "*test_embedding_usage*"],
    "the first delta of a chat has an empty content, as OpenAI's has": [
        "*test_logprobs_stream", "*test_chat_completion_with_timings_per_token"],
    "errors have OpenAI's types": ["*test_context_size_exceeded*"],
    "two messages of the assistant in a row are for the template to judge": [
        "*test_invalid_chat_completion_req*messages7*"],
    "a page may use the server only if --cors-origins names it": ["*test_cors_options*"],
    "the files of slots are walsh's own": ["*test_slot_restore_*"],
    "walsh has one file of a model and one page": ["*test_load_split_model", "*test_no_ui",
                                                   "*test_access_static_assets*"],
    "/props has other names": ["*test_server_props"],
    "/metrics is always there, with other names": ["*test_metrics*"],
    "there are no probabilities after sampling": ["*test_n_probs_post*"],
    "an empty text has no embedding": ["*test_embedding_mixed_input[[]-False]*"],
    "the message of a text that is too long is OpenAI's": [
        "*test_embedding_error_prompt_too_long*"],
    "/completions is OpenAI's": ["*test_correct_api_key*"],
    "there are no images": ["*_with_image", "*_vision_format_accepted"],
    "a conversation has messages": ["*test_anthropic_empty_messages"],
    "a server has one address": ["*test_server_multiple_addresses"],
    "walsh has no such field or endpoint": [
        "*test_return_progress*", "*test_verbose_debug",
        "*test_chat_template_assistant_prefill*", "*test_mcp_no_proxy",
        "*test_clear_and_restore", "*final_message_vllm_compat", "*test_date_inside_prompt*"],
}

# Tests set these, which have no meaning for walsh, or are always so.
WITHOUT_EFFECT = {
    "n_batch", "n_ubatch", "offline", "model_hf_repo", "model_hf_file", "n_threads", "n_gpu_layer",
    "fa", "server_continuous_batching", "kv_unified", "swa_full", "n_predict", "debug",
    "server_metrics", "jinja", "cache_prompt", "no_ui", "backend_sampling", "server_slots",
    "log_path", "model_file", "id_slot", "reasoning_format", "external_server", "cache_ram",
    "no_cache_idle_slots", "server_embeddings"}
TAKEN = {"server_host", "server_port", "process", "seed", "temperature", "n_ctx", "n_slots",
         "api_key", "model_alias", "chat_template_file", "pooling", "model", "slot_save_path",
         "enable_ctx_shift"}
# Tokens of Qwen2.5-Coder for filling in text, which the embedded model lacks.
FILL_TOKENS = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")


class ServerResponse:
    headers: dict = {}
    status_code = 0
    body: object = None


class ServerError(Exception):
    def __init__(self, code, body):
        super().__init__(code, body)
        self.code, self.body = code, body


class ServerProcess:
    """Runs `walsh serve` with what a test asks for."""
    server_host, server_port = "127.0.0.1", 8080
    model_alias, temperature, seed = "tinyllama-2", 0.8, 42
    process = None

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return None

    def command(self):
        command = [program, "serve", self.model or model, "--host", self.server_host,
                   "--port", self.server_port, "--temp", self.temperature,
                   "--seed", self.seed, "-t", 1]
        if self.model_alias:
            command += ["--alias", self.model_alias]
        if self.n_slots:
            command += ["--parallel", self.n_slots]
        if self.n_ctx:
            command += ["-c", min(self.n_ctx // (self.n_slots or 1), most_positions)]
        if self.pooling:
            command += ["--pooling", self.pooling]
        if self.slot_save_path:
            command += ["--cache-dir", os.path.abspath(self.slot_save_path)]
        if self.enable_ctx_shift:
            command += ["--context-shift"]
        if self.server_slots is False:
            command += ["--no-slots"]
        if self.api_key:
            command += ["--api-key", self.api_key]
        if self.chat_template_file or self.jinja:  # the embedded model's shows no tools
            command += ["--chat-template-file", self.chat_template_file or TEMPLATE]
        return [str(word) for word in command]

    def start(self, timeout_seconds=DEFAULT_HTTP_TIMEOUT):
        if self.model_hf_repo:
            pytest.skip("needs a model of the network")
        if self.pooling == "none":
            pytest.skip("walsh serve has no embeddings of single tokens")
        for name, value in vars(self).items():
            if value and name not in WITHOUT_EFFECT | TAKEN:
                pytest.skip(f"walsh serve has no {name}")
        if self.chat_template_file and not os.path.exists(self.chat_template_file):
            pytest.skip(f"there is no {self.chat_template_file}")
        self.process = subprocess.Popen(self.command(), stdout=subprocess.DEVNULL)
        server_instances.add(self)
        end = time.monotonic() + timeout_seconds
        while time.monotonic() < end:
            try:
                if self.make_request("GET", "/health").status_code == 200:
                    return
            except requests.exceptions.ConnectionError:
                pass
            if self.process.poll() is not None:
                raise RuntimeError(f"the server ended with status {self.process.returncode}")
            time.sleep(0.02)
        raise TimeoutError(f"the server did not start within {timeout_seconds} s")

    def stop(self):
        server_instances.discard(self)
        if self.process:
            self.process.terminate()
            self.process.wait(timeout=40)
            self.process = None

    def make_url(self, path, host=None):
        return f"http://{host or self.server_host}:{self.server_port}{path}"

    def make_request(self, method, path, data=None, headers=None, timeout=120, host=None):
        answer = requests.request(method, self.make_url(path, host), headers=headers,
                                  json=data if method == "POST" else None, timeout=timeout)
        response = ServerResponse()
        response.headers, response.status_code = dict(answer.headers), answer.status_code
        try:
            response.body = answer.json()
        except ValueError:
            response.body = answer.text
        print(method, path, json.dumps(data)[:500], response.status_code, str(response.body)[:1000])
        return response

    def make_stream_request(self, method, path, data=None, headers=None, host=None):
        answer = requests.request(method, self.make_url(path, host), headers=headers, json=data,
                                  stream=True, timeout=120)
        if answer.status_code != 200:
            raise ServerError(answer.status_code, answer.json())
        for line in answer.iter_lines():
            if line == b"data: [DONE]":
                return
            if line.startswith(b"data: "):
                yield json.loads(line[6:])

    def make_any_request(self, method, path, data=None, headers=None, timeout=120):
        """Returns the answer to a chat, put together if it is streamed."""
        if not (data or {}).get("stream"):
            response = self.make_request(method, path, data, headers, timeout)
            assert response.status_code == 200, response.body
            return response.body
        message, calls, reason = {"role": "assistant", "content": ""}, [], None
        for chunk in self.make_stream_request(method, path, data, headers):
            for choice in chunk.get("choices", [])[:1]:
                delta, reason = choice["delta"], choice["finish_reason"] or reason
                message["content"] += delta.get("content") or ""
                if delta.get("reasoning_content"):
                    message["reasoning_content"] = (message.get("reasoning_content", "") +
                                                    delta["reasoning_content"])
                for call in delta.get("tool_calls", []):
                    if call["index"] == len(calls):
                        calls.append({"id": call["id"], "type": "function",
                                      "function": {"name": "", "arguments": ""}})
                    for key, text in call["function"].items():
                        calls[call["index"]]["function"][key] += text
        if calls:
            message["tool_calls"] = calls
        return {"choices": [{"index": 0, "finish_reason": reason, "message": message}]}


class ServerPreset:
    @staticmethod
    def load_all():
        pass

    @staticmethod
    def tinyllama2():
        server = ServerProcess()
        server.n_ctx, server.n_slots, server.n_predict = 512, 2, 64
        return server


def _other(name):
    def make():
        server = ServerProcess()
        setattr(server, f"model such as {name}", True)
        return server
    return staticmethod(make)


@functools.lru_cache
def fill_model():
    """Returns a copy of the model whose last tokens are those for filling in text."""
    folder = tempfile.mkdtemp(prefix="walsh-fill-")
    atexit.register(shutil.rmtree, folder)
    for name in os.listdir(model):
        os.symlink(os.path.join(model, name), os.path.join(folder, name))
    path = os.path.join(folder, "tokenizer.json")
    with open(path, encoding="utf-8") as file:
        tokenizer = json.load(file)
    vocabulary = tokenizer["model"]["vocab"]
    last = sorted(vocabulary, key=vocabulary.get)[-len(FILL_TOKENS):]
    for token, old in zip(FILL_TOKENS, last):
        vocabulary[token] = vocabulary.pop(old)
        tokenizer["model"]["merges"].pop()
        tokenizer["added_tokens"].append(
            dict(tokenizer["added_tokens"][0], id=vocabulary[token], content=token))
    os.remove(path)
    with open(path, "w", encoding="utf-8") as file:
        json.dump(tokenizer, file)
    return folder


def _reader(**more):
    """Makes a preset that reads texts: the embedded model has embeddings, too."""
    def make():
        server = ServerProcess()
        server.n_ctx, server.n_slots = 512, 1
        vars(server).update({key: value() if callable(value) else value
                             for key, value in more.items()})
        return server
    return staticmethod(make)


ServerPreset.bert_bge_small = ServerPreset.bert_bge_small_with_fa = _reader()
ServerPreset.tinyllama_infill = _reader(model=fill_model)
for _name in ("jina_reranker_tiny", "stories15m_moe", "tinygemma3", "router"):
    setattr(ServerPreset, _name, _other(_name))


def parallel_function_calls(function_list):
    def call(item):
        try:
            return item[0](*item[1])
        except Exception as error:  # the caller counts results that are None
            print("error", error)
            return None
    with ThreadPoolExecutor(max_workers=len(function_list)) as pool:
        return list(pool.map(call, function_list))


def match_regex(regex, text):
    """Looks only at whether there is a text: texts are those of another model."""
    return isinstance(text, str)


def download_file(url, output_file_path=None):
    pytest.skip("needs a file of the network")


def is_slow_test_allowed():
    return False


class Results:
    """Sorts the results of the tests."""

    def __init__(self):
        self.passed, self.unexpected = [], []
        self.skipped, self.different = collections.Counter(), collections.Counter()

    def pytest_runtest_logreport(self, report):
        if report.skipped:
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else "marked so"
            self.skipped[reason.removeprefix("Skipped: ")] += 1
        elif report.failed:
            for reason, names in DIFFERENT.items():
                if any(fnmatch.fnmatch(report.nodeid, name) for name in names):
                    self.different[reason] += 1
                    return
            self.unexpected.append(report.nodeid)
        elif report.when == "call":
            self.passed.append(report.nodeid)

    def tell(self):
        print(f"\n{len(self.passed)} tests pass.")
        for title, counts in (("skipped", self.skipped), ("different on purpose", self.different)):
            print(f"{sum(counts.values())} are {title}:")
            for reason, count in counts.most_common():
                print(f"  {count:3} {reason}")
        print(f"{len(self.unexpected)} fail:")
        for name in self.unexpected:
            print(f"      {name}")


def main():
    global program, model, most_positions
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("checkout", help="of llama.cpp")
    parser.add_argument("walsh", help="the program")
    parser.add_argument("model")
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--context", type=int, default=4096, help="the most that the model has")
    parser.add_argument("--verbose", action="store_true", help="show why tests fail")
    parser.add_argument("tests", nargs="*", default=["unit"], help="such as unit/test_basic.py")
    options = parser.parse_args()
    program, model = os.path.abspath(options.walsh), os.path.abspath(options.model)
    most_positions = options.context
    ServerProcess.server_port = options.port
    sys.modules["utils"] = sys.modules[__name__]
    os.chdir(os.path.join(options.checkout, "tools", "server", "tests"))
    results = Results()
    arguments = ["-q", "-p", "no:cacheprovider", "--tb", "short" if options.verbose else "no"]
    status = pytest.main(arguments + options.tests, plugins=[results])
    results.tell()
    return 1 if results.unexpected or status > 1 else 0


if __name__ == "__main__":
    sys.exit(main())
