#!/usr/bin/env python3
"""Says which sources can be compiled as one (WALSH_UNITY, cmake/unity.cmake calls this).

Two sources can stand in one translation unit if no name that is private to one of them (in an
anonymous namespace, static, or an alias) means something in the other or in its headers. This looks
at names only, so it parts some sources that would compile together; nobody has to part any by hand.

Usage: tools/unity_groups.py TOKENS FILE...
Prints the groups: a line with the files of each. A file that defines macros, or that cannot be
read as plain declarations, is in no group.
TOKENS is about how large a group may become.
"""

import os
import re
import sys

TOKEN = re.compile(
    r"""
    //[^\n]* | /\*.*?\*/
    | ^[ \t]*\#(?:[^\n\\]|\\.|\\\n)*
    | (?:u8|[uUL])?R"(?P<delimiter>[^(\s]*)\(.*?\)(?P=delimiter)"
    | "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])+'
    | [A-Za-z_]\w* | \d(?:[\w.]|'\w)* | :: | -> | \S
    """,
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)
NAME = re.compile(r"[A-Za-z_]\w*$")
TYPES = ("struct", "class", "enum", "union")
INTERNAL = ("static", "constexpr", "constinit", *TYPES)
# These may have brackets before the name that is declared.
BRACKETED = ("alignas", "decltype", "noexcept", "requires", "__attribute__", "__launch_bounds__")


def tokens_of(text):
    """Returns tokens without comments; a literal is '""', a directive is one token."""
    result = []
    for match in TOKEN.finditer(text):
        token = match.group(0)
        if token.startswith(("//", "/*")):
            continue
        if token[-1] in "\"'" and not token.lstrip().startswith("#"):
            token = '""'
        result.append(token.strip())
    return result


def closing(tokens, i):
    """Returns the index of the bracket that closes the one at i."""
    opening, depth = tokens[i], 0
    close = {"(": ")", "[": "]", "{": "}"}[opening]
    while True:
        depth += (tokens[i] == opening) - (tokens[i] == close)
        if depth == 0:
            return i
        i += 1


def without_template(declaration):
    """Returns the declaration behind template <...>, without requires clauses."""
    while declaration and declaration[0] == "template":
        i, depth = 1, 0
        while True:
            depth += (declaration[i] == "<") - (declaration[i] == ">")
            i += 1
            if depth == 0:
                break
        declaration = declaration[i:]
    return declaration


def names_of(declaration, anonymous):
    """Returns {name: meaning} of what a declaration at namespace scope keeps to its source. A
    meaning that is not empty may be repeated in other sources."""
    first = declaration[0]
    if first == "using":
        if declaration[1] == "namespace":
            return {" ".join(declaration): "directive"}
        name = declaration[1] if "=" in declaration else declaration[-1]
        return {name: " ".join(declaration)}
    if not anonymous and first not in INTERNAL:
        return {}
    if first in TYPES:
        plain = [token for token in declaration[1:] if token not in (*TYPES, "final")]
        if plain and plain[0] == "{":
            return {}
        if plain and NAME.match(plain[0]) and (len(plain) == 1 or plain[1] in ("{", ":", "<")):
            return {plain[0]: ""}
    if first.startswith(("TEST", "INSTANTIATE_TEST")):
        return {}  # The test framework asks for names that no other source has.
    if first.startswith("MATCHER"):
        return {declaration[2]: ""}
    return declared_name(declaration)


def declared_name(declaration):
    """Returns the declared names: that of a function stands before its parameters, those of
    variables before initializers and after commas."""
    i, angles, last = 0, 0, None
    while i < len(declaration):
        token = declaration[i]
        if token == "operator":
            return {"".join(declaration[i : i + 3]): ""}
        if token in ("<", ">"):
            angles = max(0, angles + (token == "<") - (token == ">"))
        elif token in BRACKETED and declaration[i + 1 : i + 2] == ["("]:
            i = closing(declaration, i + 1)
        elif angles == 0 and token in ("(", "[", "=", "{") and last:
            break
        elif angles == 0 and NAME.match(token):
            last = token
        i += 1
    further = set()
    while i < len(declaration):
        if declaration[i] == "(":
            i = closing(declaration, i)
        elif declaration[i] == "," and NAME.match(declaration[i + 1]):
            further.add(declaration[i + 1])
        i += 1
    return {name: "" for name in (last, *further) if name}


def declaration_at(tokens, i):
    """Returns the declaration that begins at i, without bodies, its braced parts, and where it
    ends."""
    declaration, braced, initialized = [], [], False
    while i < len(tokens) and tokens[i] != ";":
        token = tokens[i]
        if token == "{":
            end = closing(tokens, i)
            braced += tokens[i + 1 : end]
            declaration.append(token)
            i = end + 1
            if not initialized and declaration[0] not in TYPES:
                if i == len(tokens) or tokens[i] not in (";", ",", "{"):
                    return declaration, braced, i  # this is the body of a function
            continue
        if token in "([":
            end = closing(tokens, i)
            declaration += tokens[i : end + 1]
            i = end + 1
            continue
        if token == "=" and declaration[-1] != "operator":
            initialized = True
        if not token.startswith("#"):
            declaration.append(token)
        i += 1
    return declaration, braced, i + 1


def private_names(tokens):
    r"""Returns {name: meaning} of a source, as names_of has them; None if it defines macros.

    >>> def private(text): return private_names(tokens_of(text))
    >>> private('namespace a { void shown(); namespace { int hidden(int x) { return x; } } }')
    {'hidden': ''}
    >>> private('const N shown; static const int a = 1 << 2, b = f(1, c); struct S : T {};')
    {'a': '', 'b': '', 'S': ''}
    >>> private('namespace { template <class T> std::vector<T> f() {} int a[] = {1}; }')
    {'f': '', 'a': ''}
    >>> private('namespace { using test::f; using N = int; enum { kOne }; TEST(A, B) { int x; } }')
    {'f': 'using test :: f', 'N': 'using N = int', 'kOne': ''}
    >>> private('namespace { bool operator==(S a, S b) { return "}"[0]; } }  // int c;')
    {'operator==': ''}
    >>> private('namespace { __global__ void __launch_bounds__(9) f(A a) {} const S s{1}; }')
    {'f': '', 's': ''}
    >>> private('#include "a.h"\n#define N 1')
    """
    names, namespaces, i = {}, [], 0
    while i < len(tokens):
        token = tokens[i]
        if re.match(r"#\s*define\b", token):
            return None
        if token.startswith("#") or token in (";", "inline"):
            i += 1
        elif token == "}":
            namespaces.pop()
            i += 1
        elif token == "extern" and tokens[i + 1 : i + 3] == ['""', "{"]:
            namespaces.append(False)
            i += 3
        elif token == "namespace":
            end = i
            while tokens[end] not in ("{", ";"):
                end += 1
            if tokens[end] == "{":
                namespaces.append(end == i + 1)
            i = end + 1
        else:
            whole, braced, i = declaration_at(tokens, i)
            declaration = without_template(whole)
            if not declaration:
                continue
            found = names_of(declaration, any(namespaces))
            names.update(dict.fromkeys(found, "") if declaration != whole else found)
            if declaration[0] == "enum" and declaration[1] not in TYPES:
                names.update({name: "" for name in braced if NAME.match(name)})
    return names


def used_names(tokens):
    """Returns names that could mean one of another source: not those of members or with a
    namespace."""
    before = ["", *tokens]
    return {b for a, b in zip(before, tokens) if NAME.match(b) and a not in (".", "->", "::")}


def local_names(tokens, folder, seen):
    """Returns names that headers of a source use, those beside it and beside its folder."""
    names = set()
    for token in tokens:
        include = re.match(r'#\s*include\s*"([^"]+)"', token)
        places = [folder, os.path.dirname(folder)] if include else []
        for path in [os.path.join(place, include.group(1)) for place in places]:
            if path not in seen and os.path.exists(path):
                seen.add(path)
                with open(path, encoding="utf-8") as file:
                    header = tokens_of(file.read())
                names |= used_names(header) | local_names(header, os.path.dirname(path), seen)
    return names


class Source:
    """Holds a source that may stand together with others.

    >>> one, two = Source("one", "namespace { int f(); }"), Source("two", "int g() { return a.f; }")
    >>> one.fits(two), one.fits(Source("three", "int h() { return f(); }"))
    (True, False)
    >>> [[s.path for s in group] for group in groups_of([one, one, two], 100)]
    [['one', 'two'], ['one']]
    """

    def __init__(self, path, text):
        tokens = tokens_of(text)
        self.path, self.size = path, len(tokens)
        self.used = used_names(tokens)
        self.used_by_headers = local_names(tokens, os.path.dirname(path), set())
        try:
            self.private = private_names(tokens)
        except IndexError:  # brackets do not match without the preprocessor
            self.private = None

    def fits(self, other):
        for one, two in ((self, other), (other, self)):
            for name, meaning in one.private.items():
                if meaning != "" and meaning == two.private.get(name):
                    continue
                if name in two.private or name in two.used:
                    return False
                if meaning == "" and name in two.used_by_headers:
                    return False
        return True


def groups_of(sources, limit):
    """Puts each source into the first group that has room for it and fits."""
    groups = []
    for source in sources:
        if source.private is None:
            continue
        for group in groups:
            if sum(s.size for s in group) + source.size <= limit and all(map(source.fits, group)):
                group.append(source)
                break
        else:
            groups.append([source])
    return groups


def main():
    sources = [Source(path, open(path, encoding="utf-8").read()) for path in sys.argv[2:]]
    for group in groups_of(sources, int(sys.argv[1])):
        print(" ".join(source.path for source in group))


if __name__ == "__main__":
    main()
