"""Tests walsh.Model: calls beside each other, their ends, batches, progress, and files that get
lost."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import threading
import time

import pytest

import walsh

TEXT = "The river was low that summer, and the children walked across it."


def refused(code, call):
    with pytest.raises(walsh.Error) as caught:
        call()
    assert caught.value.code == code, caught.value
    return str(caught.value)


@pytest.fixture
def long_model(tiny_model):
    """Opens a model whose texts take many seconds."""
    with walsh.Model(tiny_model, device="cpu", context=4096, threads=1) as model:
        yield model


def endless(model):
    return model.stream("Once", max_tokens=-1, ignore_eos=True)


def test_closing_a_model_ends_a_stream_that_nobody_reads(long_model):
    stream = endless(long_model)
    next(stream)
    long_model.close()
    result = stream.result  # what was generated until then
    assert result.reason == "stopped" and 0 < result.tokens < 3900


def test_texts_are_tokenized_while_another_is_generated(long_model):
    stream = endless(long_model)
    next(stream)
    tokens = long_model.tokenize(TEXT)
    assert long_model.detokenize(tokens) == TEXT
    assert "Hi" in long_model.chat_prompt([{"role": "user", "content": "Hi"}])
    assert long_model.vocab_size > 0
    stream.close()
    assert stream.result.tokens < 3900  # it had not come to its end


def test_cancel_ends_what_runs_and_the_model_goes_on(long_model):
    stream = endless(long_model)
    next(stream)
    long_model.cancel()
    assert stream.result.reason == "stopped" and stream.result.tokens < 3900
    found = []

    def score():
        found.append(refused("interrupted", lambda: long_model.perplexity(TEXT * 3000)))

    thread = threading.Thread(target=score)
    thread.start()
    while thread.is_alive():  # there is nothing to wait for that says that it has begun
        long_model.cancel()
        time.sleep(0.05)
    thread.join()
    assert found and long_model.generate("Once", max_tokens=2, ignore_eos=True).tokens == 2


def test_stop_strings_end_a_text(model):
    whole = model.generate("The river", max_tokens=24, temperature=0)
    stop = whole.text[8:11]
    for stops in (stop, [stop], ["\0never", stop]):
        found = model.generate("The river", max_tokens=24, temperature=0, stop=stops)
        assert found.reason == "stop_string" and found.stop == stop
        assert found.text == whole.text[:whole.text.index(stop)]
    assert whole.stop == "" and whole.reason == "max_tokens"
    refused("usage", lambda: model.generate("a", stop=3))
    refused("usage", lambda: model.generate("a", stop=[3]))


def test_texts_match_a_grammar_or_a_schema(model):
    found = model.generate("Is it?", max_tokens=8, grammar='root ::= "yes" | "no"', seed=1)
    assert found.text in ("yes", "no")
    schema = {"type": "object", "properties": {"n": {"type": "integer", "maximum": 99}},
              "required": ["n"], "additionalProperties": False}
    for given in (schema, json.dumps(schema)):
        text = model.generate("A number:", max_tokens=64, json_schema=given, seed=2).text
        assert set(json.loads(text)) == {"n"}
    assert "grammar" in refused("bad_input", lambda: model.generate("a", grammar="root ::= ("))
    refused("usage", lambda: model.generate("a", json_schema=object()))
    refused("usage", lambda: model.generate("a", grammar='root ::= "a"', json_schema="{}"))


def test_a_batch_gives_every_text_what_it_is_alone(model):
    prompts = ["Once", "The river was", model.tokenize("It was"), "Once upon a time there"]
    for running in (1, 3, 16):
        found = model.generate_batch(prompts, max_tokens=8, temperature=0, running=running,
                                     ignore_eos=True)
        alone = [model.generate(p, max_tokens=8, temperature=0, ignore_eos=True) for p in prompts]
        assert [f.text for f in found] == [a.text for a in alone]
        assert [f.prompt_tokens for f in found] == [a.prompt_tokens for a in alone]
    assert model.generate_batch([]) == []
    stopped = model.generate_batch(["Once", "The"], max_tokens=8, stop=" ", temperature=0)
    assert all(" " not in f.text for f in stopped)
    refused("usage", lambda: model.generate_batch("Once"))
    refused("usage", lambda: model.generate_batch(["Once"], running=0))
    refused("usage", lambda: model.generate_batch([[10**6]]))
    refused("usage", lambda: model.generate_batch(["Once", [1] * 5000]))


def test_progress_is_told_and_may_end_the_work(tiny_model, model, tmp_path):
    told = []
    walsh.Model(tiny_model, progress=lambda done, count: told.append((done, count))).close()
    assert told and told[-1][0] <= told[-1][1] and told == sorted(told)
    ended = []
    model.generate_batch(["Once"] * 5, max_tokens=2, running=2,
                         progress=lambda *now: ended.append(now))
    assert ended[-1] == (5, 5)
    out = tmp_path / "m.gguf"
    tensors = []
    walsh.quantize(tiny_model, out, fast=True, progress=lambda *now: tensors.append(now))
    assert tensors[-1][0] == tensors[-1][1] > 10

    def no(done, count):
        return False

    def wrong(done, count):
        raise ZeroDivisionError

    other = tmp_path / "n.gguf"
    assert "progress" in refused("interrupted", lambda: walsh.quantize(
        tiny_model, other, type="tc4", progress=no))
    with pytest.raises(ZeroDivisionError):
        walsh.quantize(tiny_model, other, type="tc4", progress=wrong)
    assert not other.exists() and [p.name for p in tmp_path.iterdir()] == ["m.gguf"]
    assert "progress" in refused("interrupted", lambda: walsh.Model(
        tiny_model, quantize="tc4", progress=no))
    assert "progress" in refused("interrupted", lambda: model.generate_batch(
        ["Once"] * 400, max_tokens=8, running=2, progress=no))


@pytest.mark.parametrize("tokens", [[-1], [10**6], [1, 2, 8192 * 4]])
def test_tokens_outside_the_vocabulary_have_no_text(model, tokens):
    assert "is outside the vocabulary" in refused("usage", lambda: model.detokenize(tokens))
    assert model.detokenize([]) == ""


LOST = """
import sys, threading, walsh
path = sys.argv[1]
model = walsh.Model(path, device="cpu")
before = model.logits([1, 2, 3])
with open(path, "r+b") as file:
    file.truncate(int(sys.argv[2]))
for call in (lambda: model.logits([1, 2, 3]), lambda: model.generate("Once", max_tokens=4),
             lambda: model.generate_batch(["Once"], max_tokens=4)):
    try:
        call()
        print("went on")
    except walsh.Error as error:
        print(error.code, error)
model.close()
try:
    walsh.inspect(path, check=True)
except walsh.Error as error:
    print(error.code)
other = walsh.Model(sys.argv[3], device="cpu")
print(other.generate("Once", max_tokens=2, ignore_eos=True).tokens)
"""


@pytest.mark.parametrize("share", [0, 0.3])
def test_a_file_that_is_cut_short_is_an_error(tiny_model, tmp_path, share):
    path = tmp_path / "m.gguf"
    walsh.quantize(tiny_model, path, type="tq4", fast=True, embed_type="f16")
    package = pathlib.Path(walsh.__file__).parent.parent
    run = subprocess.run(
        [sys.executable, "-c", LOST, str(path), str(int(share * path.stat().st_size)),
         str(tiny_model)], capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(package)})
    assert run.returncode == 0, (run.returncode, run.stderr)
    lines = run.stdout.splitlines()
    # Weights that are packed are not read again; the embedding is read where it lies.
    for line in lines[:3]:
        assert line == (f"io {path}: cannot be read any more: the file was cut short, or its disk "
                        "fails"), lines
    assert lines[3:] == ["bad_input", "2"]


def test_a_folder_that_is_cut_short_while_it_is_read_is_an_error(tiny_model, tmp_path):
    folder = tmp_path / "m"
    shutil.copytree(tiny_model, folder)
    file = next(folder.glob("*.safetensors"))

    def cut(done, count):
        with open(file, "r+b") as opened:
            opened.truncate(4096)

    try:
        walsh.Model(folder, quantize="tc4", progress=cut).close()
    except walsh.Error as error:
        assert error.code in ("io", "bad_input"), error
