#!/usr/bin/env python3
"""Many configs of each GPU template, on a machine without a GPU: are all right, and are registers what was predicted?

usage: configs.py [BUILD] [--configs 200] [--steps opencl,host,nvrtc] [--templates gpu.gemm,...] [--json FILE]

It runs tests of BUILD with more configs than `make test` draws, and prints a table: opencl is the conformance suite's
kernels on PoCL, host is emitted CUDA C++ by the host's compiler, nvrtc is that compiled for every architecture of the
test's list. A template whose space is smaller has fewer. Exit status 1: a test failed.
"""
import argparse, json, os, pathlib, subprocess, sys, tempfile

STEPS = {
    "opencl": ("conformance_test", "*KernelsAreRight/opencl"),
    "host": ("cuda_host_test", "*ComputeWhatTheirReferencesDo*"),
    "nvrtc": ("cuda_nvrtc_test", "*CompileToTheSharedMemory*"),
}


def run(test, filter, environment):
    """(what the test recorded, by name; whether it passed)."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "out.json"
        env = dict(os.environ, **environment)
        options = [f"--gtest_filter={filter}", "--gtest_brief=1", f"--gtest_output=json:{out}"]
        done = subprocess.run([test, *options], env=env, stdout=sys.stderr)
        recorded = {}
        for suite in json.loads(out.read_text())["testsuites"] if out.exists() else []:
            for case in suite["testsuite"]:
                recorded.update({k: v for k, v in case.items() if k.startswith("gpu.")})
        return recorded, done.returncode == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", nargs="?", default="build", type=pathlib.Path)
    parser.add_argument("--configs", type=int, default=200)
    parser.add_argument("--steps", default=",".join(STEPS))
    parser.add_argument("--templates", help="between commas; all, if it is not given")
    parser.add_argument("--json", type=pathlib.Path)
    args = parser.parse_args()
    steps = args.steps.split(",")
    if unknown := [s for s in steps if s not in STEPS]:
        sys.exit(f"configs.py: no step '{unknown[0]}'; known: {', '.join(STEPS)}")
    environment = {"TEMPER_CONFIGS": str(args.configs)}
    if args.templates:
        environment["TEMPER_TEMPLATES"] = args.templates
    table, failed = {}, []
    for step in steps:
        test, filter = STEPS[step]
        if not (args.build / "tests" / test).exists():
            sys.exit(f"configs.py: there is no {args.build / 'tests' / test}: make test builds it")
        recorded, passed = run(args.build / "tests" / test, filter, environment)
        failed += [] if passed else [step]
        for name, value in recorded.items():
            template, _, what = name.partition(" ")
            table.setdefault(template, {})[f"{step}: {what or 'right'}"] = int(value)
        if args.json:
            args.json.write_text(json.dumps({"configs": args.configs, "failed": failed, "templates": table}, indent=1))
    asked = args.templates.split(",") if args.templates else []
    if unknown := [t for t in asked if not any(name.split(" ")[0] == t for name in table)]:
        sys.exit(f"configs.py: no config of '{unknown[0]}' was drawn")
    columns = list(dict.fromkeys(c for row in table.values() for c in row))
    print("| template | " + " | ".join(columns) + " |\n|" + "---|" * (len(columns) + 1))
    for template, row in sorted(table.items()):
        print(f"| {template} | " + " | ".join(str(row.get(c, "")) for c in columns) + " |")
    for step in failed:
        print(f"{step}: FAILED")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
