#!/usr/bin/env python3
"""Writes ResNet-101 for images of 320x320 (or SIZE) as ONNX, with weights drawn from a fixed seed.

usage: examples/resnet101.py OUTPUT.onnx [SIZE]        needs: pip install onnx numpy

The weights are not trained: use the model for speed, and compare outputs with another engine on the same file. Batch
normalisation is folded into the convolutions, as exporters of trained models do it.
"""
import sys
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

STAGES = [(64, 3), (128, 4), (256, 23), (512, 3)]  # channels inside a block, blocks


class Network:
    def __init__(self):
        self.nodes, self.weights, self.random = [], [], np.random.default_rng(101)

    def node(self, operator, inputs, **attributes):
        result = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [result], **attributes))
        return result

    def constant(self, array):
        self.weights.append(numpy_helper.from_array(array.astype(np.float32), f"w{len(self.weights)}"))
        return self.weights[-1].name

    def conv(self, x, inputs, outputs, size, stride=1, gain=1.0):
        """He's initialisation, times `gain`."""
        drawn = self.random.normal(0, gain * (2 / (inputs * size * size)) ** 0.5, (outputs, inputs, size, size))
        operands = [x, self.constant(drawn), self.constant(np.zeros(outputs))]
        return self.node("Conv", operands, kernel_shape=[size] * 2, strides=[stride] * 2, pads=[size // 2] * 4)

    def block(self, x, inputs, channels, stride):
        y = self.node("Relu", [self.conv(x, inputs, channels, 1)])
        y = self.node("Relu", [self.conv(y, channels, channels, 3, stride)])
        y = self.conv(y, channels, 4 * channels, 1, gain=0.2)  # so that 33 sums in a row stay in range
        if stride > 1 or inputs != 4 * channels:
            x = self.conv(x, inputs, 4 * channels, 1, stride)
        return self.node("Relu", [self.node("Add", [y, x])])

    def build(self, size):
        x = self.node("Relu", [self.conv("image", 3, 64, 7, 2)])
        x = self.node("MaxPool", [x], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
        inputs = 64
        for stage, (channels, blocks) in enumerate(STAGES):
            for i in range(blocks):
                x = self.block(x, inputs, channels, 2 if stage > 0 and i == 0 else 1)
                inputs = 4 * channels
        x = self.node("Flatten", [self.node("GlobalAveragePool", [x])])
        matrix = self.random.normal(0, inputs**-0.5, (inputs, 1000))
        self.nodes.append(helper.make_node("Gemm", [x, self.constant(matrix), self.constant(np.zeros(1000))], ["scores"]))
        image = helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, size, size])
        scores = helper.make_tensor_value_info("scores", TensorProto.FLOAT, [1, 1000])
        graph = helper.make_graph(self.nodes, "resnet101", [image], [scores], self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__.split("\n\n")[1])
    model = Network().build(int(sys.argv[2]) if len(sys.argv) == 3 else 320)
    onnx.checker.check_model(model)
    onnx.save(model, sys.argv[1])


if __name__ == "__main__":
    main()
