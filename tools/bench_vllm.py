#!/usr/bin/env python3
"""Measures the decoding speed of vLLM on the CPU with --quantization turboquant against its own
bfloat16.

Both models live in processes of their own at the same time and decode in turns, so that whatever
else the machine does meets both. The checkpoint has random weights and the shape of a 1.1-billion
Llama (or --layers of it); text means nothing, speed does not depend on it.

    tools/bench_vllm.py [--batches 1,4,16] [--tokens 32] [--rounds 5] [--bits 3] [--folder DIR]
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

PROMPT = 32  # it counts tokens


def make_checkpoint(folder, layers):
    """Writes a Llama of random bfloat16 weights."""
    import torch
    import transformers

    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=32000, hidden_size=2048, intermediate_size=5632, num_hidden_layers=layers,
        num_attention_heads=32, num_key_value_heads=4, head_dim=64, tie_word_embeddings=False)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.to_empty(device="cpu")
    for parameter in model.parameters():
        if parameter.dim() == 2:
            parameter.data.normal_(0, 0.02)
        else:
            parameter.data.fill_(1)
    model.save_pretrained(folder)


def memory(name):
    """Returns a memory figure of this process in MB: VmRSS is the present size, VmHWM the peak."""
    text = pathlib.Path("/proc/self/status").read_text()
    return int(text.partition(name + ":")[2].split()[0]) / 1e3


def serve(options):
    """Decodes as requested by lines "SEQUENCES TOKENS" on standard input; answers with seconds."""
    import vllm

    before = memory("VmRSS")
    llm = vllm.LLM(**json.loads(options))
    print("ready", memory("VmHWM") - before, memory("VmRSS") - before, flush=True)
    for line in sys.stdin:
        sequences, tokens = map(int, line.split())
        ask = vllm.SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True)
        prompts = [{"prompt_token_ids": [(7 * i + 13 * s + tokens) % 30000 for i in range(PROMPT)]}
                   for s in range(sequences)]
        start = time.perf_counter()
        llm.generate(prompts, ask, use_tqdm=False)
        print("took", time.perf_counter() - start, flush=True)


def answer(process, word):
    """Returns the rest of the next line that begins with the given word."""
    for line in process.stdout:
        if line.startswith(word):
            return line[len(word):].strip()
    sys.exit("bench_vllm: a server has ended")


def decode_seconds(process, sequences, tokens):
    """Returns the seconds for the tokens after the first: the prompt's time is subtracted."""
    spent = []
    for count in (1, tokens + 1):
        process.stdin.write(f"{sequences} {count}\n")
        process.stdin.flush()
        spent.append(float(answer(process, "took")))
    return spent[1] - spent[0]


def measure(args, folder):
    """Prints one line for each number of sequences."""
    common = {"model": str(folder), "dtype": "bfloat16", "max_model_len": 512,
              "skip_tokenizer_init": True, "enforce_eager": not args.compile,
              "enable_prefix_caching": False}
    turbo = {"quantization": "turboquant", "hf_overrides": {"quantization_config": {
        "quant_method": "turboquant", "bits": args.bits, "fast": True}}}
    env = {**os.environ, "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_KVCACHE_SPACE": "1",
           "VLLM_LOGGING_LEVEL": "ERROR"}
    servers = []
    for options in (common, {**common, **turbo}):
        servers.append(subprocess.Popen([sys.executable, __file__, "--serve", json.dumps(options)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=None if args.verbose else subprocess.DEVNULL,
                                        env=env, text=True))
        peak, rest = map(float, answer(servers[-1], "ready").split())
        print(f"{options.get('quantization', 'bf16'):10} {peak:7.0f} MB of memory at most while it "
              f"was loaded, {rest:7.0f} MB behind it", flush=True)
    for batch in map(int, args.batches.split(",")):
        for server in servers:
            decode_seconds(server, batch, 2)
        rounds = [[decode_seconds(server, batch, args.tokens) for server in servers]
                  for _ in range(args.rounds)]
        plain, coded = (statistics.median(batch * args.tokens / r[i] for r in rounds)
                        for i in range(2))
        ratio = statistics.median(r[0] / r[1] for r in rounds)
        print(f"{batch:3} sequences  bf16 {plain:7.2f} tokens/s  tq{args.bits} {coded:7.2f} "
              f"tokens/s  ratio {ratio:5.2f}", flush=True)
    for server in servers:
        server.stdin.close()
        server.wait()


def main():
    if sys.argv[1:2] == ["--serve"]:
        serve(sys.argv[2])
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", default="1,4,16")
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--bits", type=int, default=3)
    parser.add_argument("--layers", type=int, default=22)
    parser.add_argument("--folder", type=pathlib.Path, help="kept; made if it is not there")
    parser.add_argument("--compile", action="store_true", help="with torch.compile")
    parser.add_argument("--verbose", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = args.folder or pathlib.Path(place) / "model"
        if not (folder / "config.json").exists():
            make_checkpoint(folder, args.layers)
        measure(args, folder)


if __name__ == "__main__":
    main()
