#!/usr/bin/env python3
"""Writes the benchmark models: bench/models/NAME.onnx.gz with weights drawn anew.

usage: bench/models.py OUTPUT_DIR [NAME ...]        needs: pip install onnx numpy

The .gz files are real graphs as torch.onnx.export wrote them, without their large float weights; the model's metadata
lists name, shape and moments of each. A weight is drawn from a seed made of its name, so every machine gets the same file.
The weights are not trained: use the models for speed, and compare outputs with another engine on the same file.
"""
import gzip, json, pathlib, sys, zlib
import numpy as np
import onnx
from onnx import numpy_helper

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


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__.split("\n\n")[1])
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[2:] or sorted(p.name.removesuffix(".onnx.gz") for p in HERE.glob("*.onnx.gz")):
        model = onnx.load_from_string(gzip.decompress((HERE / f"{name}.onnx.gz").read_bytes()))
        listed = next(p for p in model.metadata_props if p.key == "weights")
        model.graph.initializer.extend(numpy_helper.from_array(weight(e), e["name"]) for e in json.loads(listed.value))
        model.metadata_props.remove(listed)
        onnx.save(model, out / f"{name}.onnx")
        print(out / f"{name}.onnx", flush=True)


if __name__ == "__main__":
    main()
