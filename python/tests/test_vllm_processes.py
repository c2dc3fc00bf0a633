"""The vLLM plugin in several processes, on CPUs, or on GPUs, one of which they may share."""
import json
import os
import pathlib
import subprocess
import sys

import pytest

os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
pytest.importorskip("vllm", reason="vllm is not installed")
torch = pytest.importorskip("torch")

from vllm_models import GPU, SHARED, random_model, stored_by_transformers  # noqa: E402

TESTS = pathlib.Path(__file__).parent
# NCCL refuses a GPU of several processes: they talk by way of host memory.
SHARED_GPU = dict(worker_cls="vllm_shared_gpu.SharedGpuWorker", distributed_executor_backend="mp",
                  disable_custom_all_reduce=True)
WITHOUT_NCCL = dict(VLLM_DISABLE_PYNCCL="1", VLLM_ALLREDUCE_USE_SYMM_MEM="0",
                    VLLM_ALLREDUCE_USE_FLASHINFER="0")


def tokens_of(folder, processes=1, **options):
    """Greedy tokens in processes of vLLM's own, which share the GPU if there is one only."""
    options = {**dict(model=str(folder), dtype="float32", enforce_eager=True, max_model_len=128,
                      tensor_parallel_size=processes, **SHARED), **options}
    env = {**os.environ, "VLLM_ENABLE_V1_MULTIPROCESSING": "1",
           "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    if GPU and processes > torch.cuda.device_count():
        options.update(SHARED_GPU)
        env.update(WITHOUT_NCCL)
    script = TESTS / "vllm_tokens.py"
    prompts = [[5, 100, 2000], [7, 8, 9, 10]]
    command = [sys.executable, script, json.dumps(options), json.dumps(prompts)]
    run = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    lines = [line for line in run.stdout.splitlines() if line.startswith("[[")]
    assert run.returncode == 0 and lines, run.stdout[-3000:] + run.stderr[-3000:]
    return json.loads(lines[-1])


@pytest.mark.parametrize("family", ["llama", "qwen3_moe"])
def test_two_processes_give_the_text_of_one(tiny_model, tmp_path, family):
    folder = random_model(tiny_model, tmp_path / "plain", family)
    one = tokens_of(folder, quantization="turboquant")
    assert one == tokens_of(folder, 2, quantization="turboquant")


@pytest.mark.parametrize("family", ["llama", "qwen3_moe"])
def test_two_processes_share_a_compressed_folder(tiny_model, tmp_path, family):
    folder = random_model(tiny_model, tmp_path / "plain", family)
    stored_by_transformers(folder, tmp_path / "stored", type="tq3")
    assert tokens_of(tmp_path / "stored", 2) == tokens_of(folder, quantization="turboquant")


@pytest.mark.skipif(GPU and torch.cuda.device_count() < 2, reason="there is one GPU")
def test_two_stages_of_a_pipeline_give_the_text_of_one(tiny_model, tmp_path):
    folder = random_model(tiny_model, tmp_path / "plain")
    # vLLM's CPU backend makes what stages send each other only where it traces a model.
    traced = dict(enforce_eager=False, compilation_config={"mode": 2, "backend": "eager"})
    two = tokens_of(folder, quantization="turboquant", pipeline_parallel_size=2,
                    **({} if GPU else traced))
    assert two == tokens_of(folder, quantization="turboquant")
