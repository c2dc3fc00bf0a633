"""Runs the guide's first lines as they stand there."""
import re
import shutil
import textwrap


def test_first_lines_of_the_guide_run(tiny_model, tmp_path, monkeypatch, capsys):
    guide = (tiny_model.parent.parent / "docs/guide/python.md").read_text()
    lines = re.search("<!-- python:begin -->\n(.*?)<!-- python:end -->", guide, re.S).group(1)
    shutil.copytree(tiny_model, tmp_path / "IN")
    text = (tiny_model.parent / "eval.txt").read_text()
    (tmp_path / "FILE").write_text(text[:8000])
    monkeypatch.chdir(tmp_path)
    scope = {}
    exec(compile(textwrap.dedent(lines), "python.md", "exec"), scope)  # our own file
    assert (tmp_path / "OUT.gguf").exists() and scope["logits"].ndim == 1
    assert 1 < float(capsys.readouterr().out.split("\n")[-2].split()[-1]) < 1000
