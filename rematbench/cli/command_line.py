"""The words of a command line, read before Hydra reads them: its errors become ours.

Hydra's grammar takes few characters in unquoted values. Here every value that it cannot read is
taken as text, ``~/`` is expanded, and what is left (brackets, quotes, stray commas) is said in
one line. In a sweep a key of a group, such as ``strategy.gap``, belongs to the jobs rather than to
the configuration that they have in common, in which another strategy may be chosen.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from hydra._internal.utils import get_args_parser
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException

from rematbench.base.errors import ConfigError
from rematbench.cli.conf_keys import choices_of, conf_text
from rematbench.conf.published import is_of_library
from rematbench.jobs.links import expanded

_OF_JOBS = ("model", "strategy", "costmodel", "device", "link")
"""Groups whose keys belong to the jobs of a sweep."""
_SWEEP = ("-m", "--multirun")
_BETWEEN = re.compile(r"""[\s,()\[\]'"]+""")
_STRUCTURE = re.compile(r"""[\[\]{}'"$]""")


@dataclass(frozen=True)
class CommandLine:
    """A command's arguments.

    Attributes:
        flags: Hydra's, with their values.
        overrides: as Hydra takes them.
    """

    flags: tuple[str, ...]
    overrides: tuple[str, ...]

    @property
    def words(self) -> list[str]:
        """What Hydra gets: flags do not stand between overrides."""
        return [*self.flags, *self.overrides]


def read_command_line(given: Sequence[str]) -> CommandLine:
    """Read what follows the command's name.

    Raises:
        ConfigError: an unknown flag, or a word that is no KEY=VALUE.
    """
    flags, words = _split(given)
    parser, words = OverridesParser.create(), expanded(words)
    if _of_a_library(words):  # what options there are is the library's to say
        words = [f"++{word}" if word.startswith("model.options.") else word for word in words]
    overrides = [_override(parser, word) for word in words]
    if set(_SWEEP) & set(flags):
        overrides = [_of_jobs(each) for each in overrides]
    return CommandLine(tuple(flags), tuple(each.input_line or "" for each in overrides))


def _of_a_library(words: Sequence[str]) -> bool:
    """Is a library's model chosen, or may one be?"""
    chosen = [word.partition("=")[2] for word in words if word.startswith("model=")]
    names = {name for each in chosen for name in each.split(",")} & set(choices_of("model"))
    return any("(" in each for each in chosen) or any(
        is_of_library(conf_text(f"model/{name}.yaml")) for name in names
    )


class _Refused(Exception):
    """What argparse says of a flag."""


def _split(given: Sequence[str]) -> tuple[list[str], list[str]]:
    """Flags (with their values), and the other words."""
    parser = get_args_parser()

    def refuse(message: str) -> NoReturn:
        raise _Refused(message)

    parser.error = refuse  # type: ignore[method-assign]
    flags, words = [], []
    takes = {name: action for action in parser._actions for name in action.option_strings}
    rest = list(given)
    while rest:
        word = rest.pop(0)
        if not word.startswith("-"):
            words.append(word)
            continue
        flags.append(word)
        if rest and _takes_value(takes.get(word), rest[0]):
            flags.append(rest.pop(0))
    try:
        parser.parse_args(flags)
    except _Refused as error:
        raise ConfigError(f"{error}; --help says what there is") from None
    return flags, words


def _takes_value(action: argparse.Action | None, following: str) -> bool:
    """Is the next word a flag's value?"""
    if action is None or action.nargs == 0:
        return False
    if action.nargs == "?":
        return not following.startswith("-") and "=" not in following
    return True


def _check_word(word: str) -> None:
    """Refuse what is no KEY=VALUE (nor ~KEY), or leads out of ``conf``."""
    key, equals, value = word.partition("=")
    if not equals:
        if word.startswith("~"):
            return
        near = (f"{group}={word}" for group in _OF_JOBS if word in choices_of(group))
        raise ConfigError(f"{word}: give KEY=VALUE, such as {next(near, 'model=vgg16')}")
    if not value and not key.startswith("hydra."):
        raise ConfigError(f"{word} has no value; give one, or null")
    if not key.strip("+~"):
        raise ConfigError(f"{word}: the key is missing; give KEY=VALUE")
    group = key.strip("+~").partition("@")[0]
    if group in (*_OF_JOBS, "experiment") and _leads_out(value):
        raise ConfigError(f"{word}: leads out of conf/{group}; give one of its names (--help)")


def _override(parser: OverridesParser, word: str) -> Override:
    _check_word(word)
    key, _, value = word.partition("=")
    if value and not _STRUCTURE.search(value):
        parts = [_expanded(part) for part in value.split(",")]
        plain = "(" not in value or not _reads(parser, word)
        word = f"{key}={','.join(_quoted(parser, part) for part in parts)}" if plain else word
    try:
        return parser.parse_override(word)
    except HydraException:
        raise ConfigError(
            f"{word}: cannot be read; check its commas, brackets and quotes (text that holds some "
            f"goes into quotes: \"{key}='...'\")"
        ) from None


def _leads_out(value: str) -> bool:
    """Is one of a choice's names, a list's too, no name but a path?"""
    names = _BETWEEN.split(value)
    return any(name.startswith(("/", "~/")) or ".." in name.split("/") for name in names)


def _expanded(text: str) -> str:
    return os.path.expanduser(text) if text == "~" or text.startswith("~/") else text


def _quoted(parser: OverridesParser, text: str) -> str:
    """Text in quotes, where the grammar does not take it as it is."""
    if not text or _reads(parser, f"key={text}"):
        return text
    return "'" + text + "'"


def _reads(parser: OverridesParser, word: str) -> bool:
    try:
        parser.parse_override(word)
    except HydraException:
        return False
    return True


def _of_jobs(override: Override) -> Override:
    """A single value below a group, as a sweep of one value: then it goes to the jobs alone."""
    group = override.key_or_group.partition(".")[0]
    below = override.key_or_group != group and group in _OF_JOBS
    if not below or override.is_sweep_override() or override.is_delete() or override.is_add():
        return override
    value = override.get_value_element_as_str()
    key = override.get_key_element()
    # The grammar has no choice of null alone, and one of a text in quotes loses them; jobs that
    # repeat are dropped.
    twice = value == "null" or value[:1] in ("'", '"')
    word = f"{key}={value},{value}" if twice else f"{key}=choice({value})"
    return OverridesParser.create().parse_override(word)
