"""From a model's file to its package."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from . import _command
from ._command import Dims, PathLike, Shapes
from ._model import Model
from ._package import Package, TemporaryFolder


def build(
    model: Any,
    output: PathLike,
    *,
    shapes: Shapes | None = None,
    dims: Dims | None = None,
    values: Mapping[str, Any] | None = None,
    target: str | None = None,
    lock: PathLike | None = None,
    db: PathLike | None = None,
    server: str | None = None,
    device: str | None = None,
    token_file: PathLike | None = None,
    ca: PathLike | None = None,
    prefix: str | None = None,
    winograd: bool = True,
    tf32: bool = False,
    bf16: bool = False,
    untuned: bool = False,
    strict: bool = False,
    min_coverage: float | None = None,
    report: PathLike | None = None,
) -> Path:
    """Writes the package of a model into the directory `output`, with the best configs known; `temper compile`.

    `model`: the path of an ONNX file, its bytes, or an onnx.ModelProto. `shapes` fixes dynamic inputs: {"x": (1, 3, 224,
    224)}; `dims` those dimensions that have a name in the model: {"batch_size": 1}, or in `shapes`: {"x": (1, 3, "h",
    "w")}. A list of lengths makes a variant for each, {"length": [32, 128]}: the model takes arrays of any of them.
    `values` makes inputs constants: {"use_cache": False}. `target`: what to compile for, such as "llvm:haswell"; None:
    the device's, or this machine. The configs come from the `lock` and nothing else, or from the database `db`, or from
    the `server`, with the records of `device` first.
    `tf32` lets tensor cores multiply f32 rounded to TF32, `bf16` CPUs f32 rounded to bf16, on targets that have
    instructions for it.
    `untuned` uses default configs only, `strict` no records of another version of the code generator.
    `min_coverage` fails where less than that part of the model's time is in kernels that were measured; `report` is a
    file that says where each choice is from.
    """
    output = _command.path_text(output, "output")
    with _command.model_file(model) as path:
        _command.run(["compile", path, *_command.model_flags(shapes, dims, values, winograd, tf32, bf16),
                      *_command.flags(output=output, target=target, lock=lock, db=db, server=server, device=device,
                                      token_file=token_file, ca=ca, prefix=prefix, untuned=untuned, strict=strict,
                                      min_coverage=min_coverage, report=report)])
    return Path(output)


def compile(
    model: Any,
    *,
    shapes: Shapes | None = None,
    dims: Dims | None = None,
    values: Mapping[str, Any] | None = None,
    target: str | None = None,
    lock: PathLike | None = None,
    db: PathLike | None = None,
    server: str | None = None,
    device: str | None = None,
    token_file: PathLike | None = None,
    ca: PathLike | None = None,
    winograd: bool = True,
    tf32: bool = False,
    bf16: bool = False,
    untuned: bool = False,
    strict: bool = False,
    min_coverage: float | None = None,
    threads: int = 0,
) -> Model:
    """Builds the model's package in a temporary directory and loads it. The arguments are those of `build`, and `threads`
    is that of `load`."""
    temporary = TemporaryFolder()
    path = build(model, Path(temporary.name) / "package", shapes=shapes, dims=dims, values=values, target=target,
                 lock=lock, db=db, server=server, device=device, token_file=token_file, ca=ca, winograd=winograd,
                 tf32=tf32, bf16=bf16, untuned=untuned, strict=strict, min_coverage=min_coverage)
    return Model(Package(path, temporary), threads)
