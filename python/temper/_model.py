"""Compiled models."""

from __future__ import annotations

import ctypes
import math
import operator
import os
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, overload

import numpy as np
import numpy.typing as npt

from . import _errors
from ._arrays import ALIGNMENT, Port, Recycled, address, as_array, empty, on_gpu
from ._command import PathLike
from ._package import Library, Package, Tensor

Array = npt.NDArray[Any]

_INVALID_ARGUMENT, _NO_PACKAGE, _WRONG_CPU, _NO_RESOURCES, _BUSY = 1, 2, 3, 4, 5  # TEMPER_* of model.h
_OF_CODE: dict[int, type[_errors.Error]] = {
    _INVALID_ARGUMENT: _errors.InputError,
    _NO_PACKAGE: _errors.PackageError,
    _WRONG_CPU: _errors.WrongCpuError,
    _NO_RESOURCES: _errors.ResourcesError,
    _BUSY: _errors.BusyError,
}


class Variant:
    """The model for one choice of its inputs' shapes."""

    def __init__(self, inputs: tuple[Port, ...], outputs: tuple[Port, ...], varies: list[bool], name: str,
                 ranges: Sequence[tuple[int, int, int]] = ()):
        self.inputs, self.outputs, self.name = inputs, outputs, name
        self.varies = varies
        """By output: whether it has as many elements as the run finds."""
        self._axes = ranges  # input, axis and range
        self.ranges = any(port.least != port.shape for port in inputs)
        self._tensors = [(Tensor * len(ports), bytes((Tensor * len(ports))(*map(_tensor_of, ports))))
                         for ports in (inputs, outputs)]
        self.results = [Recycled(port) for port in outputs]

    def takes(self, arrays: Sequence[Array]) -> bool:
        return all(port.takes(array) for port, array in zip(self.inputs, arrays))

    def agrees(self, arrays: Sequence[Array]) -> bool:
        """Whether arrays that it takes have one length along axes of one range."""
        lengths: dict[int, int] = {}
        return all(lengths.setdefault(of, arrays[at].shape[axis]) == arrays[at].shape[axis] for at, axis, of in self._axes)

    def tensors(self, arrays: Sequence[Array], pointers: Sequence[int], targets: Sequence[int]) -> tuple[Any, Any]:
        """What a run gets: inputs in the shapes of the arrays, and outputs in the largest."""
        inputs, outputs = (kind.from_buffer_copy(made) for kind, made in self._tensors)
        for tensor, port, array, pointer in zip(inputs, self.inputs, arrays, pointers):
            tensor.data, tensor.bytes = pointer, array.nbytes
            if port.shape == port.extents:
                tensor.shape[: len(port.extents)] = array.shape
        for tensor, target in zip(outputs, targets):
            tensor.data = target
        return inputs, outputs

    def __repr__(self) -> str:
        return f"<{self.name or 'the only variant'}: {list(self.inputs)} -> {list(self.outputs)}>"


class Model:
    """One instance of a compiled model, made by `compile` or `load`.

    One run at a time; another thread's gets BusyError. A `clone` shares the weights, has threads and activations of its
    own, and runs at the same time. The GIL is released while the model runs.
    """

    variants: tuple[Variant, ...]
    """One for each choice of shapes that the model was compiled for. A run is of the one that takes its inputs."""
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    """Of the first variant, as are `inputs`."""
    manifest: dict[str, Any]
    """What the package says of itself: kernels, where their configs are from, sizes. See docs/package-format.md."""
    copies: int
    """How many arrays had to be copied so far, because they were not contiguous or did not begin where kernels take them
    (`caller_alignment` in the manifest: multiples of 16 bytes on CPUs with AVX, as NumPy's own arrays do)."""

    def __init__(self, package: Package, threads: int = 0):
        self._package, self._threads = package, _thread_count(threads)
        self.manifest = package.manifest
        self.copies = 0
        library: Library = package.library
        handle = ctypes.c_void_p()
        code = library.create(os.fsencode(package.path), self._threads, ctypes.byref(handle))
        if code != 0:
            raise _OF_CODE.get(code, _errors.Error)(library.error(None))
        # Not at exit: a thread may be inside then.
        weakref.finalize(self, _destroy, library, handle, os.getpid()).atexit = False
        self._library, self._handle, self._process = library, handle, os.getpid()
        self._on_gpu = on_gpu if str(self.manifest.get("target")).startswith("cuda") else _nowhere
        count, told = library.variant_count(handle), self.manifest.get("variants", [self.manifest])
        if len(told) != count:
            raise _errors.PackageError(f"{package.path}/manifest.json is damaged: the library has {count} variants")
        self.variants = tuple(self._variant(index, told[index]) for index in range(count))
        self._check_told_apart()
        self.inputs, self.outputs = self.variants[0].inputs, self.variants[0].outputs
        self._alignment = int(self.manifest.get("caller_alignment", ALIGNMENT))
        self._input_pointers = ctypes.c_void_p * len(self.inputs)
        self._output_pointers = ctypes.c_void_p * len(self.outputs)

    def clone(self, threads: int | None = None) -> Model:
        """Another instance, for another thread. `threads`: as of `load`; None: as of this one."""
        return Model(self._package, self._threads if threads is None else threads)

    @overload
    def run(self, feeds: Mapping[str, Any], /, *, out: Mapping[str, Any] | None = None) -> dict[str, Array]: ...
    @overload
    def run(self, *inputs: Any, out: Sequence[Any] | None = None) -> list[Array]: ...

    def run(self, *inputs: Any, out: Any = None) -> Any:
        """Runs the model once.

        What goes in by name comes out by name, what goes in by position comes out by position. Inputs are arrays of
        NumPy's, or of another library's by DLPack, of exactly the types and shapes of a variant. Contiguous arrays,
        such as those of NumPy or of `empty`, are used in place; others are copied and counted in `copies`. A package
        for CUDA takes arrays on its GPU too, by CUDA's array interface.

        `out`: arrays for outputs, in the same form as the inputs; those left out, and None by position, are made anew.
        """
        if len(inputs) == 1 and isinstance(inputs[0], Mapping):
            given = self._by_name(self.inputs, "input", inputs[0])
            if len(given) != len(self.inputs):
                missing = next(port.name for port in self.inputs if port.name not in inputs[0])
                raise _errors.InputError(f"input {missing} is missing; {self._takes()}")
            places = {} if out is None else self._by_name(self.outputs, "output", out)
            results = self._run(given.values(), [places.get(port.name) for port in self.outputs])
            return {port.name: result for port, result in zip(self.outputs, results)}
        if len(inputs) != len(self.inputs):
            raise _errors.InputError(f"{len(inputs)} inputs are given; {self._takes()}")
        if out is None:
            out = (None,) * len(self.outputs)
        elif isinstance(out, Mapping) or not isinstance(out, Sequence) or len(out) != len(self.outputs):
            raise _errors.InputError(f"out is not a sequence of {len(self.outputs)} arrays, one for each output")
        return self._run(inputs, out)

    __call__ = run

    def __reduce__(self) -> Any:
        raise _errors.UnsupportedError("a model is not copied or pickled: clone() it, or load its package in each process")

    def __repr__(self) -> str:
        return f"<temper.Model {self.manifest.get('model')} {list(self.inputs)} -> {list(self.outputs)}>"

    def _run(self, inputs: Any, places: Sequence[Any]) -> list[Array]:
        if os.getpid() != self._process:
            raise _errors.Error("this model belongs to the process that forked this one: load it again")
        pointers, copies, kept = [], 0, []
        arrays = [value if type(value) is np.ndarray else self._memory(value, f"input {port.name}")[0]
                  for port, value in zip(self.inputs, inputs)]
        taking = [one for one in self.variants if one.takes(arrays)]
        if not taking:
            self._refuse_inputs(arrays)
        # The library takes the first whose ranges agree, too, and has a line for arrays that agree with none.
        variant = taking[0] if len(taking) == 1 else next((one for one in taking if one.agrees(arrays)), taking[0])
        for port, array in zip(variant.inputs, arrays):
            if not array.flags.c_contiguous:
                whole = empty(array.shape, array.dtype)
                np.copyto(whole, array)
                array, copies = whole, copies + 1
            pointer = address(array)
            copies += pointer % self._alignment != 0
            pointers.append(pointer)
            kept.append(array)
        results, targets = [], []
        for port, value, made, varies in zip(variant.outputs, places, variant.results, variant.varies):
            if value is None:
                array = result = made.take()
            else:
                array, result = self._place(port, value, varies)
            pointer = address(array)
            copies += pointer % self._alignment != 0
            targets.append(pointer)
            results.append(result)
        if any(place is not None for place in places):
            self._check_apart(variant, kept, pointers, targets)
        if len(self.variants) > 1 or variant.ranges or any(variant.varies):
            code = self._run_shaped(variant, kept, pointers, targets, results)
        else:
            code = self._library.run(self._handle, self._input_pointers(*pointers), self._output_pointers(*targets))
        if code == _BUSY:  # the line is that of the thread inside
            raise _errors.BusyError("another thread is inside this model: give each thread its own clone()")
        if code != 0:
            raise _OF_CODE.get(code, _errors.Error)(self._library.error(self._handle))
        self.copies += copies
        return results

    def _run_shaped(self, variant: Variant, arrays: Sequence[Array], pointers: Sequence[int], targets: Sequence[int],
                    results: list[Array]) -> int:
        """Runs the variant of these shapes, and cuts results to the extents that the run tells: their elements lie at the
        front."""
        given, made = variant.tensors(arrays, pointers, targets)
        code: int = self._library.run_shaped(self._handle, given, made)
        for at, tensor in enumerate(made if code == 0 else ()):
            if variant.varies[at]:
                shape = tensor.shape[: tensor.rank]
                results[at] = results[at].reshape(-1)[: math.prod(shape)].reshape(shape)
        return code

    def _memory(self, value: Any, what: str, *, to_write: bool = False) -> tuple[Array, Any]:
        """The memory of an array, and what is handed back for it: one on the GPU is not for those who have NumPy's."""
        there = self._on_gpu(value, what)
        if there is not None:
            return there, value
        array = as_array(value, what, to_write=to_write)
        return array, array

    def _place(self, port: Port, value: Any, varies: bool) -> tuple[Array, Any]:
        array, result = self._memory(value, f"output {port.name}", to_write=True)
        if array is not result and varies:
            raise _errors.InputError(f"output {port.name} has as many elements as the run finds: it goes to no GPU array")
        if not port.takes(array):
            self._refuse("output", port, array)
        if not array.flags.c_contiguous or not array.flags.writeable:
            raise _errors.InputError(f"the array for output {port.name} is not contiguous, or may not be written")
        return array, result

    def _check_apart(self, variant: Variant, arrays: Sequence[Array], inputs: Sequence[int],
                     outputs: Sequence[int]) -> None:
        ranges = [(start, start + port.bytes) for start, port in zip(outputs, variant.outputs)]
        others = [(start, start + array.nbytes) for start, array in zip(inputs, arrays)]
        for at, (begin, end) in enumerate(ranges):
            if any(begin < other_end and other_begin < end for other_begin, other_end in ranges[:at] + others):
                raise _errors.InputError(f"the array for output {self.outputs[at].name} overlaps another one")

    def _refuse(self, kind: str, port: Port, array: Array, shapes: Sequence[str] = ()) -> NoReturn:
        wants = "takes" if kind == "input" else "gives"
        order = "" if array.dtype.isnative else " of another byte order"
        shapes = shapes or [port.describe()]
        raise _errors.InputError(f"{kind} {port.name} has {array.dtype.name} {list(array.shape)}{order}; the model {wants} "
                                 f"{port.dtype.name} {' or '.join(dict.fromkeys(shapes))}")

    def _refuse_inputs(self, arrays: Sequence[Array]) -> NoReturn:
        """Names the first input that no variant takes beside those before it."""
        left: Sequence[Variant] = self.variants
        for at, array in enumerate(arrays):
            takes = [variant for variant in left if variant.inputs[at].takes(array)]
            if not takes:
                self._refuse("input", left[0].inputs[at], array, [variant.inputs[at].describe() for variant in left])
            left = takes
        raise AssertionError("a variant takes them")

    def _takes(self) -> str:
        return f"the model takes {', '.join(map(repr, self.inputs)) or 'none'}"

    def _by_name(self, ports: tuple[Port, ...], kind: str, values: Any) -> dict[str, Any]:
        """The values in the model's order; those that are not given are left out."""
        if not isinstance(values, Mapping):
            raise _errors.InputError("inputs are given by name, so out is a mapping by name too")
        ordered = {port.name: values[port.name] for port in ports if port.name in values}
        if len(ordered) != len(values):
            unknown = next(name for name in values if name not in ordered)
            names = ", ".join(port.name for port in ports) or "none"
            raise _errors.InputError(f"the model has no {kind} {unknown}; there are: {names}")
        return ordered

    def _check_told_apart(self) -> None:
        """Elements of less than a byte are in flat arrays, which do not say their shapes."""
        for ports in zip(*(variant.inputs for variant in self.variants)):
            if any(port.shape != port.extents for port in ports) and len({port.extents for port in ports}) > 1:
                raise _errors.UnsupportedError(f"input {ports[0].name} has numbers of less than a byte: Python takes one "
                                               "length of it")

    def _variant(self, index: int, told: dict[str, Any]) -> Variant:
        self._library.choose_variant(self._handle, index)  # for what follows; runs go by shapes where there are several
        outputs = self._ports(1)
        varies = [output.get("varies") is not None for output in told.get("outputs", ())][: len(outputs)]
        varies += [False] * (len(outputs) - len(varies))
        inputs = self._ports(0)
        ranges = [(at, axis, of) for at, (port, one) in enumerate(zip(inputs, told.get("inputs", ())))
                  if port.shape == port.extents for axis, of in zip(one.get("varies", ()), one.get("ranges", ()))]
        return Variant(inputs, outputs, varies, str(told.get("name", "")), ranges)

    def _ports(self, is_output: int) -> tuple[Port, ...]:
        name, onnx, rank = ctypes.c_char_p(), ctypes.c_int(), ctypes.c_int()
        shape, least = ctypes.POINTER(ctypes.c_int64)(), ctypes.POINTER(ctypes.c_int64)()
        ports = []
        for index in range(self._library.io_count(self._handle, is_output)):
            self._library.io(self._handle, is_output, index, ctypes.byref(name), ctypes.byref(onnx),
                             ctypes.byref(rank), ctypes.byref(shape))
            self._library.io_least(self._handle, is_output, index, ctypes.byref(least))
            ports.append(Port((name.value or b"").decode("utf-8", "replace"), onnx.value, shape[: rank.value],
                              least[: rank.value]))
        return tuple(ports)


def _tensor_of(port: Port) -> Tensor:
    return Tensor(None, port.bytes, port.onnx_number, len(port.extents), port.extents)


def _nowhere(value: Any, what: str) -> Array | None:
    return None


def _thread_count(threads: Any) -> int:
    try:
        count = operator.index(threads)
    except TypeError:
        count = -1
    if not 0 <= count < 1 << 31:
        raise _errors.InvalidArgumentError(f"threads is {threads!r}, not a whole number from 0")
    return count


def _destroy(library: Library, handle: ctypes.c_void_p, process: int) -> None:
    if os.getpid() == process:  # a forked process has none of its threads
        library.destroy(handle)


def load(path: PathLike, *, threads: int = 0) -> Model:
    """The model of a package's directory, as `temper compile` or `build` wrote it. `threads`: 0 means TEMPER_NUM_THREADS
    where that is set, else the CPUs that the process may use."""
    return Model(Package(path), threads)
