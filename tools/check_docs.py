#!/usr/bin/env python3
"""Checks that what the documents name exists: files, links, flags, variables, suites of tests; that
the walks of docs/design.md list as many files as they claim; and that the lists of CONTRIBUTING.md
name every file that an example of the task is in."""
import json
import pathlib
import re
import sys

import family_table
import make_guide
import results_tables

# Documents mention these flags of other programs.
FOREIGN = {"nvtx", "quantization-config", "enforce-eager", "tensor-parallel-size",
           "pipeline-parallel-size", "distributed-executor-backend", "enable-expert-parallel",
           "kv-cache-dtype", "head", "address"}
SOURCES = {".h", ".cpp", ".inc", ".cu", ".cuh", ".py", ".sh", ".cmake", ".txt", ".json"}
FLAG = re.compile(r"(?<![\w-])--([a-z][a-z0-9]*(?:-[a-z0-9]+)*)")
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
PATH = re.compile(r"`((?:[A-Za-z0-9_.-]+/)+[A-Za-z0-9_.-]*)`")
SUITE = re.compile(r"`([A-Z][A-Za-z0-9]*[a-z][A-Za-z0-9]*)\.[A-Za-z0-9*]+`")
VARIABLE = re.compile(r"\bWALSH_[A-Z_]*[A-Z]\b")


def read(path):
    return path.read_text(encoding="utf-8", errors="replace")


class Tree:
    def __init__(self, root):
        self.root = root
        files = [pathlib.PurePosixPath(path.relative_to(root)) for top in sorted(root.iterdir())
                 if not top.name.startswith(("build", ".")) or top.name in (".ci", ".github")
                 for path in ([top] if top.is_file() else top.rglob("*")) if path.is_file()]
        self.documents = [root / f for f in files if f.suffix == ".md"]
        self.places = {str(f) for f in files} | {str(f.with_suffix("")) for f in files}
        for f in files:
            self.places |= {str(parent) for parent in f.parents}
        text = "\n".join(read(root / f) for f in files
                         if f.suffix in SOURCES or f.name in ("run", "Dockerfile"))
        self.flags = set(FLAG.findall(text)) | FOREIGN
        self.words = set(re.findall(r"\w+", text))
        # Paths in documents may begin with these folders: those of the root and the layers of src/.
        self.tops = {str(f).split("/")[0] for f in files if len(f.parts) > 1}
        self.layers = {f.parts[1] for f in files if f.parts[0] == "src" and len(f.parts) > 2}

    def has_path(self, name):
        top = name.split("/")[0]
        if top not in self.tops and top not in self.layers:
            # The path is something else, such as a URL, a format or a folder of the user.
            return True
        if re.search(r"\b[A-Z]{3,}\.", name):
            return True  # a word in capitals is a placeholder
        name = name.rstrip("/")
        return name in self.places or f"src/{name}" in self.places


def walk_problems(text):
    """Compares the numbers in the first lines of the walks of docs/design.md with the files of
    their lists."""
    for title, parts in (("one weight", ((0,), (0, 1, 2), (0, 1, 2))), ("one token", None)):
        section = text.split(f"## The walk of {title}")[1].split("\n## ")[0]
        sentence = section.split(":", 1)[1].split(".")[0]
        said = [int(n) for n in re.findall(r"\d+", sentence)]
        lists = [part.split("**", 1)[1] for part in re.split(r"^\*\*", section, flags=re.M)[1:]]
        common, found = [set() for _ in lists], {"CPU": [set() for _ in lists],
                                                "GPU": [set() for _ in lists]}
        heads = re.findall(r"^\*\*(.*?)\*\*", section, flags=re.M)
        for i, part in enumerate(lists):
            for item in re.split(r"^- ", part, flags=re.M)[1:]:
                names = set(PATH.findall(item))
                device = next((d for d in ("CPU", "GPU")
                               if f"on a {d}" in heads[i] or re.search(rf"`: {d}: ", item)), None)
                (common if device is None else found[device])[i].update(names)

        def count(device, most):
            return len(set().union(*common[:most], *(found[device][:most] if device else [])))

        whole = len(lists)
        if parts is not None:
            counted = [count(None, 1), count("CPU", whole), count("GPU", whole)]
        else:
            counted = [count("CPU", whole - 1), count("GPU", whole - 1), count("CPU", whole),
                       count("GPU", whole)]
        if said != counted:
            yield f"the walk of {title} says {said} files, and lists {counted}"


# For each of these tasks of CONTRIBUTING.md there is a pattern that finds an example of what was
# added so, and the files that are the example's own or only use it.
TASKS = {
    "A model family": (r"\bkOlmoe\b", {"src/arch/family_olmoe.cpp"}),
    "An option of attention": (r"\b(?:options|rule)\.chunk\b", set()),
    "A kernel of the CPU": (r"\bsoft_cap\b", {"src/model/cpu/executor.cpp"}),
    "A sampling option": (r"\bxtc_threshold\b", set()),
    "A source of drafts": (r"\bAheadDrafts\b", {"src/generate/ahead_drafts.h",
                                                 "src/generate/ahead_drafts.cpp"}),
    "An endpoint of the server": (r'"/apply-template"', set()),
    "A vector of a layer": (r"\bstream_factor\b", {"src/arch/family_gemma4.cpp"}),
    "A way in which other tools store quantized matrices": (
        r"\b(?:awq|kStoredAwq)\b", {"src/weights/stored/gptq.cpp"}),
}


def task_problems(root, text):
    """Compares the lists of CONTRIBUTING.md with the files that have the examples."""
    sources = {path.relative_to(root).as_posix(): read(path) for top in ("include", "src")
               for path in sorted((root / top).rglob("*")) if path.suffix in SOURCES}
    sections = dict(re.findall(r"^\*\*([^*]+?):?\*\*(.*?)(?=^\*\*|^## |\Z)", text, re.M | re.S))
    for task, (pattern, own) in TASKS.items():
        listed = set(PATH.findall(sections.get(task, "")))
        for name in (n for n, source in sources.items() if re.search(pattern, source)):
            folders = {str(parent) for parent in pathlib.PurePosixPath(name).parents}
            if name not in own and name not in listed and not folders & listed:
                yield f"the list of '{task}' lacks {name}"


def problems(tree):
    for document in tree.documents:
        name, text = document.relative_to(tree.root).as_posix(), read(document)
        for target in sorted(set(LINK.findall(text))):
            if "://" not in target and not (document.parent / target).exists():
                yield f"{name}: links to {target}, which does not exist"
        for path in sorted(set(PATH.findall(text))):
            if not tree.has_path(path) and not (document.parent / path).exists():
                yield f"{name}: names {path}, which does not exist"
        for flag in sorted(set(FLAG.findall(text)) - tree.flags):
            yield f"{name}: names --{flag}, which no source has"
        for word in sorted({*SUITE.findall(text), *VARIABLE.findall(text)} - tree.words):
            yield f"{name}: names {word}, which no source has"
        if name == "docs/design.md":
            yield from (f"{name}: {problem}" for problem in walk_problems(text))
        if name == "CONTRIBUTING.md":
            yield from (f"{name}: {problem}" for problem in task_problems(tree.root, text))


def table_problems(root):
    """Finds tables that do not match the figures in docs/*.json."""
    for page in results_tables.PAGES:
        if page.read_text() != results_tables.filled(page):
            yield (f"{page.relative_to(root)}: a table is older than its figures: "
                   "tools/make_results.py --only-tables")
    models = root / "docs/models.md"
    families = family_table.table(json.loads(family_table.FIGURES.read_text()))
    for page in (models, root / "docs/results.md"):
        if families not in page.read_text():
            yield f"{page.relative_to(root)}: a table is older than its figures: family_table.py"
    if make_guide.table() not in make_guide.GUIDE.read_text():
        yield "docs/guide/README.md: a table is older than its figures: tools/make_guide.py"


README_LINES = 150


def readme_problems(root):
    lines = len(read(root / "README.md").splitlines())
    if lines > README_LINES:
        yield f"README.md: {lines} lines, at most {README_LINES}"


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    found = list(problems(Tree(root))) + list(table_problems(root)) + list(readme_problems(root))
    for problem in found:
        print(problem)
    print(f"check_docs: {len(found)} problem(s)")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
