#!/usr/bin/env python3
"""Writes the benchmark models: bench/models/NAME.onnx.gz with weights drawn anew.

usage: bench/models.py [--dtype f16] OUTPUT_DIR [NAME ...]        needs: pip install onnx numpy

The .gz files are real graphs as torch.onnx.export wrote them, without their large float weights; the model's metadata
lists name, shape and moments of each. A weight is drawn from a seed made of its name, so every machine gets the same file.
The weights are not trained: use the models for speed, and compare outputs with another engine on the same file.

--dtype f16 writes NAME_f16.onnx instead: the same graph and weights in f16, inputs and outputs too.
"""
import argparse, gzip, json, pathlib, zlib
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

HERE = pathlib.Path(__file__).resolve().parent / "models"


def weight(entry):
    if "constant" in entry:
        return np.full(entry["shape"], entry["constant"], np.float32)
    # He's initialisation keeps the scale of activations through a deep convolutional network.
    shape, std = entry["shape"], entry["std"]
    if len(shape) == 4:
        std = (2 / np.prod(shape[1:])) ** 0.5
    drawn = np.random.default_rng(zlib.crc32(entry["name"].encode())).normal(entry["mean"], std, shape).astype(np.float32)
    return np.abs(drawn) if entry["nonnegative"] else drawn


def f16_tensor(tensor):
    """The tensor with what was f32 in f16: finite numbers stay finite."""
    if tensor.data_type != TensorProto.FLOAT:
        return tensor
    values, most = numpy_helper.to_array(tensor), np.finfo(np.float16).max
    clamped = np.where(np.isfinite(values), np.clip(values, -most, most), values)
    return numpy_helper.from_array(clamped.astype(np.float16), tensor.name)


def f16_attribute(node, attribute):
    """An attribute that says what type or value a node makes, so that it makes f16 where it made f32."""
    if node.op_type == "Cast" and attribute.name == "to" and attribute.i == TensorProto.FLOAT:
        attribute.i = TensorProto.FLOAT16
    elif attribute.type == onnx.AttributeProto.TENSOR:
        attribute.t.CopyFrom(f16_tensor(attribute.t))
    elif node.op_type == "Constant" and attribute.name in ("value_float", "value_floats"):
        values = np.array(helper.get_attribute_value(attribute), np.float32)
        attribute.CopyFrom(helper.make_attribute("value", f16_tensor(numpy_helper.from_array(values))))


def to_f16(model):
    """Makes every f32 of the model f16, in place. Shapes and indices stay as they are."""
    graph = model.graph
    for value in (*graph.input, *graph.output, *graph.value_info):
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            value.type.tensor_type.elem_type = TensorProto.FLOAT16
    for tensor in graph.initializer:
        tensor.CopyFrom(f16_tensor(tensor))
    for node in graph.node:
        for attribute in node.attribute:
            f16_attribute(node, attribute)
        if node.op_type == "ConstantOfShape" and not node.attribute:  # which makes zeros of f32
            node.attribute.append(helper.make_attribute("value", numpy_helper.from_array(np.zeros(1, np.float16))))


def load(name):
    """The benchmark model of that name."""
    model = onnx.load_from_string(gzip.decompress((HERE / f"{name}.onnx.gz").read_bytes()))
    listed = next(p for p in model.metadata_props if p.key == "weights")
    model.graph.initializer.extend(numpy_helper.from_array(weight(e), e["name"]) for e in json.loads(listed.value))
    model.metadata_props.remove(listed)
    return model


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output_dir", type=pathlib.Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--dtype", choices=("f32", "f16"), default="f32")
    options = parser.parse_args()
    options.output_dir.mkdir(parents=True, exist_ok=True)
    for name in options.names or sorted(p.name.removesuffix(".onnx.gz") for p in HERE.glob("*.onnx.gz")):
        model, path = load(name), options.output_dir / f"{name}.onnx"
        if options.dtype == "f16":
            to_f16(model)
            path = path.with_stem(f"{name}_f16")
        onnx.save(model, path)
        print(path, flush=True)


if __name__ == "__main__":
    main()
