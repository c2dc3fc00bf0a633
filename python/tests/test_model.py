"""Tests walsh.Model on the embedded model."""
import concurrent.futures
import gc
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
import typing

import numpy as np
import pytest

import walsh
from walsh import _walsh
from walsh._sampling import SamplingOptions

TEXT = ("The river was low that summer, and the children walked across it on the flat stones. "
        "Nobody could remember a year in which the mill had stood still for so long. ") * 2


def refused(code, call):
    """Returns the error of a call that has to be refused."""
    with pytest.raises(walsh.Error) as caught:
        call()
    assert caught.value.code == code, caught.value
    return str(caught.value)


def test_logits_of_all_positions_end_with_those_of_the_last(model):
    tokens = model.tokenize(TEXT)
    rows = model.logits(tokens, first=0)
    assert rows.shape == (len(tokens), model.vocab_size) and rows.dtype == np.float32
    last = model.logits(tokens)
    assert last.shape == (model.vocab_size,) and np.array_equal(rows[-1], last)
    assert np.array_equal(model.logits(list(map(int, tokens))), last)


def test_logits_are_memory_that_outlives_the_model(tiny_model):
    with walsh.Model(tiny_model) as model:
        logits = model.logits([1, 2, 3])
        assert not logits.flags.owndata and logits.flags.writeable
    before = logits.copy()
    del model
    gc.collect()
    assert np.array_equal(logits, before)


def test_logprobs_are_those_of_the_logits(model):
    tokens = model.tokenize(TEXT)
    rows = model.logits(tokens, first=0).astype(np.float64)
    probabilities = rows - np.log(np.exp(rows).sum(axis=1, keepdims=True))
    found = model.logprobs(tokens)
    assert len(found) == len(tokens) - 1
    for i, prediction in enumerate(found):
        assert prediction.logprob == pytest.approx(probabilities[i, tokens[i + 1]], abs=1e-6)
        assert prediction.best == (rows[i].argmax() == tokens[i + 1])


def test_text_is_that_of_the_command(model, command, tiny_model):
    text = model.generate("The river", max_tokens=12, temperature=0).text
    run = subprocess.run([command, "run", str(tiny_model), "--raw", "-p", "The river", "-n", "12",
                          "--temp", "0", "--device", "cpu"],
                         capture_output=True, text=True, check=True)
    assert text and text in run.stdout


def test_a_seed_repeats_a_text_and_options_count(model):
    first = model.generate("Once", max_tokens=16, temperature=1.5)
    again = model.generate("Once", max_tokens=16, temperature=1.5, seed=first.seed)
    assert again.text == first.text and again.tokens == 16
    assert model.generate("Once", max_tokens=0).text == ""
    assert model.generate(model.tokenize("Once"), max_tokens=3, temperature=0).tokens == 3


def test_every_option_of_how_tokens_are_chosen_is_an_argument(model):
    good = {"samplers": ["top_k", "temperature"], "dry_sequence_breakers": ["."],
            "logit_bias": {5: 1.5}, "ignore_eos": True, "seed": 7, "temperature": 1}
    numbers = {"int": int, "float": float}
    typed = typing.get_type_hints(SamplingOptions)
    for row in _walsh.sampling_options():
        for name in (row["name"], *row["other_names"]):
            kind = typed.pop(name)
            value = good.get(name)
            if value is None:
                value = numbers[typing.get_args(kind)[0].__name__](row["default"])
            assert model.generate("Once", max_tokens=2, **{name: value, "seed": 7}).tokens <= 2
            with pytest.raises(walsh.Error, match=name):
                model.generate("Once", max_tokens=2, **{name: object()})
        assert f"\n        {row['name']}: " in walsh.Model.stream.__doc__
    assert not typed
    seeds = {model.generate("Once", max_tokens=1, seed=-1).seed for _ in range(4)}
    assert len(seeds) > 1, "drawn"
    with pytest.raises(TypeError, match="top_q"):
        model.generate("Once", top_q=1)
    token = int(model.tokenize("Once", add_special=False)[0])
    bias = model.generate("Once", max_tokens=1, temperature=0, logit_bias={token: 100})
    assert bias.text == model.detokenize([token])


def test_leaving_a_stream_ends_its_generation(tiny_model):
    with walsh.Model(tiny_model, context=4096) as model:
        started = time.monotonic()
        with model.stream("Once", max_tokens=-1, ignore_eos=True) as stream:
            next(stream)
        assert model.logits([1]).shape == (model.vocab_size,)
        short = time.monotonic() - started
        result = stream.result
        assert result.reason == "stopped" or result.tokens < 4000, short


def test_a_stream_closed_at_once_says_that_it_was_stopped(tiny_model):
    with walsh.Model(tiny_model) as model:
        stream = model.stream("Once", max_tokens=-1, ignore_eos=True)
        stream.close()
        assert stream.result.reason == "stopped"


def test_two_threads_compare_two_models_either_way(tiny_model):
    with walsh.Model(tiny_model) as a, walsh.Model(tiny_model) as b:
        pairs = [(a, b), (b, a)] * 2
        with concurrent.futures.ThreadPoolExecutor(len(pairs)) as pool:
            results = list(pool.map(lambda p: p[0].kl_divergence(p[1], TEXT, ctx=32), pairs))
        assert all(r.mean < 1e-9 for r in results)


def test_perplexity_and_divergence(model, tiny_model):
    with walsh.Model(tiny_model, quantize={"type": "tq4", "fast": True}) as coded:
        assert coded.type == "tq4" and 4.1 < coded.bits_per_weight < 4.2
        result = coded.kl_divergence(model, TEXT, ctx=32)
        assert 0.001 < result.mean < 0.5 and 0.5 < result.same_top < 1
        own = model.perplexity(TEXT, ctx=32)
        assert result.reference_perplexity == pytest.approx(own.perplexity)
        assert result.tokens == own.tokens
    assert model.kl_divergence(model, TEXT, ctx=32).mean < 1e-9


def test_a_file_gives_what_the_folder_gives(tiny_model, tmp_path):
    options = {"type": "tq3", "fast": True, "ignore": ["re:layers\\.0\\."]}
    report = walsh.quantize(tiny_model, tmp_path / "a.gguf", **options)
    summary = walsh.inspect(tmp_path / "a.gguf", check=True)
    assert summary.bytes == report.file_bytes == (tmp_path / "a.gguf").stat().st_size
    types = {t.name: t.type for t in summary.tensors}
    assert types["model.layers.1.mlp.up_proj.weight"] == "tq3"
    assert types["model.layers.0.mlp.up_proj.weight"] == "bf16"
    with walsh.Model(tmp_path / "a.gguf") as file, walsh.Model(tiny_model,
                                                               quantize=options) as folder:
        assert np.array_equal(file.logits([5, 6, 7]), folder.logits([5, 6, 7]))


@pytest.mark.parametrize("tokens", [
    [], [[1, 2]], [1.5, 2.0], ["a"], [2**40], [-1], [10**9], np.zeros((2, 2), np.int64), 3, None,
    np.array([1 + 1j]), object()])
def test_tokens_that_are_none_are_refused(model, tokens):
    refused("usage", lambda: model.logits(tokens))
    refused("usage", lambda: model.generate(tokens, max_tokens=1))


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.int64, np.uint64])
def test_tokens_may_have_any_integer_type_and_layout(model, dtype):
    plain = np.array([5, 9, 6, 9, 7, 9], dtype)
    view = plain[::2]
    view.flags.writeable = False
    assert np.array_equal(model.logits(view), model.logits([5, 6, 7]))


def test_options_that_make_no_sense_are_refused(model, tiny_model, tmp_path):
    assert "top_p" in refused("usage", lambda: model.generate("a", top_p=2))
    assert "temperature" in refused("usage", lambda: model.generate("a", temperature="hot"))
    assert "seed" in refused("usage", lambda: model.generate("a", seed=-2))
    refused("usage", lambda: model.logits([1, 2], first=2))
    refused("usage", lambda: model.logprobs([1, 2], first=0))
    refused("usage", lambda: model.tokenize(b"bytes"))
    refused("usage", lambda: model.tokenize("\ud800"))
    refused("usage", lambda: walsh.Model(tiny_model, device="tpu"))
    refused("usage", lambda: walsh.Model(tiny_model, threads="many"))
    refused("usage", lambda: walsh.Model(tiny_model, quantize="tq9"))
    refused("usage", lambda: walsh.Model(tiny_model, quantize={"colour": "red"}))
    refused("usage", lambda: walsh.quantize(tiny_model, tmp_path / "x.gguf", type="tq9"))
    refused("bad_input", lambda: walsh.inspect(tiny_model / "config.json"))
    refused("io", lambda: walsh.Model(tmp_path / "absent"))
    assert not (tmp_path / "x.gguf").exists()
    refused("usage", lambda: model.chat_prompt([{"content": object()}]))


def test_errors_are_the_commands_line(command, tmp_path):
    missing = tmp_path / "absent"
    line = refused("io", lambda: walsh.Model(missing))
    run = subprocess.run([command, "run", str(missing), "-p", "x"], capture_output=True, text=True)
    assert run.stderr.strip() == "walsh: error: " + line


def test_a_draft_model_changes_no_text(model, tiny_model):
    expected = model.generate("The river", max_tokens=12, temperature=0)
    with walsh.Model(tiny_model, device="cpu", draft=tiny_model) as drafted:
        text = drafted.generate("The river", max_tokens=12, temperature=0)
        assert text.text == expected.text
    with pytest.raises(walsh.Error, match="no-such-model"):
        walsh.Model(tiny_model, device="cpu", draft="no-such-model")


def test_paths_need_not_be_utf8(tmp_path):
    path = os.path.join(os.fsencode(tmp_path), b"\xff")
    assert "\udcff" in refused("io", lambda: walsh.Model(os.fsdecode(path)))


def test_a_closed_model_refuses_every_call(tiny_model):
    model = walsh.Model(tiny_model)
    model.close()
    model.close()
    for call in (lambda: model.logits([1]), lambda: model.tokenize("a"),
                 lambda: model.generate("a"), lambda: model.perplexity("a")):
        assert "closed" in refused("usage", call)


def test_threads_may_share_a_model(model):
    expected = [model.logits([i, i + 1]) for i in range(4)]
    wrong = []

    def work(i):
        for _ in range(5):
            if not np.array_equal(model.logits([i, i + 1]), expected[i]):
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_other_threads_run_while_a_text_is_scored(model):
    ticks = []
    done = threading.Event()

    def tick():
        while not done.wait(0.002):
            ticks.append(1)

    thread = threading.Thread(target=tick)
    thread.start()
    model.logits(list(range(1, 600)))
    done.set()
    thread.join()
    assert len(ticks) >= 2


@pytest.mark.parametrize("call", [
    "model.generate('Once', max_tokens=-1, ignore_eos=True)",
    "model.perplexity('word ' * 200000)",
    "walsh.quantize(folder, out, type='tc4')"])
def test_ctrl_c_ends_long_work(tiny_model, tmp_path, call):
    out = tmp_path / "out.gguf"
    script = (f"import walsh\nfolder, out = {str(tiny_model)!r}, {str(out)!r}\n"
              "model = walsh.Model(folder)\nprint('ready', flush=True)\n"
              f"try:\n  {call}\nexcept KeyboardInterrupt:\n  print('interrupted')\n")
    package = pathlib.Path(walsh.__file__).parent.parent
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True,
                          env={**os.environ, "PYTHONPATH": str(package)}) as process:
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        assert process.stdout.read() == "interrupted\n"
    assert process.returncode == 0 and not out.exists()
