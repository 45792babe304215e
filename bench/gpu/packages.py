#!/usr/bin/env python3
"""Models tuned a little on a GPU through a server and a worker, as packages: are their answers right?

usage: packages.py MODEL.onnx[=VALUE] ... [--build build] [--device opencl] [--trials 40] [--dtype f32] [--bound 1e-4]
needs: pip install onnx onnxruntime numpy

=VALUE cuts the model off behind that value, so that a short model with a long one's kernels can be had. Each package
gets ONNX Runtime's inputs, and its error is the largest difference over the largest value of an output. With --dtype
f16 the package has the model's weights, inputs and outputs in f16, and ONNX Runtime computes in f32 (--bound 2e-2).
--trials 0 builds the default kernels without a search. OpenCL on the cores (PoCL) is a device like any other, so this
needs no GPU. Exit status 1: a model was not tuned, or is wrong.
"""
import argparse, contextlib, json, os, pathlib, re, subprocess, sys, tempfile, time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import numpy as np
from engines import OnnxRuntime, error
from models import to_f16
from run import fleet, tune

BOUNDS = {"f32": 1e-4, "f16": 2e-2}


def cut(spec, folder):
    """The path of the model, which ends behind a value where `spec` names one."""
    path, _, value = spec.partition("=")
    if not value:
        return path
    import onnx

    model = onnx.shape_inference.infer_shapes(onnx.load(path))  # which says what type the value has
    short = f"{folder}/{pathlib.Path(path).stem}_cut.onnx"
    inputs = [i.name for i in model.graph.input if i.name not in {w.name for w in model.graph.initializer}]
    onnx.save(onnx.utils.Extractor(model).extract_model(inputs, [value]), short)
    return short


def in_f16(path, folder):
    """The path of the model in f16."""
    import onnx

    model = onnx.load(path)
    to_f16(model)
    onnx.save(model, f"{folder}/{pathlib.Path(path).stem}_f16.onnx")
    return f"{folder}/{pathlib.Path(path).stem}_f16.onnx"


def outputs_of(temper, folder, feeds, names):
    """What `temper run` says that the package in the folder answers: it runs on the device."""
    command = [temper, "run", f"{folder}/package", "--output-dir", f"{folder}/out"]
    for i, (name, value) in enumerate(feeds.items()):
        np.save(f"{folder}/{i}.npy", value)
        command += ["--input", f"{name}={folder}/{i}.npy"]
    subprocess.run(command, check=True, capture_output=True)
    file_of = lambda name: re.sub(r"[^A-Za-z0-9._-]", "_", name)
    return {name: np.load(f"{folder}/out/{file_of(name)}.npy") for name in names}


def rounded(value, dtype):
    """Floats in that type; other values as they are."""
    return value.astype({"f32": np.float32, "f16": np.float16}[dtype]) if value.dtype.kind == "f" else value


def measure(spec, options, folder):
    """The row of one model; "error" is absent where there is no package."""
    whole, bin, start = cut(spec, folder), options.build / "bin", time.monotonic()
    model = in_f16(whole, folder) if options.dtype == "f16" else whole
    compile = [bin / "temper", "compile", model, "-o", f"{folder}/package"]
    with contextlib.ExitStack() as stack:
        job = {}
        if options.trials == 0:
            compile += ["--untuned", "--target", options.device]
        else:
            address = stack.enter_context(fleet(dict(os.environ), folder, bin, options.device))
            row = tune(dict(os.environ), address, folder, model, options.trials, options.seconds, bin)
            if "report" not in row:
                return {"why": row["error"]}
            job = row["report"]
            compile += ["--server", address, "--device", "gpu"]
        made = subprocess.run(compile, capture_output=True, text=True)
        if made.returncode != 0:
            return {"why": made.stderr.strip().splitlines()[-1:]}
    reference = OnnxRuntime(whole, len(os.sched_getaffinity(0)))
    feeds = {name: rounded(value, options.dtype) for name, value in reference.random_feeds({}).items()}
    answers = outputs_of(bin / "temper", folder, feeds, reference.names)
    reference.load({name: rounded(value, "f32") for name, value in feeds.items()})
    return {"dtype": options.dtype, "trials": job.get("trials", 0), "took_s": round(time.monotonic() - start, 1),
            "error": error(answers, reference.outputs())}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--build", default="build", type=lambda p: pathlib.Path(p).resolve())
    parser.add_argument("--device", default="opencl")
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--dtype", choices=BOUNDS, default="f32")
    parser.add_argument("--bound", type=float)
    options = parser.parse_args()
    bound = BOUNDS[options.dtype] if options.bound is None else options.bound
    right = True
    for spec in options.models:
        with tempfile.TemporaryDirectory() as folder:
            row = measure(spec, options, folder)
        right &= row.get("error", float("inf")) <= bound
        print(json.dumps({"model": pathlib.Path(spec.partition("=")[0]).name, **row}), flush=True)
    sys.exit(0 if right else 1)


if __name__ == "__main__":
    main()
