#!/usr/bin/env python3
"""What Temper does on this machine's NVIDIA GPU, beside PyTorch: one command, no network, under ten minutes.

usage: run.py [--out FILE.json] [--steps conformance,models,gemm,sanitizer] [--seconds 540]

It lies in the bundle that bench/gpu/bundle.sh makes. NVRTC, PyTorch, onnx and compute-sanitizer are this machine's; what
is missing is named in the file, and its rows are left out. Figures are written after each step, so a run that is cut off
keeps what it has. With fewer steps each has more of the time. TF32 is off on both sides.

A model's time is from host to host on both sides: inputs to the GPU, a run, the outputs back. Its ratios are PyTorch's
time over that of Temper's package: above 1 Temper is faster.
"""
import argparse, concurrent.futures, contextlib, ctypes, glob, json, os, pathlib, shutil, signal, site, statistics, subprocess, sys, tempfile, time

HERE = pathlib.Path(__file__).resolve().parent
STEPS = {"conformance": 2, "models": 7, "gemm": 2, "sanitizer": 1}  # and how the time is shared
SQUARES_AND_BERT = ((1024, 1024, 1024), (4096, 4096, 4096), (128, 768, 768), (128, 3072, 768), (128, 768, 3072), (512, 768, 768))
# ONNX's names of types, and PyTorch's.
GEMMS = [("FLOAT", "float32", *shape) for shape in SQUARES_AND_BERT]
GEMMS += [("FLOAT16", "float16", 4096, 4096, 4096), ("BFLOAT16", "bfloat16", 4096, 4096, 4096)]
TEMPLATES = [f"gpu.{name}" for name in ("attention", "attention_mma", "conv", "default", "depthwise", "gemm", "mma", "pixels",
                                        "reduce", "wgmma", "winograd")]
MODELS = ("resnet50", "mobilenet_v2", "bert_base_s128", "transformer")
MODEL_TYPES = {"f32": "", "f16": "_f16"}  # and what models.py adds to a name
MODEL_ROWS = [f"{name}:{dtype}" for dtype in MODEL_TYPES for name in MODELS]


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


LEAST_TUNING = 6  # seconds, below which a row is left out
SEARCH_SHARE = 0.6  # of a row's time; packages are built and timed in the rest


class Deadline:
    def __init__(self, seconds):
        self.end = time.monotonic() + seconds

    def left(self, at_most):
        return max(1, min(at_most, self.end - time.monotonic()))

    def share(self, part):
        """A deadline that leaves the rest of the time to others."""
        return Deadline(part * (self.end - time.monotonic()))


def call(command, env, seconds):
    """(exit status or None where it ran out of time, output). What is late ends with all that it started."""
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                          start_new_session=True) as child:
        try:
            output = child.communicate(timeout=seconds)[0]
            return child.returncode, output
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            return None, child.communicate()[0]


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
    """In processes of a template each, because most of the time is NVRTC's."""
    def of(template):
        return outcome([HERE / "bin/conformance_test", "--gtest_filter=*/cuda"], dict(env, TEMPER_TEMPLATES=template),
                       deadline.left(150))

    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        figures = dict(zip(TEMPLATES, pool.map(of, TEMPLATES)))
    return {"passed": all(template["passed"] for template in figures.values()), **figures}


def sanitizer(env, deadline):
    found = shutil.which("compute-sanitizer") or next(
        (f for p in [*package_folders(), "/usr/local/cuda/bin"]
         for f in glob.glob(f"{p}/**/compute-sanitizer", recursive=True) if os.path.isfile(f)), None)
    if found is None:
        return {"missing": "compute-sanitizer"}
    filter = "--gtest_filter=*KernelsAreRight/cuda:*AWrongKernelIsToldWrong/cuda"

    def by(tool):
        return outcome([found, "--tool", tool, "--error-exitcode", "99", HERE / "bin/conformance_test", filter],
                       dict(env, TEMPER_CONFIGS="3"), deadline.left(90))

    tools = ("memcheck", "racecheck")
    with concurrent.futures.ThreadPoolExecutor(len(tools)) as pool:
        return dict(zip(tools, pool.map(by, tools)))


@contextlib.contextmanager
def fleet(env, folder, bin=HERE / "bin", device="cuda:0"):
    """A server and a worker of the device, under the key `gpu`; gives the server's address once it listens."""
    listener, children = pathlib.Path(folder) / "server", []
    address = f"unix:{listener}"
    log = open(f"{folder}/fleet.log", "w")
    for command in (["temper-server", "--db", f"{folder}/records.db", "--listen", address],
                    ["temper-worker", "-v", "--server", address, "--key", "gpu", "--device", device, "--spool", f"{folder}/spool"]):
        children.append(subprocess.Popen([bin / command[0], *command[1:]], env=env, stdout=log, stderr=log))
    try:
        end = time.monotonic() + 30
        while not listener.exists() and children[0].poll() is None and time.monotonic() < end:
            time.sleep(0.01)
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
        log = pathlib.Path(folder, "fleet.log").read_text(errors="replace").splitlines()
        return {"error": text.strip().splitlines()[-1:] or "it ran out of time", "fleet": log[-10:]}
    return {"report": json.load(open(report))}


def median_seconds(torch, run, seconds=0.3, calls=20):
    """Of a call, where so many follow one another as a CUDA graph: as Temper's kernels are timed."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        run()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(calls):
            run()
    times, end = [], time.monotonic() + seconds
    while time.monotonic() < end or len(times) < 5:
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        graph.replay()  # behind which the host submits the one that is timed
        start.record()
        graph.replay()
        stop.record()
        stop.synchronize()
        times.append(start.elapsed_time(stop) * 1e-3 / calls)
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


def best_of_templates(env, folder):
    """The fastest measured sample median of each template."""
    code, text = call([HERE / "bin/temper", "db", "export", "--db", f"{folder}/records.db"], env, 30)
    best = {}
    for line in text.splitlines() if code == 0 else []:
        record = json.loads(line)
        if record["outcome"] == "ok":
            seconds = statistics.median(record["costs_s"])
            best[record["template"]] = min(seconds, best.get(record["template"], seconds))
    return best


def gemm(env, deadline):
    torch, onnx = import_or_none("torch"), import_or_none("onnx")
    if torch is None or onnx is None:
        return {"missing": "torch" if torch is None else "onnx"}
    torch.backends.cuda.matmul.allow_tf32 = False
    rows = []
    for done, (dtype, torch_dtype, m, n, k) in enumerate(GEMMS):
        seconds = deadline.left(25 * (len(GEMMS) - done)) / (len(GEMMS) - done)
        if seconds < LEAST_TUNING:
            break
        row = {"type": torch_dtype, "m": m, "n": n, "k": k}
        rows.append(row)
        with tempfile.TemporaryDirectory() as folder:
            write_gemm(onnx, f"{folder}/gemm.onnx", dtype, m, n, k)
            with fleet(env, folder) as address:
                row.update(tune(env, address, folder, f"{folder}/gemm.onnx", 64, seconds * SEARCH_SHARE))
            row["temper_s_of"] = best_of_templates(env, folder)
        row["temper_s"] = min(row["temper_s_of"].values(), default=None)
        try:
            a, b = (torch.randn(*shape, device="cuda", dtype=getattr(torch, torch_dtype)) for shape in ((m, k), (k, n)))
            c = torch.empty(m, n, device="cuda", dtype=a.dtype)
            row["cublas_s"] = median_seconds(torch, lambda: torch.mm(a, b, out=c))
            row["cublas_over_temper"] = row["cublas_s"] / row["temper_s"] if row["temper_s"] else None
        except RuntimeError as error:
            row["cublas_error"] = str(error)
    return {"rows": rows}


def tune_models(env, deadline, rows):
    """Puts what Temper reports of each row's model into the row."""
    with tempfile.TemporaryDirectory() as folder:
        for dtype in MODEL_TYPES:
            made, text = call([sys.executable, HERE / "models.py", "--dtype", dtype, folder, *MODELS], dict(os.environ), deadline.left(60))
            if made != 0:
                return {"error": text.strip().splitlines()[-1:] or "it ran out of time"}
        for done, (row, figures) in enumerate(rows.items()):
            seconds = deadline.left(60 * (len(rows) - done)) / (len(rows) - done)
            if seconds < LEAST_TUNING:
                break
            name, dtype = row.split(":")
            with tempfile.TemporaryDirectory() as work, fleet(env, work) as address:
                path = f"{folder}/{name}{MODEL_TYPES[dtype]}.onnx"
                figures["temper"] = tune(env, address, work, path, 512, seconds * SEARCH_SHARE)
            figures["temper_s"] = figures["temper"].get("report", {}).get("tuned_ms", 0) * 1e-3 or None
    return {}


def time_peers(deadline, rows):
    """Puts PyTorch's times into the rows. They come from a process of its own, which may be slow or fail."""
    text = call([sys.executable, HERE / "peers.py", *rows], dict(os.environ), deadline.left(600))[1]
    other = []
    for line in text.splitlines():
        try:
            figures = json.loads(line)
            rows[figures.pop("row")][figures.pop("kind")] = figures
        except (ValueError, TypeError, AttributeError, KeyError):  # a warning
            other.append(line)
    return {"last_lines": other[-5:]}


def add_ratios(rows):
    """Of each row that has both times, and for each type and way to run PyTorch the geometric mean and the least."""
    found = {}
    for row, figures in rows.items():
        for kind in ("eager", "compile", "graphs"):
            peer_s = figures.get(kind, {}).get("s")
            if peer_s and figures.get("temper_s"):
                figures[f"{kind}_over_temper"] = peer_s / figures["temper_s"]
                found.setdefault(f"{kind}:{row.split(':')[1]}", []).append(figures[f"{kind}_over_temper"])
    return {key: {"rows": len(ratios), "geometric_mean": statistics.geometric_mean(ratios), "least": min(ratios)}
            for key, ratios in found.items()}


def models(env, deadline):
    figures = {"tf32": "off on both sides", "rows": {row: {} for row in MODEL_ROWS}}
    peers_share = 0.5
    for package, step in (("onnx", lambda: tune_models(env, deadline.share(1 - peers_share), figures["rows"])),
                          ("torch", lambda: time_peers(deadline, figures["rows"]))):
        figures[package] = step() if import_or_none(package) is not None else {"missing": package}
    return {**figures, "ratios": add_ratios(figures["rows"])}


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
    env, deadline, steps = environment(), Deadline(options.seconds), options.steps.split(",")
    figures = {"versions": versions(env)}
    for i, step in enumerate(steps):
        start = time.monotonic()
        try:
            figures[step] = globals()[step](env, deadline.share(STEPS[step] / sum(STEPS[s] for s in steps[i:])))
        except Exception as error:  # of one library or another; the other steps have their figures all the same
            figures[step] = {"error": f"{type(error).__name__}: {error}"}
        figures[step]["took_s"] = round(time.monotonic() - start, 1)
        pathlib.Path(options.out).write_text(json.dumps(figures, indent=1) + "\n")
        print(f"{step}: {figures[step]['took_s']} s", flush=True)
    print(options.out)


if __name__ == "__main__":
    main()
