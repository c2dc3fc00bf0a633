#!/usr/bin/env python3
"""Makes the expectations of the chat templates' tests, with transformers and Jinja2.

    python tools/make_chat_template_cases.py [--templates FOLDER]
        (needs the package transformers; made with transformers 5.23, Jinja2 3.1.6)

In tests/data/chat_templates, all written by us:
  constructs.json     small templates for every construct; "expected" or "error" is filled in
  conversations.json  conversations with tools, reasoning, parts, documents, in all variants
  own/*.jinja         chat templates in the manner of published ones; own.json has what
                      apply_chat_template makes of every conversation
  published.json      of every *.jinja of FOLDER (or of WALSH_TEMPLATES): its SHA-256 and a hash of
                      what apply_chat_template makes of every conversation: "t" and the hash of
                      the text, "r" and that of the template's own message, "e" for an error.
                      The templates are other people's and are not in the repository.
Everything is deterministic; strftime_now() shows a fixed time.
"""

import argparse
import datetime
import hashlib
import json
import os
from pathlib import Path

import jinja2
import tokenizers
import transformers
from transformers.utils import chat_template_utils

DATA = Path(__file__).resolve().parent.parent / "tests" / "data" / "chat_templates"
TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}


class FixedTime(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2026, 1, 5, 9, 7, 3)


def fnv(text: str) -> str:
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return f"{value:016x}"


def tokenizer(template: str):
    model = tokenizers.Tokenizer(tokenizers.models.WordLevel({"<unk>": 0}, unk_token="<unk>"))
    made = transformers.PreTrainedTokenizerFast(tokenizer_object=model, **TOKENS)
    made.chat_template = template
    return made


def render(made, case: dict) -> dict:
    """Returns {"text": ...}, {"raised": the template's own message} or {"error": true}."""
    keys = ("tools", "documents", "add_generation_prompt", "continue_final_message")
    options = {key: case[key] for key in keys if key in case}
    try:
        return {"text": made.apply_chat_template(
            case["messages"], tokenize=False, **options, **case.get("variables", {}))}
    except jinja2.TemplateError as error:
        if type(error) is jinja2.TemplateError:
            return {"raised": " ".join(str(error).split())}
        return {"error": True}
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError):
        return {"error": True}


def write(name: str, data) -> None:
    text = json.dumps(data, indent=1, ensure_ascii=False)
    (DATA / name).write_text(text + "\n", encoding="utf-8")


def fill_constructs() -> None:
    data = json.loads((DATA / "constructs.json").read_text(encoding="utf-8"))
    for case in data["cases"]:
        case.pop("expected", None)
        case.pop("error", None)
        try:
            compiled = chat_template_utils._compile_jinja_template(case["template"])
            case["expected"] = compiled.render(**data["variables"])
            if " at 0x" in case["expected"]:  # Python prints an address, which walsh refuses to do
                raise ValueError(case.pop("expected"))
        except Exception:  # whatever Python raises, the template is refused
            case["error"] = True
    lines = [json.dumps(case, ensure_ascii=False) for case in data["cases"]]
    head = json.dumps(data["variables"], ensure_ascii=False)
    text = '{"variables": ' + head + ',\n "cases": [\n' + ",\n".join(lines) + "\n]}\n"
    (DATA / "constructs.json").write_text(text, encoding="utf-8")


def fill_own(conversations: list) -> None:
    expected = {}
    for path in sorted((DATA / "own").glob("*.jinja")):
        made = tokenizer(path.read_text(encoding="utf-8"))
        expected[path.name] = {case["name"]: render(made, case) for case in conversations}
    write("own.json", expected)


def fill_published(conversations: list, folder: Path) -> None:
    lines = []
    for path in sorted(folder.glob("*.jinja")):
        source = path.read_bytes().decode()
        made = tokenizer(source)
        renderings = []
        for case in conversations:
            (kind, result), = render(made, case).items()
            renderings.append("e" if kind == "error" else kind[0] + fnv(result)[:8])
        entry = {"sha256": hashlib.sha256(source.encode()).hexdigest(), "hash": fnv(source),
                 "renderings": " ".join(renderings)}
        lines.append(json.dumps(path.name) + ": " + json.dumps(entry))
    text = "{\n" + ",\n".join(lines) + "\n}\n"
    (DATA / "published.json").write_text(text, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--templates", default=os.environ.get("WALSH_TEMPLATES"))
    folder = parser.parse_args().templates
    chat_template_utils.datetime = FixedTime
    conversations = json.loads((DATA / "conversations.json").read_text(encoding="utf-8"))
    fill_constructs()
    fill_own(conversations)
    if folder:
        fill_published(conversations, Path(folder))


if __name__ == "__main__":
    main()
