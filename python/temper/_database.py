"""Databases of records."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import _command, _errors
from ._command import PathLike

Record = dict[str, Any]
"""docs/record-format.md has its fields."""


@dataclass(frozen=True)
class Merged:
    added: int
    known: int
    """Records that were there already."""


@dataclass(frozen=True)
class Locked:
    lock: Path
    target: str
    kernels: int
    coverage: float
    """The share of the model's time in kernels that were measured."""
    digest: str
    targets: int
    """How many entries the lock has."""


def _file_argument(path: Any, what: str) -> str:
    """As a command takes it: not for one of its options."""
    text = _command.path_text(path, what)
    return os.path.join(".", text) if text.startswith("-") else text


class Database:
    """The records of a file, of the server that holds them, or, with None, those of TEMPER_SERVER, else of TEMPER_DB,
    else of the user's own database.

    "HOST:PORT" and "unix:PATH" are servers, all else is a file. `token_file` and `ca` are for servers.
    """

    def __init__(self, path_or_server: PathLike | None = None, *, token_file: PathLike | None = None,
                 ca: PathLike | None = None):
        text = None if path_or_server is None else _command.path_text(path_or_server, "the database")
        is_server = text is not None and re.fullmatch(r"unix:.+|[^/]+:\d+", text) is not None
        self.server = text if is_server else None
        self.path = None if is_server or text is None else Path(text)
        self._where = _command.flags(db=self.path, server=self.server, token_file=token_file, ca=ca)

    def __repr__(self) -> str:
        return f"<temper.Database {self.server or self.path or 'of the user'}>"

    def list(self, *, device: str | None = None, outcome: str | None = None,
             workload: str | None = None) -> Iterator[Record]:
        """All records, failures included, as they are read. `device`, `outcome`, `workload`: of these only."""
        return self._records("list", device, outcome, workload)

    def best(self, *, device: str | None = None, workload: str | None = None) -> Iterator[Record]:
        """The fastest known config of each workload."""
        return self._records("best", device, None, workload)

    def export(self, output: PathLike) -> Path:
        """Writes all records into the file `output`, one JSON object a line, in place of what it held."""
        path = _file_argument(output, "output")
        _command.run(["db", "export", path, *self._where])
        return Path(path)

    def import_(self, *files: PathLike) -> Merged:
        """Adds the records of files that `export` wrote; those that are here already are passed over."""
        paths = [_file_argument(file, "what to import") for file in files]
        return Merged(**_command.run(["db", "import", *paths, "--json", *self._where]))

    def merge(self, *others: PathLike | Database) -> Merged:
        """Adds the records of other files; those that are here already are passed over."""
        files = []
        for other in others:
            if isinstance(other, Database) and other.path is None:
                raise _errors.InvalidArgumentError(f"{other!r} is not a file: merge reads files")
            files.append(_file_argument(other.path if isinstance(other, Database) else other, "what to merge"))
        return Merged(**_command.run(["db", "merge", *files, "--json", *self._where]))

    def lock(self, model: Any, output: PathLike, *, shapes: _command.Shapes | None = None,
             dims: _command.Dims | None = None, values: Mapping[str, Any] | None = None,
             device: str | None = None, target: str | None = None, min_coverage: float | None = None,
             winograd: bool = True, tf32: bool = False, bf16: bool = False,
             untuned: bool = False) -> Locked:
        """Pins what decides the model's code in the file `output`, for `compile(lock=...)`; docs/builds.md. Where the
        file is there, the entry of this target is put in it, and others stay. The other arguments are as of `build`."""
        output = _command.path_text(output, "output")
        with _command.model_file(model) as path:
            said = _command.run(["lock", path, "--json", *self._where,
                                 *_command.model_flags(shapes, dims, values, winograd, tf32, bf16),
                                 *_command.flags(output=output, device=device, target=target,
                                                 min_coverage=min_coverage, untuned=untuned)])
        return Locked(**{**said, "lock": Path(output)})

    def _records(self, command: str, device: str | None, outcome: str | None, workload: str | None) -> Iterator[Record]:
        return _command.lines(["db", command, "--json", *self._where,
                               *_command.flags(device=device, outcome=outcome, workload=workload)])
