#!/usr/bin/env python3
"""Times packages beside ONNX Runtime and OpenVINO, interleaved, answers checked.

usage: bench/compare.py MODEL.onnx [--package NAME=DIR ...] [--shape NAME=1,3,48,320 ...] [--bf16] [--memory]
needs: pip install onnxruntime openvino numpy

With --shape a package for several lengths or a range is timed at that shape. With --bf16 OpenVINO runs in bf16 too.
Every engine gets the same threads, inputs and seconds, in rounds of alternating order. A package's ratio is the best
peer's time over its own, per round; median and range of the rounds are printed. Above 1 the package is faster.
A model that OpenVINO does not take is compared with ONNX Runtime alone; the report then says so.
Outputs must agree with ONNX Runtime's within --bound (largest difference over largest value), before and after.
"""
import argparse, json, os, statistics, sys
import arena
from engines import OnnxRuntime, OpenVino, Package, error, median_ms


def main():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("model")
    ap.add_argument("--package", action="append", default=[], metavar="NAME=DIR")
    ap.add_argument("--shape", action="append", default=[], metavar="NAME=D,D,...")
    ap.add_argument("--bf16", action="store_true", help="OpenVINO in bf16 beside f32, for packages of `temper compile --bf16 on`")
    ap.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    ap.add_argument("--rounds", type=int, default=7)
    ap.add_argument("--seconds", type=float, default=1.5)
    ap.add_argument("--bound", type=float, default=1e-4)
    ap.add_argument("--memory", action="store_true", help="also what activations and scratch take, beside ONNX Runtime's arena (bench/arena.py)")
    ap.add_argument("--check-only", action="store_true", help="errors alone, no timing")
    a = ap.parse_args()
    shapes = {n: [int(d) for d in s.split(",")] for n, s in (t.split("=", 1) for t in a.shape)}

    reference = OnnxRuntime(a.model, a.threads)
    feeds = reference.random_feeds(shapes)
    reference.load(feeds)
    wanted = reference.outputs()
    packages = {}
    for spec in a.package:
        name, folder = spec.split("=", 1)
        packages[name] = Package(folder, a.threads)
        packages[name].load(feeds)
    errors = {n: error(p.outputs(), wanted) for n, p in packages.items()}
    report = {"model": os.path.basename(a.model), "threads": a.threads}
    if not a.check_only:
        peers = {"onnxruntime": reference}
        try:
            for precision in ("f32", "bf16") if a.bf16 else ("f32",):
                other = OpenVino(a.model, a.threads, precision)
                other.load(feeds)
                peers["openvino" if precision == "f32" else f"openvino_{precision}"] = other
        except RuntimeError as refusal:
            report["refused"] = {"openvino": str(refusal).strip().splitlines()[-1]}
        times = {n: [] for n in [*peers, *packages]}
        for r in range(a.rounds):
            turn = [*peers.items(), *packages.items()]
            for name, engine in turn if r % 2 == 0 else reversed(turn):
                times[name].append(median_ms(engine, a.seconds))
        errors = {n: max(errors[n], error(p.outputs(), wanted)) for n, p in packages.items()}
        report["median_ms"] = {n: round(statistics.median(t), 3) for n, t in times.items()}
        report["spread"] = {n: round(max(t) / min(t), 3) for n, t in times.items()}
        best = min(peers, key=lambda n: report["median_ms"][n])
        ratios = {n: sorted(p / o for p, o in zip(times[best], times[n])) for n in packages}
        report["ratio_to_best_peer"] = {n: [round(statistics.median(r), 3), round(r[0], 3), round(r[-1], 3)] for n, r in ratios.items()}
    if a.memory:
        report["memory_bytes"] = {"onnxruntime": arena.measure(a.model, a.threads, shapes)}
        report["memory_bytes"] |= {n: p.memory() for n, p in packages.items()}
    report["error"] = {n: float(f"{e:.2e}") for n, e in errors.items()}
    print(json.dumps(report))
    wrong = [n for n, e in errors.items() if not e <= a.bound]
    if wrong:
        sys.exit(f"{a.model}: {', '.join(wrong)} beyond the bound {a.bound:g}")


if __name__ == "__main__":
    main()
