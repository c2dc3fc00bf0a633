"""Tests that the stubs of the extension module say what it has."""
import ast
import importlib.util
import inspect
import pathlib
import subprocess
import sys

import pytest

import walsh
from walsh import _walsh

STUB = pathlib.Path(walsh.__file__).with_name("_walsh.pyi")


def names(body):
    """Returns what the statements of a stub declare."""
    found = {node.name for node in body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    return found | {node.target.id for node in body if isinstance(node, ast.AnnAssign)}


def public(thing):
    return {name for name in vars(thing) if not name.startswith("_")}


def test_stubs_have_all_of_the_extension_module():
    stub = ast.parse(STUB.read_text())
    assert {n for n in names(stub.body) if not n.startswith("_")} | {"Error"} == public(_walsh)
    for node in stub.body:
        if isinstance(node, ast.ClassDef):
            declared = {n for n in names(node.body) if not n.startswith("_")}
            assert declared == public(getattr(_walsh, node.name)), node.name


@pytest.mark.parametrize("name", [n for n in walsh.__all__ if not n.startswith("_")])
def test_everything_public_is_documented_and_typed(name):
    thing = getattr(walsh, name)
    assert thing.__doc__ and not thing.__doc__.startswith(f"{name}("), name
    if inspect.isclass(thing) and issubclass(thing, tuple):
        assert set(thing.__annotations__) == set(thing._fields)
        return
    methods = vars(thing).items() if inspect.isclass(thing) else [(name, thing)]
    for method, function in methods:
        if not inspect.isfunction(function):
            continue
        signature = inspect.signature(function)
        assert signature.return_annotation is not inspect.Signature.empty, (name, method)
        for parameter in list(signature.parameters.values())[inspect.isclass(thing):]:
            assert parameter.annotation is not inspect.Parameter.empty, (name, method, parameter)
        assert function.__doc__ or method.startswith("_"), (name, method)


def run_checker(*arguments):
    """Runs a checker of types in the repository's root, by the settings of pyproject.toml."""
    root = pathlib.Path(__file__).resolve().parents[2]
    run = subprocess.run([sys.executable, "-m", *arguments], cwd=root, capture_output=True,
                         text=True)
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-2000:]


def test_mypy_finds_nothing_with_its_strict_rules(tmp_path):
    pytest.importorskip("mypy", reason="mypy is not installed")
    pytest.importorskip("torch", reason="PyTorch is not installed")
    run_checker("mypy", "--cache-dir", str(tmp_path))


def test_pyright_finds_nothing():
    name = next((name for name in ("pyright", "basedpyright")
                 if importlib.util.find_spec(name) is not None), None)
    if name is None:
        pytest.skip("pyright is not installed")
    pytest.importorskip("transformers", reason="transformers is not installed")
    run_checker(name, "--pythonpath", sys.executable)
