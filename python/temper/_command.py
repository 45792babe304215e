"""Runs the `temper` command. Whatever needs the compiler, records or a server goes through it."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import operator
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, TypeVar

from . import _errors

PathLike = str | os.PathLike[str]
_Made = TypeVar("_Made")


def binary(name: str = "temper") -> str:
    """The program: of the folder TEMPER_BIN, of the wheel, or of PATH."""
    folder = os.environ.get("TEMPER_BIN")
    own = Path(folder) if folder else Path(__file__).parent / "bin"
    if (own / name).is_file():
        return str(own / name)
    found = None if folder else _installed(name) or shutil.which(name)
    if found is None or _is_script(found):  # a wheel's own, which would come back here
        raise _errors.NotFoundError(f"there is no {name} in {own}: install temper with pip, or set TEMPER_BIN")
    return found


def _is_script(program: str) -> bool:
    with Path(program).open("rb") as file:
        return file.read(2) == b"#!"


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
        elif value == "":
            raise _errors.InvalidArgumentError(f"{name} is empty")
        elif value is not None and value is not False:
            result.append(f"{flag}={os.fspath(value) if isinstance(value, os.PathLike) else value}")
    return result


def _items(what: str, mapping: Mapping[str, Any] | None, meaning: str) -> Iterable[tuple[str, Any]]:
    if not isinstance(mapping, Mapping | None):
        raise _errors.InvalidArgumentError(f"{what} is a {type(mapping).__name__}, not a mapping from {meaning}")
    return (mapping or {}).items()


def _length(length: Any) -> str:
    return length if isinstance(length, str) else str(operator.index(length))


Shapes = Mapping[str, "Sequence[int | str]"]
"""Shapes of inputs by their names; a name in place of a number is a dimension of `Dims`."""


def _shape_flags(shapes: Shapes | None) -> list[str]:
    result = []
    for name, shape in _items("shapes", shapes, "inputs to shapes"):
        try:
            if isinstance(shape, str):
                raise TypeError
            result.append(f"--shape={name}={','.join(map(_length, shape))}")
        except TypeError:
            raise _errors.InvalidArgumentError(
                f"the shape of {name} is {shape!r}, not a sequence of whole numbers and names") from None
    return result


Dims = Mapping[str, "int | str | Sequence[int | str]"]
"""Lengths of dimensions by their names in the model or in `Shapes`; several lengths are several variants, "1..8" is a
range."""


def _dim_flags(dims: Dims | None) -> list[str]:
    result = []
    for name, extent in _items("dims", dims, "dimensions to lengths"):
        try:
            lengths = tuple(extent) if hasattr(extent, "__iter__") and not isinstance(extent, str) else (extent,)
            result.append(f"--dim={name}={','.join(map(_length, lengths))}")
        except TypeError:
            raise _errors.InvalidArgumentError(
                f"the length of {name} is {extent!r}, not a whole number, a range or a list of them") from None
    return result


def _value_flags(values: Mapping[str, Any] | None) -> list[str]:
    result = []
    for name, value in _items("values", values, "inputs to values"):
        value = value.tolist() if hasattr(value, "tolist") else value
        numbers = value if isinstance(value, (list, tuple)) else [value]
        if not numbers or not all(isinstance(number, (bool, int, float)) for number in numbers):
            raise _errors.InvalidArgumentError(f"the value of {name} is {value!r}, not a number or a list of numbers")
        texts = [str(number).lower() if isinstance(number, bool) else repr(number) for number in numbers]
        result.append(f"--value={name}={','.join(texts)}")
    return result


def model_flags(shapes: Shapes | None, dims: Dims | None,
                values: Mapping[str, Any] | None, winograd: bool, tf32: bool, bf16: bool) -> list[str]:
    """What every command about a model has to be told alike."""
    return [*_shape_flags(shapes), *_dim_flags(dims), *_value_flags(values),
            *flags(winograd=None if winograd else "off", tf32="on" if tf32 else None,
                   bf16="on" if bf16 else None)]


def path_text(path: Any, what: str) -> str:
    try:
        text = os.fsdecode(path)
    except TypeError:
        raise _errors.InvalidArgumentError(f"{what} is of type {type(path).__name__}, not a path") from None
    if not text or "\0" in text:
        raise _errors.InvalidArgumentError(f"{what} is {text!r}, which is no path")
    return text


@contextlib.contextmanager
def model_file(model: Any) -> Iterator[str]:
    """The model's path: its own, or that of a file written for the time being. Takes a path, the bytes of an ONNX file,
    or an onnx.ModelProto."""
    if hasattr(model, "SerializeToString"):
        model = model.SerializeToString()
    if isinstance(model, bytes):
        contents = model
        with temporary(lambda: tempfile.TemporaryDirectory(prefix="temper-")) as folder:
            file = Path(folder) / "model.onnx"
            temporary(lambda: file.write_bytes(contents))
            yield str(file)
    elif isinstance(model, (str, os.PathLike)):
        path = path_text(model, "the model")
        yield os.path.join(".", path) if path.startswith("-") else path
    else:
        raise _errors.InvalidArgumentError(
            f"a model is a path, bytes or an onnx.ModelProto, not a {type(model).__name__}")


def temporary(make: Callable[[], _Made]) -> _Made:
    """A file or folder for the time being."""
    try:
        return make()
    except OSError as error:
        raise _errors.ResourcesError(f"there is no place for temporary files: {error}") from None


def start(arguments: Sequence[str], stderr: IO[bytes], **options: Any) -> subprocess.Popen[str]:
    program = binary()
    try:
        return subprocess.Popen([program, *arguments, "--json-errors"], stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=stderr, text=True, encoding="utf-8", errors="replace",
                                **options)
    except OSError as error:
        raise _errors.Error(f"cannot start {program}: {error.strerror}") from None
    except ValueError as error:  # an argument with a null byte, or without an encoding
        raise _errors.InvalidArgumentError(f"an argument can not be given to a program: {error}") from None


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
    with temporary(tempfile.TemporaryFile) as stderr:
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
