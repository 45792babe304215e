"""Temper makes neural networks fast on the machine you have: it tunes, compiles and runs them.

    temper.tune("model.onnx", time_budget=120)
    model = temper.compile("model.onnx")
    outputs = model.run({"x": x})
"""

__version__ = "0.1.0"  # as of the `temper` command

from ._arrays import Port, empty
from ._build import build, compile
from ._database import Database, Locked, Merged
from ._errors import (
    AccessError,
    BusyError,
    CancelledError,
    Error,
    InputError,
    InvalidArgumentError,
    NotFoundError,
    PackageError,
    PreconditionError,
    ResourcesError,
    UnavailableError,
    UnsupportedError,
    WrongCpuError,
)
from ._model import Model, load
from ._session import InferenceSession, NodeArg
from ._tune import Progress, TuneResult, tune

__all__ = [
    "AccessError",
    "BusyError",
    "CancelledError",
    "Database",
    "Error",
    "InferenceSession",
    "InputError",
    "InvalidArgumentError",
    "Locked",
    "Merged",
    "Model",
    "NodeArg",
    "NotFoundError",
    "PackageError",
    "Port",
    "PreconditionError",
    "Progress",
    "ResourcesError",
    "TuneResult",
    "UnavailableError",
    "UnsupportedError",
    "WrongCpuError",
    "build",
    "compile",
    "empty",
    "load",
    "tune",
]
