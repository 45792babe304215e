#!/usr/bin/env python3
"""What Temper does on this machine's NVIDIA GPU, beside PyTorch: one command, no network, under ten minutes.

usage: run.py [--out FILE.json] [--steps conformance,gemm,models,sanitizer] [--seconds 540]

It lies in the bundle that bench/gpu/bundle.sh makes. NVRTC, PyTorch, onnx and compute-sanitizer are this machine's; what
is missing is named in the file, and its rows are left out. Figures are written after each step, so a run that is cut off
keeps what it has.
"""
import argparse, contextlib, ctypes, glob, json, os, pathlib, shutil, site, statistics, subprocess, sys, tempfile, time

HERE = pathlib.Path(__file__).resolve().parent
STEPS = ("conformance", "gemm", "models", "sanitizer")
SQUARES_AND_BERT = ((1024, 1024, 1024), (4096, 4096, 4096), (128, 768, 768), (128, 3072, 768), (128, 768, 3072), (512, 768, 768))
# ONNX's names of types, and PyTorch's.
GEMMS = [("FLOAT", "float32", *shape) for shape in SQUARES_AND_BERT]
GEMMS += [("FLOAT16", "float16", 4096, 4096, 4096), ("BFLOAT16", "bfloat16", 4096, 4096, 4096)]
MODELS = ("resnet50", "mobilenet_v2", "bert_base_s128", "transformer")


def find_gpu():
    """None, or why there is no GPU to measure."""
    try:
        cuda = ctypes.CDLL(os.environ.get("TEMPER_CUDA", "libcuda.so.1"))
    except OSError:
        return "there is no NVIDIA driver here: cannot load libcuda.so.1"
    count = ctypes.c_int()
    if cuda.cuInit(0) != 0 or cuda.cuDeviceGetCount(ctypes.byref(count)) != 0 or count.value == 0:
        return "the NVIDIA driver finds no GPU here"
    return None


def package_folders():
    return [*site.getsitepackages(), site.getusersitepackages()]


def environment():
    before = os.environ.get("LD_LIBRARY_PATH")  # where some machines have their driver
    env = dict(os.environ, LD_LIBRARY_PATH=f"{HERE / 'lib'}" + (f":{before}" if before else ""))
    for folder in package_folders():
        for library in sorted(glob.glob(f"{folder}/nvidia/**/libnvrtc.so.*", recursive=True), reverse=True):
            env.setdefault("TEMPER_NVRTC", library)
    return env


class Deadline:
    def __init__(self, seconds):
        self.end = time.monotonic() + seconds

    def left(self, at_most):
        return max(1, min(at_most, self.end - time.monotonic()))


def call(command, env, seconds):
    """(exit status or None where it ran out of time, output)."""
    try:
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=seconds)
        return done.returncode, done.stdout + done.stderr
    except subprocess.TimeoutExpired as late:
        return None, (late.stdout or b"").decode(errors="replace")


def outcome(command, env, seconds):
    code, text = call(command, env, seconds)
    lines = [line for line in text.splitlines() if line.strip()]
    ran = sum("[       OK ]" in line for line in lines)
    return {
        "finished": code is not None,
        "passed": code == 0 and ran > 0,
        "tests_ok": ran,
        "tests_failed": sorted({line.split()[3].rstrip(",") for line in lines if line.startswith("[  FAILED  ] ") and "/" in line}),
        "skipped": sum("[  SKIPPED ]" in line for line in lines) // 2,
        "last_lines": lines[-5:],
    }


def conformance(env, deadline):
    return outcome([HERE / "bin/conformance_test", "--gtest_filter=*/cuda"], env, deadline.left(150))


def sanitizer(env, deadline):
    found = shutil.which("compute-sanitizer") or next(
        (f for p in package_folders() for f in glob.glob(f"{p}/nvidia/**/compute-sanitizer", recursive=True)), None)
    if found is None:
        return {"missing": "compute-sanitizer"}
    filter = "--gtest_filter=*AWrongKernelIsToldWrong/cuda:*ItsCanaryTakesATime/cuda"
    return outcome([found, "--error-exitcode", "99", HERE / "bin/conformance_test", filter], env, deadline.left(90))


@contextlib.contextmanager
def fleet(env, folder, bin=HERE / "bin", device="cuda:0"):
    """A server and a worker of the device, under the key `gpu`; gives the server's address."""
    address, children = f"unix:{folder}/server", []
    log = open(f"{folder}/fleet.log", "w")
    for command in (["temper-server", "--db", f"{folder}/records.db", "--listen", address],
                    ["temper-worker", "-v", "--server", address, "--key", "gpu", "--device", device, "--spool", f"{folder}/spool"]):
        children.append(subprocess.Popen([bin / command[0], *command[1:]], env=env, stdout=log, stderr=log))
    try:
        yield address
    finally:
        for child in reversed(children):
            child.terminate()
            child.wait()
        log.close()


def tune(env, address, folder, model, trials, seconds, bin=HERE / "bin"):
    """What `temper tune --json` reports, or why there is nothing."""
    server, report = ["--server", address, "--device", "gpu"], f"{folder}/tune.json"
    code, text = call([bin / "temper", "tune", model, *server, "--trials", str(trials), "--time-budget", f"{int(seconds)}s",
                       "--no-booster", "--wait-for-device", "30s", "--json", report], env, seconds + 30)
    if code != 0:
        return {"error": text.strip().splitlines()[-1:] or "it ran out of time"}
    return {"report": json.load(open(report))}


def median_seconds(torch, run, seconds=0.3):
    for _ in range(3):
        run()
    times, end = [], time.monotonic() + seconds
    while time.monotonic() < end or len(times) < 5:
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        run()
        stop.record()
        stop.synchronize()
        times.append(start.elapsed_time(stop) * 1e-3)
    return statistics.median(times)


def import_or_none(name):
    try:
        return __import__(name)
    except ImportError:
        return None


def write_gemm(onnx, path, dtype, m, n, k):
    helper, element = onnx.helper, getattr(onnx.TensorProto, dtype)
    io = [helper.make_tensor_value_info(*v) for v in (("a", element, (m, k)), ("b", element, (k, n)), ("c", element, (m, n)))]
    graph = helper.make_graph([helper.make_node("MatMul", ["a", "b"], ["c"])], "gemm", io[:2], io[2:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def best_of_records(env, folder):
    """The fastest measured sample median of each workload."""
    code, text = call([HERE / "bin/temper", "db", "export", "--db", f"{folder}/records.db"], env, 30)
    best = {}
    for line in text.splitlines() if code == 0 else []:
        record = json.loads(line)
        if record["outcome"] == "ok":
            seconds = statistics.median(record["costs_s"])
            best[record["workload"]] = min(seconds, best.get(record["workload"], seconds))
    return best


def gemm(env, deadline):
    torch, onnx = import_or_none("torch"), import_or_none("onnx")
    if torch is None or onnx is None:
        return {"missing": "torch" if torch is None else "onnx"}
    torch.backends.cuda.matmul.allow_tf32 = False
    rows = []
    for dtype, torch_dtype, m, n, k in GEMMS:
        if deadline.left(60) < 30:
            break
        row = {"type": torch_dtype, "m": m, "n": n, "k": k}
        with tempfile.TemporaryDirectory() as folder:
            write_gemm(onnx, f"{folder}/gemm.onnx", dtype, m, n, k)
            with fleet(env, folder) as address:
                row.update(tune(env, address, folder, f"{folder}/gemm.onnx", 64, deadline.left(25)))
            row["temper_s"] = min(best_of_records(env, folder).values(), default=None)
        a, b = (torch.randn(*shape, device="cuda", dtype=getattr(torch, torch_dtype)) for shape in ((m, k), (k, n)))
        row["cublas_s"] = median_seconds(torch, lambda: torch.mm(a, b))
        row["cublas_over_temper"] = row["cublas_s"] / row["temper_s"] if row["temper_s"] else None
        rows.append(row)
    return {"rows": rows}


def torch_models(torch):
    """Those that this machine can make: (name, module, input)."""
    torchvision = import_or_none("torchvision")
    image = torch.randn(1, 3, 224, 224, device="cuda")
    if torchvision is not None:
        yield "resnet50", torchvision.models.resnet50(weights=None), image
        yield "mobilenet_v2", torchvision.models.mobilenet_v2(weights=None), image
    encoder = torch.nn.TransformerEncoderLayer(768, 12, 3072, activation="gelu", batch_first=True)
    yield "bert_base_s128", torch.nn.TransformerEncoder(encoder, 12), torch.randn(1, 128, 768, device="cuda")


def graph_of(torch, module, x):
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            module(x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        module(x)
    return graph.replay


def peers(torch, deadline):
    rows = {}
    with torch.inference_mode():
        for name, module, x in torch_models(torch):
            module = module.cuda().eval()
            row = rows[name] = {"eager_s": median_seconds(torch, lambda: module(x))}
            for kind, make in (("graphs", lambda: graph_of(torch, module, x)), ("compile", lambda: torch.compile(module))):
                if deadline.left(60) < 40:
                    break
                try:
                    run = make()
                    row[f"{kind}_s"] = median_seconds(torch, run if kind == "graphs" else lambda: run(x))
                except Exception as error:  # a peer that fails has a row that says so
                    row[f"{kind}_error"] = str(error).splitlines()[:1]
    return rows


def models(env, deadline):
    if import_or_none("onnx") is None:
        return {"missing": "onnx"}
    rows = {}
    with tempfile.TemporaryDirectory() as folder:
        made, text = call([sys.executable, HERE / "models.py", folder, *MODELS], env, deadline.left(60))
        if made != 0:
            return {"error": text.strip().splitlines()[-1:]}
        for name in MODELS:
            if deadline.left(60) < 40:
                break
            with tempfile.TemporaryDirectory() as work, fleet(env, work) as address:
                rows[name] = tune(env, address, work, f"{folder}/{name}.onnx", 128, deadline.left(30))
    torch = import_or_none("torch")
    return {"temper": rows, "pytorch": peers(torch, deadline) if torch is not None else {"missing": "torch"}}


def versions(env):
    torch = import_or_none("torch")
    code, smi = call(["nvidia-smi", "--query-gpu=name,driver_version,memory.free,clocks.sm,temperature.gpu", "--format=csv,noheader"],
                     env, 20) if shutil.which("nvidia-smi") else (1, "")
    return {"gpu": smi.strip() if code == 0 else None, "torch": torch.__version__ if torch else None, "nvrtc": env.get("TEMPER_NVRTC")}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="gpu.json")
    parser.add_argument("--steps", default=",".join(STEPS))
    parser.add_argument("--seconds", type=float, default=540)
    options = parser.parse_args()
    unknown = [s for s in options.steps.split(",") if s not in STEPS]
    if unknown:
        sys.exit(f"run.py: no step '{unknown[0]}'; there are: {', '.join(STEPS)}")
    why = find_gpu()
    if why is not None:
        sys.exit(f"run.py: {why}")
    env, deadline = environment(), Deadline(options.seconds)
    figures = {"versions": versions(env)}
    for step in options.steps.split(","):
        start = time.monotonic()
        figures[step] = globals()[step](env, deadline)
        figures[step]["took_s"] = round(time.monotonic() - start, 1)
        pathlib.Path(options.out).write_text(json.dumps(figures, indent=1) + "\n")
        print(f"{step}: {figures[step]['took_s']} s", flush=True)
    print(options.out)


if __name__ == "__main__":
    main()
