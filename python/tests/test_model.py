"""Loading and running."""

import copy
import gc
import json
import os
import pickle
import shutil
import subprocess
import sys
import threading
import weakref

import numpy as np
import pytest
from conftest import WEIGHT, dense_of, save
from onnx import TensorProto, helper

import temper
from temper._arrays import Port, Recycled, address


def aligned(array):
    result = temper.empty(array.shape, array.dtype)
    result[...] = array
    return result


X = np.arange(12, dtype=np.float32).reshape(2, 6) / 7


def test_what_goes_in_by_name_comes_out_by_name(pair_model):
    a, b = np.full((3, 5), 2, np.float32), np.arange(15, dtype=np.float32).reshape(3, 5)
    named = pair_model.run({"b": b, "a": a})
    assert list(named) == ["sum", "difference"]
    np.testing.assert_array_equal(named["difference"], a - b)
    total, difference = pair_model.run(a, b)
    np.testing.assert_array_equal(total, a + b)
    np.testing.assert_array_equal(difference, named["difference"])
    np.testing.assert_array_equal(pair_model(a, b)[0], total)


def test_results_have_as_many_elements_as_the_run_finds(tmp_path):
    nodes = [helper.make_node("NonZero", ["x"], ["places"]), helper.make_node("Transpose", ["places"], ["t"]),
             helper.make_node("GatherND", ["x", "t"], ["values"])]
    path = save(tmp_path / "found.onnx", nodes, [("x", TensorProto.FLOAT, (3, 40))],
                [("places", TensorProto.INT64, (2, "n")), ("values", TensorProto.FLOAT, ("n",))])
    model = temper.compile(path, untuned=True)
    assert [port.shape for port in model.outputs] == [(2, 120), (120,)]
    for share in (0, 0.4, 1):
        x = (np.random.default_rng(1).random((3, 40)) < share).astype(np.float32) * 5
        found = model.run({"x": x})
        np.testing.assert_array_equal(found["places"], np.array(np.nonzero(x)))
        np.testing.assert_array_equal(found["values"], x[np.nonzero(x)])
    place = temper.empty((120,))
    found = model.run(x, out=[None, place])
    assert np.shares_memory(found[1], place) and found[1].shape == (120,)


def test_a_run_is_of_the_variant_that_takes_its_arrays(tmp_path):
    weight = np.random.default_rng(1).standard_normal((6, 4)).astype(np.float32)
    path = save(tmp_path / "lengths.onnx", [helper.make_node("MatMul", ["x", "w"], ["m"]),
                                            helper.make_node("Add", ["m", "b"], ["y"])],
                [("x", TensorProto.FLOAT, ("batch", "length", 6)), ("b", TensorProto.FLOAT, ("length", 4))],
                [("y", TensorProto.FLOAT, ("batch", "length", 4))], {"w": weight})
    model = temper.compile(path, dims={"length": [3, 8], "batch": (1, 2)}, untuned=True)
    assert [variant.name for variant in model.variants] == [
        "batch=1 length=3", "batch=1 length=8", "batch=2 length=3", "batch=2 length=8"]
    assert model.inputs[0].shape == (1, 3, 6)
    for batch, length in ((2, 8), (1, 3), (1, 8), (2, 3), (2, 8)):
        x, b = np.random.default_rng(length).standard_normal((batch, length, 6)).astype(np.float32), np.ones((length, 4), np.float32)
        place = np.empty((batch, length, 4), np.float32)
        np.testing.assert_allclose(model.run(x, b)[0], x @ weight + 1, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(model.run({"x": x, "b": b}, out={"y": place})["y"], x @ weight + 1, rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(place, model.run(x, b)[0])
    with pytest.raises(temper.InputError, match=r"input x has float32 \[3, 3, 6\]; the model takes float32 \[1, 3, 6\] or "
                                                r"\[1, 8, 6\] or \[2, 3, 6\] or \[2, 8, 6\]"):
        model.run(np.zeros((3, 3, 6), np.float32), np.zeros((3, 4), np.float32))
    with pytest.raises(temper.InputError, match=r"input b has float32 \[8, 4\]; the model takes float32 \[3, 4\]$"):
        model.run(np.zeros((1, 3, 6), np.float32), np.zeros((8, 4), np.float32))
    with pytest.raises(temper.InputError, match="output y has"):
        model.run(np.zeros((1, 3, 6), np.float32), np.zeros((3, 4), np.float32), out=[np.zeros((1, 8, 4), np.float32)])
    session = temper.InferenceSession(path, dims={"length": [3, 8], "batch": 1}, untuned=True)
    assert session.get_inputs()[0].shape == [1, None, 6] and session.get_outputs()[0].shape == [1, None, 4]
    assert session.run(None, {"x": np.zeros((1, 8, 6), np.float32), "b": np.zeros((8, 4), np.float32)})[0].shape == (1, 8, 4)
    with pytest.raises(temper.InvalidArgumentError, match="not a whole number, a range or a list"):
        temper.compile(path, dims={"length": [3.5]})


def test_a_range_takes_any_length_up_to_the_most(tmp_path):
    rng = np.random.default_rng(2)
    weight, bias = rng.standard_normal((6, 4)).astype(np.float32), np.ones(4, np.float32)
    path = save(tmp_path / "range.onnx", [
        helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Add", ["m", "bias"], ["s"]),
        helper.make_node("Softmax", ["s"], ["p"]), helper.make_node("Mul", ["p", "scale"], ["y"]),
        helper.make_node("Shape", ["x"], ["shape"])],
        [("x", TensorProto.FLOAT, ("batch", 3, 6)), ("scale", TensorProto.FLOAT, ("batch", 1, 1))],
        [("y", TensorProto.FLOAT, ("batch", 3, 4)), ("shape", TensorProto.INT64, (3,))], {"w": weight, "bias": bias})
    model = temper.compile(path, dims={"batch": ["1..2", "3..8"]}, untuned=True)
    assert [variant.name for variant in model.variants] == ["batch=1..2", "batch=3..8"]
    assert repr(model.inputs[0]) == "x: float32 [1..2, 3, 6]"
    for batch in (8, 1, 5, 2, 3, 7, 1):
        x, scale = rng.standard_normal((batch, 3, 6)).astype(np.float32), rng.random((batch, 1, 1)).astype(np.float32)
        wanted = np.exp(x @ weight + bias)
        wanted = wanted / wanted.sum(-1, keepdims=True) * scale
        y, shape = model.run(x, scale)
        np.testing.assert_allclose(y, wanted, rtol=1e-4, atol=1e-6)
        assert list(shape) == [batch, 3, 6]
    with pytest.raises(temper.InputError, match=r"x has float32 \[9, 3, 6\]; the model takes float32 \[1..2, 3, 6\] or "
                                                r"\[3..8, 3, 6\]"):
        model.run(np.zeros((9, 3, 6), np.float32), np.zeros((9, 1, 1), np.float32))
    with pytest.raises(temper.InputError, match="input scale has"):
        model.run(np.zeros((3, 3, 6), np.float32), np.zeros((4, 1, 1), np.float32))
    assert temper.InferenceSession(path, dims={"batch": "1..4"}, untuned=True).get_inputs()[0].shape == [None, 3, 6]
    with pytest.raises(temper.InvalidArgumentError, match="expected NAME=1"):
        temper.compile(path, dims={"batch": "4..1"})


def test_a_run_is_of_the_variant_whose_ranges_agree(tmp_path):
    path = save(tmp_path / "cache.onnx", [helper.make_node("Neg", ["new"], ["less"]), helper.make_node("Abs", ["all"], ["size"])],
                [("new", TensorProto.FLOAT, ("seq",)), ("all", TensorProto.FLOAT, ("past + seq",))],
                [("less", TensorProto.FLOAT, ("seq",)), ("size", TensorProto.FLOAT, ("past + seq",))])
    model = temper.compile(path, dims={"past": [0, "1..5"], "seq": "1..8"}, untuned=True)
    assert [model.variants[0].inputs[1].shape, model.variants[1].inputs[1].shape] == [(8,), (13,)]
    for past, seq in ((0, 3), (5, 3), (1, 8), (0, 8), (5, 1)):
        new, both = np.arange(seq, dtype=np.float32), -np.arange(past + seq, dtype=np.float32)
        less, size = model.run(new, both)
        np.testing.assert_array_equal(less, -new)
        np.testing.assert_array_equal(size, -both)
    with pytest.raises(temper.InputError, match="input all has"):
        model.run(np.zeros(8, np.float32), np.zeros(1, np.float32))


def test_a_length_that_the_model_itself_cannot_take_is_an_error(tmp_path):
    path = save(tmp_path / "halves.onnx", [
        helper.make_node("Slice", ["x", "zero", "end", "zero", "two"], ["even"]),
        helper.make_node("Slice", ["x", "one", "end", "zero", "two"], ["odd"]),
        helper.make_node("Sub", ["even", "odd"], ["y"])],
        [("x", TensorProto.FLOAT, ("n",))], [("y", TensorProto.FLOAT, ("half",))],
        {name: np.array([value], np.int64) for name, value in (("zero", 0), ("one", 1), ("two", 2), ("end", 2**62))})
    model = temper.compile(path, dims={"n": "4..10"}, untuned=True)
    for n in (10, 4, 8):
        x = np.arange(n, dtype=np.float32) ** 2
        np.testing.assert_array_equal(model.run(x)[0], x[::2] - x[1::2])
        with pytest.raises(temper.InputError, match="takes no inputs of these lengths"):
            model.run(np.zeros(n - 1 if n > 4 else 5, np.float32))


def test_two_ranges_take_any_pair_of_lengths(tmp_path):
    weight = np.random.default_rng(4).standard_normal((6, 4)).astype(np.float32)
    path = save(tmp_path / "ranges.onnx", [
        helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Unsqueeze", ["mask", "last"], ["column"]),
        helper.make_node("Mul", ["m", "column"], ["y"]), helper.make_node("ReduceMean", ["y"], ["mean"], axes=[1])],
        [("x", TensorProto.FLOAT, ("batch", "seq", 6)), ("mask", TensorProto.FLOAT, ("batch", "seq"))],
        [("y", TensorProto.FLOAT, ("batch", "seq", 4)), ("mean", TensorProto.FLOAT, ("batch", 1, 4))],
        {"w": weight, "last": np.array([2], np.int64)})
    model = temper.compile(path, dims={"batch": "1..3", "seq": "2..9"}, untuned=True)
    assert repr(model.inputs[0]) == "x: float32 [1..3, 2..9, 6]"
    assert [output.get("varies") for output in model.manifest["outputs"]] == [[0, 1], [0]]
    rng = np.random.default_rng(5)
    for batch, length in [(3, 9), (1, 2), (2, 5), (3, 2), (1, 9), (2, 8), (3, 9)]:
        x = rng.standard_normal((batch, length, 6)).astype(np.float32)
        mask = rng.integers(0, 2, (batch, length)).astype(np.float32)
        y, mean = model.run(x, mask)
        assert y.shape == (batch, length, 4) and y.flags.c_contiguous
        np.testing.assert_allclose(y, x @ weight * mask[:, :, None], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(mean, y.mean(1, keepdims=True), rtol=1e-4, atol=1e-5)
    for shape in [(4, 5, 6), (0, 5, 6), (2, 1, 6), (2, 10, 6)]:
        with pytest.raises(temper.InputError, match=r"input x has .*; the model takes float32 \[1..3, 2..9, 6\]"):
            model.run(np.zeros(shape, np.float32), np.zeros(shape[:2], np.float32))
    with pytest.raises(temper.InputError, match="input mask has"):
        model.run(np.zeros((2, 5, 6), np.float32), np.zeros((2, 4), np.float32))
    session = temper.InferenceSession(path, dims={"batch": "1..3", "seq": "2..9"}, untuned=True)
    assert session.get_inputs()[0].shape == [None, None, 6]


def test_a_model_says_what_it_takes_and_gives(pair_model):
    assert [(p.name, p.shape, p.dtype, p.type) for p in pair_model.inputs] == [
        ("a", (3, 5), np.float32, "f32"), ("b", (3, 5), np.float32, "f32")]
    assert [p.name for p in pair_model.outputs] == ["sum", "difference"]
    assert "a: float32 [3, 5]" in repr(pair_model)
    assert len(pair_model.manifest["kernels"]) >= 1


def test_aligned_contiguous_arrays_are_used_in_place_and_other_copies_are_counted(dense_model):
    good, out = aligned(X), temper.empty((2, 4))
    dense_model.run(good)
    dense_model.run({"x": good}, out={"y": out})
    assert dense_model.copies == 0
    memory = temper.empty((13,))
    unaligned = memory[1:].reshape(2, 6)
    unaligned[...] = X
    np.testing.assert_allclose(dense_model.run(unaligned)[0], dense_of(X), rtol=1e-5)
    assert dense_model.copies == 1
    wide = temper.empty((2, 12))
    wide[:, ::2] = X
    np.testing.assert_allclose(dense_model.run(wide[:, ::2])[0], dense_of(X), rtol=1e-5)
    assert dense_model.copies == 2
    np.testing.assert_allclose(dense_model.run(np.asfortranarray(X))[0], dense_of(X), rtol=1e-5)
    assert dense_model.copies == 3


def test_arrays_where_numpys_may_begin_are_used_in_place_where_kernels_take_them(dense_model):
    there = temper.empty((16,))[4:].reshape(2, 6)
    there[...] = X
    np.testing.assert_allclose(dense_model.run(there)[0], dense_of(X), rtol=1e-5)
    assert dense_model.copies == (0 if dense_model.manifest["caller_alignment"] == 16 else 1)


def test_memory_of_results_is_taken_again_once_nobody_holds_them():
    made = Recycled(Port("y", 1, (128, 256)))
    first, second = made.take(), made.take()
    places = {address(first), address(second)}
    assert len(places) == 2 and all(place % 64 == 0 for place in places)
    part, kept = second[3:], memoryview(first)
    del first, second
    third, fourth = made.take(), made.take()  # views hold what they are of
    assert not places & {address(third), address(fourth)}
    place = address(fourth)
    del part, kept, fourth
    assert address(made.take()) == place
    small = Recycled(Port("y", 1, (2, 3))).take()
    assert small.shape == (2, 3) and small.dtype == np.float32


@pytest.mark.parametrize("shape", [(), (0,), 7, (3, 5), (2, 0, 4)])
@pytest.mark.parametrize("dtype", ["float32", "int8", "float64", "bool"])
def test_empty_is_aligned_and_of_its_shape(shape, dtype):
    array = temper.empty(shape, dtype)
    assert array.shape == ((shape,) if isinstance(shape, int) else shape) and array.dtype == dtype
    assert array.ctypes.data % 64 == 0 and array.flags.c_contiguous and array.flags.writeable
    array[...] = 1
    assert (array == 1).all()


def test_empty_takes_numbers_of_numpys_and_refuses_what_would_have_no_memory():
    assert temper.empty(np.int64(3)).shape == (3,)
    for shape, dtype in ((-1, np.float32), ((2, -3), np.float32), (2, object)):
        with pytest.raises(temper.InputError, match="there is no array of"):
            temper.empty(shape, dtype)


def test_a_model_is_neither_copied_nor_pickled(dense_model):
    for call in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(temper.UnsupportedError, match="clone"):
            call(dense_model)


def test_out_gets_the_result_and_is_what_comes_back(pair_model):
    a = np.ones((3, 5), np.float32)
    place = temper.empty((3, 5))
    result = pair_model.run({"a": a, "b": a}, out={"difference": place})
    assert result["difference"] is place and (place == 0).all() and (result["sum"] == 2).all()
    result = pair_model.run(a, a, out=[place, None])
    assert result[0] is place and (place == 2).all() and (result[1] == 0).all()


class Foreign:
    """An array of another library's: DLPack and nothing else."""

    def __init__(self, array):
        self._array = array

    def __dlpack__(self, **options):
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()


def test_dlpack_goes_in_and_out_without_copies(dense_model):
    out = temper.empty((2, 4))
    dense_model.run({"x": Foreign(aligned(X))}, out={"y": Foreign(out)})
    np.testing.assert_allclose(out, dense_of(X), rtol=1e-5)
    assert dense_model.copies == 0
    again = np.from_dlpack(Foreign(dense_model.run(X)[0]))
    np.testing.assert_allclose(again, dense_of(X), rtol=1e-5)


class Old(Foreign):
    """Of a library before DLPack 1.0, whose capsules do not say whether they may be written."""

    def __dlpack__(self, stream=None):
        return self._array.__dlpack__()


def test_capsules_of_either_version_go_in_and_out_without_copies(dense_model):
    out = temper.empty((2, 4))
    for kind in (Foreign, Old):
        out[...] = 0
        result = dense_model.run({"x": kind(aligned(X))}, out={"y": kind(out)})
        np.testing.assert_allclose(out, dense_of(X), rtol=1e-5)
        assert np.shares_memory(result["y"], out)
    assert dense_model.copies == 0
    out.flags.writeable = False
    with pytest.raises(temper.InputError, match="may not be written"):
        dense_model.run({"x": X}, out={"y": Foreign(out)})
    with pytest.raises(temper.InputError, match="is not contiguous"):
        dense_model.run({"x": X}, out={"y": Old(temper.empty((2, 8))[:, ::2])})


def test_an_output_keeps_the_memory_of_its_place(dense_model):
    place = temper.empty((2, 4))
    gone = weakref.ref(place)
    result = dense_model.run(X, out=[Old(place)])[0]
    del place
    gc.collect()
    assert gone() is not None
    np.testing.assert_allclose(result, dense_of(X), rtol=1e-5)
    del result
    gc.collect()
    assert gone() is None


class Broken:
    def __dlpack__(self, **options):
        raise BufferError("it is on the moon")

    def __dlpack_device__(self):
        return (1, 0)


@pytest.mark.parametrize("inputs, says", [
    ({"x": X.astype(np.float64)}, "input x has float64 [2, 6]; the model takes float32 [2, 6]"),
    ({"x": X.astype(">f4")}, "input x has float32 [2, 6] of another byte order; the model takes"),
    ({"x": X[:1]}, "input x has float32 [1, 6]; the model takes float32 [2, 6]"),
    ({"x": X.reshape(-1)}, "input x has float32 [12]; the model takes float32 [2, 6]"),
    ({}, "input x is missing; the model takes x: float32 [2, 6]"),
    ({"x": X, "z": X}, "the model has no input z; there are: x"),
    ({"x": X.tolist()}, "input x is a list, not an array"),
    ({"x": 3.0}, "input x is a float, not an array"),
    ({"x": None}, "input x is a NoneType, not an array"),
    ({"x": Broken()}, "input x: a Broken that DLPack does not hand over: it is on the moon"),
])
def test_bad_inputs_are_refused_in_one_line(dense_model, inputs, says):
    with pytest.raises(temper.InputError) as error:
        dense_model.run(inputs)
    assert str(error.value).startswith(says) and "\n" not in str(error.value)
    assert isinstance(error.value, (temper.Error, ValueError))
    assert dense_model.copies == 0
    np.testing.assert_allclose(dense_model.run(X)[0], dense_of(X), rtol=1e-5)  # it is as good as before


@pytest.mark.parametrize("out, says", [
    ({"y": np.empty((2, 5), np.float32)}, "output y has float32 [2, 5]; the model gives float32 [2, 4]"),
    ({"y": np.empty((4, 2), np.float32).T}, "the array for output y is not contiguous"),
    ({"y": np.frombuffer(bytes(32), np.float32).reshape(2, 4)}, "the array for output y is not contiguous, or may not"),
    ({"z": np.empty((2, 4), np.float32)}, "the model has no output z; there are: y"),
    ([np.empty((2, 4), np.float32)], "inputs are given by name, so out is"),
])
def test_bad_places_for_outputs_are_refused_in_one_line(dense_model, out, says):
    with pytest.raises(temper.InputError) as error:
        dense_model.run({"x": X}, out=out)
    assert str(error.value).startswith(says)


def test_by_position_there_is_one_array_for_each_input_and_output(pair_model):
    a = np.ones((3, 5), np.float32)
    with pytest.raises(temper.InputError, match="1 inputs are given; the model takes a: float32"):
        pair_model.run(a)
    with pytest.raises(temper.InputError, match="out is not a sequence of 2 arrays"):
        pair_model.run(a, a, out=[a])


def test_outputs_do_not_overlap_inputs_or_each_other(pair_model):
    memory = temper.empty((4, 16))
    a, b, c = memory[0, :15].reshape(3, 5), memory[1, :15].reshape(3, 5), memory[2, :15].reshape(3, 5)
    for places in ([a, c], [c, c], [memory.reshape(-1)[10:25].reshape(3, 5), c]):
        with pytest.raises(temper.InputError, match="overlaps another one"):
            pair_model.run(a, b, out=places)


def test_every_element_type_comes_and_goes_as_numpys(files):
    for name, kind in [("float64", TensorProto.DOUBLE), ("float16", TensorProto.FLOAT16), ("int8", TensorProto.INT8),
                       ("uint8", TensorProto.UINT8), ("int32", TensorProto.INT32), ("int64", TensorProto.INT64),
                       ("bool", TensorProto.BOOL)]:
        path = save(files / f"same_{name}.onnx", [helper.make_node("Transpose", ["x"], ["y"], perm=[1, 0])],
                    [("x", kind, (2, 3))], [("y", kind, (3, 2))])
        x = np.array([[0, 1, 1], [1, 0, 1]]).astype(name)
        np.testing.assert_array_equal(temper.compile(path, untuned=True).run(x)[0], x.T)


def test_bfloat16_is_taken_as_its_bits_too(files):
    path = save(files / "bfloat16.onnx", [helper.make_node("Transpose", ["x"], ["y"], perm=[1, 0])],
                [("x", TensorProto.BFLOAT16, (2, 3))], [("y", TensorProto.BFLOAT16, (3, 2))])
    model = temper.compile(path, untuned=True)
    bits = np.arange(6, dtype=np.uint16).reshape(2, 3)
    np.testing.assert_array_equal(model.run(bits)[0].view(np.uint16), bits.T)


def test_a_second_thread_gets_busy_error_and_a_clone_runs(files, monkeypatch):
    """A model that takes long enough to be met inside, without a clock: others try until they have met it."""
    rng = np.random.default_rng(3)
    weight = rng.standard_normal((512, 512)).astype(np.float32) / 16
    nodes = [helper.make_node("MatMul", ["x" if i == 0 else f"m{i}", "w"], [f"m{i + 1}"]) for i in range(24)]
    path = save(files / "long.onnx", nodes, [("x", TensorProto.FLOAT, (512, 512))],
                [("m24", TensorProto.FLOAT, (512, 512))], {"w": weight})
    model = temper.compile(path, untuned=True, threads=1)
    x = aligned(rng.standard_normal((512, 512)).astype(np.float32))
    expected = model.run(x)[0]
    met, stop = threading.Event(), threading.Event()

    def run_on():
        while not stop.is_set():
            try:
                model.run(x)
            except temper.BusyError:
                pass

    thread = threading.Thread(target=run_on)
    thread.start()
    try:
        for _ in range(10_000):  # the GIL is released in there, or this would never meet it
            try:
                model.run(x)
            except temper.BusyError as error:
                assert "clone()" in str(error)
                met.set()
                break
        assert met.is_set()
        np.testing.assert_array_equal(model.clone().run(x)[0], expected)
    finally:
        stop.set()
        thread.join()


def test_clones_run_from_several_threads_and_share_weights(dense_model):
    clones = [dense_model.clone(threads=1) for _ in range(4)]
    errors = []

    def work(model, seed):
        rng = np.random.default_rng(seed)
        try:
            for _ in range(200):
                x = aligned(rng.standard_normal((2, 6)).astype(np.float32))
                np.testing.assert_allclose(model.run(x)[0], dense_of(x), rtol=1e-4, atol=1e-5)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(model, seed)) for seed, model in enumerate(clones)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert all(clone._library is dense_model._library for clone in clones)


def test_a_clone_outlives_the_model_and_its_temporary_package(dense):
    model = temper.compile(dense, untuned=True)
    folder = model._package.path
    clone = model.clone()
    del model
    gc.collect()
    assert folder.exists()
    np.testing.assert_allclose(clone.clone().run(X)[0], dense_of(X), rtol=1e-5)
    del clone
    gc.collect()
    assert not folder.exists()


def test_a_package_that_was_written_anew_is_the_new_one(tmp_path):
    models = []
    for factor in (1, 2):
        weight = WEIGHT * factor
        path = save(tmp_path / "model.onnx", [helper.make_node("MatMul", ["x", "w"], ["y"])],
                    [("x", TensorProto.FLOAT, (2, 6))], [("y", TensorProto.FLOAT, (2, 4))], {"w": weight})
        models.append(temper.load(temper.build(path, tmp_path / "package", untuned=True)))
    for factor, model in zip((1, 2), models):
        np.testing.assert_allclose(model.run(X)[0], X @ WEIGHT * factor, rtol=1e-4, atol=1e-5)


def test_a_forked_process_is_told_to_load_again(dense_model):
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            dense_model.run(X)
            os.write(write, b"it ran")
        except temper.Error as error:
            os.write(write, str(error).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert b"load it again" in os.read(read, 1000)
    os.close(read)
    os.close(write)


def test_errors_can_be_sent_to_another_process():
    for error in (temper.InputError("one line"), temper.BusyError("one line")):
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is type(error) and str(again) == "one line"


@pytest.fixture
def damaged(packages, tmp_path):
    """A copy of the package "dense", to be damaged."""
    return shutil.copytree(packages / "dense", tmp_path / "damaged")


def change(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def test_a_damaged_package_is_refused_in_one_line(packages, damaged, tmp_path):
    def damage(file, data):
        shutil.rmtree(damaged)
        shutil.copytree(packages / "dense", damaged)
        if data is None:
            (damaged / file).unlink()
        else:
            (damaged / file).write_bytes(data)

    library = (packages / "dense" / "model.so").read_bytes()
    weights = (packages / "dense" / "weights.bin").read_bytes()
    for file, data, says in [
        ("manifest.json", None, "is not a package: it has no manifest.json"),
        ("manifest.json", b"{", "manifest.json is damaged"),
        ("manifest.json", b"[]", "manifest.json is damaged: it says no version"),
        ("manifest.json", b'{"version": 99}', "is a package of version 99, this program reads 8"),
        ("manifest.json", b'{"version": 8, "target": "llvm"}', "it says no library or no prefix"),
        ("model.so", None, "cannot load"),
        ("model.so", b"", "is damaged: it is no library"),
        ("model.so", library[: len(library) // 2], "is damaged: it is cut off after"),
        ("weights.bin", None, "weights.bin"),
        ("weights.bin", weights[:-1], "weights.bin"),
        ("weights.bin", bytes([weights[0] ^ 1]) + weights[1:], "weights.bin"),
    ]:
        damage(file, data)
        with pytest.raises(temper.PackageError) as error:
            temper.load(damaged)
        assert says in str(error.value) and "\n" not in str(error.value)
    with pytest.raises(temper.PackageError, match="is not a package"):
        temper.load(tmp_path / "nowhere")


def test_a_library_of_another_prefix_is_no_model_of_ours(damaged):
    change(damaged / "manifest.json", '"prefix": ""', '"prefix": "other"')
    with pytest.raises(temper.PackageError, match="is not a model of Temper's"):
        temper.load(damaged)


def test_a_package_for_other_hardware_is_refused(dense, damaged, tmp_path):
    target = json.loads((damaged / "manifest.json").read_text())["target"]
    lacking = [feature for feature in ("avx2", "avx512fp16") if feature not in target]
    if not lacking:
        pytest.skip("this CPU has all that a target may ask for")
    package = temper.build(dense, tmp_path / "package", untuned=True,
                           target=f"llvm -mcpu=haswell -mattr=sse4.2,{lacking[0]} -threads=1")
    with pytest.raises(temper.WrongCpuError) as error:
        temper.load(package)
    assert str(error.value) == f"this CPU lacks {lacking[0]}: compile the model for it"
    change(damaged / "manifest.json", '"target": "llvm', '"target": "interpreter')
    with pytest.raises(temper.PackageError, match="only packages for CPUs and GPUs run in Python"):
        temper.load(damaged)


def test_a_package_of_another_architecture_is_refused(damaged):
    library = damaged / "model.so"
    header = bytearray(library.read_bytes())
    header[18] = 183 if header[18] != 183 else 62
    library.write_bytes(header)
    with pytest.raises(temper.WrongCpuError, match="is for (aarch64|x86_64), this machine is of"):
        temper.load(damaged)


def test_a_package_for_opencl_runs_on_its_device(dense):
    model = temper.compile(dense, target="opencl", untuned=True)
    for scale in (1, 2, 3):
        np.testing.assert_allclose(model.run(scale * X)[0], dense_of(scale * X), rtol=1e-5)
    clone = model.clone()
    np.testing.assert_allclose(clone.run({"x": X})["y"], dense_of(X), rtol=1e-5)


class OnGpu:
    """An array as libraries of NVIDIA's GPUs describe theirs."""

    def __init__(self, array, **changes):
        self.array = array
        told = array.__array_interface__
        self.__cuda_array_interface__ = {
            "shape": told["shape"], "typestr": told["typestr"], "data": told["data"], "strides": told["strides"],
            "version": 3, "stream": 1} | changes


def test_a_package_for_cuda_takes_arrays_on_the_gpu(files, tmp_path, fake_cuda):
    # Its output is a constant: the fake driver runs no kernel that was compiled.
    constant = save(files / "constant.onnx", [helper.make_node("Identity", ["w"], ["y"])],
                    [("x", TensorProto.FLOAT, (2, 6))], [("y", TensorProto.FLOAT, (6, 4))], {"w": WEIGHT})
    model = temper.compile(constant, target="cuda:sm_90", untuned=True)
    for _ in range(3):  # the second is recorded, the third replayed
        place = OnGpu(np.zeros_like(WEIGHT))
        result, = model.run(OnGpu(X), out=[place])
        assert result is place
        np.testing.assert_array_equal(place.array, WEIGHT)
        np.testing.assert_array_equal(model.run(X)[0], WEIGHT)
    for wrong, says in [
        (OnGpu(X, strides=(4, 8)), "input x lies on the GPU and is not contiguous"),
        (OnGpu(X, typestr="<f8"), "input x has float64"),
        (OnGpu(X, shape=(3, 4)), "input x has float32 [3, 4]"),
        (OnGpu(X, typestr="none"), "input x: a OnGpu that does not say where it lies"),
        (OnGpu(X, data=None), "input x: a OnGpu that does not say where it lies"),
    ]:
        with pytest.raises(temper.InputError) as error:
            model.run(wrong)
        assert says in str(error.value)
    memory = np.zeros((6, 4), np.float32)
    for place, says in [(OnGpu(memory, data=(memory.ctypes.data, True)), "may not be written"),
                        (OnGpu(memory), "overlaps")]:
        with pytest.raises(temper.InputError, match=says):
            model.run(OnGpu(memory.reshape(-1)[:12].reshape(2, 6)), out=[place])


def test_without_its_device_or_library_a_package_says_so(dense, tmp_path, monkeypatch):
    package = temper.build(dense, tmp_path / "package", target="opencl", untuned=True)
    monkeypatch.setenv("TEMPER_DEVICES", "/nowhere/libtemper-devices.so")
    with pytest.raises(temper.PackageError, match="launched by Temper's libtemper-devices: /nowhere"):
        temper.load(package)
    program = "import sys, temper\ntry:\n  temper.load(sys.argv[1])\nexcept temper.Error as e:\n  print(e)"
    environment = os.environ | {"OCL_ICD_VENDORS": "/nowhere"}
    del environment["TEMPER_DEVICES"]
    done = subprocess.run([sys.executable, "-c", program, package], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 1 and "OpenCL" in done.stdout


def test_a_prefix_changes_nothing(dense, tmp_path):
    model = temper.load(temper.build(dense, tmp_path / "package", prefix="dense", untuned=True))
    np.testing.assert_allclose(model.run(X)[0], dense_of(X), rtol=1e-5)
    assert (tmp_path / "package" / "libdense.so").exists()
