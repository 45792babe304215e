#!/usr/bin/env python3
"""Times torch.compile(backend="temper") beside eager PyTorch and inductor, interleaved, answers checked.

usage: bench/torch/run.py [resnet18 mobilenet_v2 encoder bert] [--rounds 7] [--seconds 1] [--db FILE] [--tune SECONDS] [--freezing]
needs: pip install torch torchvision transformers (bert alone), and temper: pip install ., or PYTHONPATH=python TEMPER_BIN=build/bin

The models have random weights. `encoder` is torch.nn.TransformerEncoder of BERT-base's size, `bert` is transformers'
BertModel, both with 128 tokens. Each engine gets the same threads, inputs and seconds, in rounds of alternating order. A
ratio is the peer's time over Temper's, per round: above 1 Temper is faster. Median and range of the rounds are printed.
Graph breaks, or an answer further than --bound from eager's (largest difference over largest value), are an error.
"""
import argparse, json, math, os, statistics, sys, time, warnings
import torch
import torch._inductor.config

import temper.torch

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from engines import error, median_ms


def resnet18():
    from torchvision.models import resnet18

    return resnet18(), torch.randn(1, 3, 224, 224)


def mobilenet_v2():
    from torchvision.models import mobilenet_v2

    return mobilenet_v2(), torch.randn(1, 3, 224, 224)


def encoder():
    layer = torch.nn.TransformerEncoderLayer(768, 12, 3072, activation="gelu", batch_first=True)
    return torch.nn.TransformerEncoder(layer, 12), torch.randn(1, 128, 768)


def bert():
    from transformers import BertConfig, BertModel

    return BertModel(BertConfig(return_dict=False), add_pooling_layer=False), torch.randint(0, 30_000, (1, 128))


MODELS = {f.__name__: f for f in (resnet18, mobilenet_v2, encoder, bert)}


class Engine:
    """A way to run the module, as engines.py has them."""

    def __init__(self, module, x):
        self.module, self.x = module, x

    def run(self):
        return self.module(self.x)

    def outputs(self):
        result = self.run()
        return {"first": (result if isinstance(result, torch.Tensor) else result[0]).numpy()}


def measure(model, a):
    torch.manual_seed(1)
    module, x = MODELS[model]()
    module.eval()
    breaks = torch._dynamo.explain(module)(x).graph_break_count
    torch._dynamo.reset()
    options = {"threads": a.threads} | ({"db": a.db} if a.db else {}) | ({"tune": a.tune} if a.tune else {})
    ways = {"eager": module, "inductor": torch.compile(module),
            "temper": torch.compile(module, backend=temper.torch.backend, options=options)}
    engines = {name: Engine(way, x) for name, way in ways.items()}
    first_s = {}
    for name, engine in engines.items():
        start = time.perf_counter()
        engine.run()
        first_s[name] = round(time.perf_counter() - start, 1)
        engine.run()
    times = {name: [] for name in engines}
    for r in range(a.rounds):
        turn = list(engines.items())
        for name, engine in turn if r % 2 == 0 else reversed(turn):
            times[name].append(median_ms(engine, a.seconds))
    want = engines["eager"].outputs()
    ratios = {peer: sorted(p / t for p, t in zip(times[peer], times["temper"])) for peer in ("eager", "inductor")}
    return {"model": model, "breaks": breaks, "first_call_s": first_s,
            "median_ms": {engine: round(statistics.median(t), 3) for engine, t in times.items()},
            "ratio": {peer: [round(v, 3) for v in (statistics.median(r), r[0], r[-1])] for peer, r in ratios.items()},
            "error": {name: float(f"{error(engines[name].outputs(), want):.1e}") for name in ("inductor", "temper")}}


def main():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("models", nargs="*", metavar="MODEL", help=f"of {', '.join(MODELS)}; without any: all")
    ap.add_argument("--rounds", type=int, default=7)
    ap.add_argument("--seconds", type=float, default=1)
    ap.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    ap.add_argument("--bound", type=float, default=1e-4)
    ap.add_argument("--db", help="records; without it the user's own")
    ap.add_argument("--tune", type=float, metavar="SECONDS", help="tunes each model so long first")
    ap.add_argument("--freezing", action="store_true", help="inductor may rearrange weights too, as Temper does")
    a = ap.parse_args()
    unknown = [name for name in a.models if name not in MODELS]
    if unknown:
        ap.error(f"there is no model {unknown[0]}, only {', '.join(MODELS)}")
    torch.set_num_threads(a.threads)
    torch._inductor.config.freezing = a.freezing
    warnings.filterwarnings("error", message="temper leaves a graph")
    reports = []
    with torch.no_grad():
        for name in a.models or MODELS:
            reports.append(measure(name, a))
            print(json.dumps(reports[-1]), flush=True)
            torch._dynamo.reset()
    eager = [report["ratio"]["eager"][0] for report in reports]
    print(json.dumps({"geometric_mean_against_eager": round(math.prod(eager) ** (1 / len(eager)), 3)}))
    wrong = [r["model"] for r in reports if r["breaks"] or not r["error"]["temper"] <= a.bound]
    if wrong:
        sys.exit(f"{', '.join(wrong)}: graph breaks, or beyond the bound {a.bound:g}")


if __name__ == "__main__":
    main()
