"""Event streams as files in simrd's log format: JSON lines whose numbers are strings.

::

    {"ANNOTATION":"START","INSTRUCTION":"ANNOTATE"}
    {"INSTRUCTION":"CONSTANT","NAME":"w"}
    {"INSTRUCTION":"MEMORY","MEMORY":"64","NAME":"w"}
    {"ARGS":["w"],"INSTRUCTION":"CALL","NAME":"view","RESULT":["y"],"TIME":"1573"}
    {"INSTRUCTION":"MEMORY","MEMORY":"64","NAME":"y"}
    {"ALIAS":"0","INSTRUCTION":"ALIAS","NAME":"y"}
    {"INSTRUCTION":"RELEASE","NAME":"w"}

A CALL is followed by the MEMORY and ALIAS of each result; ALIAS is an index into ARGS, or -1 for
a new storage. What stands before START is skipped. ``WORKSPACE`` of a CALL (bytes needed only
while it runs) is ours, and optional.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NoReturn

from rematbench.base.errors import GraphError
from rematbench.base.json_files import readable
from rematbench.base.limits import BYTES_TOLD, MOST_BYTES, MOST_TICKS, shown
from rematbench.graphs.files import write_bytes
from rematbench.streams.events import (
    Annotate,
    Call,
    Constant,
    Copy,
    CopyFrom,
    Event,
    EventStream,
    Mutate,
    Release,
    Result,
)

_TICKS_TOLD = f"at most {MOST_TICKS} (2^53) of time"
_LONGEST_LINE = 16 * 2**20


def read_log(path: str | Path) -> EventStream:
    """Read a whole simrd log, plain or gzip (told by content).

    Raises:
        GraphError: the file cannot be read, or a line is wrong; one line that names the file,
            the line's number, the key and the remedy.
    """
    path = Path(path)
    name = path.name.removesuffix(".gz").removesuffix(".log")
    events: list[Event] = []
    lines: list[int] = []
    with _opened(path) as file:
        reader = _Reader(str(path), file)
        for event in reader.events():
            events.append(event)
            lines.append(reader.event_line)
    if not events:
        raise GraphError(f"{path}: no event follows START; is the file truncated?")
    return EventStream(tuple(events), name, path=str(path), lines=tuple(lines))


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    with readable(path, GraphError), path.open("rb") as raw:
        packed = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        if packed:
            with gzip.GzipFile(fileobj=raw) as unpacked:
                yield unpacked  # type: ignore[misc]
        else:
            yield raw


class _Reader:
    """Reads one log; knows where it is, so that every fault names the place."""

    def __init__(self, path: str, file: IO[bytes]) -> None:
        self.path, self.file, self.number, self.event_line = path, file, 0, 0
        self.known: set[str] = set()
        self.bytes, self.ticks = 0, 0  # of all lines so far

    def fail(self, message: str) -> NoReturn:
        raise GraphError(f"{self.path}: line {self.number}: {message}")

    def events(self) -> Iterator[Event]:
        started = False
        while (line := self.line()) is not None:
            if not started:
                started = line.get("ANNOTATION") == "START"
                continue
            kind = line.get("INSTRUCTION")
            parse = _PARSERS.get(kind) if isinstance(kind, str) else None
            if parse is None:
                self.fail(f"INSTRUCTION is {kind!r}; give one of {', '.join(_PARSERS)}")
            self.event_line = self.number
            yield parse(self, line)
        if not self.number:
            raise GraphError(f"{self.path}: the file is empty; record the log again")
        if not started:
            self.fail('the log has no START; put {"ANNOTATION":"START",...} before its first event')

    def line(self) -> dict[str, Any] | None:
        """The next line's object; None at the end."""
        raw = self.file.readline(_LONGEST_LINE)
        self.number += bool(raw)
        while raw and not raw.strip():  # a blank line, such as an editor's at the end
            raw = self.file.readline(_LONGEST_LINE)
            self.number += bool(raw)
        if not raw:
            return None
        if len(raw) == _LONGEST_LINE:
            self.fail(f"longer than {_LONGEST_LINE} bytes; give one JSON object per line")
        try:
            found = json.loads(raw, object_pairs_hook=self.unique, parse_constant=self.reject)
        except json.JSONDecodeError as fault:
            self.fail(f"not valid JSON ({fault.msg}); is the file truncated?")
        except UnicodeDecodeError:
            self.fail("not UTF-8; write the log as UTF-8 JSON lines")
        except (ValueError, RecursionError) as fault:
            self.fail(f"not readable JSON ({fault}); write the line again")
        if not isinstance(found, dict):
            self.fail("not a JSON object; give one with the key INSTRUCTION")
        return found

    def unique(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            self.fail("a key appears twice; keep one")
        return found

    def reject(self, constant: str) -> NoReturn:
        self.fail(f"holds {constant}, which is not JSON; give a finite number")

    def keys(self, line: dict[str, Any], *names: str, optional: tuple[str, ...] = ()) -> None:
        for name in names:
            if name not in line:
                self.fail(f"{line['INSTRUCTION']}: key {name} is missing; add it")
        if len(line) != len(names) + 1:
            for name in line:
                if name not in names and name not in optional and name != "INSTRUCTION":
                    self.fail(f"{line['INSTRUCTION']}: unknown key {name!r}; remove it")

    def text(self, line: dict[str, Any], key: str) -> str:
        found = line[key]
        if not isinstance(found, str) or not found:
            self.fail(f"{key} is {found!r}; give a non-empty string")
        return found

    def count(self, line: dict[str, Any], key: str) -> int:
        found = line[key]
        if isinstance(found, str) and found.isascii() and found.isdecimal() and len(found) < 20:
            found = int(found)
        if isinstance(found, str) and found.isascii() and found.isdecimal():
            self.fail(f"{key} has {len(found)} digits; {BYTES_TOLD}, and {_TICKS_TOLD}")
        if type(found) is not int or found < 0:
            self.fail(f"{key} is {shown(found)}; give a whole number, 0 or more, as a string")
        return found

    def size(self, line: dict[str, Any], key: str) -> int:
        found = self.count(line, key)
        self.bytes += found
        if self.bytes > MOST_BYTES:
            self.fail(f"with {key} {shown(found)}, the log's sizes come to too much; {BYTES_TOLD}")
        return found

    def time(self, line: dict[str, Any]) -> int:
        found = self.count(line, "TIME")
        self.ticks += found
        if self.ticks > MOST_TICKS:
            self.fail(f"with TIME {shown(found)}, the log's times come to too much; {_TICKS_TOLD}")
        return found

    def name(self, line: dict[str, Any], key: str) -> str:
        """A name that is defined by now."""
        found = self.text(line, key)
        if found not in self.known:
            self.fail(f"{key} is {found!r}, which nothing before defines; define it first")
        return found

    def new(self, line: dict[str, Any], key: str) -> str:
        """A name that was never defined."""
        return self.define(self.text(line, key), key)

    def define(self, name: str, key: str) -> str:
        if name in self.known:
            self.fail(f"{key} is {name!r}, which is defined already; rename it")
        self.known.add(name)
        return name

    def arguments(self, line: dict[str, Any]) -> tuple[str, ...]:
        names = self.list(line, "ARGS", str)
        for name in names:
            if name not in self.known:
                self.fail(f"ARGS holds {name!r}, which nothing before defines; define it first")
        return tuple(names)

    def list(self, line: dict[str, Any], key: str, kind: type) -> list[Any]:
        found = line[key]
        if not isinstance(found, list) or any(type(item) is not kind for item in found):
            what = "strings" if kind is str else "whole numbers"
            self.fail(f"{key} is {found!r}; give a list of {what}")
        return found

    def companion(self, kind: str, name: str) -> dict[str, Any]:
        """The line of ``kind`` about ``name`` that must follow."""
        line = self.line()
        if line is None:
            self.fail(f"the log ends where {kind} of {name!r} must follow; is it truncated?")
        if line.get("INSTRUCTION") != kind or line.get("NAME") != name:
            found = f"{line.get('INSTRUCTION')!r} of {line.get('NAME')!r}"
            self.fail(f"INSTRUCTION is {found} where {kind} of {name!r} must follow; add it")
        self.keys(line, "NAME", kind)
        return line


def _constant(reader: _Reader, line: dict[str, Any]) -> Event:
    reader.keys(line, "NAME")
    name = reader.new(line, "NAME")
    return Constant(name, reader.size(reader.companion("MEMORY", name), "MEMORY"))


def _call(reader: _Reader, line: dict[str, Any]) -> Event:
    reader.keys(line, "ARGS", "NAME", "RESULT", "TIME", optional=("WORKSPACE",))
    op, cost = reader.text(line, "NAME"), reader.time(line)
    arguments = reader.arguments(line)
    names = reader.list(line, "RESULT", str)
    if not names:
        reader.fail("RESULT is empty; name what the call makes, or drop the call")
    workspace = reader.size(line, "WORKSPACE") if "WORKSPACE" in line else 0
    for name in names:
        reader.define(name, "RESULT")
    results = tuple(_result(reader, name, len(arguments)) for name in names)
    return Call(op, arguments, results, cost, workspace)


def _result(reader: _Reader, name: str, arguments: int) -> Result:
    size = reader.size(reader.companion("MEMORY", name), "MEMORY")
    line = reader.companion("ALIAS", name)
    if line["ALIAS"] in ("-1", -1):
        return Result(name, size)
    alias = reader.count(line, "ALIAS")
    if alias >= arguments:
        reader.fail(f"ALIAS is {alias}, but the call has {arguments} arguments; give an index")
    return Result(name, size, alias)


def _mutate(reader: _Reader, line: dict[str, Any]) -> Event:
    reader.keys(line, "ARGS", "MUTATE", "NAME", "TIME")
    arguments = reader.arguments(line)
    mutated = reader.list(line, "MUTATE", int)
    if not mutated or not all(0 <= index < len(arguments) for index in mutated):
        reader.fail(f"MUTATE is {mutated}; give indices into ARGS, 0 to {len(arguments) - 1}")
    if len({arguments[index] for index in mutated}) != len(mutated):
        reader.fail(f"MUTATE is {mutated}: it names one tensor twice; keep one")
    return Mutate(reader.text(line, "NAME"), arguments, tuple(mutated), reader.time(line))


def _copy(reader: _Reader, line: dict[str, Any]) -> Event:
    reader.keys(line, "DST", "SRC")
    source = reader.name(line, "SRC")
    return Copy(reader.new(line, "DST"), source)


def _copy_from(reader: _Reader, line: dict[str, Any]) -> Event:
    reader.keys(line, "DST", "SRC")
    return CopyFrom(reader.name(line, "DST"), reader.name(line, "SRC"))


def _release(reader: _Reader, line: dict[str, Any]) -> Event:
    # Names from before START are released too, so that unknown names are no fault.
    reader.keys(line, "NAME")
    return Release(reader.text(line, "NAME"))


def _annotate(reader: _Reader, line: dict[str, Any]) -> Event:
    reader.keys(line, "ANNOTATION")
    return Annotate(reader.text(line, "ANNOTATION"))


_PARSERS: dict[str, Callable[[_Reader, dict[str, Any]], Event]] = {
    "CONSTANT": _constant,
    "CALL": _call,
    "MUTATE": _mutate,
    "COPY": _copy,
    "COPY_FROM": _copy_from,
    "RELEASE": _release,
    "ANNOTATE": _annotate,
}


def write_log(path: str | Path, stream: EventStream) -> None:
    """Write a simrd log by atomic rename, gzip when the name ends in ``.gz``."""
    content = "".join(log_lines(stream.events)).encode()
    if Path(path).suffix == ".gz":
        content = gzip.compress(content, compresslevel=6, mtime=0)
    write_bytes(path, content)


def log_lines(events: Iterable[Event]) -> Iterator[str]:
    """The lines of a log, START first, each with its newline."""
    yield _line("ANNOTATE", ANNOTATION="START")
    for event in events:
        yield from _lines(event)


def _lines(event: Event) -> Iterator[str]:
    match event:
        case Constant(name, size):
            yield _line("CONSTANT", NAME=name)
            yield _line("MEMORY", NAME=name, MEMORY=str(size))
        case Call(op, arguments, results, cost, workspace):
            extra = {"WORKSPACE": str(workspace)} if workspace else {}
            names = [result.name for result in results]
            yield _line("CALL", NAME=op, ARGS=arguments, RESULT=names, TIME=str(cost), **extra)
            for result in results:
                alias = "-1" if result.alias is None else str(result.alias)
                yield _line("MEMORY", NAME=result.name, MEMORY=str(result.bytes))
                yield _line("ALIAS", NAME=result.name, ALIAS=alias)
        case Mutate(op, arguments, mutated, cost):
            yield _line("MUTATE", NAME=op, ARGS=arguments, MUTATE=mutated, TIME=str(cost))
        case Copy(target, source):
            yield _line("COPY", DST=target, SRC=source)
        case CopyFrom(target, source):
            yield _line("COPY_FROM", DST=target, SRC=source)
        case Release(name):
            yield _line("RELEASE", NAME=name)
        case Annotate(text):
            yield _line("ANNOTATE", ANNOTATION=text)


def _line(instruction: str, **keys: Any) -> str:
    return _encode({"INSTRUCTION": instruction, **keys}) + "\n"


_encode = json.JSONEncoder(separators=(",", ":"), sort_keys=True).encode
