"""Arguments of the package's functions. Errors name the argument."""

import operator
import os
from collections.abc import Iterable
from typing import Any, SupportsIndex, TypeAlias, cast

from ._native import IdlewiseError

Path: TypeAlias = str | os.PathLike[str]


def whole(argument: str, given: SupportsIndex | None, least: int, most: int) -> int | None:
    """A whole number, if one is given; errors name the argument."""
    return None if given is None else number(argument, given, least, most)


def number(argument: str, given: object, least: int, most: int) -> int:
    """A whole number; errors name the argument."""
    try:
        found = operator.index(cast(SupportsIndex, given))
    except TypeError:
        found = least - 1
    if not least <= found <= most:
        raise ValueError(f"{argument}: a whole number from {least} to {most}, not {given!r}")
    return found


def absolute(path: str) -> str:
    """Where it is now."""
    try:
        return os.path.abspath(path)
    except FileNotFoundError:
        raise IdlewiseError(f"{path}: the working directory was removed; change to another, or give a whole path") from None


def text_of(argument: str, text: str) -> str:
    """Text that can be encoded; errors name the argument."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{argument}: {text!r} is not Unicode") from None
    return text


def path_of(argument: str, path: object) -> str:
    """A path as text; errors name the argument."""
    if not isinstance(path, (str, bytes, os.PathLike)):
        raise TypeError(f"{argument}: expected a path, not {path!r}")
    text = os.fsdecode(cast("str | bytes | os.PathLike[str]", path))
    if not text:
        raise ValueError(f"{argument}: an empty path")
    return text


def listed(argument: str, one_or_several: object, *of_one: type) -> list[Any]:
    """One thing in a list, or the things of a list; errors name the argument."""
    if isinstance(one_or_several, (str, bytes, os.PathLike, *of_one)):
        return [one_or_several]
    if isinstance(one_or_several, Iterable):
        return [*one_or_several]
    raise TypeError(f"{argument}: what is {one_or_several!r}?")
