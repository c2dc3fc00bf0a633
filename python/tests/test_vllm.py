"""Tests the vLLM plugin in a real vLLM, on the CPU or on a GPU, which vLLM decides; skipped where
it is not installed (tools/check_vllm.sh, tools/vllm_gpu)."""
import contextlib
import json
import os
import shutil

import numpy as np
import pytest

os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # the engine in this process, with its errors
vllm = pytest.importorskip("vllm", reason="vllm is not installed")
torch = pytest.importorskip("torch")

import walsh  # noqa: E402
import walsh.torch  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402
from vllm_models import GPU, SHARED, random_model, stored_by_transformers  # noqa: E402
from walsh.vllm import register  # noqa: E402

gpu = pytest.mark.skipif(not GPU, reason="vLLM runs on the CPU here")
PROMPT = "The river"
GREEDY = vllm.SamplingParams(temperature=0, max_tokens=16)


def load(folder, **options):
    """Loads a model in this process."""
    return vllm.LLM(**{**dict(model=str(folder), dtype="float32", enforce_eager=True,
                              max_model_len=256, max_logprobs=-1, **SHARED), **options})


def overrides(method, **options):
    return {"quantization_config": {"quant_method": method, **options}}


def close(llm):
    """Ends what a model in this process holds, so that the next one can begin."""
    from vllm.distributed import cleanup_dist_env_and_memory

    llm.llm_engine.engine_core.shutdown()
    del llm
    cleanup_dist_env_and_memory()


@pytest.fixture(autouse=True)
def process_groups_end():
    """Ends process groups, since a model that is refused while it is loaded leaves some behind."""
    yield
    from vllm.distributed import cleanup_dist_env_and_memory

    cleanup_dist_env_and_memory()


def module(llm):
    return llm.llm_engine.model_executor.driver_worker.worker.model_runner.model


def greedy(llm):
    return list(llm.generate([PROMPT], GREEDY, use_tqdm=False)[0].outputs[0].token_ids)


def prompt_logprobs(llm, tokens, **options):
    """Returns the logarithms of the probabilities behind each token but the last, [tokens - 1,
    vocabulary]."""
    ask = vllm.SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=-1)
    [output] = llm.generate({"prompt_token_ids": tokens}, ask, use_tqdm=False, **options)
    rows = output.prompt_logprobs[1:]
    return np.array([[row[token].logprob for token in range(len(row))] for row in rows])


def is_coded(name):
    return name.endswith("_proj.weight")


def decoded_folder(source, place, **options):
    """Writes the checkpoint with the values that its codes stand for, in float32."""
    shutil.copytree(source, place, ignore=shutil.ignore_patterns("*.safetensors*"))
    tensors = {}
    for file in source.glob("*.safetensors"):
        tensors.update(load_file(file))
    for name, weight in tensors.items():
        weight = weight.float()
        if is_coded(name):
            layer = walsh.torch.Linear(weight.shape[1], weight.shape[0], False, **options)
            layer.encode(weight)
            weight = layer.dequantize()
        tensors[name] = weight.contiguous()
    save_file(tensors, place / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((place / "config.json").read_text())
    (place / "config.json").write_text(json.dumps({**config, "dtype": "float32"}))
    return place


def check_against_walsh(llm, folder):
    """Checks that logits and greedy text are those of walsh's engine on a folder of the same
    weights."""
    with walsh.Model(folder, device="cpu") as model:
        tokens = [int(t) for t in model.tokenize(PROMPT + " flows through the city of")]
        logits = np.array(model.logits(tokens, first=0), dtype=np.float64)[:-1]
        prompt = [int(t) for t in model.tokenize(PROMPT)]
        expected = []
        for _ in range(GREEDY.max_tokens):
            expected.append(int(np.argmax(model.logits(prompt + expected))))
    expected_logprobs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    found = prompt_logprobs(llm, tokens)
    assert found.shape == expected_logprobs.shape
    assert np.abs(found - expected_logprobs).max() / np.abs(logits).max() < 1e-3
    assert greedy(llm) == expected


def test_turboquant_gives_the_logits_and_text_of_walsh(tiny_model, tmp_path):
    llm = load(tiny_model, quantization="turboquant",
               hf_overrides=overrides("turboquant", activations="f32"))
    try:
        layer = module(llm).model.layers[0].self_attn.qkv_proj
        assert layer.walsh_layers.shape == (1, 3) and layer.weight.numel() == 0
        assert layer.walsh_packed[0].format == "tq3"
        check_against_walsh(llm, decoded_folder(tiny_model, tmp_path / "decoded", type="tq3"))
    finally:
        close(llm)


def test_rules_choose_types_within_a_merged_layer(tiny_model):
    other = "tc3" if GPU else "tc3:hq"  # what is encoded fast has kernels on the CPU alone
    rules = overrides("walsh", type="tq4", fast=not GPU, ignore=[r"re:layers\.0\."],
                      overrides=[rf"re:layers\.1\..*v_proj={other}"])
    llm = load(tiny_model, quantization="walsh", hf_overrides=rules)
    try:
        layers = module(llm).model.layers
        assert not hasattr(layers[0].self_attn.qkv_proj, "walsh_layers")
        types = [one.format.split(":")[0] for one in layers[1].self_attn.qkv_proj.walsh_packed]
        assert types == ["tq4", "tc3"]
        assert len(greedy(llm)) == GREEDY.max_tokens
    finally:
        close(llm)


def test_ignore_list_of_vllm_is_read(tiny_model):
    ignore = ["re:.*lm_head.*", "model.layers.0.self_attn.o_proj"]
    llm = load(tiny_model, quantization="turboquant", quantization_config={"ignore": ignore})
    try:
        attention = module(llm).model.layers[0].self_attn
        assert not hasattr(attention.o_proj, "walsh_layers")
        assert attention.qkv_proj.walsh_packed[0].format == "tq3"
    finally:
        close(llm)


def test_the_command_line_of_vllm_takes_the_options(tiny_model):
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    def parsed(*options):
        parser = AsyncEngineArgs.add_cli_args(FlexibleArgumentParser())
        line = ["--model", str(tiny_model), "--dtype", "float32", "--enforce-eager",
                "--max-model-len", "128", *options]
        return AsyncEngineArgs.from_cli_args(parser.parse_args(line))

    ours = parsed("--quantization", "turboquant", "--quantization-config",
                  '{"bits": 4, "group_size": null}')
    assert ours.create_engine_config().quant_config.options.type == "tq4:full"
    ours = parsed("--quantization", "walsh", "--quantization-config.type", "tc3")
    assert ours.create_engine_config().quant_config.options.type == "tc3"
    with pytest.raises(walsh.Error, match="bit: is no option of turboquant"):
        parsed("--quantization", "turboquant", "--quantization-config",
               '{"bit": 4}').create_engine_config()
    theirs = parsed("--quantization", "online", "--quantization-config", '{"ignore": ["a"]}')
    assert theirs.quantization_config.ignore == ["a"]  # an object of vLLM's own
    with pytest.raises(SystemExit):
        parsed("--quantization-config", "{")


def layers_of_experts(experts):
    """Returns how many layers each of the four experts has."""
    if GPU:
        assert experts.walsh_placed.count == 4
        return len(experts.walsh_placed.forms)
    assert len(experts.walsh_up) == len(experts.walsh_down) == 4
    return experts.walsh_up.shape[1] + experts.walsh_down.shape[1]


def test_experts_are_compressed_too(tiny_model, tmp_path):
    folder = random_model(tiny_model, tmp_path / "plain", "qwen3_moe")
    llm = load(folder, quantization="walsh",
               hf_overrides=overrides("walsh", type="tq4", activations="f32"))
    try:
        block = module(llm).model.layers[0].mlp
        assert not hasattr(block.gate, "walsh_layers")
        experts = block.experts.routed_experts
        assert layers_of_experts(experts) == 2 and experts.w13_weight.numel() == 0
        check_against_walsh(llm, decoded_folder(folder, tmp_path / "decoded", type="tq4"))
    finally:
        close(llm)


def check_logits(llm, expected, tokens, tolerance=1e-3, **options):
    expected = expected(tokens)
    found = prompt_logprobs(llm, tokens, **options)
    log_softmax = torch.log_softmax(expected, dim=1).numpy()
    error = np.abs(found - log_softmax).max() / expected.abs().max().item()
    assert error < tolerance


def test_folder_of_transformers_gives_its_logits(tiny_model, tmp_path):
    expected = stored_by_transformers(tiny_model, tmp_path, type="tq3",
                                      overrides=[r"re:layers\.1\..*(v|down)_proj=tq4+4"])
    register()  # vLLM's argument is read before it loads plugins
    llm = load(tmp_path, quantization="walsh", quantization_config={"activations": "f32"})
    try:
        layer = module(llm).model.layers[1].self_attn.qkv_proj
        assert [one.format for one in layer.walsh_packed] == ["tq3", "tq4+4"]
        assert all(p.numel() == 0 for p in layer.parameters())
        check_logits(llm, expected, [5, 100, 2000, 17, 300])
    finally:
        close(llm)


@pytest.mark.parametrize("family", ["qwen3_moe", "mixtral"])
def test_compressed_experts_of_a_folder_are_loaded(tiny_model, tmp_path, family):
    plain, stored = random_model(tiny_model, tmp_path / "plain", family), tmp_path / "stored"
    expected = stored_by_transformers(plain, stored, type="tq3",
                                      overrides=[r"re:layers\.1\..*experts.*up_proj=tq4+4"])
    register()
    llm = load(stored, quantization="walsh", quantization_config={"activations": "f32"})
    try:
        experts = [part for part in module(llm).modules() if type(part).__name__ == "RoutedExperts"]
        assert [layers_of_experts(own) for own in experts] == [2, 3]  # gate and up are one
        assert not list(experts[0].parameters())
        check_logits(llm, expected, [5, 100, 2000, 17, 300, 4000, 8, 77])
    finally:
        close(llm)


@pytest.mark.parametrize("how", ["stored", "online"])
def test_a_head_is_compressed_where_no_rule_ignores_it(tiny_model, tmp_path, how):
    plain, stored = random_model(tiny_model, tmp_path / "plain"), tmp_path / "stored"
    options = dict(type="tq4", ignore=[])
    expected = stored_by_transformers(plain, stored, **options)
    register()
    llm = load(stored if how == "stored" else plain, quantization="walsh",
               quantization_config={"activations": "f32", **options})
    try:
        head = module(llm).lm_head
        assert [one.format for one in head.walsh_packed] == ["tq4"]
        assert all(p.numel() == 0 for p in head.parameters())
        check_logits(llm, expected, [5, 100, 2000, 17, 300])
    finally:
        close(llm)


def test_a_head_that_is_the_embedding_stays_plain(tiny_model):
    llm = load(tiny_model, quantization="turboquant",
               hf_overrides=overrides("turboquant", ignore=[]))
    try:
        assert module(llm).lm_head is module(llm).model.embed_tokens
        assert len(greedy(llm)) == GREEDY.max_tokens
    finally:
        close(llm)


def test_experts_with_int8_inputs_have_the_logits_of_transformers(tiny_model, tmp_path):
    folder = random_model(tiny_model, tmp_path / "plain", "qwen3_moe")
    # Other layers of many rows would have inputs of 16 bits on GPUs.
    options = dict(type="tq3", ignore=["lm_head", "re:self_attn"])
    expected = stored_by_transformers(folder, tmp_path / "stored", exact=False, **options)
    llm = load(folder, quantization="walsh", hf_overrides=overrides("walsh", **options),
               max_num_seqs=64)
    prompts = [[5 + i, 100, 2000, 17] for i in range(40)]
    ask = vllm.SamplingParams(temperature=0, max_tokens=2, logprobs=-1)
    try:
        # One prompt has few rows; all prompts together have many, and the step behind them has
        # some.
        outputs = llm.generate({"prompt_token_ids": prompts[0]}, ask, use_tqdm=False)
        outputs += llm.generate([{"prompt_token_ids": tokens} for tokens in prompts], ask,
                                use_tqdm=False)
    finally:
        close(llm)
    errors = []
    for tokens, output in zip([prompts[0], *prompts], outputs):
        [text] = output.outputs
        logits = expected([*tokens, *text.token_ids])[-2:]
        found = np.array([[row[token].logprob for token in range(len(row))]
                          for row in text.logprobs])
        difference = np.abs(found - torch.log_softmax(logits, dim=1).numpy())
        errors.append(difference.max(axis=1) / logits.abs().max().item())
    assert max(errors[0]) < 0.02
    # A value that is rounded to the other side may choose another expert.
    assert (np.quantile(errors, 0.8, axis=0) < 0.02).all()


@pytest.mark.parametrize("family", ["llama", "qwen3_moe"])
def test_adapters_beside_a_compressed_folder_are_used(tiny_model, tmp_path, family):
    peft = pytest.importorskip("peft", reason="peft is not installed")
    import transformers
    from vllm.lora.request import LoRARequest

    plain, stored = random_model(tiny_model, tmp_path / "plain", family), tmp_path / "stored"
    stored_by_transformers(plain, stored, type="tq4")
    model = transformers.AutoModelForCausalLM.from_pretrained(stored, dtype=torch.float32)
    for part in model.modules():
        if isinstance(part, walsh.torch.Linear):
            part.exact = True
    targets = ["q_proj", "o_proj"]
    model = peft.get_peft_model(model, peft.LoraConfig(
        r=8, target_modules=targets, task_type="CAUSAL_LM", init_lora_weights=False)).eval()
    model.save_pretrained(tmp_path / "adapter")

    def logits(tokens, with_adapter):
        with torch.inference_mode(), contextlib.ExitStack() as stack:
            if not with_adapter:
                stack.enter_context(model.disable_adapter())
            return model(torch.tensor([tokens])).logits[0, :-1].double()

    register()
    # vLLM's kernels for adapters on GPUs take values of 16 bits only.
    dtype, tolerance = ("float16", 1e-2) if GPU else ("float32", 1e-3)
    llm = load(stored, quantization="walsh", quantization_config={"activations": "f32"},
               dtype=dtype, enable_lora=True, max_lora_rank=8, lora_target_modules=targets)
    tokens = [5, 100, 2000, 17, 300]
    assert not torch.allclose(logits(tokens, True), logits(tokens, False), atol=0.1)
    try:
        check_logits(llm, lambda t: logits(t, True), tokens, tolerance,
                     lora_request=LoRARequest("adapter", 1, str(tmp_path / "adapter")))
        check_logits(llm, lambda t: logits(t, False), tokens, tolerance)
    finally:
        close(llm)


@pytest.mark.parametrize("how", ["stored", "online"])
def test_recurrent_layers_are_compressed_too(tiny_model, tmp_path, how):
    plain, stored = random_model(tiny_model, tmp_path / "plain", "qwen3_5"), tmp_path / "coded"
    expected = stored_by_transformers(plain, stored, type="tq3")
    register()
    llm = load(stored if how == "stored" else plain, quantization="walsh",
               dtype="bfloat16",  # which is all that vLLM's recurrent layers take on the CPU
               quantization_config={"type": "tq3", "activations": "f32"})
    try:
        layer = module(llm).model.layers[0].linear_attn
        assert [one.format for one in layer.in_proj_qkvz.walsh_packed] == ["tq3"]
        assert not hasattr(layer.in_proj_ba, "walsh_layers")
        check_logits(llm, expected, [5, 100, 2000, 17, 300], tolerance=0.03)
    finally:
        close(llm)


def test_a_folder_that_lacks_experts_is_refused(tiny_model, tmp_path):
    folder = random_model(tiny_model, tmp_path / "plain", "qwen3_moe")
    form = {"type": "tq4", "rotation": [["hadamard", 128, 42, True]]}
    names = [f"model.layers.0.mlp.experts.{i}.{part}_proj" for i in range(3)
             for part in ("gate", "up", "down")]
    with pytest.raises(walsh.Error, match="9 layers of experts, expected 12"):
        load(folder, hf_overrides=overrides("walsh", activations="f32",
                                            modules={name: form for name in names}))


def test_compiled_by_vllm_it_says_the_same(tiny_model, tmp_path, monkeypatch):
    monkeypatch.setenv("VLLM_CACHE_ROOT", str(tmp_path))
    assert_compiled_says_the_same(tiny_model)


@gpu
@pytest.mark.parametrize("activations", ["int8", "f32"])
def test_experts_in_recorded_graphs_say_the_same(tiny_model, tmp_path, monkeypatch, activations):
    monkeypatch.setenv("VLLM_CACHE_ROOT", str(tmp_path / "cache"))
    folder = random_model(tiny_model, tmp_path / "plain", "qwen3_moe")
    assert_compiled_says_the_same(folder, activations)


def assert_compiled_says_the_same(folder, activations="int8"):
    texts = []
    for eager in (True, False):
        graphs = {} if eager or not GPU else {
            "compilation_config": {"cudagraph_capture_sizes": [1, 2, 8]}}
        llm = load(folder, quantization="turboquant", enforce_eager=eager, **graphs,
                   hf_overrides=overrides("turboquant", activations=activations))
        try:
            texts.append(greedy(llm))
        finally:
            close(llm)
    assert texts[0] == texts[1]


@gpu
def test_weights_lie_in_memory_that_pytorch_counts(tiny_model):
    llm = load(tiny_model, quantization="turboquant")
    try:
        coded = [one for part in module(llm).modules() for one in getattr(part, "walsh_packed", [])]
        assert len(coded) > 8
        assert sum(one.bytes for one in coded) < torch.cuda.memory_allocated()
        assert not any(isinstance(one, walsh.torch.Linear) for one in coded)  # none on the host
    finally:
        close(llm)


@gpu
def test_types_without_kernels_are_refused_and_others_named(tiny_model):
    with pytest.raises(walsh.Error, match="types that run on GPUs: .*tq3"):
        load(tiny_model, quantization="walsh", hf_overrides=overrides("walsh", type="tc3:hq",
                                                                      fast=True))


def test_many_sequences_say_what_one_says(tiny_model):
    llm = load(tiny_model, quantization="turboquant", max_num_seqs=64)
    try:
        alone = greedy(llm)
        prompts = [{"prompt_token_ids": [5 + i, 100, 2000, 17]} for i in range(39)] + [PROMPT]
        outputs = llm.generate(prompts, GREEDY, use_tqdm=False)
        assert list(outputs[-1].outputs[0].token_ids)[:8] == alone[:8]
    finally:
        close(llm)
