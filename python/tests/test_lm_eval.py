"""Tests walsh as a model of lm-evaluation-harness, beside its HF backend and a server."""
import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

import walsh

pytest.importorskip("lm_eval", reason="lm-eval is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

from lm_eval.api.instance import Instance  # noqa: E402
from lm_eval.models.huggingface import HFLM  # noqa: E402

from walsh.lm_eval import WalshLM  # noqa: E402

PAIRS = [("The river was", " low that summer"), ("", "Nobody could remember"),
         ("The city of London is ", "the capital of England"), ("Once upon a time", " there")]
TEXT = "The river was low that summer, and the children walked across it. " * 12


def requests(kind, arguments):
    return [Instance(kind, {}, a, i) for i, a in enumerate(arguments)]


@pytest.fixture(scope="module")
def ours(tiny_model):
    return WalshLM(path=str(tiny_model), device="cpu", activations="f32", context=128)


@pytest.fixture(scope="module")
def theirs(tiny_model):
    return HFLM(pretrained=str(tiny_model), dtype="float32", device="cpu", max_length=128)


def test_scores_are_those_of_the_hf_backend(ours, theirs):
    asked = requests("loglikelihood", PAIRS)
    # The engine's keys and values are fp16, which changes a token's score by some 1e-3.
    for own, other in zip(ours.loglikelihood(asked), theirs.loglikelihood(asked)):
        assert own[0] == pytest.approx(other[0], rel=1e-3) and own[1] == other[1]
    asked = requests("loglikelihood_rolling", [(TEXT,), ("Once.",)])
    assert ours.loglikelihood_rolling(asked) == pytest.approx(
        theirs.loglikelihood_rolling(asked), rel=1e-3)


def test_texts_are_those_of_the_hf_backend_and_end_at_stops(ours, theirs):
    asked = requests("generate_until", [
        ("The river was", {"until": [","], "max_gen_toks": 12}),
        ("The old men sat", {"until": ["the"], "max_gen_toks": 16, "do_sample": False})])
    own = ours.generate_until(asked)
    assert own == theirs.generate_until(asked)
    assert "," not in own[0] and "the" not in own[1]


def test_chats_go_through_the_models_template(ours):
    prompt = ours.apply_chat_template([{"role": "user", "content": "Hi"}])
    assert prompt == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"


def test_scores_are_those_of_a_server(ours, command, tiny_model):
    pytest.importorskip("tenacity", reason="lm-eval's API models are not installed")
    from lm_eval.models.openai_completions import LocalCompletionsAPI

    server = subprocess.Popen([command, "serve", str(tiny_model), "--port", "0", "--device", "cpu",
                               "--activations", "f32"], stderr=subprocess.PIPE, text=True)
    try:
        for line in server.stderr:
            found = re.search(r"http://[\d.]+:\d+", line)
            if found:
                break
        model = LocalCompletionsAPI(base_url=found.group(0) + "/v1/completions",
                                    model=tiny_model.name, tokenizer=str(tiny_model),
                                    tokenizer_backend="huggingface", max_length=128,
                                    tokenized_requests=True, batch_size=1)
        pairs = [p for p in PAIRS if p[0]]
        for context, continuation in pairs:  # the API model puts no BOS in front
            tokens = model.tok_encode(context + continuation)
            first = len(model.tok_encode(context.rstrip(" ")))
            own = ours._score(tokens[:first], tokens[first:])
            other = model.loglikelihood(requests("loglikelihood", [(context, continuation)]),
                                        disable_tqdm=True)[0]
            assert own[0] == pytest.approx(other[0], rel=1e-4) and own[1] == other[1]
    finally:
        server.terminate()
        server.wait()


def test_the_command_runs_a_local_task(tiny_model, tmp_path):
    tasks = pathlib.Path(__file__).parent / "tasks"
    package = pathlib.Path(walsh.__file__).parent.parent
    environment = {**os.environ, "PYTHONPATH": str(package), "HF_HUB_OFFLINE": "1",
                   "HF_DATASETS_CACHE": str(tmp_path / "cache")}
    run = subprocess.run(
        [sys.executable, "-m", "walsh.lm_eval", "--model", "walsh", "--model_args",
         f"path={tiny_model}", "--tasks", "river_choice", "--include_path", str(tasks),
         "--output_path", str(tmp_path / "out")],
        capture_output=True, text=True, env=environment, cwd=tasks)
    assert run.returncode == 0, run.stderr[-2000:]
    result = next((tmp_path / "out").rglob("results_*.json"))
    assert json.loads(result.read_text())["results"]["river_choice"]["acc,none"] >= 0.75
