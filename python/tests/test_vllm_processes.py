"""Tests the vLLM plugin in several processes, on CPUs, or on GPUs, one of which they may share."""
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


def begin(folder, processes=1, **options):
    """Lets a model on that many processes of vLLM, which share the GPU if there is only one, write
    the tokens that it thinks best."""
    options = {**dict(model=str(folder), dtype="float32", enforce_eager=True, max_model_len=128,
                      tensor_parallel_size=processes, **SHARED), **options}
    env = {**os.environ, "VLLM_ENABLE_V1_MULTIPROCESSING": "1",
           "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    if GPU and processes > torch.cuda.device_count():
        options.update(SHARED_GPU)
        env.update(WITHOUT_NCCL)
    prompts = [[5, 100, 2000], [7, 8, 9, 10]]
    command = [sys.executable, TESTS / "vllm_tokens.py", json.dumps(options), json.dumps(prompts)]
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            text=True)


def check_same(*runs):
    """Checks that they write the same tokens."""
    outputs = [run.communicate()[0] for run in runs]
    for run, output in zip(runs, outputs):
        assert run.returncode == 0, output[-20000:]
    tokens = [[line for line in output.splitlines() if line.startswith("[[")]
              for output in outputs]
    assert len(tokens[0]) == 1 and all(own == tokens[0] for own in tokens)


@pytest.mark.parametrize("family", ["llama", "qwen3_moe"])
def test_two_processes_give_the_text_of_one(tiny_model, tmp_path, family):
    folder = random_model(tiny_model, tmp_path / "plain", family)
    check_same(*(begin(folder, processes, quantization="turboquant") for processes in (1, 2)))


@pytest.mark.parametrize("family", ["llama", "qwen3_moe"])
def test_two_processes_share_a_compressed_folder(tiny_model, tmp_path, family):
    folder = random_model(tiny_model, tmp_path / "plain", family)
    stored_by_transformers(folder, tmp_path / "stored", type="tq3")
    check_same(begin(folder, quantization="turboquant"), begin(tmp_path / "stored", 2))


@pytest.mark.skipif(GPU and torch.cuda.device_count() < 2, reason="there is one GPU")
def test_two_stages_of_a_pipeline_give_the_text_of_one(tiny_model, tmp_path):
    folder = random_model(tiny_model, tmp_path / "plain")
    # vLLM's CPU backend makes what stages send each other only where it traces a model.
    traced = dict(enforce_eager=False, compilation_config={"mode": 2, "backend": "eager"})
    two = begin(folder, quantization="turboquant", pipeline_parallel_size=2,
                **({} if GPU else traced))
    check_same(begin(folder, quantization="turboquant"), two)
