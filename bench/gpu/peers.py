#!/usr/bin/env python3
"""How fast PyTorch runs the models of run.py: eager, as a CUDA graph and compiled, one JSON object a line as they come.

usage: peers.py resnet50:f16 ... [--device cuda]        needs: torch, and torchvision for the models of images

"s" is from host to host, as a package's time is: inputs to the GPU, a run, the result back. "resident_s" is the run
alone. TF32 is off, and cuDNN tries its algorithms. What fails has a line that says so, and whoever has seen enough may
end the process at any time.
"""
import argparse, json, statistics, sys, time
import torch

DTYPES = {"f32": torch.float32, "f16": torch.float16}


def image_model(name):
    import torchvision

    return getattr(torchvision.models, name)(weights=None), [torch.randn(1, 3, 224, 224)]


def bert():
    layer = torch.nn.TransformerEncoderLayer(768, 12, 3072, activation="gelu", batch_first=True)
    return torch.nn.TransformerEncoder(layer, 12), [torch.randn(1, 128, 768)]


def transformer():
    return (torch.nn.Transformer(d_model=512, nhead=16, num_encoder_layers=12, num_decoder_layers=6),
            [torch.randn(10, 32, 512), torch.randn(20, 32, 512)])


MODELS = {"resnet50": lambda: image_model("resnet50"), "mobilenet_v2": lambda: image_model("mobilenet_v2"),
          "bert_base_s128": bert, "transformer": transformer}


def eager(module, inputs):
    return module


def graphs(module, inputs):
    """The run as a CUDA graph. It reads `inputs` themselves."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            module(*inputs)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = module(*inputs)

    def replay(*_):
        graph.replay()
        return result

    return replay


def compile(module, inputs):
    return torch.compile(module)


KINDS = {"eager": eager, "graphs": graphs, "compile": compile}  # the slowest to be made comes last


def median_seconds(run, seconds=0.5):
    """Of calls that wait for their results."""
    for _ in range(3):
        run()
    times, end = [], time.monotonic() + seconds
    while time.monotonic() < end or len(times) < 5:
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def measure(kind, module, hosts, device):
    inputs = [host.to(device) for host in hosts]
    call = KINDS[kind](module, inputs)

    def whole():
        for x, host in zip(inputs, hosts):
            x.copy_(host)
        return call(*inputs).cpu()

    def alone():
        call(*inputs)
        if device == "cuda":
            torch.cuda.synchronize()

    return {"s": median_seconds(whole), "resident_s": median_seconds(alone)}


def row(spec, kind, device):
    name, _, dtype = spec.partition(":")
    try:
        module, hosts = MODELS[name]()
        module = module.to(device, DTYPES[dtype]).eval()
        figures = measure(kind, module, [host.to(DTYPES[dtype]) for host in hosts], device)
    except Exception as error:  # a peer that fails has a line that says so
        figures = {"error": (str(error).splitlines() or [type(error).__name__])[0]}
    return {"row": spec, "kind": kind, **figures}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="+", metavar="MODEL:DTYPE")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    options = parser.parse_args()
    for spec in options.rows:
        name, _, dtype = spec.partition(":")
        if name not in MODELS or dtype not in DTYPES:
            sys.exit(f"peers.py: no row '{spec}': models are {', '.join(MODELS)}, types {', '.join(DTYPES)}")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    with torch.inference_mode():
        for kind in KINDS:
            for spec in options.rows:
                if kind != "graphs" or options.device == "cuda":  # the CPU has none
                    print(json.dumps(row(spec, kind, options.device)), flush=True)


if __name__ == "__main__":
    main()
