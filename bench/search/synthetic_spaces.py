#!/usr/bin/env python3
"""Made-up search spaces in Kernel Tuner's cache format, so that tuners are judged on more than what they grew up with.

  bench/search/synthetic_spaces.py DIR

Writes DIR/tiled.json.gz, a tiled kernel on a made-up device (occupancy, waves, traffic, shared memory, registers; what
needs too many registers or too much shared memory fails), and DIR/islands.json.gz, a broad slope that ends well above the
optimum, which is on the smallest of some islands elsewhere, with a sea of failures between. Both have 3 % of noise that
is a function of the config. The same files each time.
"""
import gzip
import hashlib
import itertools
import json
import math
import os
import random
import sys


def noise(*what):
    return int.from_bytes(hashlib.sha256(repr(what).encode()).digest()[:4], "little") / 2**32


def write(path, params, legal, cost_ms):
    cache = {}
    for values in itertools.product(*params.values()):
        config = dict(zip(params, values))
        if not legal(**config):
            continue
        cost = cost_ms(**config)
        config["time"] = "RuntimeFailedConfig" if cost is None else cost * (1 + 0.03 * noise(path.split("/")[-1], values))
        cache[",".join(map(str, values))] = config
    document = {"device_name": "made up", "kernel_name": "kernel", "problem_size": [1, 1], "objective": "time",
                "tune_params_keys": list(params), "tune_params": params, "cache": cache}
    with gzip.GzipFile(path, "wb", mtime=0) as file:
        file.write(json.dumps(document).encode())
    print(f"{path}: {len(cache)} configs")


TILED = {"block_x": [8, 16, 24, 32, 48, 64, 96, 128, 256], "block_y": [1, 2, 3, 4, 6, 8, 16, 32],
         "tile_x": [1, 2, 3, 4, 6, 8], "tile_y": [1, 2, 3, 4, 6, 8], "depth": [4, 8, 16, 32], "vector": [1, 2, 4],
         "stages": [1, 2, 3]}


def tiled_legal(block_x, block_y, tile_x, tile_y, depth, vector, stages):
    return 32 <= block_x * block_y <= 1024 and tile_x % vector == 0 and depth % vector == 0


def tiled_ms(block_x, block_y, tile_x, tile_y, depth, vector, stages):
    threads, size = block_x * block_y, 4096
    rows, columns = block_y * tile_y, block_x * tile_x
    shared = 4 * stages * depth * (rows + columns)
    registers = 24 + tile_x * tile_y + (tile_x + tile_y) * vector + 6 * stages
    if shared > 48 << 10 or registers > 128 or registers * threads > 65536:
        return None
    warps = math.ceil(threads / 32)
    groups = min(65536 // (registers * 32 * warps), (100 << 10) // shared, 48 // warps, 16)
    if groups == 0:
        return None
    work = math.ceil(size / rows) * math.ceil(size / columns)
    waves = math.ceil(work / (84 * groups)) * 84 * groups / work
    busy = min(1, groups * warps * tile_x * tile_y * (1 + 0.3 * (stages - 1)) / 140)
    loads = 1 / tile_x + 1 / tile_y / vector
    compute = 6.5 * (1 + 0.9 * loads + 1.5 / depth + (0.25 if block_x % 32 else 0)) * 32 * warps / threads / busy
    memory = 240 * (1 / rows + 1 / columns) * (1.4 if block_x * vector < 64 else 1)
    return waves * (max(compute, memory) + 0.2 * min(compute, memory))


ISLANDS = {"a": [1, 2, 4, 8, 16, 32, 64], "b": [1, 2, 3, 4, 5, 6, 7, 8], "c": [16, 32, 48, 64, 96, 128],
           "d": [0, 1], "e": [1, 2, 4, 8], "f": [0, 1, 2], "g": [4, 6, 8, 12, 16]}


def islands():
    draw = random.Random(5)
    params = list(ISLANDS.values())
    place = lambda values: [values_of.index(v) / (len(values_of) - 1) for v, values_of in zip(values, params)]
    centres = [place([draw.choice(values) for values in params]) for _ in range(6)]

    def legal(**config):
        return config["a"] * config["b"] <= 256 and (config["c"] % config["g"] == 0 or config["f"] > 0)

    def cost_ms(**config):
        at = place(config.values())
        away = lambda centre, reach: sum(abs(x - y) for x, y in zip(at, centre)) / reach
        slope = 1.6 + 2.5 * away(centres[0], 2)
        if at[3] > 0.5 and 0.4 < at[0] + at[1] < 0.9 and at[4] > 0.5:
            return None
        best = min(1 + 0.06 * i + 3 * away(centre, 2) ** 1.5 for i, centre in enumerate(centres[1:]))
        return min(slope, best)

    return legal, cost_ms


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    os.makedirs(sys.argv[1], exist_ok=True)
    write(os.path.join(sys.argv[1], "tiled.json.gz"), TILED, tiled_legal, tiled_ms)
    write(os.path.join(sys.argv[1], "islands.json.gz"), ISLANDS, *islands())


if __name__ == "__main__":
    main()
