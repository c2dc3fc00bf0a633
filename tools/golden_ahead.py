#!/usr/bin/env python3
"""Makes the tiny checkpoints with a layer that predicts further tokens, and its expected logits.

transformers leaves these layers out, so what they compute is written down here, after the report of
DeepSeek-V3 (section 2.2) and the definitions of vLLM (deepseek_mtp, glm4_moe_mtp, qwen3_next_mtp,
qwen3_5_mtp): row i joins the normed embedding of token i + 1 with the normed output of the model
for token i, which is behind the model's final norm; one decoder layer, which is transformers',
follows; then a norm of its own and the model's head. A guess is continued from the output of the
layer, for Qwen's behind that norm, for the others in front of it. Both are trained for a moment
on a simple language, so that guesses are right; being sure of themselves, they show how keys and
values are rounded, so that these are rounded here as a cache keeps them (float16).

    tools/golden_ahead.py
"""

import contextlib
import copy
import json
import pathlib
import shutil

import torch
import transformers as hf
from make_goldens import SHAPE, randomize
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import AutoModelForCausalLM
from transformers.models.deepseek_v3 import modeling_deepseek_v3 as deepseek
from transformers.models.glm4_moe import modeling_glm4_moe as glm
from transformers.models.qwen3_5 import modeling_qwen3_5 as qwen35
from transformers.models.qwen3_next import modeling_qwen3_next as qwen_next

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "tests/data/ahead"
ROWS, GUESSES = 24, 4

ROPE = dict(rope_theta=10000.0, rope_type="default")
SMALL = {**SHAPE, "vocab_size": 96, "hidden_size": 32, "intermediate_size": 48,
         "num_hidden_layers": 2}
DELTA = dict(head_dim=16, layer_types=["linear_attention", "full_attention"],
             linear_key_head_dim=16, linear_value_head_dim=16, linear_num_key_heads=1,
             linear_num_value_heads=2, rope_parameters={**ROPE, "partial_rotary_factor": 0.5})
EXPERTS = dict(moe_intermediate_size=32, num_experts_per_tok=2, rope_parameters=ROPE)
# The tensors of the layer have these names: its own, then those of the join and its norm.
QWEN = ("mtp.layers.0.", "mtp.fc", "mtp.pre_fc_norm_embedding", "mtp.pre_fc_norm_hidden",
        "mtp.norm")


def of_layer(index):
    own = f"model.layers.{index}."
    return (own, own + "eh_proj", own + "enorm", own + "hnorm", own + "shared_head.norm")


def models():
    """Yields name, config, the layer, its index, names, whether it goes on behind its norm, extra
    keys."""
    yield ("qwen35", hf.Qwen3_5TextConfig(**SMALL, **DELTA, tie_word_embeddings=True),
           qwen35.Qwen3_5DecoderLayer, 1, QWEN, True, {"mtp_num_hidden_layers": 1})
    yield ("qwen3-next", hf.Qwen3NextConfig(
        **SMALL, **DELTA, moe_intermediate_size=32, shared_expert_intermediate_size=32,
        num_experts=4, num_experts_per_tok=2), qwen_next.Qwen3NextDecoderLayer, 1, QWEN, True, {})
    yield ("deepseek-v3", hf.DeepseekV3Config(
        **{**SMALL, "num_key_value_heads": 4}, **EXPERTS, kv_lora_rank=16, q_lora_rank=24,
        qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=16, n_routed_experts=4,
        n_shared_experts=1, n_group=2, topk_group=1, first_k_dense_replace=1,
        num_nextn_predict_layers=1), deepseek.DeepseekV3DecoderLayer, 1, of_layer(2), False, {})
    yield ("glm4-moe", hf.Glm4MoeConfig(
        **SMALL, **{**EXPERTS, "rope_parameters": {**ROPE, "partial_rotary_factor": 0.5}},
        head_dim=16, use_qk_norm=True, n_routed_experts=4, n_shared_experts=1, n_group=1,
        topk_group=1, first_k_dense_replace=1, num_nextn_predict_layers=1),
        glm.Glm4MoeDecoderLayer, 1, of_layer(2), False, {})


class Ahead(nn.Module):
    def __init__(self, model, kind, index, goes_on_normed):
        super().__init__()
        self.rest = [model]  # whose parameters are not this module's
        norm = type(model.model.norm)
        width, eps = model.config.hidden_size, model.config.rms_norm_eps
        self.layer = kind(model.config, index)
        self.project = nn.Linear(2 * width, width, bias=False)
        self.token_norm, self.stream_norm, self.norm = (norm(width, eps=eps) for _ in range(3))
        self.goes_on_normed = goes_on_normed

    def forward(self, streams, tokens):
        """Returns logits, and what the next rows join; both are [texts, rows, ...]."""
        model = self.rest[0]
        rows = tokens.shape[1]
        embedded = model.model.embed_tokens(tokens)
        x = self.project(torch.cat([self.token_norm(embedded), self.stream_norm(streams)], dim=-1))
        positions = torch.arange(rows)[None]
        mask = torch.full((rows, rows), torch.finfo(torch.float32).min).triu(1)[None, None]
        x = self.layer(x, attention_mask=mask, position_ids=positions,
                       position_embeddings=model.model.rotary_emb(x, positions))
        x = x[0] if isinstance(x, tuple) else x
        normed = self.norm(x)
        return model.lm_head(normed), normed if self.goes_on_normed else x


def write_texts(vocab, count, length, seed):
    """Returns texts of a language in which a token mostly decides the next one."""
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(vocab, generator=torch.Generator().manual_seed(1))
    texts = torch.randint(vocab, (count, length), generator=generator)
    follows = torch.rand((count, length), generator=generator) < 0.85
    for i in range(1, length):
        texts[:, i] = torch.where(follows[:, i], order[texts[:, i - 1]], texts[:, i])
    return texts


def streams_of(model, texts):
    with torch.no_grad():
        return model.model(texts).last_hidden_state


def train(module, steps, vocab, logits_of):
    optimizer = torch.optim.Adam(module.parameters(), lr=5e-3)
    for step in range(steps):
        texts = write_texts(vocab, 16, 24, 100 + step)
        logits = logits_of(texts)
        targets = texts[:, -logits.shape[1]:]
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return float(loss), float((logits.argmax(-1) == targets).float().mean())


def rounded(module):
    for p in list(module.parameters()) + list(module.buffers()):
        if p.is_floating_point() and p.dim() > 1 or isinstance(p, nn.Parameter):
            p.data = p.data.to(torch.bfloat16).float()
    module.requires_grad_(False)


def stored_layer(ahead, names):
    """Returns the tensors under the names that published checkpoints have; experts one by one."""
    own, project, token_norm, stream_norm, norm = names
    modules = {project: ahead.project, token_norm: ahead.token_norm,
               stream_norm: ahead.stream_norm, norm: ahead.norm}
    stored = {f"{name}.weight": module.weight for name, module in modules.items()}
    for name, value in {**dict(ahead.layer.named_parameters()),
                        **dict(ahead.layer.named_buffers())}.items():
        if name.endswith("experts.gate_up_proj"):
            for e, both in enumerate(value):
                gate, up = both.chunk(2)
                prefix = f"{own}{name.removesuffix('gate_up_proj')}{e}."
                stored[prefix + "gate_proj.weight"], stored[prefix + "up_proj.weight"] = gate, up
        elif name.endswith("experts.down_proj"):
            for e, down in enumerate(value):
                stored[f"{own}{name.removesuffix('down_proj')}{e}.down_proj.weight"] = down
        else:
            stored[own + name] = value
    return {name: value.detach().clone().contiguous() for name, value in stored.items()}


@contextlib.contextmanager
def rounded_caches(*modules):
    """Rounds keys and values, or latents and shared keys, as a cache does."""
    half = lambda x: x.half().float()
    undo = []

    def replace(owner, name, wrapper):
        original = getattr(owner, name)
        setattr(owner, name, wrapper(original))
        undo.append(lambda: setattr(owner, name, original))

    for code in (qwen35, qwen_next, glm):
        replace(code, "eager_attention_forward", lambda attend: lambda module, q, k, v, *a, **b:
                attend(module, q, half(k), half(v), *a, **b))
    for turn in ("apply_rotary_pos_emb", "apply_rotary_pos_emb_interleave"):
        replace(deepseek, turn, lambda rotate: lambda *a, **b:
                (lambda q, k: (q, half(k)))(*rotate(*a, **b)))
    for module in modules:
        for part in module.modules():
            if isinstance(part, deepseek.DeepseekV3Attention):
                hook = part.kv_a_layernorm.register_forward_hook(lambda m, i, out: half(out))
                undo.append(hook.remove)
    try:
        yield
    finally:
        for step in undo:
            step()


def expected(model, ahead, tokens):
    """Returns the logits of rows, then of guesses that go on from them."""
    streams = streams_of(model, torch.tensor([tokens]))[:, : ROWS]
    joined = torch.tensor([tokens[1 : ROWS + 1]])
    all_logits, guesses = [], []
    with torch.no_grad():
        for _ in range(GUESSES):
            logits, given = ahead(streams, joined)
            new = logits[0, -1:] if len(all_logits) else logits[0]
            all_logits = torch.cat([all_logits, new]) if len(all_logits) else new
            guesses.append(int(logits[0, -1].argmax()))
            streams = torch.cat([streams, given[:, -1:]], dim=1)
            joined = torch.cat([joined, torch.tensor([guesses[-1:]])], dim=1)
    return [[float(f"{v:.7g}") for v in row.tolist()] for row in all_logits], guesses


def make(name, config, kind, index, names, goes_on_normed, keys):
    config._attn_implementation = "eager"
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
    gain = 0.0 if name.startswith("qwen") else 1.0
    randomize(model, 5, gain=gain)
    ahead = Ahead(model, kind, index, goes_on_normed)
    randomize(ahead, 6, gain=gain)
    vocab = config.vocab_size
    result = [train(model, 120, vocab, lambda texts: model(texts[:, :-1]).logits)]
    rounded(model)
    result.append(train(ahead, 120, vocab, lambda texts: ahead(
        streams_of(model, texts[:, :-2]), texts[:, 1:-1])[0]))
    rounded(ahead)
    folder = FOLDER / name
    shutil.rmtree(folder, ignore_errors=True)
    copy.deepcopy(model).to(torch.bfloat16).save_pretrained(folder)  # a rope stays as it is
    file = folder / "model.safetensors"
    tensors = load_file(file)
    layer = {n: v.to(torch.bfloat16) for n, v in stored_layer(ahead, names).items()}
    if not name.startswith("qwen"):  # published checkpoints have copies
        layer[names[0] + "embed_tokens.weight"] = tensors["model.embed_tokens.weight"].clone()
        layer[names[0] + "shared_head.head.weight"] = tensors["lm_head.weight"].clone()
    save_file({**tensors, **layer}, file, metadata={"format": "pt"})
    (folder / "generation_config.json").unlink(missing_ok=True)
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **keys}, indent=2, sort_keys=True)
                    + "\n")
    tokens = write_texts(vocab, 1, ROWS + 1, 11)[0].tolist()
    with rounded_caches(model, ahead):
        logits, guesses = expected(model, ahead, tokens)
    (folder / "expected.json").write_text(
        json.dumps(dict(transformers=hf.__version__, tokens=tokens, guesses=guesses, logits=logits))
        .replace("], [", "],\n[") + "\n")
    print(name, "loss, right:", result, sum(f.stat().st_size for f in folder.iterdir()), "bytes")


def main():
    torch.set_num_threads(1)
    for model in models():
        make(*model)


if __name__ == "__main__":
    main()
