#!/usr/bin/env python3
"""Writes a decoder as language models have it, with weights of 4 bits, in the form of ONNX Runtime's tools.

usage: bench/decoder.py [--layers N] [--cache N] [--steps N] [--accuracy N] OUTPUT.onnx
needs: pip install onnx numpy

Layers are 2,048 wide, with 32 heads of queries that share 4 of keys, and a gated network of 5,632 (as TinyLlama has
them). Weights are MatMulNBits in blocks of 32, drawn at random; the vocabulary has 8,192 words. With a cache the model
computes `--steps` tokens behind as many as its attention mask says; without one (--cache 0), a prompt of them. The
caches that it writes are no outputs, because engines leave different things behind what is used of them. `--accuracy 4`
lets engines round what the weights are multiplied with to 8 bits, as ONNX Runtime's own tools do for CPUs.
"""
import argparse
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

WIDTH, HEADS, KV_HEADS, INNER, WORDS, BLOCK = 2048, 32, 4, 5632, 8192, 32
SIZE = WIDTH // HEADS


class Decoder:
    def __init__(self, layers, cache, steps, accuracy):
        self.random = np.random.default_rng(0)
        self.nodes, self.constants, self.inputs = [], [], []
        self.cache, self.steps, self.accuracy = cache, steps, accuracy
        self.position()
        angles = np.outer(np.arange(2 * max(cache, steps)), 1e4 ** (-np.arange(SIZE // 2) / (SIZE // 2)))
        self.constant("cosines", np.cos(angles).astype(np.float32))
        self.constant("sines", np.sin(angles).astype(np.float32))
        self.constant("words", 0.02 * self.random.standard_normal((WORDS, WIDTH)).astype(np.float32))
        self.input("input_ids", TensorProto.INT64, [1, steps])
        x, added = self.node("Gather", ["words", "input_ids"], "embedding"), None
        for layer in range(layers):
            x, added = self.layer(f"layer{layer}", x, added)
        _, y = self.norm("norm", x, added)
        self.logits = self.product("logits", y, WIDTH, WORDS)

    def constant(self, name, data):
        self.constants.append(numpy_helper.from_array(data, name))
        return name

    def input(self, name, dtype, shape):
        self.inputs.append(helper.make_tensor_value_info(name, dtype, shape))
        return name

    def node(self, op, inputs, name, domain="", outputs=None, **attributes):
        self.nodes.append(helper.make_node(op, inputs, outputs or [name], name, domain=domain, **attributes))
        return name

    def position(self):
        self.constant("total", np.array(self.cache or self.steps, np.int32))
        if self.cache == 0:
            self.constant("last", np.array([self.steps - 1], np.int32))
            return
        self.input("attention_mask", TensorProto.INT64, [1, self.cache])
        self.constant("axis", np.array([1], np.int64))
        count = self.node("ReduceSum", ["attention_mask", "axis"], "count", keepdims=0)
        self.node("Cast", [self.node("Sub", [count, "axis"], "before")], "last", to=TensorProto.INT32)

    def product(self, name, x, depth, columns):
        numbers = self.random.integers(0, 256, (columns, depth // BLOCK, BLOCK // 2)).astype(np.uint8)
        scales = (0.5 + self.random.random(columns * depth // BLOCK)) * 0.15 / np.sqrt(depth)
        operands = [x, self.constant(name + ".numbers", numbers)]
        operands.append(self.constant(name + ".scales", scales.astype(np.float32)))
        return self.node("MatMulNBits", operands, name, "com.microsoft", K=depth, N=columns, bits=4, block_size=BLOCK,
                         accuracy_level=self.accuracy)

    def norm(self, name, x, added):
        """The sum of both, and its norm."""
        gamma = self.constant(name + ".gamma", 1 + 0.1 * self.random.standard_normal(WIDTH).astype(np.float32))
        if added is None:
            return x, self.node("SimplifiedLayerNormalization", [x, gamma], name, axis=-1, epsilon=1e-5)
        outputs = [name, "", "", name + ".sum"]
        self.node("SkipSimplifiedLayerNormalization", [x, added, gamma], name, "com.microsoft", outputs, epsilon=1e-5)
        return name + ".sum", name

    def layer(self, name, x, added):
        x, y = self.norm(name + ".norm1", x, added)
        heads = {"q": HEADS, "k": KV_HEADS, "v": KV_HEADS}
        qkv = [self.product(f"{name}.{part}", y, WIDTH, count * SIZE) for part, count in heads.items()]
        shape = [1, KV_HEADS, self.cache, SIZE]
        past = [self.input(f"{name}.past_{part}", TensorProto.FLOAT, shape) if self.cache else "" for part in "kv"]
        operands = [*qkv, *past, "last", "total", "cosines", "sines"]
        outputs = [name + ".attention", name + ".present_k", name + ".present_v"]
        self.node("GroupQueryAttention", operands, outputs[0], "com.microsoft", outputs, num_heads=HEADS,
                  kv_num_heads=KV_HEADS, do_rotary=1)
        x, y = self.norm(name + ".norm2", x, self.product(name + ".o", outputs[0], WIDTH, WIDTH))
        gate, up = (self.product(f"{name}.{part}", y, WIDTH, INNER) for part in ("gate", "up"))
        silu = self.node("Mul", [gate, self.node("Sigmoid", [gate], name + ".sigmoid")], name + ".silu")
        return x, self.product(name + ".down", self.node("Mul", [silu, up], name + ".gated"), INNER, WIDTH)

    def model(self):
        output = helper.make_tensor_value_info(self.logits, TensorProto.FLOAT, [1, self.steps, WORDS])
        graph = helper.make_graph(self.nodes, "decoder", self.inputs, [output], self.constants)
        domains = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=domains, ir_version=8)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--cache", type=int, default=512)
    parser.add_argument("--steps", type=int, default=1)
    parser.add_argument("--accuracy", type=int, choices=(0, 1, 4), default=0)
    parser.add_argument("output")
    a = parser.parse_args()
    if a.layers < 1 or a.steps < 1 or a.cache < 0 or 0 < a.cache <= a.steps:
        parser.error("there are layers and steps, and a cache has room for more than the steps")
    onnx.save(Decoder(a.layers, a.cache, a.steps, a.accuracy).model(), a.output)


if __name__ == "__main__":
    main()
