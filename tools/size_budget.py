#!/usr/bin/env python3
"""Checks sizes of the sources: lines per file, columns, share of comments, stray characters; and
that comments begin with a subject."""
import pathlib
import re
import sys

MEDIAN, P90, MAXIMUM = 220, 600, 1000  # a hand-written file may have this many lines
COLUMNS = 100
COMMENT_SHARE = (0.10, 0.18)  # this is the share of lines that are not empty in src/ and include/
CODE = {".h", ".cpp", ".inc", ".cu", ".cuh", ".py", ".sh", ".cmake"}
# Comments that begin so have left out what they speak of ("Of the rows from first on.").
NO_SUBJECT = re.compile(r"\s*// (Of|Who|Whoever|What who) ")
# These are tables and golden data, not hand-written.
GENERATED = ("tests/data/", "src/text/unicode_table", "src/codec/codebook_table")


def files(root):
    for top in ("src", "include", "tests", "tools", "fuzz", "bench", "cmake", "python"):
        for path in sorted((root / top).rglob("*")) if (root / top).is_dir() else []:
            name = path.relative_to(root).as_posix()
            if path.suffix in CODE and path.is_file() and not name.startswith(GENERATED):
                yield name, path


def comment_lines(text):
    """Returns the lines of C++ that are a comment, and the lines that are not empty."""
    comments = lines = 0
    inside = False
    for line in text.splitlines():
        stripped = line.strip()
        if not stripped:
            continue
        lines += 1
        if inside or stripped.startswith(("//", "/*")) or " // " in stripped:
            comments += 1
        if stripped.startswith("/*"):
            inside = True
        if "*/" in stripped:
            inside = False
    return comments, lines


def rank(sorted_values, share):
    return sorted_values[min(len(sorted_values) - 1, int(share * len(sorted_values)))]


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    problems, sizes = [], []
    comments = code = 0
    for name, path in files(root):
        raw = path.read_bytes()
        try:
            text = raw.decode("ascii")
        except UnicodeDecodeError as error:
            problems.append(f"{name}: byte {error.start} is not ASCII")
            text = raw.decode("utf-8", "replace")
        lines = text.splitlines()
        sizes.append((len(lines), name))
        for number, line in enumerate(lines, 1):
            if len(line) > COLUMNS:
                problems.append(f"{name}:{number}: {len(line)} columns")
            if line != line.rstrip():
                problems.append(f"{name}:{number}: trailing space")
            if NO_SUBJECT.match(line):
                problems.append(f"{name}:{number}: a comment without a subject")
        if name.startswith(("src/", "include/")):
            file_comments, file_lines = comment_lines(text)
            comments += file_comments
            code += file_lines
    counts = sorted(n for n, _ in sizes)
    median, p90, largest = rank(counts, 0.5), rank(counts, 0.9), max(sizes)
    share = comments / max(1, code)
    if median > MEDIAN:
        problems.append(f"median file has {median} lines, at most {MEDIAN}")
    if p90 > P90:
        problems.append(f"90 % of the files have up to {p90} lines, at most {P90}")
    problems += [f"{name}: {n} lines, at most {MAXIMUM}" for n, name in sizes if n > MAXIMUM]
    if not COMMENT_SHARE[0] <= share <= COMMENT_SHARE[1]:
        problems.append(f"{100 * share:.1f} % of src/ and include/ are comments, expected "
                        f"{100 * COMMENT_SHARE[0]:.0f} to {100 * COMMENT_SHARE[1]:.0f} %")
    for line in problems:
        print(line)
    print(f"size_budget: {len(sizes)} files, {sum(counts)} lines, median {median}, p90 {p90}, "
          f"largest {largest[0]} ({largest[1]}), comments {100 * share:.1f} %, "
          f"{len(problems)} problem(s)")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
