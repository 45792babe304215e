"""Arrays as compiled models take them."""

from __future__ import annotations

import ctypes
import math
import sys
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ._errors import InputError

ALIGNMENT = 64  # of buffers that a model uses in place

# By ONNX's TensorProto.DataType: Temper's name, ONNX's, the bits of an element, NumPy's type, ml_dtypes' type.
_TYPES: dict[int, tuple[str, str, int, str, str]] = {
    1: ("f32", "float", 32, "float32", ""),
    2: ("u8", "uint8", 8, "uint8", ""),
    3: ("i8", "int8", 8, "int8", ""),
    4: ("u16", "uint16", 16, "uint16", ""),
    5: ("i16", "int16", 16, "int16", ""),
    6: ("i32", "int32", 32, "int32", ""),
    7: ("i64", "int64", 64, "int64", ""),
    9: ("bool", "bool", 8, "bool", ""),
    10: ("f16", "float16", 16, "float16", ""),
    11: ("f64", "double", 64, "float64", ""),
    12: ("u32", "uint32", 32, "uint32", ""),
    13: ("u64", "uint64", 64, "uint64", ""),
    16: ("bf16", "bfloat16", 16, "uint16", "bfloat16"),
    17: ("f8e4m3fn", "float8e4m3fn", 8, "uint8", "float8_e4m3fn"),
    18: ("f8e4m3fnuz", "float8e4m3fnuz", 8, "uint8", "float8_e4m3fnuz"),
    19: ("f8e5m2", "float8e5m2", 8, "uint8", "float8_e5m2"),
    20: ("f8e5m2fnuz", "float8e5m2fnuz", 8, "uint8", "float8_e5m2fnuz"),
    21: ("u4", "uint4", 4, "uint8", ""),
    22: ("i4", "int4", 4, "uint8", ""),
    23: ("f4e2m1", "float4e2m1", 4, "uint8", ""),
    24: ("f8e8m0", "float8e8m0", 8, "uint8", "float8_e8m0fnu"),
    25: ("u2", "uint2", 2, "uint8", ""),
    26: ("i2", "int2", 2, "uint8", ""),
}


class Port:
    """An input or output of a model.

    `shape` and `dtype` are those of its array. NumPy has no bfloat16 and no 8-bit floats: their arrays are ml_dtypes'
    where that is installed, and otherwise of unsigned integers with the same bits, which are taken in either case.
    Elements of less than a byte are packed, the first in the low bits, in a flat array of uint8. `extents` are the
    model's own. The shape of an output may depend on the inputs' values, as of boxes that are found: `shape` is then the
    largest. An input of a range of lengths takes what lies between `least` and `shape`.
    """

    __slots__ = ("name", "type", "onnx_type", "onnx_number", "extents", "shape", "least", "dtype", "bytes", "_bits_of")

    def __init__(self, name: str, onnx: int, shape: Sequence[int], least: Sequence[int] | None = None):
        self.name, self.onnx_number = name, onnx
        self.type, self.onnx_type, bits, plain, extended = _TYPES[onnx]
        self.dtype: np.dtype[Any] = np.dtype(plain)
        self.extents = tuple(shape)
        self.shape: tuple[int, ...] = self.extents
        self._bits_of = self.dtype  # taken too
        if extended:
            try:
                import ml_dtypes

                self.dtype = np.dtype(getattr(ml_dtypes, extended))
            except (ImportError, AttributeError):
                pass
        if bits < 8:
            self.shape = ((math.prod(self.shape) * bits + 7) // 8,)
        self.least: tuple[int, ...] = self.shape if least is None or bits < 8 else tuple(least)
        self.bytes = math.prod(self.shape) * self.dtype.itemsize

    def takes(self, array: npt.NDArray[Any]) -> bool:
        if array.shape != self.shape and not self._spans(array.shape):
            return False
        return array.dtype == self.dtype or array.dtype == self._bits_of

    def _spans(self, shape: tuple[int, ...]) -> bool:
        return len(shape) == len(self.shape) and all(
            least <= extent <= most for least, extent, most in zip(self.least, shape, self.shape))

    def describe(self) -> str:
        extents = (f"{most}" if least == most else f"{least}..{most}" for least, most in zip(self.least, self.shape))
        return f"[{', '.join(extents)}]"

    def __repr__(self) -> str:
        return f"{self.name}: {self.dtype.name} {self.describe()}"


def empty(shape: int | Sequence[int], dtype: npt.DTypeLike = np.float32) -> npt.NDArray[Any]:
    """An array of numbers, like numpy.empty's, whose first element lies where models use it in place."""
    kind = np.dtype(dtype)
    sizes = (int(shape),) if isinstance(shape, (int, np.integer)) else tuple(shape)
    if kind.hasobject or any(size < 0 for size in sizes):  # which would lie beyond its memory, or point anywhere
        raise InputError(f"there is no array of {kind.name} {list(sizes)} for models")
    return _within(_memory(math.prod(sizes) * kind.itemsize), sizes, kind)


def _memory(size: int) -> npt.NDArray[np.uint8]:
    return np.empty(size + ALIGNMENT, np.uint8)


def _within(memory: npt.NDArray[np.uint8], sizes: tuple[int, ...], kind: np.dtype[Any]) -> npt.NDArray[Any]:
    return np.ndarray(sizes, kind, memory, -address(memory) % ALIGNMENT)


class Recycled:
    """Arrays for an output. The memory of one that nobody holds any more is that of a later one: the pages of new memory
    take as long to get as a small model takes to run. Thread-safe."""

    _LEAST, _KEPT = 1 << 16, 2  # bytes, which malloc keeps by itself below that; results that a caller holds in turn
    # References can be counted where one thread at a time changes them.
    _COUNTS = sys.implementation.name == "cpython" and getattr(sys, "_is_gil_enabled", lambda: True)()

    def __init__(self, port: Port):
        self._port, self._lock = port, threading.Lock()
        self._memory: list[npt.NDArray[np.uint8]] = []
        self._recycles = self._COUNTS and port.bytes >= self._LEAST

    def take(self) -> npt.NDArray[Any]:
        port = self._port
        if not self._recycles:
            return _within(_memory(port.bytes), port.shape, port.dtype)
        with self._lock:
            # Two hold memory that is free: the list, and the call that counts.
            free = next((at for at in range(len(self._memory)) if sys.getrefcount(self._memory[at]) == 2), None)
            if free is None:
                del self._memory[: 1 - self._KEPT]
                self._memory.append(_memory(port.bytes))
                free = len(self._memory) - 1
            return _within(self._memory[free], port.shape, port.dtype)


def on_gpu(value: Any, what: str) -> npt.NDArray[Any] | None:
    """The memory of an array on an NVIDIA GPU, in the form of one of NumPy's whose elements nobody may touch here."""
    try:
        array = np.asarray(_Described(value.__cuda_array_interface__))
    except AttributeError:
        return None
    except Exception as error:  # libraries raise what they like
        raise InputError(f"{what}: a {type(value).__name__} that does not say where it lies: {error}") from error
    if not array.flags.c_contiguous:
        raise InputError(f"{what} lies on the GPU and is not contiguous")
    return array


class _Described:
    """What describes memory by CUDA's array interface describes it by NumPy's too."""

    def __init__(self, told: dict[str, Any]):
        self.__array_interface__ = {**told, "version": 3}


_first_byte = ctypes.c_char.from_buffer


def address(array: npt.NDArray[Any]) -> int:
    try:
        return ctypes.addressof(_first_byte(array))  # in a fifth of the time of what follows
    except (TypeError, ValueError, BufferError):  # it may not be written, is empty, or of a type that has no buffer
        return int(array.__array_interface__["data"][0])


class _Handed:
    """An array of another library's, with what it handed over."""

    def __init__(self, value: Any):
        self._value = value
        self.says_no_rights = False
        """Capsules before DLPack 1.0 do not say whether the memory may be written."""

    def __dlpack_device__(self) -> Any:
        return self._value.__dlpack_device__()

    def __dlpack__(self, **options: Any) -> Any:
        capsule = self._value.__dlpack__(**options)
        self.says_no_rights = bool(_is_capsule(capsule, b"dltensor"))
        return capsule


_is_capsule = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_IsValid", ctypes.pythonapi))


def as_array(value: Any, what: str, *, to_write: bool = False) -> npt.NDArray[Any]:
    """The memory of an array of NumPy's, or of another library's by DLPack, as it is. Lists and numbers are refused: they
    say no type. `to_write`: what says nothing about being written may be."""
    if isinstance(value, np.ndarray):
        return value
    if not hasattr(value, "__dlpack__"):
        raise InputError(f"{what} is a {type(value).__name__}, not an array")
    handed = _Handed(value)
    try:
        array = np.from_dlpack(handed)
    except Exception as error:  # libraries raise what they like
        raise InputError(f"{what}: a {type(value).__name__} that DLPack does not hand over: {error}") from error
    if to_write and handed.says_no_rights and array.flags.c_contiguous:  # NumPy takes it for read-only
        memory = (ctypes.c_char * array.nbytes).from_address(address(array))
        memory.owner = array  # type: ignore[attr-defined]
        return np.ndarray(array.shape, array.dtype, memoryview(memory))
    return array
