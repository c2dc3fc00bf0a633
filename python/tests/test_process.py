"""Tests the end of the interpreter, and forks, while work is going on: no crash, and nothing waits
for threads that do not exist."""
import os
import subprocess
import sys
import textwrap

import pytest

BEGIN = """
import os, sys, threading, time, walsh
model = walsh.Model(sys.argv[1], device="cpu")
"""


def run(tiny_model, lines, begin=BEGIN):
    """Returns what a program says on standard output; it ends in order and says nothing else."""
    program = [sys.executable, "-W", "ignore", "-c", begin + textwrap.dedent(lines)]
    done = subprocess.run([*program, str(tiny_model)], capture_output=True, text=True, timeout=120,
                          check=False)
    assert (done.returncode, done.stderr) == (0, ""), done
    return done.stdout.split()


@pytest.mark.parametrize("work", [
    "model.generate('The', max_tokens=-1, ignore_eos=True)",
    "list(model.stream('The', max_tokens=-1, ignore_eos=True))",
    "[model.logits([1, 2, 3]) for _ in range(10**6)]",
    "model.perplexity('The river. ' * 10**5)"])
def test_the_interpreter_ends_while_threads_work(tiny_model, work):
    lines = f"""
    started = threading.Event()
    def work():
        started.set()
        {work}
    threading.Thread(target=work, daemon=True).start()
    started.wait()
    time.sleep(0.2)
    print("end")
    """
    assert run(tiny_model, lines) == ["end"]


def test_a_stream_that_nobody_reads_does_not_keep_the_interpreter(tiny_model):
    lines = """
    stream = model.stream("The", max_tokens=-1, ignore_eos=True)
    next(stream)
    print("end")
    """
    assert run(tiny_model, lines) == ["end"]


def test_calls_after_the_end_are_refused(tiny_model):
    begin = "import atexit\natexit.register(lambda: late())\n" + BEGIN  # is called behind walsh's
    lines = """
    def late():
        try:
            model.logits([1])
        except walsh.Error as error:
            print(error.code)
    """
    assert run(tiny_model, lines, begin) == ["usage"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_models_stay_with_the_process_that_opened_them(tiny_model):
    lines = """
    model.logits([1, 2])
    stream = model.stream("The", max_tokens=-1, ignore_eos=True)
    next(stream)
    child = os.fork()
    if not child:
        for call in (lambda: model.logits([1]), lambda: next(stream)):
            try:
                call()
            except walsh.Error as error:
                print(error.code, flush=True)
        stream.close()
        model.close()
        with walsh.Model(sys.argv[1], device="cpu") as own:
            print(len(own.logits([1])), flush=True)
        del stream, model
        os._exit(0)
    print(os.waitpid(child, 0)[1])
    stream.close()
    print(len(model.logits([1])))
    """
    assert run(tiny_model, lines) == ["usage", "usage", "8192", "0", "8192"]


def test_layers_work_on_both_sides_of_a_fork(tiny_model):
    pytest.importorskip("torch", reason="PyTorch is not installed")
    begin = "import os, sys, torch, walsh.torch\n"
    lines = """
    layer = walsh.torch.Linear.from_linear(torch.nn.Linear(2048, 1024, bias=False), type="tq4")
    x = torch.randn(8, 2048)
    for threads in (2, 0):
        walsh.torch.set_threads(threads)
        expected = layer(x)
        child = os.fork()
        if not child:
            os._exit(0 if torch.equal(layer(x), expected) else 1)
        print(os.waitpid(child, 0)[1], torch.equal(layer(x), expected))
    """
    assert run(tiny_model, lines, begin) == ["0", "True", "0", "True"]
