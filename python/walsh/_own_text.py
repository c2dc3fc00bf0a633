"""Lets a model write a text itself, for people who have none to calibrate with."""
from __future__ import annotations

from typing import Any

import torch

TOKENS = 98304  # a text has this many by default
_BATCH = 64  # this many windows are drawn together


def own_text(model: Any, folder: str, tokens: int, window: int, device: str, seed: int) -> str:
    """Returns at least `tokens` tokens that `model`, a transformers model with the tokenizer of
    `folder`, draws at temperature 1, in windows of `window` tokens that begin anew. The model is
    back on the CPU afterwards."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    count = -(-tokens // (window - 1))
    texts: list[str] = []
    model.to(device)
    devices = [device] if device.startswith("cuda") else []
    with torch.random.fork_rng(devices=devices), torch.no_grad():
        torch.manual_seed(seed)
        for begin in range(0, count, _BATCH):
            first = _first_tokens(tokenizer, model, min(_BATCH, count - begin)).to(device)
            drawn = model.generate(first, attention_mask=torch.ones_like(first), do_sample=True,
                                   temperature=1.0, top_k=0, top_p=1.0, pad_token_id=0,
                                   max_new_tokens=window - 1, min_new_tokens=window - 1)
            texts += tokenizer.batch_decode(drawn[:, 1:], skip_special_tokens=True)
    model.to("cpu")
    return "\n".join(texts)


def _first_tokens(tokenizer: Any, model: Any, count: int) -> torch.Tensor:
    """Returns [count, 1]: BOS, or random tokens where the tokenizer has none."""
    if tokenizer.bos_token_id is not None:
        return torch.full((count, 1), tokenizer.bos_token_id)
    return torch.randint(model.config.get_text_config().vocab_size, (count, 1))
