#!/usr/bin/env python3
"""Times a package on a machine that others use too, beside ONNX Runtime and OpenVINO.

usage: bench/crowded.py MODEL.onnx --package DIR [--threads 2] [--busy 4] [--rounds 9] [--seconds 0.5]
needs: pip install onnxruntime openvino numpy

`--busy` processes do nothing but take time. The engines take turns, a fresh order each round, and run for some time in
each. Latencies have long tails there, so the mean of a turn is what is told: medians over the turns, their quartiles,
and the ratio of the best peer's median to the package's. Outputs are compared with ONNX Runtime's.
"""
import argparse
import random
import statistics
import subprocess
import sys
import time

from engines import OnnxRuntime, OpenVino, Package, error

MOST_ERROR = 1e-3  # of the largest element


def turn(engine, seconds):
    begin, runs = time.perf_counter(), 0
    while runs == 0 or time.perf_counter() - begin < seconds:
        engine.run()
        runs += 1
    return (time.perf_counter() - begin) / runs * 1e3


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--package", required=True)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--busy", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.5)
    a = parser.parse_args()
    engines = {"onnxruntime": OnnxRuntime(a.model, a.threads), "openvino": OpenVino(a.model, a.threads),
               "package": Package(a.package, a.threads)}
    feeds = engines["onnxruntime"].random_feeds({})
    for engine in engines.values():
        engine.load(feeds)
    if error(engines["package"].outputs(), engines["onnxruntime"].outputs()) > MOST_ERROR:
        sys.exit("the package's outputs differ from ONNX Runtime's")
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(a.busy)]
    times = {name: [] for name in engines}
    try:
        for _ in range(a.rounds):
            for name in random.sample(list(engines), len(engines)):
                times[name].append(turn(engines[name], a.seconds))
    finally:
        for process in busy:
            process.kill()
    medians = {name: statistics.median(all) for name, all in times.items()}
    for name, all in times.items():
        low, _, high = statistics.quantiles(all, n=4)
        print(f"{name:12} {medians[name]:9.3f} ms a run [{low:.3f}, {high:.3f}]")
    best = min(medians["onnxruntime"], medians["openvino"])
    print(f"best peer / package: {best / medians['package']:.2f}, with {a.busy} busy processes beside it")


if __name__ == "__main__":
    main()
