"""Defines the one exception of the package."""


class Error(Exception):
    """An input, an option or the system can cause this error, which is one line, as the command
    prints it.

    `code` is one of "internal", "usage", "bad_input", "limit", "io", "interrupted"; `where` names
    the file, tensor or option; `reason` says what was found and what was expected.

    >>> import walsh
    >>> try:
    ...     walsh.Model("absent")
    ... except walsh.Error as error:
    ...     print(error.code, error.where)
    io absent
    """

    def __init__(self, code: str, where: str, reason: str) -> None:
        super().__init__(code, where, reason)
        self.code = code
        self.where = where
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.where}: {self.reason}" if self.where else self.reason


def usage(where: str, reason: str) -> Error:
    """Returns the error of a call that makes no sense."""
    return Error("usage", where, reason)
