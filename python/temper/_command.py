"""Runs the `temper` command. Whatever needs the compiler, records or a server goes through it."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from . import _errors

PathLike = str | os.PathLike[str]


def binary(name: str = "temper") -> str:
    """The program: of the folder TEMPER_BIN, of the wheel, or of PATH."""
    folder = os.environ.get("TEMPER_BIN")
    own = Path(folder) if folder else Path(__file__).parent / "bin"
    if (own / name).is_file():
        return str(own / name)
    found = None if folder else _installed(name) or shutil.which(name)
    if found is None or Path(found).open("rb").read(2) == b"#!":  # a wheel's own script, which would come back here
        raise _errors.NotFoundError(f"there is no {name} in {own}: install temper with pip, or set TEMPER_BIN")
    return found


def _installed(name: str) -> str | None:
    """The program where pip put it: not beside this file if that is a source tree's (`pip install -e`)."""
    try:
        program = Path(str(importlib.metadata.distribution("temper").locate_file(f"temper/bin/{name}")))
    except importlib.metadata.PackageNotFoundError:
        return None
    return str(program) if program.is_file() else None


def flags(**values: Any) -> list[str]:
    """["--min-coverage=0.9"] for min_coverage=0.9. None and False are left out; True is the flag alone."""
    result = []
    for name, value in values.items():
        flag = "--" + name.replace("_", "-")
        if value is True:
            result.append(flag)
        elif value is not None and value is not False:
            result.append(f"{flag}={os.fspath(value) if isinstance(value, os.PathLike) else value}")
    return result


def shape_flags(shapes: Mapping[str, Sequence[int]] | None) -> list[str]:
    return [f"--shape={name}={','.join(str(int(d)) for d in shape)}" for name, shape in (shapes or {}).items()]


@contextlib.contextmanager
def model_file(model: Any) -> Iterator[str]:
    """The model's path: its own, or that of a file written for the time being. Takes a path, the bytes of an ONNX file,
    or an onnx.ModelProto."""
    if hasattr(model, "SerializeToString"):
        model = model.SerializeToString()
    if isinstance(model, bytes):
        with tempfile.TemporaryDirectory(prefix="temper-") as folder:
            file = Path(folder) / "model.onnx"
            file.write_bytes(model)
            yield str(file)
    elif isinstance(model, (str, os.PathLike)):
        path = os.fspath(model)
        yield os.path.join(".", path) if path.startswith("-") else path
    else:
        raise _errors.InvalidArgumentError(
            f"a model is a path, bytes or an onnx.ModelProto, not a {type(model).__name__}")


def start(arguments: Sequence[str], stderr: IO[bytes], **options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen([binary(), *arguments, "--json-errors"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=stderr, text=True, encoding="utf-8", errors="replace", **options)


def finish(process: subprocess.Popen[str], stderr: IO[bytes]) -> None:
    """Waits for the end of it, and raises what it failed with."""
    code = process.wait()
    if code == 0:
        return
    stderr.seek(0)
    *notes, line = stderr.read().decode("utf-8", "replace").strip().split("\n")
    try:
        said = json.loads(line)
        error = _errors.of_code(said["code"], said["error"])
    except (ValueError, TypeError, KeyError):
        if code == 2:  # of the command line, which is read before --json-errors is known
            error = _errors.InvalidArgumentError(line.removeprefix("temper: ").removesuffix("; see --help"))
        else:
            error = _errors.Error(line or f"temper ended with code {code}")
    if notes:
        error.add_note("\n".join(notes))
    raise error


def lines(arguments: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The JSON objects that the command writes, one a line, as they come."""
    with tempfile.TemporaryFile() as stderr:
        process = start(arguments, stderr)
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if line.startswith("{"):
                    yield json.loads(line)
            finish(process, stderr)
        finally:
            process.kill()  # nobody reads on
            process.wait()
            process.stdout.close()


def run(arguments: Sequence[str]) -> dict[str, Any]:
    """The last JSON object that the command writes; empty: it wrote none."""
    last: dict[str, Any] = {}
    for last in lines(arguments):
        pass
    return last


def main() -> None:
    """The `temper`, `temper-server` and `temper-worker` of the wheel, on PATH."""
    try:
        program = binary(Path(sys.argv[0]).name)
    except _errors.NotFoundError as error:
        sys.exit(f"temper: {error}")
    os.execv(program, [program, *sys.argv[1:]])
