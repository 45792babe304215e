"""Engines behind one face, for the scripts of this folder: ONNX Runtime, OpenVINO, and Temper's packages through their C ABI.

It imports little, because startup.py counts that as the peers' time.
"""
import ctypes, os, time
import numpy as np

DTYPES = {1: np.float32, 2: np.uint8, 3: np.int8, 6: np.int32, 7: np.int64, 9: np.bool_, 10: np.float16, 11: np.float64}


def random_feeds(session, shapes):
    """Inputs for a session of ONNX Runtime; free dimensions that `shapes` does not fix are 1."""
    rng, feeds = np.random.default_rng(1), {}
    for i in session.get_inputs():
        shape = shapes.get(i.name) or [d if isinstance(d, int) and d > 0 else 1 for d in i.shape]
        floats = np.float16 if "float16" in i.type else np.float32
        feeds[i.name] = rng.integers(0, 2, shape).astype(np.int64) if "int64" in i.type else rng.standard_normal(shape).astype(floats)
    return feeds


class OnnxRuntime:
    def __init__(self, path, threads):
        import onnxruntime as ort

        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        self.session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self.names = [o.name for o in self.session.get_outputs()]

    def random_feeds(self, shapes):
        return random_feeds(self.session, shapes)

    def load(self, feeds):
        self.feeds = feeds

    def run(self):
        return self.session.run(None, self.feeds)

    def outputs(self):
        return dict(zip(self.names, self.run()))


class OpenVino:
    def __init__(self, path, threads, precision="f32"):
        self.path, self.config = path, {"INFERENCE_PRECISION_HINT": precision, "INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY"}

    def load(self, feeds):
        import openvino as ov

        core = ov.Core()
        model = core.read_model(self.path)
        model.reshape({k: list(v.shape) for k, v in feeds.items()})
        self.request = core.compile_model(model, "CPU", self.config).create_infer_request()
        self.inputs = list(feeds.values())

    def run(self):
        self.request.infer(self.inputs)

    def outputs(self):
        self.run()
        return {o.any_name: self.request.get_tensor(o).data for o in self.request.model_outputs}


class Tensor(ctypes.Structure):
    """temper_tensor."""

    _fields_ = [("data", ctypes.c_void_p), ("bytes", ctypes.c_int64), ("dtype", ctypes.c_int32), ("rank", ctypes.c_int32),
                ("shape", ctypes.c_int64 * 16)]

    def __init__(self, array, shape=()):
        dtype = next(number for number, of in DTYPES.items() if of == array.dtype)
        super().__init__(array.ctypes.data, array.nbytes, dtype, len(shape), (ctypes.c_int64 * 16)(*shape))


class Package:
    """A directory that `temper compile` wrote, for shapes that it takes."""

    def __init__(self, folder, threads):
        self.folder = folder
        self.lib = ctypes.CDLL(os.path.abspath(os.path.join(folder, "model.so")))
        self.lib.temper_model_error.restype = ctypes.c_char_p
        self.lib.temper_model_error.argtypes = [ctypes.c_void_p]
        self.model = ctypes.c_void_p()
        if self.lib.temper_model_create(os.fsencode(folder), threads, ctypes.byref(self.model)):
            raise RuntimeError(self.lib.temper_model_error(None).decode())

    def _io(self, is_output):
        for k in range(self.lib.temper_model_io_count(self.model, is_output)):
            name, dtype, rank, shape = ctypes.c_char_p(), ctypes.c_int(), ctypes.c_int(), ctypes.POINTER(ctypes.c_int64)()
            self.lib.temper_model_io(self.model, is_output, k, ctypes.byref(name), ctypes.byref(dtype), ctypes.byref(rank), ctypes.byref(shape))
            yield name.value.decode(), DTYPES[dtype.value], shape[: rank.value]

    def memory(self):
        """Bytes set aside for activations and, in the same arena, the kernels' scratch."""
        import json

        with open(os.path.join(self.folder, "manifest.json")) as f:
            manifest = json.load(f)
        return {"activations_and_scratch": manifest["arena_bytes"]}

    def _rooms(self):
        """Of each output the type, and the most elements that a variant has of it."""
        rooms = {}
        for variant in range(self.lib.temper_model_variant_count(self.model)):
            self.lib.temper_model_choose_variant(self.model, variant)
            for name, dtype, shape in self._io(1):
                rooms[name] = dtype, max(rooms.get(name, (dtype, 0))[1], int(np.prod(shape)))
        return rooms

    def load(self, feeds):
        self.inputs = [np.ascontiguousarray(feeds[n], d) for n, d, _ in self._io(0)]
        self.rooms = {n: np.empty(room, d) for n, (d, room) in self._rooms().items()}
        self.ins = (Tensor * len(self.inputs))(*[Tensor(a, a.shape) for a in self.inputs])
        self.outs = (Tensor * len(self.rooms))(*[Tensor(a) for a in self.rooms.values()])

    def run(self):
        if self.lib.temper_model_run_shaped(self.model, self.ins, self.outs):
            raise RuntimeError(self.lib.temper_model_error(self.model).decode())

    def outputs(self):
        self.run()
        shapes = [tuple(t.shape[: t.rank]) for t in self.outs]
        return {n: a[: int(np.prod(s))].reshape(s) for (n, a), s in zip(self.rooms.items(), shapes)}


def error(got, want):
    """Largest difference over largest value, over all outputs."""
    worst = 0.0
    for name, w in want.items():
        g = got[name]
        if g.shape != w.shape or not np.isfinite(g).all():
            return float("inf")
        worst = max(worst, float(np.abs(g.astype(np.float64) - w).max() / max(1e-12, np.abs(w).max())))
    return worst


def median_ms(engine, seconds):
    engine.run()
    times, start = [], time.perf_counter()
    while len(times) < 3 or time.perf_counter() - start < seconds:
        t = time.perf_counter()
        engine.run()
        times.append((time.perf_counter() - t) * 1e3)
    return float(np.median(times))
