"""Measures the speed of vLLM on one GPU with random weights: speed.py SHAPE METHOD [READY_FILE
GO_FILE].

SHAPE is 8b (dense) or 30b-a3b (experts). METHOD is bf16, or tq2, tq3, tq4; with an h behind it
(tq3h) the head is compressed, too. The model is compiled and runs in graphs. Decoding is timed
behind the first token: the time for one token is taken off. The process makes READY_FILE when it
has loaded the model, begins to measure when GO_FILE is there, and measures while no other does.
"""
import fcntl
import json
import os
import pathlib
import statistics
import sys
import tempfile
import time

COMMON = {"rms_norm_eps": 1e-5, "hidden_act": "silu", "max_position_embeddings": 8192,
          "rope_theta": 500000.0, "tie_word_embeddings": False, "dtype": "bfloat16",
          "bos_token_id": 0, "eos_token_id": 1, "attention_bias": False, "head_dim": 128}
SHAPES = {
    "8b": {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096,
           "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
           "num_key_value_heads": 8, "vocab_size": 128256, "mlp_bias": False},
    "30b-a3b": {"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe",
                "hidden_size": 2048, "intermediate_size": 6144, "moe_intermediate_size": 768,
                "num_experts": 128, "num_experts_per_tok": 8, "norm_topk_prob": True,
                "decoder_sparse_step": 1, "mlp_only_layers": [], "num_hidden_layers": 48,
                "num_attention_heads": 32, "num_key_value_heads": 4, "vocab_size": 151936},
}
SEQUENCES = {"8b": (1, 16, 32, 64, 128), "30b-a3b": (1, 16, 64)}


def load(method, shape):
    """Returns an engine of its own process, if VLLM_ENABLE_V1_MULTIPROCESSING is 1."""
    import vllm

    folder = tempfile.mkdtemp()
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump({**COMMON, **SHAPES[shape]}, file)
    options = {}
    if method != "bf16":
        options["quantization"] = "turboquant"
        config = {"quant_method": "turboquant", "bits": int(method[2])}
        if method.endswith("h"):
            config["ignore"] = []
        options["hf_overrides"] = {"quantization_config": config}
    sequences = SEQUENCES[shape]
    # Engines share the GPU: each of them has a cache for what it measures, and compiles kernels
    # when they are needed first, which is before they are timed.
    return vllm.LLM(folder, dtype="bfloat16", load_format="dummy", skip_tokenizer_init=True,
                    compilation_config={"cudagraph_capture_sizes": list(sequences)},
                    max_model_len=2560, max_num_seqs=sequences[-1], gpu_memory_utilization=0.05,
                    kv_cache_memory_bytes=3 << 30, enable_prefix_caching=False,
                    kernel_config={"enable_jit_warmup": False},
                    max_num_batched_tokens=8192, **options)


class Clock:
    """Times requests, whose prompts are new ones each time."""

    def __init__(self, llm):
        self.llm, self.salt = llm, 0

    def took(self, sequences, prompt, tokens):
        """Returns the seconds for so many sequences with prompts and new tokens of these
        lengths."""
        import vllm

        self.salt += 1
        ask = vllm.SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True,
                                  detokenize=False)
        prompts = [{"prompt_token_ids": [(7 * i + 13 * s + 31 * self.salt) % 100000
                                         for i in range(prompt)]} for s in range(sequences)]
        begin = time.perf_counter()
        self.llm.generate(prompts, ask, use_tqdm=False)
        return time.perf_counter() - begin


def measure(clock, shape, name):
    for sequences in SEQUENCES[shape]:
        clock.took(sequences, 32, 65)
        spent = statistics.median(clock.took(sequences, 32, 65) - clock.took(sequences, 32, 1)
                                  for _ in range(3))
        print(f"SPEED {name} {sequences:3} sequences {64 * sequences / spent:9.1f} tokens/s "
              f"{1e3 * spent / 64:7.3f} ms a step", flush=True)
    clock.took(4, 2048, 1)
    spent = statistics.median(clock.took(4, 2048, 1) for _ in range(3))
    print(f"SPEED {name} prompts of 4 x 2048 {8192 / spent:9.1f} tokens/s", flush=True)


def main():
    shape, method = sys.argv[1:3]
    name, start = f"{shape} {method}", time.time()
    llm = load(method, shape)
    print(f"START {name} {time.time() - start:.1f} s", flush=True)
    if len(sys.argv) > 4:
        pathlib.Path(sys.argv[3]).touch()
        while not os.path.exists(sys.argv[4]):
            time.sleep(0.2)
    with open(os.path.join(tempfile.gettempdir(), "walsh_speed_lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        measure(Clock(llm), shape, name)


if __name__ == "__main__":
    main()
