"""Fixtures of the Python tests and of the examples in docstrings."""
import importlib.util
import os
import pathlib
import shutil

import pytest

ROOT = pathlib.Path(__file__).resolve().parent

# Examples of modules that need what is not installed cannot be run.
collect_ignore_glob = []
if importlib.util.find_spec("torch") is None:
    collect_ignore_glob += ["*/walsh/torch.py", "*/walsh/_host_threads.py", "*/walsh/_packed.py",
                            "*/walsh/_vllm_shards.py"]
if importlib.util.find_spec("vllm") is None:
    collect_ignore_glob += ["*/walsh/_vllm_layers.py"]
if importlib.util.find_spec("lm_eval") is None:
    collect_ignore_glob += ["*/walsh/lm_eval.py"]
if importlib.util.find_spec("transformers") is None:
    collect_ignore_glob += ["*/walsh/transformers.py"]


@pytest.fixture(scope="session")
def tiny_model():
    """The folder of the model in the repository."""
    return ROOT / "models" / "walsh-tiny-13m"


@pytest.fixture(scope="session")
def model(tiny_model):
    """The same, loaded as it is."""
    import walsh

    with walsh.Model(tiny_model, device="cpu") as opened:
        yield opened


@pytest.fixture(scope="session")
def command():
    """Path of the command: that of the build, or the one that was installed."""
    found = os.environ.get("WALSH_COMMAND") or shutil.which("walsh")
    if not found:
        pytest.skip("there is no walsh command on the PATH")
    return found
