#!/usr/bin/env python3
"""Does the memory of server and worker grow with the trials of a long job?

usage: bench/memory.py MODEL.onnx [--trials 20000] [--device null|cpu] [--bin build/bin]

Starts a server and a worker of its own, runs one job, and samples the resident memory of both (and of the worker's
measuring child) as its trials go by. The null device measures nothing, so that the server alone is worked hard; cpu is
the real thing. What a tuner has tried it must remember, so the server is given --bound KiB for each trial beyond the
first tenth, the worker and its child nothing but noise. Exit code 1 where either takes more.
"""
import argparse, json, pathlib, subprocess, sys, tempfile, time


def resident_mib(pid):
    try:
        for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS"):
                return int(line.split()[1]) / 1024
    except FileNotFoundError:
        pass
    return 0.0


def children(pid):
    try:
        tasks = pathlib.Path(f"/proc/{pid}/task").iterdir()
        return [int(c) for t in tasks for c in (t / "children").read_text().split()]
    except FileNotFoundError:
        return []


def jobs(temper, server):
    out = subprocess.run([temper, "jobs", "--server", server, "--json"], stdout=subprocess.PIPE, text=True).stdout
    return [json.loads(line) for line in out.splitlines()]


def main():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("model")
    ap.add_argument("--trials", type=int, default=20000)
    ap.add_argument("--device", default="null")
    ap.add_argument("--tuner", default="xgb")
    ap.add_argument("--bin", default="build/bin")
    ap.add_argument("--bound", type=float, default=0.75, help="KiB a trial")
    a = ap.parse_args()
    temper = f"{a.bin}/temper"
    with tempfile.TemporaryDirectory() as folder:
        server = f"unix:{folder}/server"
        running = [subprocess.Popen([f"{a.bin}/temper-server", "--db", f"{folder}/db", "--listen", server])]
        try:
            running.append(subprocess.Popen([f"{a.bin}/temper-worker", "--server", server, "--key", "memory", "--device", a.device]))
            tune = subprocess.Popen([temper, "tune", a.model, "--server", server, "--device", "memory", "--tuner", a.tuner, "--trials", str(a.trials)], stderr=subprocess.DEVNULL)
            running.append(tune)
            samples, step, most = [], max(1, a.trials // 20), a.trials // 10
            print(f"{'trials':>8} {'server MiB':>11} {'worker MiB':>11} {'child MiB':>10}")
            while tune.poll() is None:
                time.sleep(0.2)
                states = jobs(temper, server)
                trials = states[0]["trials"] if states else 0
                if trials < (samples[-1][0] + step if samples else 1):
                    continue
                pids = [running[0].pid, running[1].pid]
                samples.append((trials, *map(resident_mib, pids), sum(map(resident_mib, children(pids[1])))))
                print("{:8d} {:11.1f} {:11.1f} {:10.1f}".format(*samples[-1]), flush=True)
        finally:
            for process in reversed(running):
                process.terminate()
            for process in running:
                process.wait()
    late = [s for s in samples if s[0] >= most]
    if len(late) < 2:
        sys.exit("too few samples: the job ended early")
    first, last = late[0], late[-1]
    server_kib = (last[1] - first[1]) * 1024 / (last[0] - first[0])
    # The child keeps the latest layouts of constants: it breathes.
    workers = max(last[2] / first[2], min(s[3] for s in late[len(late) // 2:]) / max(s[3] for s in late[:len(late) // 2]))
    print(json.dumps({"model": a.model, "trials": last[0], "server_kib_a_trial": round(server_kib, 3), "worker_growth": round(workers, 3)}))
    sys.exit(server_kib > a.bound or workers > 1.05)


if __name__ == "__main__":
    main()
