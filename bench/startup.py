#!/usr/bin/env python3
"""Times how soon a package has its first result, beside ONNX Runtime and OpenVINO.

usage: bench/startup.py MODEL.onnx --package DIR [--times 10] [--most-whole 0.333] [--most-create 0.1]
needs: pip install onnxruntime openvino numpy

Each engine runs in processes of its own, which take turns; the first round only warms the page cache. All are Python
and import what their engine needs: the peers need numpy, and a package needs ctypes alone. A process tells the time
of its imports (a peer's inputs are read then too), the time until the model or session is made, and that of the first
run. The whole is timed from outside, from the start of the process until it says that it has its result. Medians are
printed, and the package's share of the best peer's: of the whole, of making the model, and of making it with the first
run, which leaves the interpreter out. Outputs are compared with ONNX Runtime's. Ends with 1 where a share or the error
is above its limit.
"""
import sys
import time

START = time.perf_counter()
ENGINES = ["package", "onnxruntime", "openvino"]
BYTES = {1: 4, 2: 1, 3: 1, 6: 4, 7: 8, 9: 1, 11: 8}  # of ONNX's types


# --- one process. Each returns the time when its imports were done, when its model was made, and the first output. ---


def package(folder, threads, names, files):
    import ctypes

    imported = time.perf_counter()
    library = ctypes.CDLL(f"{folder}/model.so")
    library.temper_model_error.restype = ctypes.c_char_p
    model = ctypes.c_void_p()
    if library.temper_model_create(None, threads, ctypes.byref(model)):
        sys.exit(library.temper_model_error(None).decode())
    created = time.perf_counter()

    def buffers(is_output):
        for i in range(library.temper_model_io_count(model, is_output)):
            name, dtype, rank, shape = ctypes.c_char_p(), ctypes.c_int(), ctypes.c_int(), ctypes.POINTER(ctypes.c_int64)()
            library.temper_model_io(model, is_output, i, *map(ctypes.byref, (name, dtype, rank, shape)))
            size = BYTES[dtype.value]
            for extent in shape[: rank.value]:
                size *= extent
            yield name.value.decode(), ctypes.create_string_buffer(size)

    inputs, outputs = list(buffers(0)), list(buffers(1))
    for name, buffer in inputs:
        with open(files[names.index(name)], "rb") as file:
            file.readinto(buffer)
    pointers = [(ctypes.c_void_p * len(of))(*[ctypes.addressof(b) for _, b in of]) for of in (inputs, outputs)]
    if library.temper_model_run(model, *pointers):
        sys.exit("the run failed")
    return imported, created, outputs[0][1].raw


def peer(name, path, threads, names, files):
    import importlib

    import numpy as np
    import engines

    importlib.import_module(name)
    feeds = {port: np.load(file) for port, file in zip(names, files)}
    imported = time.perf_counter()
    engine = {"onnxruntime": engines.OnnxRuntime, "openvino": engines.OpenVino}[name](path, threads)
    engine.load(feeds)
    created = time.perf_counter()
    return imported, created, next(iter(engine.outputs().values())).tobytes()


def child(engine, path, threads, output, *inputs):
    half = len(inputs) // 2
    of = [path, int(threads), list(inputs[:half]), list(inputs[half:])]
    imported, created, first = package(*of) if engine == "package" else peer(engine, *of)
    times = (START, imported, created, time.perf_counter())
    print(*[1e3 * (b - a) for a, b in zip(times, times[1:])], flush=True)
    with open(output, "wb") as file:
        file.write(first)


# --- all of them ---


def measure(engine, a, folder, feeds):
    """[whole, imports, create, first run] in ms, of a process that begins now."""
    import os, subprocess

    path = os.path.abspath(a.package) if engine == "package" else a.model
    command = [sys.executable, __file__, "--engine", engine, path, str(a.threads), f"{folder}/{engine}", *feeds]
    command += [f"{folder}/{i}.{'bytes' if engine == 'package' else 'npy'}" for i in range(len(feeds))]
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    line = process.stdout.readline()
    whole = 1e3 * (time.perf_counter() - start)
    if process.wait() != 0 or not line:
        sys.exit(f"{engine} failed")
    return [whole, *map(float, line.split())]


def main():
    import argparse, os, statistics, tempfile
    import numpy as np
    from engines import OnnxRuntime, error

    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("model")
    ap.add_argument("--package", required=True, metavar="DIR")
    ap.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    ap.add_argument("--times", type=int, default=10)
    ap.add_argument("--bound", type=float, default=1e-4, help="largest difference over largest value, of the first output")
    ap.add_argument("--most-whole", type=float, default=1 / 3, help="of the best peer's time to the first result")
    ap.add_argument("--most-create", type=float, default=0.1, help="of the best peer's time to make its session")
    a = ap.parse_args()

    feeds = OnnxRuntime(a.model, a.threads).random_feeds({})
    rounds = {engine: [] for engine in ENGINES}
    with tempfile.TemporaryDirectory() as folder:
        for i, array in enumerate(feeds.values()):
            array.tofile(f"{folder}/{i}.bytes")
            np.save(f"{folder}/{i}.npy", array)
        for turn in range(a.times + 1):
            for engine in ENGINES if turn % 2 else reversed(ENGINES):
                times = measure(engine, a, folder, feeds)
                if turn > 0:
                    rounds[engine].append(times)
        got, wanted = ({"first": np.fromfile(f"{folder}/{engine}", np.float32)} for engine in ENGINES[:2])
    medians = {engine: [statistics.median(column) for column in zip(*times)] for engine, times in rounds.items()}
    print(f"{'ms':12} {'whole':>8} {'imports':>8} {'create':>8} {'first run':>10}")
    for engine, (whole, imports, create, first) in medians.items():
        print(f"{engine:12} {whole:8.1f} {imports:8.1f} {create:8.1f} {first:10.1f}")
    own, peers = medians["package"], [medians[peer] for peer in ENGINES[1:]]
    whole = own[0] / min(peer[0] for peer in peers)
    create = own[2] / min(peer[2] for peer in peers)
    both = (own[2] + own[3]) / min(peer[2] + peer[3] for peer in peers)
    wrong = error(got, wanted)
    print(f"share of the best peer: whole {whole:.3f}, create {create:.3f}, create and first run {both:.3f}; error {wrong:.1e}")
    sys.exit(not (whole <= a.most_whole and create <= a.most_create and wrong <= a.bound))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--engine"]:
        child(*sys.argv[2:])
    else:
        main()
