#!/usr/bin/env python3
"""Compares the speed of walsh.torch layers with torch in bfloat16, alternating within one run.

    tools/bench_torch.py [--device cuda] [--cols 4096] [--rows 14336] [--types tq4,tq3]
                         [--batches 1,16,256] [--model LAYERS [--compile]]

On a GPU it times calls one by one ("eager"), calls in a graph (of several layers in turn, whose
weights do not fit the GPU's cache) and what the host spends on a call; then the same of a tiny
layer, whose time is the overhead of a call. --model decodes with a random transformers model of
8B's shapes and so many layers, with and without graphs.
"""
import argparse
import copy
import statistics
import time

import torch
import walsh.torch
from torch import nn


def seconds(function, least=0.05):
    """Returns the seconds per call, measured over as many calls as take `least` seconds."""
    calls, start = 0, time.perf_counter()
    while (spent := time.perf_counter() - start) < least:
        function()
        calls += 1
    return spent / calls


def captured(function):
    """Records what the function launches as a graph, after running it once."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        function()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        function()
    return graph


def gpu_seconds(function, calls=20):
    """Returns the seconds per call by the GPU's clock."""
    function()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(calls):
        function()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / 1e3 / calls


def host_seconds(function, calls=100):
    """Returns the seconds until a call returns, while the queue has room."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(calls):
        function()
    spent = time.perf_counter() - start
    torch.cuda.synchronize()
    return spent / calls


def print_rounds(label, rounds, scale, unit):
    """Prints medians over the rounds, also of the ratio of bf16's time to each layer's."""
    for name in rounds[0]:
        time_of = statistics.median(r[name] for r in rounds)
        ratio = statistics.median(r["bf16"] / r[name] for r in rounds)
        print(f"{label}  {name:8} {time_of * scale:9.3f} {unit}  {ratio:6.2f}", flush=True)


def build(rows, cols, types, device, copies):
    """Builds `copies` layers of every kind, by name."""
    plain = nn.Linear(cols, rows, bias=False, dtype=torch.bfloat16)
    layers = {"bf16": plain.to(device)}
    for kind in types:
        layers[kind] = walsh.torch.Linear.from_linear(plain, type=kind, fast=True)
    return {name: [layer, *(copy.deepcopy(layer) for _ in range(copies - 1))]
            for name, layer in layers.items()}


def time_on_cpu(args):
    """Times layers one by one."""
    layers = build(args.rows, args.cols, args.types, "cpu", 1)
    print(f"{args.rows} x {args.cols}, {torch.get_num_threads()} threads; milliseconds, and the "
          "median over the rounds of bf16's time by the layer's")
    for batch in args.batches:
        x = torch.randn(batch, args.cols, dtype=torch.bfloat16)
        rounds = [{name: seconds(lambda layer=own[0]: layer(x)) for name, own in layers.items()}
                  for _ in range(args.rounds)]
        print_rounds(f"{batch:4} rows", rounds, 1e3, "ms")


def time_on_gpu(args, rows, cols, batches, copies):
    """Times calls in a graph, eager calls, and the host's part of them."""
    layers = build(rows, cols, args.types, args.device, copies)
    print(f"{rows} x {cols}, {torch.cuda.get_device_name()}, {copies} layers in turn; "
          "microseconds of a call, and the median over the rounds of bf16's by the layer's")
    for batch in batches:
        x = torch.randn(batch, cols, dtype=torch.bfloat16, device=args.device)

        def all_of(own):
            for layer in own:
                layer(x)

        calls = {name: lambda own=own: all_of(own) for name, own in layers.items()}
        graphs = {name: captured(call) for name, call in calls.items()}
        ways = {"graph": lambda name: gpu_seconds(graphs[name].replay),
                "eager": lambda name: gpu_seconds(calls[name]),
                "host": lambda name: host_seconds(calls[name], max(1, 100 // copies))}
        for way, measure in ways.items():
            rounds = [{name: measure(name) / copies for name in layers}
                      for _ in range(args.rounds)]
            print_rounds(f"{batch:4} rows  {way}", rounds, 1e6, "us")


class Decoder:
    """Decodes greedily with a static cache."""

    def __init__(self, model, config, prompt, room):
        from transformers import StaticCache

        self.model, self.prompt = model, prompt
        self.cache = StaticCache(config=config, max_cache_len=room)
        self.steps = torch.arange(room, device=prompt.device)
        self.token = torch.zeros((1, 1), dtype=torch.long, device=prompt.device)
        self.position = torch.zeros_like(self.token)
        self.start()

    def start(self):
        """Reads the prompt."""
        self.cache.reset()
        logits = self.model(self.prompt, past_key_values=self.cache).logits
        self.token.copy_(logits[:, -1:].argmax(-1))
        self.position.fill_(self.prompt.shape[1])

    def step(self):
        """Computes the next token."""
        mask = (self.steps <= self.position)[None, None]
        out = self.model(self.token, attention_mask=mask, position_ids=self.position,
                         past_key_values=self.cache)
        self.token.copy_(out.logits[:, -1:].argmax(-1))
        self.position.add_(1)

    def tokens(self, step, count):
        """Returns the results of `count` calls, and the seconds per call."""
        self.start()
        found = []
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(count):
            step()
            found.append(self.token.clone())
        torch.cuda.synchronize()
        return [int(t) for t in found], (time.perf_counter() - start) / count


def decode(args):
    """Prints the tokens per second of a model in bf16 and with its layers quantized."""
    from transformers import AutoModelForCausalLM, LlamaConfig

    config = LlamaConfig(hidden_size=4096, intermediate_size=14336, num_attention_heads=32,
                         num_key_value_heads=8, num_hidden_layers=args.model, vocab_size=32000,
                         max_position_embeddings=512)
    torch.manual_seed(0)
    with torch.device(args.device):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()
    prompt = torch.randint(0, 32000, (1, 32), device=args.device)
    count = 64
    print(f"decoding, {args.model} layers of 4096 and 14336, {torch.cuda.get_device_name()}")
    for kind in ["bf16", *args.types[:1]]:
        if kind != "bf16":
            start = time.perf_counter()
            walsh.torch.quantize_model(model, walsh.torch.Config(type=kind, fast=True))
            print(f"{model.walsh_summary}, {time.perf_counter() - start:.1f} s")
        decoder = Decoder(model, config, prompt, 32 + count + 8)
        eager, spent = decoder.tokens(decoder.step, count)
        print(f"{kind:8} eager    {1 / spent:8.1f} tokens/s", flush=True)
        decoder.start()
        graph = captured(decoder.step)
        replayed, spent = decoder.tokens(graph.replay, count)
        print(f"{kind:8} graph    {1 / spent:8.1f} tokens/s, the same tokens: {replayed == eager}",
              flush=True)
        if args.compile:
            decoder.model = torch.compile(model, mode="reduce-overhead", fullgraph=True)
            decoder.tokens(decoder.step, 8)
            _, spent = decoder.tokens(decoder.step, count)
            print(f"{kind:8} compiled {1 / spent:8.1f} tokens/s", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--cols", type=int, default=4096)
    parser.add_argument("--rows", type=int, default=14336)
    parser.add_argument("--types", default="tq4,tq3", type=lambda text: text.split(","))
    parser.add_argument("--batches", default="1,16,256",
                        type=lambda text: [int(n) for n in text.split(",")])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--model", type=int, default=0, metavar="LAYERS")
    parser.add_argument("--compile", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    # no_grad as users decode: inference mode would hide the cost of the dispatcher.
    with torch.no_grad():
        if args.device == "cpu":
            time_on_cpu(args)
        elif args.model:
            decode(args)
        else:
            time_on_gpu(args, args.rows, args.cols, args.batches, copies=6)
            time_on_gpu(args, 64, 64, [1], copies=20)


if __name__ == "__main__":
    main()
