"""Reading a trace directory: one file a node, `NODE.jsonl` or `NODE.parquet`, one event a line.

`NODE.parquet` may also be a directory of Parquet files, as Spark writes one: its parts in the order of their names.

What cannot be read is refused with a `TraceError`; nothing is skipped or guessed, because a checker that passes over
a damaged line would vouch for what it has not seen. Files are streamed: no file is ever in memory as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from ordercast.check.errors import TraceError
from ordercast.check.events import Conf, Event, Extra

_SUFFIXES = (".jsonl", ".parquet")
_PROGRESS_LINES = 1 << 14

Progress = Callable[[int], None]
"""Called now and then with the number of bytes read since the last call."""


def node_files(directory: Path) -> dict[str, Path]:
    """Each node's file, by the node's name. Files with other endings belong to others and are left alone."""
    try:
        if not directory.is_dir():
            raise TraceError(f"{directory}: {'not a directory' if directory.exists() else 'no such directory'}")
        paths = sorted(directory.iterdir())
    except OSError as error:
        raise TraceError(f"{directory}: {error.strerror or error}") from None
    files: dict[str, Path] = {}
    for path in paths:
        if path.suffix not in _SUFFIXES or path.name.startswith("."):
            continue
        if path.stem in files:
            raise TraceError(f"{path}: node {path.stem} also has {files[path.stem].name}; which one is its trace?")
        files[path.stem] = path
    if not files:
        raise TraceError(f"{directory}: an empty trace, no NODE.jsonl or NODE.parquet in it")
    return files


def parts(path: Path) -> list[Path]:
    """The files of which a node's file consists: itself, or the parts of a directory `NODE.parquet`."""
    if path.suffix != ".parquet" or not path.is_dir():
        return [path]
    try:
        found = sorted(part for part in path.iterdir() if part.suffix == ".parquet" and part.name[0] not in "._")
    except OSError as error:
        raise TraceError(f"{path}: {error.strerror or error}") from None
    if not found:
        raise TraceError(f"{path}: a directory with no Parquet file in it")
    return found


def read_events(path: Path, progress: Progress | None = None) -> Iterator[Event | Extra]:
    """The events of one file, in order. The n-th event stands in line (parquet: row) n."""
    for part in parts(path):
        yield from _read_parquet(part, progress) if part.suffix == ".parquet" else _read_jsonl(part, progress)


def convert_events(node: str, events: Iterable[Event | Extra | Mapping[str, object]]) -> Iterator[Event | Extra]:
    """Events in memory: typed ones as they are, dicts as a line of a file would be read."""
    for number, event in enumerate(events, 1):
        if isinstance(event, Mapping):
            yield convert_row(dict(event), f"node {node}, event {number}")
        else:
            yield event


def _read_jsonl(path: Path, progress: Progress | None) -> Iterator[Event | Extra]:
    decode = msgspec.json.Decoder(Event).decode
    number = size = 0
    line = b"\n"
    try:
        with path.open("rb") as file:
            for line in file:
                number += 1
                try:
                    event: Event | Extra = decode(line)
                except (msgspec.MsgspecError, ValueError, RecursionError):
                    event = _decode_slowly(line, f"{path}, line {number}")
                if type(event) is Conf and event.number is None:
                    raise TraceError(f"{path}, line {number}: Expected `int`, got `null` - at `$.number`")
                yield event
                if progress is not None:
                    size += len(line)
                    if not number % _PROGRESS_LINES:
                        progress(size)
                        size = 0
    except OSError as error:
        raise TraceError(f"{path}: {error.strerror or error}") from None
    if not line.endswith(b"\n"):
        raise TraceError(f"{path}, line {number}: a torn line, no newline at its end")
    if progress is not None:
        progress(size)


def _decode_slowly(line: bytes, where: str) -> Event | Extra:
    """What the union decoder refused is an event beginning with `x-`, or it is named and refused here."""
    try:
        fields = msgspec.json.decode(line)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        torn = "" if line.endswith(b"\n") else "a torn line, "
        problem = "an empty line" if not line.strip() else f"not JSON ({error})"
        raise TraceError(f"{where}: {torn}{problem}") from None
    if not isinstance(fields, dict):
        raise TraceError(f"{where}: an event is a JSON object, this is {type(fields).__name__}")
    return convert_row(fields, where)


def convert_row(fields: dict[str, Any], where: str) -> Event | Extra:
    name = fields.get("event")
    wanted: Any = Extra if isinstance(name, str) and name.startswith("x-") else Event
    try:
        event: Event | Extra = msgspec.convert(fields, wanted)
    except (msgspec.MsgspecError, ValueError) as error:
        said = f"event {name!r}: " if isinstance(name, str) else ""
        raise TraceError(f"{where}: {said}{error}") from None
    return event


def _read_parquet(path: Path, progress: Progress | None) -> Iterator[Event | Extra]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise TraceError(f"{path}: reading Parquet needs pyarrow: pip install 'ordercast[parquet]'") from None
    try:
        with pq.ParquetFile(path) as file:
            refuse_other_schema(path, file.schema_arrow)
            wanted = [name for name in file.schema_arrow.names if name in COLUMNS]
            share = path.stat().st_size // max(1, -(-file.metadata.num_rows // _PROGRESS_LINES))
            number = 0
            for batch in file.iter_batches(_PROGRESS_LINES, columns=wanted):
                columns = [column.to_pylist() for column in batch.columns]
                for row in zip(*columns, strict=True):
                    number += 1
                    # An absent value is how Parquet leaves a field out, so null and missing are the same here.
                    fields = {name: value for name, value in zip(wanted, row, strict=True) if value is not None}
                    yield convert_row(fields, f"{path}, row {number}")
                if progress is not None:
                    progress(share)
    except OSError as error:
        raise TraceError(f"{path}: {error.strerror or _first_line(error)}") from None
    except (pa.ArrowException, ValueError) as error:
        raise TraceError(f"{path}: not a Parquet file that can be read ({_first_line(error)})") from None


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


COLUMNS = {
    "node": "text",
    "step": "integer",
    "event": "text",
    "conf": "text",
    "kind": "text",
    "members": "list of text",
    "number": "integer",
    "msg": "text",
    "sender": "text",
    "service": "text",
    "pos": "integer",
    "colour": "text",
    "learned": "boolean",
    "weights": "list of integers",
}


def refuse_other_schema(path: Path, schema: Any) -> None:
    import pyarrow.types as types

    def is_text(kind: Any) -> bool:
        return bool(types.is_string(kind) or types.is_large_string(kind)) or (
            bool(types.is_dictionary(kind)) and is_text(kind.value_type)
        )

    def is_list_of_text(kind: Any) -> bool:
        return bool(types.is_list(kind) or types.is_large_list(kind)) and is_text(kind.value_type)

    def is_list_of_integers(kind: Any) -> bool:
        return bool(types.is_list(kind) or types.is_large_list(kind)) and bool(types.is_integer(kind.value_type))

    tests: dict[str, Callable[[Any], bool]] = {
        "text": is_text,
        "integer": types.is_integer,
        "boolean": types.is_boolean,
        "list of text": is_list_of_text,
        "list of integers": is_list_of_integers,
    }
    for name in ("node", "step", "event"):
        if name not in schema.names:
            raise TraceError(f"{path}: no column '{name}'")
    for name, wanted in COLUMNS.items():
        if schema.names.count(name) > 1:
            raise TraceError(f"{path}: column '{name}' stands there twice")
        if name not in schema.names:
            continue
        kind = schema.field(name).type
        # A column in which nothing was ever written has no type of its own.
        if not tests[wanted](kind) and not (types.is_null(kind) and name not in ("node", "step", "event")):
            raise TraceError(f"{path}: column '{name}' is {kind}, not {wanted}")
