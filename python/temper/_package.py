"""A package's directory and its library, by the C interface of include/temper/model.h."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import platform
import shutil
import struct
import tempfile
import threading
import weakref
from pathlib import Path
from typing import Any

from ._command import PathLike, binary, path_text, temporary
from ._errors import NotFoundError, PackageError, WrongCpuError

_VERSION = 8  # of packages, docs/package-format.md
_MACHINES = {62: "x86_64", 183: "aarch64"}  # of ELF, by Linux's names
_MAX_RANK = 16  # TEMPER_MAX_RANK

_lock = threading.Lock()
_libraries: dict[tuple[int, int], ctypes.CDLL] = {}  # by device and inode; never unloaded, as models may be anywhere


class Tensor(ctypes.Structure):
    """temper_tensor."""

    _fields_ = [("data", ctypes.c_void_p), ("bytes", ctypes.c_int64), ("dtype", ctypes.c_int32), ("rank", ctypes.c_int32),
                ("shape", ctypes.c_int64 * _MAX_RANK)]


class Library:
    """The functions of a loaded library; AttributeError: it has others."""

    def __init__(self, library: ctypes.CDLL, prefix: str):
        pointer, number, place = ctypes.c_void_p, ctypes.c_int, ctypes.POINTER

        def function(what: str, result: Any, *arguments: Any) -> Any:
            found = getattr(library, f"{prefix}_{what}")
            found.restype, found.argtypes = result, arguments
            return found

        self.create = function("create", number, ctypes.c_char_p, number, place(pointer))
        self.variant_count = function("variant_count", number, pointer)
        self.choose_variant = function("choose_variant", number, pointer, number)
        self.io_count = function("io_count", number, pointer, number)
        self.io = function("io", number, pointer, number, number, place(ctypes.c_char_p), place(number), place(number),
                           place(place(ctypes.c_int64)))
        self.io_least = function("io_least", number, pointer, number, number, place(place(ctypes.c_int64)))
        self.run = function("run", number, pointer, pointer, pointer)
        self.run_shaped = function("run_shaped", number, pointer, pointer, pointer)
        self.destroy = function("destroy", None, pointer)
        self._error = function("error", ctypes.c_char_p, pointer)

    def error(self, model: ctypes.c_void_p | None) -> str:
        return (self._error(model) or b"").decode("utf-8", "replace")


class TemporaryFolder:
    """A folder that goes with this object, in the process that made it."""

    def __init__(self) -> None:
        self.name = temporary(lambda: tempfile.mkdtemp(prefix="temper-"))
        weakref.finalize(self, _remove, self.name, os.getpid())


def _remove(folder: str, process: int) -> None:
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)


class Package:
    """`temporary` is a folder that lives as long as somebody uses the package."""

    def __init__(self, path: PathLike, temporary: TemporaryFolder | None = None):
        self.path = Path(path_text(path, "the package"))
        self._temporary = temporary
        self.manifest = _read_manifest(self.path)
        target = str(self.manifest.get("target", ""))
        generator = target.replace(":", " ").partition(" ")[0]
        if generator not in ("llvm", "cuda", "opencl"):
            raise PackageError(f"{self.path} is for {target or 'no known target'}: only packages for CPUs and GPUs run in "
                               "Python")
        if generator != "llvm":
            _load_devices()
        library = self.path / self.manifest["library"]
        try:
            self.library = Library(_open(library), self.manifest["prefix"] or "temper_model")
        except AttributeError as error:
            raise PackageError(f"{library} is not a model of Temper's: {error}") from None


def _load_devices() -> None:
    """libtemper-devices of the installation, by whose name packages then find it. Without it they ask the loader."""
    if os.environ.get("TEMPER_DEVICES"):
        return
    with contextlib.suppress(NotFoundError):
        for library in Path(binary()).resolve().parents[1].glob("lib*/libtemper-devices.so.*"):
            ctypes.CDLL(str(library))


def _read_manifest(path: Path) -> dict[str, Any]:
    try:
        manifest = json.loads((path / "manifest.json").read_bytes())
    except OSError:
        raise PackageError(f"{path} is not a package: it has no manifest.json") from None
    except ValueError:
        raise PackageError(f"{path}/manifest.json is damaged") from None
    if not isinstance(manifest, dict) or not isinstance(manifest.get("version"), int):
        raise PackageError(f"{path}/manifest.json is damaged: it says no version")
    if manifest["version"] != _VERSION:
        raise PackageError(f"{path} is a package of version {manifest['version']}, this program reads {_VERSION}: "
                           "compile the model again")
    if not isinstance(manifest.get("library"), str) or not isinstance(manifest.get("prefix"), str):
        raise PackageError(f"{path}/manifest.json is damaged: it says no library or no prefix")
    variants = manifest.get("variants", [manifest])
    if not isinstance(variants, list) or not variants or not all(
            isinstance(one, dict) and isinstance(one.get("outputs", []), list) for one in variants):
        raise PackageError(f"{path}/manifest.json is damaged: its variants are none")
    return manifest


def _open(path: Path) -> ctypes.CDLL:
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise PackageError(f"cannot load {path}: {error.strerror}") from None
    kept = False
    try:
        status = os.fstat(file)
        key = (status.st_dev, status.st_ino)
        with _lock:
            if key not in _libraries:
                _check_whole(path, file, status.st_size)
                # The loader takes a package that was written anew in the same place for the one that it has loaded. So
                # each gets a name of its own: that of a descriptor, which stays open with the library.
                _libraries[key] = ctypes.CDLL(f"/proc/self/fd/{file}")  # calls through it release the GIL
                kept = True
            return _libraries[key]
    except OSError as error:
        raise PackageError(f"cannot load {path}: {error}") from None
    finally:
        if not kept:
            os.close(file)


def _check_whole(path: Path, file: int, size: int) -> None:
    """The loader reads beyond the end of a library that was cut off, and that ends the process."""
    header = os.pread(file, 64, 0)
    if len(header) < 64 or header[:4] != b"\x7fELF":
        raise PackageError(f"{path} is damaged: it is no library")
    sections, = struct.unpack_from("<Q", header, 40)
    section_bytes, count = struct.unpack_from("<HH", header, 58)
    if sections + section_bytes * count > size:
        raise PackageError(f"{path} is damaged: it is cut off after {size} bytes")
    machine, = struct.unpack_from("<H", header, 18)
    if _MACHINES.get(machine, "") != platform.machine():
        raise WrongCpuError(f"{path} is for {_MACHINES.get(machine, 'another machine')}, this machine is of "
                            f"{platform.machine()}: compile the model for it")
