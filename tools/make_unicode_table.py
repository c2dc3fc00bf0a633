#!/usr/bin/env python3
"""Writes src/text/unicode_table.cpp: where the tokenizers library differs from Unicode 14.

    python3.11 tools/make_unicode_table.py   (with tokenizers, unicodedata2, PCRE2 10.42)

PCRE2 10.42 knows Unicode 14. A class of the tokenizers library is found by matching it against
every character; what PCRE2 lacks of it stands in the table. Newer versions of PCRE2 may know
those characters already, which changes nothing. Python 3.11 knows Unicode 14, too, and
unicodedata2 all versions that a library could have.
"""

import ctypes
import unicodedata
from pathlib import Path

import tokenizers
import unicodedata2
from tokenizers import Regex, normalizers, pre_tokenizers

OUT = Path(__file__).resolve().parent.parent / "src" / "text" / "unicode_table.cpp"
CATEGORIES = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cf".split()
PROPERTIES = "Alphabetic White_Space Uppercase Lowercase Emoji Ideographic".split()
SCRIPTS = """Adlam Arabic Armenian Balinese Bengali Bopomofo Cyrillic Devanagari Duployan
Egyptian_Hieroglyphs Ethiopic Georgian Greek Gujarati Gurmukhi Han Hangul Hebrew Hiragana Javanese
Kannada Katakana Khmer Khojki Lao Latin Malayalam Mongolian Myanmar Nandinagari Oriya Sinhala Tamil
Telugu Thai Tibetan Common Inherited Syriac Thaana Cherokee Balinese Chakma Lisu Vai Yi""".split()
UTF_UCP, UTF_NO_CHECK = 0x00080000 | 0x00020000, 0x40000000
CHARACTERS = [c for c in range(0x80, 0x110000) if not 0xD800 <= c <= 0xDFFF]
TEXT = "".join(map(chr, CHARACTERS))
PIECE = 20000  # the library is given this many characters at a time

pcre2 = ctypes.CDLL("libpcre2-8.so.0")
pcre2.pcre2_compile_8.restype = ctypes.c_void_p
pcre2.pcre2_match_data_create_8.restype = ctypes.c_void_p
pcre2.pcre2_get_ovector_pointer_8.restype = ctypes.POINTER(ctypes.c_size_t)


def of_pcre2(pattern, text):
    """Returns the characters of `text` in runs of which `pattern` matches."""
    code, offset = ctypes.c_int(), ctypes.c_size_t()
    raw, subject = pattern.encode(), text.encode()
    program = pcre2.pcre2_compile_8(
        raw,
        ctypes.c_size_t(len(raw)),
        UTF_UCP,
        ctypes.byref(code),
        ctypes.byref(offset),
        None,
    )
    assert program, f"PCRE2 refuses {pattern}"
    program = ctypes.c_void_p(program)
    data = ctypes.c_void_p(pcre2.pcre2_match_data_create_8(2, None))
    span = pcre2.pcre2_get_ovector_pointer_8(data)
    found, at, size = set(), 0, ctypes.c_size_t(len(subject))
    rest = (UTF_NO_CHECK, data, None)
    while pcre2.pcre2_match_8(program, subject, size, ctypes.c_size_t(at), *rest) > 0:
        found.update(map(ord, subject[span[0] : span[1]].decode()))
        at = span[1]
    return found


def of_library(pattern, text):
    return kept_by(pre_tokenizers.Split(Regex(pattern), "removed", invert=True), text)


def kept_by(splitter, text):
    found = set()
    for begin in range(0, len(text), PIECE):
        for word, _ in splitter.pre_tokenize_str(text[begin : begin + PIECE]):
            found.update(map(ord, word))
    return found


def ranges(characters):
    out = []
    for c in sorted(characters):
        if out and out[-1][1] == c - 1:
            out[-1][1] = c
        else:
            out.append([c, c])
    return out


def add_class(name, characters, rows, index):
    if not characters:
        return
    found = ranges(characters)
    index.append(f'    {{"{name}", {len(rows)}, {len(found)}}},')
    rows += [f"{{0x{a:X}, 0x{b:X}}}," for a, b in found]


def other_classes():
    punctuation = set(CHARACTERS) - kept_by(pre_tokenizers.Punctuation("removed"), TEXT)
    digits = pre_tokenizers.Digits(individual_digits=True)
    numbers = {c for c in CHARACTERS if len(digits.pre_tokenize_str(f"a{chr(c)}a")) == 3}

    def of_unicode(data, first):
        return {c for c in CHARACTERS if data.category(chr(c))[0] == first}

    def undecomposed(form):
        own = getattr(normalizers, form)()
        decomposed = (c for c in CHARACTERS if unicodedata2.normalize(form, chr(c)) != chr(c))
        return {c for c in decomposed if own.normalize_str(chr(c)) == chr(c)}

    return {
        "Digits": numbers - of_unicode(unicodedata, "N"),
        "Punctuation": punctuation - of_unicode(unicodedata, "P"),
        "NoPunctuation": of_unicode(unicodedata2, "P") - punctuation,
        "NoNFD": undecomposed("NFD"),
        "NoNFKD": undecomposed("NFKD"),
    }


def lower_case():
    own, out = normalizers.Lowercase(), []
    for c in CHARACTERS:
        lower = own.normalize_str(chr(c))
        if lower == chr(c).lower() or len(lower) > 1:
            continue
        offset = ord(lower) - c
        if out and out[-1][1:] == [c - 1, offset]:
            out[-1][1] = c
        else:
            out.append([c, c, offset])
    return out


def main():
    rows, index = [], []
    for name in CATEGORIES + PROPERTIES + sorted(set(SCRIPTS)):
        prefix = "sc:" if name in SCRIPTS else ""
        lacking = of_library(rf"\p{{{name}}}+", TEXT) - of_pcre2(rf"\p{{{prefix}{name}}}+", TEXT)
        add_class(name, lacking, rows, index)
    for name, characters in other_classes().items():
        add_class(name, characters, rows, index)
    lines, line = [], "   "
    for row in rows:
        if len(line) + 1 + len(row) > 100:
            lines.append(line)
            line = "   "
        line += " " + row
    lines.append(line)
    cases = "\n".join(f"    {{0x{a:X}, 0x{b:X}, {o}}}," for a, b, o in lower_case())
    OUT.write_text(
        f"""// Made by tools/make_unicode_table.py from tokenizers {tokenizers.__version__}.
#include "text/unicode_table.h"

namespace walsh {{
namespace {{

constexpr CharacterRange kRanges[] = {{
{chr(10).join(lines)}
}};

struct Class {{
  std::string_view name;
  size_t first, count;  // in kRanges
}};

constexpr Class kClasses[] = {{
{chr(10).join(index)}
}};

constexpr LowercaseRange kLowercase[] = {{
{cases}
}};

}}  // namespace

std::span<const CharacterRange> newer_characters(std::string_view name) {{
  for (const Class& c : kClasses) {{
    if (c.name == name) return std::span(kRanges).subspan(c.first, c.count);
  }}
  return {{}};
}}

std::span<const LowercaseRange> newer_lowercase() {{
  return kLowercase;
}}

}}  // namespace walsh
"""
    )
    print(f"{len(rows)} ranges of {len(index)} classes")


if __name__ == "__main__":
    main()
