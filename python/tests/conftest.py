"""Small models, and their packages, for all tests. The binaries are those of TEMPER_BIN."""

import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import temper


def save(path: Path, nodes, inputs, outputs, constants=None) -> Path:
    """`inputs` and `outputs`: (name, element type, shape)."""
    graph = helper.make_graph(
        nodes, path.stem,
        [helper.make_tensor_value_info(*value) for value in inputs],
        [helper.make_tensor_value_info(*value) for value in outputs],
        [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    onnx.save(model, str(path))
    return path


@pytest.fixture(autouse=True)
def own_records(monkeypatch, tmp_path):
    """No test finds the user's records or server."""
    for name in ("TEMPER_DB", "TEMPER_SERVER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))


WEIGHT = np.random.default_rng(1).standard_normal((6, 4)).astype(np.float32)


@pytest.fixture(scope="session")
def files(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="session")
def dense(files) -> Path:
    """y = relu(x W), x: 2x6."""
    return save(files / "dense.onnx",
                [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Relu", ["m"], ["y"])],
                [("x", TensorProto.FLOAT, (2, 6))], [("y", TensorProto.FLOAT, (2, 4))], {"w": WEIGHT})


def dense_of(x):
    return np.maximum(x @ WEIGHT, 0)


@pytest.fixture(scope="session")
def pair(files) -> Path:
    """sum = a + b, difference = a - b, of 3x5."""
    return save(files / "pair.onnx",
                [helper.make_node("Add", ["a", "b"], ["sum"]), helper.make_node("Sub", ["a", "b"], ["difference"])],
                [("a", TensorProto.FLOAT, (3, 5)), ("b", TensorProto.FLOAT, (3, 5))],
                [("sum", TensorProto.FLOAT, (3, 5)), ("difference", TensorProto.FLOAT, (3, 5))])


@pytest.fixture(scope="session")
def packages(files, dense, pair) -> Path:
    """The folder with the packages "dense" and "pair"."""
    for model in (dense, pair):
        temper.build(model, files / model.stem, untuned=True)
    return files


@pytest.fixture
def fake_cuda(monkeypatch):
    """A driver that plays a GPU on the host, of the build whose programs are tested."""
    driver = Path(os.environ["TEMPER_BIN"]).parent / "tests" / "libfake_cuda.so"
    if not driver.is_file():
        pytest.skip("this build has no tests")
    monkeypatch.setenv("TEMPER_CUDA", str(driver))


@pytest.fixture
def dense_model(packages) -> temper.Model:
    return temper.load(packages / "dense")


@pytest.fixture
def pair_model(packages) -> temper.Model:
    return temper.load(packages / "pair")
