"""Fixtures of the Python tests and of the examples in docstrings."""
import importlib.util
import os
import pathlib
import re
import shutil

import pytest

ROOT = pathlib.Path(__file__).resolve().parent

OPTIONAL = ("torch", "transformers", "vllm", "lm_eval")


def needs(module: pathlib.Path) -> set[str]:
    """Which optional packages a module imports at its top, also by way of our own modules."""
    text = module.read_text()
    found = set(re.findall(r"^(?:from|import) (\w+)", text, re.M)) & set(OPTIONAL)
    for ours in re.findall(r"^from \.(\w+) import", text, re.M):
        path = module.with_name(ours + ".py")
        found |= needs(path) if path.is_file() else set()
    return found


# Examples of modules that need what is not installed cannot be run.
collect_ignore_glob = [
    f"*/walsh/{module.name}" for module in (ROOT / "python" / "walsh").glob("*.py")
    if any(importlib.util.find_spec(package) is None for package in needs(module))]


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
