"""For programs that are written for onnxruntime."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from . import _errors
from ._arrays import Port
from ._build import compile
from ._model import Array, Model, load


class NodeArg:
    """An input or output, with the fields of onnxruntime's. Extents that variants of the model have otherwise are
    None."""

    __slots__ = ("name", "shape", "type")

    def __init__(self, name: str, shape: list[int | None], type: str):
        self.name, self.shape, self.type = name, shape, type

    def __repr__(self) -> str:
        return f"NodeArg(name={self.name!r}, type={self.type!r}, shape={self.shape})"


def _nodes(variants: Sequence[Sequence[Port]]) -> list[NodeArg]:
    nodes = []
    for ports in zip(*variants):
        shapes = [shape for port in ports for shape in (port.shape, port.least)]
        shape = [extents[0] if len(set(extents)) == 1 else None for extents in zip(*shapes)]
        nodes.append(NodeArg(ports[0].name, shape, f"tensor({ports[0].onnx_type})"))
    return nodes


class InferenceSession:
    """Takes the place of onnxruntime.InferenceSession where run, get_inputs and get_outputs are what is used.

    `path_or_bytes`: an ONNX file, its bytes, or the directory of a package. What is no package is compiled first, with
    `compile`'s arguments in `options`: shapes, db, lock, and so on. Of `sess_options` intra_op_num_threads counts;
    `providers` is ignored. Several threads may call run: their runs come one after another.
    """

    def __init__(self, path_or_bytes: Any, sess_options: Any = None, providers: Any = None, **options: Any):
        threads = options.pop("threads", None) or getattr(sess_options, "intra_op_num_threads", 0)
        if isinstance(path_or_bytes, (str, os.PathLike)) and os.path.isdir(path_or_bytes):
            if options:
                raise _errors.InvalidArgumentError(f"a package is built already: {', '.join(options)} come too late")
            self.model: Model = load(path_or_bytes, threads=threads)
        else:
            self.model = compile(path_or_bytes, threads=threads, **options)
        self._lock = threading.Lock()

    def get_inputs(self) -> list[NodeArg]:
        return _nodes([variant.inputs for variant in self.model.variants])

    def get_outputs(self) -> list[NodeArg]:
        return _nodes([variant.outputs for variant in self.model.variants])

    def get_providers(self) -> list[str]:
        return ["TemperExecutionProvider"]

    def run(self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: Any = None) -> list[Array]:
        """The outputs of these names, in this order; None: all."""
        names = [port.name for port in self.model.outputs]
        for name in output_names or ():
            if name not in names:
                raise _errors.InputError(f"the model has no output {name}; there are: {', '.join(names)}")
        with self._lock:
            results = self.model.run(input_feed)
        return [results[name] for name in output_names or names]
