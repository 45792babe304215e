#!/usr/bin/env python3
"""Kernel Tuner's optimisers, in its simulation mode, on spaces in its own cache format: what bench_spaces is held against.

  bench/search/kernel_tuner_spaces.py [--out FILE] [--seeds N] [--budgets N,...] [--strategies NAME,...] SPACE...
  bench/search/kernel_tuner_spaces.py --table FILE...

The first form appends a line to FILE (default: the terminal) for each space, optimiser, budget and seed:
{"space", "tuner", "budget", "seed", "ratio"}, where ratio is found / best, null where nothing that works was found. Runs
that FILE has are passed over, so an interrupted study goes on. The second form prints one table of such files, those of
`bench_spaces --json` too. A run counts configs that it has not measured before, failures
included. Needs `pip install kernel_tuner scikit-optimize`.
"""
import argparse
import contextlib
import gzip
import io
import itertools
import json
import math
import os
import random
import statistics
import sys
import tempfile
import warnings
from unittest import mock

# Not listed: brute_force, which knows no budget; nsga2 and nsga3, which are for several objectives; pyatf_strategies, which
# takes constraints as expressions, and a measured space has a list of configs.
STRATEGIES = [
    "random_sample", "minimize", "basinhopping", "diff_evo", "genetic_algorithm", "greedy_mls", "ordered_greedy_mls",
    "greedy_ils", "dual_annealing", "mls", "pso", "simulated_annealing", "skopt", "firefly_algorithm", "bayes_opt",
    "hybrid_vndx", "adaptive_tabu_greywolf",
]


class Space:
    """One cache file, read once."""

    def __init__(self, path):
        self.path = path
        self.name = os.path.basename(path).split(".json")[0]
        with (gzip.open if path.endswith(".gz") else open)(path, "rt") as file:
            self.header = json.load(file)
        self.cache = self.header["cache"]
        self.objective = self.header.get("objective", "time")
        self.names = self.header["tune_params_keys"]
        self.params = {name: self.header["tune_params"][name] for name in self.names}
        self.legal = {tuple(entry[name] for name in self.names) for entry in self.cache.values()}
        self.best = min(cost for entry in self.cache.values() if (cost := self.cost(entry)) is not None)

    def cost(self, entry):
        value = entry.get(self.objective)
        return value if isinstance(value, (int, float)) and math.isfinite(value) and value > 0 else None

    def allows(self, params):
        return tuple(params[name] for name in self.names) in self.legal


# These plan by the budget that they are told, so each budget is a run of its own; the others only stop there.
PLAN_BY_BUDGET = {"random_sample", "simulated_annealing", "dual_annealing"}


class KernelTuner:
    """Runs optimisers on one space, whose file and whose legal configs it takes in once instead of at each run."""

    def __init__(self, space):
        self.space = space
        self.searchspace = Searchspace(space.params, space.allows, 1_000_000_000)
        self.file = tempfile.NamedTemporaryFile("w", suffix=".json")
        json.dump(space.header, self.file)
        self.file.flush()
        self.cache = util.read_cache(self.file.name, open_cache=False)["cache"]  # failures are objects of its own
        self.measured = {}  # by config, in order

    def ratios(self, strategy, budgets, seed):
        """Found / best after each budget; None where nothing that works was found."""
        self.measured.clear()
        random.seed(seed)
        numpy.random.seed(seed)
        try:
            with self.taken_in():
                interface.tune_kernel(
                    self.space.header["kernel_name"], "", 1, [], self.space.params, restrictions=self.space.allows,
                    lang="C", quiet=True, strategy=strategy, strategy_options={"max_fevals": max(budgets)},
                    cache=self.file.name, simulation_mode=True, objective=self.space.objective,
                    objective_higher_is_better=False)
        except (ArithmeticError, ValueError) as error:  # what it measured until then counts
            print(f"{self.space.name}: {strategy}, seed {seed}: {error}", file=sys.stderr)
        results = list(self.measured.values())
        costs = [[cost for result in results[:budget] if (cost := self.space.cost(result)) is not None]
                 for budget in budgets]
        return [min(some) / self.space.best if some else None for some in costs]

    @contextlib.contextmanager
    def taken_in(self):
        def watched(runner, configs, options):
            results = run(runner, configs, options)
            for result in results:
                if result is not None:
                    self.measured.setdefault(tuple(result[name] for name in self.space.names), result)
            return results

        run = SimulationRunner.run
        with mock.patch.object(interface, "Searchspace", lambda *_, **__: self.searchspace), \
             mock.patch.object(util, "process_cache", lambda *_: self.cache), \
             mock.patch.object(util, "close_cache", lambda *_: None), \
             mock.patch.object(SimulationRunner, "run", watched):
            yield


def have(path):
    if path is None or not os.path.exists(path):
        return set()
    return {(run["space"], run["tuner"], run["budget"], run["seed"]) for run in read(path)}


def read(path):
    with open(path) as file:
        return [json.loads(line) for line in file]


def study(options):
    done = have(options.out)
    out = open(options.out, "a") if options.out else sys.stdout
    tuners = [KernelTuner(Space(path)) for path in options.paths]
    for seed, tuner, strategy in itertools.product(range(options.seeds), tuners, options.strategies):
        name = tuner.space.name
        budgets = [budget for budget in options.budgets if (name, strategy, budget, seed) not in done]
        for some in [[budget] for budget in budgets] if strategy in PLAN_BY_BUDGET else [budgets] if budgets else []:
            with contextlib.redirect_stdout(io.StringIO()):
                ratios = tuner.ratios(strategy, some, seed)
            for budget, ratio in zip(some, ratios):
                run = {"space": name, "tuner": strategy, "budget": budget, "seed": seed, "ratio": ratio}
                print(json.dumps(run), file=out, flush=True)


def table(paths):
    runs = [run for path in paths for run in read(path)]
    spaces = sorted({run["space"] for run in runs})
    budgets = sorted({run["budget"] for run in runs})
    medians = {}
    for run in runs:
        key = run["tuner"], run["space"], run["budget"]
        medians.setdefault(key, []).append(math.inf if run["ratio"] is None else run["ratio"])
    seeds = {len(ratios) for ratios in medians.values()}
    print(f"found / best after {' / '.join(map(str, budgets))}, medians over {min(seeds)} to {max(seeds)} seeds")
    print(f"{'':24}{'mean of spaces':22}" + "".join(f"{space:24}" for space in spaces))
    rows = []
    for tuner in {run["tuner"] for run in runs}:
        cells = [[statistics.median(medians[tuner, space, budget]) if (tuner, space, budget) in medians else math.nan
                  for budget in budgets] for space in spaces]
        means = [statistics.mean(cell[i] for cell in cells) for i in range(len(budgets))]
        rows.append((means[-1], tuner, [means] + cells))
    for _, tuner, cells in sorted(rows, key=lambda row: (math.isnan(row[0]), row[:2])):
        text = [" ".join(f"{value:6.3f}" for value in cell) for cell in cells]
        print(f"{tuner:24}{text[0]:22}" + "".join(f"{cell:24}" for cell in text[1:]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--budgets", type=lambda text: [int(n) for n in text.split(",")], default=[64, 128, 256])
    parser.add_argument("--strategies", type=lambda text: text.split(","), default=STRATEGIES)
    parser.add_argument("--table", action="store_true")
    parser.add_argument("paths", nargs="+")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.table:
        table(options.paths)
        return
    global interface, numpy, Searchspace, SimulationRunner, util  # so that --table needs none of them
    import numpy
    from kernel_tuner import interface, util
    from kernel_tuner.runners.simulation import SimulationRunner
    from kernel_tuner.searchspace import Searchspace
    study(options)


if __name__ == "__main__":
    main()
