#!/usr/bin/env python3
"""Is the tuned package ever slower than the untuned one? Fresh processes, alternating rounds.

usage: bench/never_slower.py UNTUNED_DIR TUNED_DIR [--rounds 20] [--temper build/bin/temper]

Prints the median of tuned / untuned times per round and its upper 95 % bound (bootstrap of the median). Exit code 1
where that bound is above --bound.
"""
import argparse, json, random, statistics, subprocess, sys


def bench_ms(temper, package, seconds):
    out = subprocess.run([temper, "bench", package, "--seconds", str(seconds), "--json"], check=True, stdout=subprocess.PIPE, text=True).stdout
    return json.loads(out.splitlines()[-1])["median_ms"]


def main():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("untuned")
    ap.add_argument("tuned")
    ap.add_argument("--rounds", type=int, default=20)
    ap.add_argument("--seconds", type=float, default=1.0)
    ap.add_argument("--bound", type=float, default=1.02)
    ap.add_argument("--temper", default="build/bin/temper")
    a = ap.parse_args()
    ratios = []
    for r in range(a.rounds):
        order = [a.untuned, a.tuned] if r % 2 == 0 else [a.tuned, a.untuned]
        ms = {p: bench_ms(a.temper, p, a.seconds) for p in order}
        ratios.append(ms[a.tuned] / ms[a.untuned])
    rng = random.Random(1)
    medians = sorted(statistics.median(rng.choices(ratios, k=len(ratios))) for _ in range(2000))
    upper = medians[int(0.95 * len(medians))]
    print(json.dumps({"tuned": a.tuned, "ratio": round(statistics.median(ratios), 4), "upper_95": round(upper, 4), "range": [round(min(ratios), 4), round(max(ratios), 4)]}))
    sys.exit(upper > a.bound)


if __name__ == "__main__":
    main()
