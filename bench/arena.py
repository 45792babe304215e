#!/usr/bin/env python3
"""How much memory ONNX Runtime's arena takes for a model's activations: one JSON object.

usage: bench/arena.py MODEL.onnx [--shape NAME=D,D,... ...] [--threads N]

The arena's own log says by how much it grows. Growth during runs is counted; what the session takes when it is made
(weights) is not. `exact_bytes` is that of an arena that grows by no more than is asked for, in the first run: at its
peak all activations and scratch that are alive together. `default_bytes` is that of ONNX Runtime as it comes, whose
arena grows in powers of two, over three runs.
"""
import argparse, json, re, subprocess, sys

RUNS = {"exact_bytes": 1, "default_bytes": 3}


def child(model, threads, shapes, kind):
    """Runs the model with the arena's log on standard error, and a line there where the runs begin."""
    import onnxruntime as ort
    from engines import random_feeds

    ort.set_default_logger_severity(0)
    ort.set_default_logger_verbosity(1)
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    if kind == "exact_bytes":
        same_as_requested = ort.OrtArenaCfg({"arena_extend_strategy": 1})
        ort.create_and_register_allocator(ort.OrtMemoryInfo("Cpu", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT), same_as_requested)
        options.add_session_config_entry("session.use_env_allocators", "1")
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    feeds = random_feeds(session, shapes)
    print("=== runs", file=sys.stderr, flush=True)
    for _ in range(RUNS[kind]):
        session.run(None, feeds)


def measure(model, threads, shapes):
    """The two figures, each from a process of its own."""
    result = {}
    for kind in RUNS:
        command = [sys.executable, __file__, model, "--threads", str(threads), "--child", kind]
        for name, shape in shapes.items():
            command += ["--shape", f"{name}={','.join(map(str, shape))}"]
        log = subprocess.run(command, check=True, stderr=subprocess.PIPE).stderr.decode(errors="replace")
        before, runs = log.split("=== runs", 1)
        if "Creating BFCArena for Cpu" not in before:
            raise RuntimeError("this ONNX Runtime's log does not speak of its arena")
        result[kind] = sum(int(n) for n in re.findall(r"Extended allocation by (\d+) bytes", runs))
    return result


def main():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("model")
    ap.add_argument("--shape", action="append", default=[], metavar="NAME=D,D,...")
    ap.add_argument("--threads", type=int, default=1)
    ap.add_argument("--child", choices=list(RUNS), help=argparse.SUPPRESS)
    a = ap.parse_args()
    shapes = {n: [int(d) for d in s.split(",")] for n, s in (t.split("=", 1) for t in a.shape)}
    if a.child:
        child(a.model, a.threads, shapes, a.child)
    else:
        print(json.dumps(measure(a.model, a.threads, shapes)))


if __name__ == "__main__":
    main()
