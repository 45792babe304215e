"""Temper for PyTorch: `torch.compile(model, backend="temper")`, and modules as ONNX for all else that takes a model.

    model = torch.compile(module.eval(), backend="temper", options={"tune": 120})
    with torch.inference_mode():
        scores = model(image)

A graph goes to Temper by way of torch.onnx.export. Graphs that can not go that way run as PyTorch runs them, and a
warning of one line says why.
"""

from __future__ import annotations

import contextlib
import inspect
import math
import operator
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from . import _errors
from ._build import compile
from ._model import Array, Model
from ._tune import tune

_OPSET = 18
_MOST_BUILDS = 8  # of a graph, for new shapes and changed parameters


def export(module: torch.nn.Module, inputs: Any, path: Any = None) -> bytes:
    """The module as an ONNX file, for `temper.tune`, `temper.compile` and whatever else takes a model.

    `inputs`: what a call of the module takes: a tensor, a sequence of them, or a mapping by name. Their shapes are those
    of the model, and inputs have the names of the module's parameters. `path` writes the file there as well.
    """
    if isinstance(inputs, Mapping):
        given = dict(inputs)
    else:
        signature = inspect.signature(module.forward)
        given = dict(signature.bind(*([inputs] if isinstance(inputs, torch.Tensor) else inputs)).arguments)
        if any(signature.parameters[name].kind is inspect.Parameter.VAR_POSITIONAL for name in given):
            raise _errors.InvalidArgumentError("inputs of a forward(*args) have no names: wrap it in a module of its own")
    named = _ByName(module, given)
    with tempfile.TemporaryDirectory(prefix="temper-") as folder, _without_fast_path():
        file = Path(folder) / "model.onnx" if path is None else Path(path)
        _export(named, [given[name] for name in named.names], file, named.names)
        return file.read_bytes()


def backend(graph: torch.fx.GraphModule, examples: Sequence[Any], *,
            options: Mapping[str, Any] | None = None) -> Callable[..., Any]:
    """What torch.compile calls with each graph that it captures.

    `options`, by torch.compile(model, backend="temper", options={...}): those of `temper.compile`, such as db, lock or
    threads, and `tune`, the seconds to tune each graph for before it is built; or the arguments of `temper.tune`.
    """
    return _Graph(graph, examples, dict(options or {})).run


class _ByName(torch.nn.Module):
    """A module whose tensors are given by name. What is no tensor stays as it is."""

    def __init__(self, module: torch.nn.Module, inputs: Mapping[str, Any]):
        super().__init__()
        self.module = module
        self.names = [name for name, value in inputs.items() if isinstance(value, torch.Tensor)]
        self._rest = {name: value for name, value in inputs.items() if name not in self.names}
        self.train(module.training)

    def forward(self, *tensors: torch.Tensor) -> Any:
        return self.module(**dict(zip(self.names, tensors)), **self._rest)


class _Unfit(Exception):
    """Why a graph is left to PyTorch."""


class _Graph:
    """A graph with the models that were built of it: one for each set of shapes.

    Its first call with some shapes runs PyTorch too, on copies: a graph that changes its inputs, gives out views of them
    or draws numbers shows itself there, and so does an export that computes something else.
    """

    def __init__(self, graph: torch.fx.GraphModule, examples: Sequence[Any], options: dict[str, Any]):
        self._graph, self._options = graph, options
        self._fixed = [index for index, example in enumerate(examples) if _is_of_module(example)]
        self._varying = [index for index in range(len(examples)) if index not in set(self._fixed)]
        self._constants: list[torch.Tensor] = []  # what the models were built with
        self._versions: list[int] = []
        self._programs: dict[Any, _Program] = {}
        self._builds = 0
        self._is_left = False
        self._lock = threading.RLock()  # a model runs one call at a time

    def run(self, *args: Any) -> Any:
        if self._is_left and not self._programs:
            return self._graph.forward(*args)
        with self._lock:
            constants = [args[index] for index in self._fixed]
            if not self._are_same(constants):
                self._programs.clear()
            key = tuple(args[i].shape if isinstance(args[i], torch.Tensor) else args[i] for i in self._varying)
            program = self._programs.get(key)
            if program is not None:
                return program.run(args)
            if not self._is_left:
                try:
                    self._programs[key], results = self._first(args)
                    self._constants, self._versions = constants, [tensor._version for tensor in constants]
                    return results
                except _Unfit as why:
                    self._is_left = True
                    warnings.warn(f"temper leaves a graph to PyTorch: {why}", stacklevel=2)
        return self._graph.forward(*args)

    def _are_same(self, constants: list[torch.Tensor]) -> bool:
        return not self._programs or (all(map(operator.is_, constants, self._constants)) and
                                      self._versions == [tensor._version for tensor in constants])

    def _first(self, args: Sequence[Any]) -> tuple[_Program, Any]:
        _check(args)
        if any(args[index].is_inference() for index in self._fixed):
            raise _Unfit("its parameters were made in torch.inference_mode(), where nobody sees them change")
        self._builds += 1
        if self._builds > _MOST_BUILDS:
            raise _Unfit(f"it was built {_MOST_BUILDS} times, for other shapes or parameters")
        results = self._reference(args)
        names = {f"x{index}": index for index in self._varying if isinstance(args[index], torch.Tensor)}
        with tempfile.TemporaryDirectory(prefix="temper-") as folder:
            file = Path(folder) / "graph.onnx"
            try:
                _export(_specialised(self._graph, args, set(self._fixed)), [args[index] for index in names.values()],
                        file, list(names))
            except Exception as error:  # the exporter raises what it likes
                raise _Unfit(f"torch.onnx.export: {_line(error)}") from error
            program = _Program(_build(file, self._options), names, results)
        program.check(args, results)
        return program, results

    def _reference(self, args: Sequence[Any]) -> Any:
        """What PyTorch computes, without any effect."""
        with torch.inference_mode(False), torch.no_grad(), torch.random.fork_rng(devices=[]):
            copies = [arg.clone() if isinstance(arg, torch.Tensor) else arg for arg in args]
            tensors = [copy for copy in copies if isinstance(copy, torch.Tensor)]
            versions = [tensor._version for tensor in tensors]
            results = self._graph.forward(*copies)
        if versions != [tensor._version for tensor in tensors]:
            raise _Unfit("it changes its inputs")
        memory = {tensor.untyped_storage().data_ptr() for tensor in tensors}
        for result in results:
            if result is not None and not isinstance(result, torch.Tensor):
                raise _Unfit(f"it gives out a {type(result).__name__}")
            if result is not None and result.untyped_storage().data_ptr() in memory:
                raise _Unfit("it gives out an input, or a view of one")
        return results


class _Program:
    """A model with tensors in and tensors out."""

    def __init__(self, model: Model, names: Mapping[str, int], results: Sequence[torch.Tensor | None]):
        self._model = model
        self._order = [names[port.name] for port in model.inputs]
        self._is_none = [result is None for result in results]
        if len(model.outputs) != self._is_none.count(False):
            raise _Unfit("its export has other outputs")

    def run(self, args: Sequence[Any]) -> Any:
        arrays = self._model.run(*[_as_array(args[index]) for index in self._order])
        tensors = iter([_as_tensor(array, port.type) for array, port in zip(arrays, self._model.outputs)])
        return tuple(None if is_none else next(tensors) for is_none in self._is_none)

    def check(self, args: Sequence[Any], results: Sequence[torch.Tensor | None]) -> None:
        try:
            outputs = self.run(args)
        except _errors.InputError as error:  # an export of other types than the graph's
            raise _Unfit(str(error)) from error
        for got, wanted in zip(outputs, results):
            if wanted is not None and not _agree(got, wanted):
                raise _Unfit("its export computes something else, or it draws random numbers")


def _is_of_module(example: Any) -> bool:
    """A parameter or buffer: torch.compile marks the latter."""
    return isinstance(example, torch.nn.Parameter) or hasattr(example, "_dynamo_static_input_type")


def _check(args: Sequence[Any]) -> None:
    tensors = [arg for arg in args if isinstance(arg, torch.Tensor)]
    for tensor in tensors:
        if tensor.device.type != "cpu" or tensor.layout != torch.strided:
            raise _Unfit(f"a tensor is {tensor.layout} on {tensor.device}, not a dense one on the CPU")
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
            raise _Unfit(f"a tensor is a {type(tensor).__name__}")
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        raise _Unfit("it needs gradients; call it in torch.inference_mode() or torch.no_grad()")


def _build(file: Path, options: Mapping[str, Any]) -> Model:
    options = dict(options)
    tuning = options.pop("tune", None)
    try:
        if tuning is not None:
            shared = {name: options[name] for name in ("db", "server", "device", "token_file", "ca", "target")
                      if name in options}
            tune(file, **(shared | (dict(tuning) if isinstance(tuning, Mapping) else {"time_budget": tuning})))
        return compile(file, **options)
    except _errors.Error as error:
        if type(error) in (_errors.UnsupportedError, _errors.InvalidArgumentError, _errors.Error):
            raise _Unfit(_line(error)) from error
        raise  # what was asked for is not there: a record, a lock, a server


def _line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


@contextlib.contextmanager
def _without_fast_path() -> Iterator[None]:
    """The fast path of attention is an operator that ONNX lacks."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def _export(module: torch.nn.Module, inputs: Sequence[Any], file: Path, names: Sequence[str]) -> None:
    with warnings.catch_warnings(), torch.no_grad(), torch.random.fork_rng(devices=[]):
        warnings.simplefilter("ignore")  # of its deprecation, and of shapes that are constants, as they shall be
        torch.onnx.export(module, tuple(inputs), file, input_names=list(names), opset_version=_OPSET, dynamo=False)


def _specialised(graph: torch.fx.GraphModule, args: Sequence[Any], fixed: set[int]) -> torch.fx.GraphModule:
    """The graph for these numbers, with these parameters and buffers in it."""
    result, root = torch.fx.Graph(), {}
    known: dict[torch.fx.Node, Any] = {}
    given = iter(enumerate(args))
    for node in graph.graph.nodes:
        if node.op == "placeholder":
            index, value = next(given)
            if not isinstance(value, torch.Tensor):
                known[node] = value
            elif index in fixed:
                root[f"x{index}"] = value
                known[node] = result.get_attr(f"x{index}")
            else:
                known[node] = result.placeholder(f"x{index}")
            continue
        known[node] = copy = result.node_copy(node, lambda argument: known[argument])
        if node.op in ("get_attr", "call_module"):
            root[node.target] = operator.attrgetter(node.target)(graph)
        elif node.op == "call_function":
            copy.target = _PLAIN.get(node.target, node.target)
    return torch.fx.GraphModule(root, result)


def _attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, width: int, heads: int,
               qkv_weight: torch.Tensor, qkv_bias: torch.Tensor, out_weight: torch.Tensor, out_bias: torch.Tensor,
               mask: torch.Tensor | None = None, need_weights: bool = True, average_weights: bool = True,
               mask_type: int | None = None) -> tuple[torch.Tensor, torch.Tensor | None]:
    """torch._native_multi_head_attention, in operators that ONNX has."""
    if mask is not None and mask_type == 2:  # one for each sequence and head
        mask, mask_type = mask.flatten(0, 1), 0
    result, seen = torch.nn.functional.multi_head_attention_forward(
        query.transpose(0, 1), key.transpose(0, 1), value.transpose(0, 1), width, heads, qkv_weight, qkv_bias, None, None,
        False, 0.0, out_weight, out_bias, training=False, need_weights=need_weights, average_attn_weights=average_weights,
        key_padding_mask=mask if mask_type == 1 else None, attn_mask=mask if mask_type == 0 else None)
    return result.transpose(0, 1), seen


def _encoder_layer(x: torch.Tensor, width: int, heads: int, qkv_weight: torch.Tensor, qkv_bias: torch.Tensor,
                   out_weight: torch.Tensor, out_bias: torch.Tensor, is_gelu: bool, norm_first: bool, epsilon: float,
                   norm1_weight: torch.Tensor, norm1_bias: torch.Tensor, norm2_weight: torch.Tensor,
                   norm2_bias: torch.Tensor, weight1: torch.Tensor, bias1: torch.Tensor, weight2: torch.Tensor,
                   bias2: torch.Tensor, mask: torch.Tensor | None = None, mask_type: int | None = None) -> torch.Tensor:
    """torch._transformer_encoder_layer_fwd, in operators that ONNX has."""

    def normed1(value: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.layer_norm(value, (width,), norm1_weight, norm1_bias, epsilon)

    def normed2(value: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.layer_norm(value, (width,), norm2_weight, norm2_bias, epsilon)

    def attended(value: torch.Tensor) -> torch.Tensor:
        return _attention(value, value, value, width, heads, qkv_weight, qkv_bias, out_weight, out_bias, mask,
                          need_weights=False, mask_type=mask_type)[0]

    def fed(value: torch.Tensor) -> torch.Tensor:
        inner = torch.nn.functional.linear(value, weight1, bias1)
        inner = torch.nn.functional.gelu(inner) if is_gelu else torch.relu(inner)
        return torch.nn.functional.linear(inner, weight2, bias2)

    if norm_first:
        x = x + attended(normed1(x))
        return x + fed(normed2(x))
    x = normed1(x + attended(x))
    return normed2(x + fed(x))


_PLAIN: dict[Any, Callable[..., Any]] = {
    torch._native_multi_head_attention: _attention,
    torch._transformer_encoder_layer_fwd: _encoder_layer,
}


def _as_array(tensor: torch.Tensor) -> Array:
    tensor = tensor.detach().contiguous()
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(np.uint16)
    return tensor.numpy(force=True)


def _as_tensor(array: Array, kind: str) -> torch.Tensor:
    tensor: torch.Tensor = torch.from_numpy(array.view(np.int16) if kind == "bf16" else array)
    return tensor.view(torch.bfloat16) if kind == "bf16" else tensor


def _agree(got: torch.Tensor, wanted: torch.Tensor) -> bool:
    if got.shape != wanted.shape or got.dtype != wanted.dtype:
        return False
    if not wanted.is_floating_point():
        return torch.equal(got, wanted)
    finite = wanted[wanted.isfinite()]
    bound = math.sqrt(torch.finfo(wanted.dtype).eps)
    largest = finite.abs().max().item() if finite.numel() else 0.0
    return torch.allclose(got, wanted, rtol=bound, atol=bound * largest, equal_nan=True)
