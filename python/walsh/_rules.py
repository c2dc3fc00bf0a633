"""Reads rules that say which layers are quantized to what, on the names of modules."""
from __future__ import annotations

import re
from typing import Optional, Sequence

from ._error import usage


class _Rule:
    def __init__(self, text: str, pattern: str, kind: Optional[str]) -> None:
        if not pattern:
            raise usage(text or "rule", "expected a name or re:PATTERN")
        self.text, self.kind, self.used = text, kind, False
        try:
            self.regex = re.compile(pattern[3:]) if pattern.startswith("re:") else None
        except re.error as error:
            raise usage(text, str(error)) from None
        self.name = pattern.removesuffix(".weight")

    def matches(self, name: str) -> bool:
        found = self.regex.search(name) is not None if self.regex else name == self.name
        self.used = self.used or found
        return found


class Rules:
    """The first rule that matches wins: `overrides` ("re:PATTERN=TYPE" or "NAME=TYPE") before
    `ignore` ("re:PATTERN" or "NAME"), then `kind` for all others.

    >>> rules = Rules("tq3", ["lm_head"], ["re:layers\\\\.0\\\\.=tq4"])
    >>> rules.type_of("layers.0.up"), rules.type_of("layers.1.up"), rules.type_of("lm_head")
    ('tq4', 'tq3', None)
    """

    def __init__(self, kind: str, ignore: Sequence[str] = (),
                 overrides: Sequence[str] = ()) -> None:
        self.kind = kind
        self._rules = []
        for where, texts in (("overrides", overrides), ("ignore", ignore)):
            if not isinstance(texts, (list, tuple, set, frozenset)) or not all(
                    isinstance(text, str) for text in texts):
                raise usage(where, f"{texts!r}, expected a list of rules")
        for text in overrides:
            pattern, equals, wanted = text.rpartition("=")
            if not equals or not wanted:
                raise usage(text, "expected PATTERN=TYPE")
            self._rules.append(_Rule(text, pattern, wanted))
        self._rules += [_Rule(text, text, None) for text in ignore]

    def type_of(self, name: str) -> Optional[str]:
        """Returns the type of a layer; None: it stays as it is."""
        for rule in self._rules:
            if rule.matches(name):
                return rule.kind
        return self.kind

    def check_used(self) -> None:
        """Refuses a rule that matched nothing, but for the head, which a model may not have."""
        for rule in self._rules:
            if not rule.used and rule.text != "lm_head":
                raise usage(rule.text, "matches no linear layer")
