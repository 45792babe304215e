#!/usr/bin/env python3
"""Reads a line of text with PP-OCR's models, compiled by Temper before and after tuning, beside ONNX Runtime."""
import argparse, json, os, pathlib, statistics, subprocess, sys, time
import numpy as np
import onnxruntime as ort
from PIL import Image, ImageDraw, ImageFont

TEXT = "Tempered steel 2026"
# name, file, input shape, seconds of tuning
MODELS = [("recogniser", "ch_PP-OCRv4_rec_infer.onnx", (1, 3, 48, 320), 80), ("classifier", "ch_ppocr_mobile_v2.0_cls_infer.onnx", (1, 3, 48, 192), 30)]


def line_of_text(height, width):
    """The text as the models want it: 3 x height x width, from -1 (black) to 1 (white)."""
    image = Image.new("RGB", (width, height), "white")
    font = ImageFont.load_default(size=30)
    draw = ImageDraw.Draw(image)
    left, top, right, bottom = draw.textbbox((0, 0), TEXT, font=font)
    line = Image.new("RGB", (right - left + 16, height), "white")
    ImageDraw.Draw(line).text((8 - left, (height - bottom - top) // 2), TEXT, fill="black", font=font)
    line = line.resize((min(width, line.width), height))
    image.paste(line, (0, 0))
    return (np.asarray(image, np.float32) / 127.5 - 1).transpose(2, 0, 1)[None], image


def read(scores, characters):
    """Greedy CTC: the best class of each step, repeats and blanks dropped."""
    best, text, last = scores[0].argmax(axis=1), "", 0
    for k in best:
        if k not in (0, last):
            text += characters[k]
        last = k
    return text


class Demo:
    def __init__(self, args):
        self.bin, self.models, self.work = args.bin, pathlib.Path(args.models), pathlib.Path(args.work)
        self.db = str(self.work / "records.db")

    def temper(self, *arguments):
        subprocess.run([os.path.join(self.bin, "temper"), *map(str, arguments)], check=True)

    def output(self, *arguments):
        return subprocess.run([os.path.join(self.bin, "temper"), *map(str, arguments)], check=True, stdout=subprocess.PIPE, text=True).stdout

    def run_package(self, package, name, array):
        np.save(self.work / "input.npy", np.ascontiguousarray(array))
        self.output("run", package, "--input", f"{name}={self.work / 'input.npy'}", "--output-dir", self.work / "out")
        (file,) = (self.work / "out").glob("*.npy")
        result = np.load(file)
        file.unlink()
        return result

    def bench(self, package):
        return json.loads(self.output("bench", package, "--seconds", 2, "--json").splitlines()[-1])

    def model(self, label, file, shape, seconds):
        path = self.models / file
        options = ort.SessionOptions()
        options.intra_op_num_threads = len(os.sched_getaffinity(0))
        session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        name = session.get_inputs()[0].name
        array, image = line_of_text(*shape[2:])
        image.save(self.work / f"{label}.png")
        fixed = f"{name}={','.join(map(str, shape))}"
        wanted = session.run(None, {name: array})[0]
        characters = [""] + session.get_modelmeta().custom_metadata_map.get("character", "").splitlines() + [" "]

        def understood(scores):
            if label == "recogniser":
                return repr(read(scores, characters))
            return f"turned by {('0', '180')[int(scores[0].argmax())]} degrees"

        print(f"\n== {label}: {file}, input {fixed}", flush=True)
        packages = {kind: self.work / f"{label}.{kind}" for kind in ("untuned", "tuned")}
        rows = {}
        for kind, package in packages.items():
            if kind == "tuned":
                self.temper("tune", path, "--shape", fixed, "--db", self.db, "--time-budget", f"{seconds}s")
            self.output("compile", path, "--shape", fixed, "--db", self.db, "-o", package, *(["--untuned"] if kind == "untuned" else []))
            got = self.run_package(package, name, array)
            error = float(np.abs(got - wanted).max() / np.abs(wanted).max())
            rows[kind] = (understood(got), error)
            if error > 1e-4 or understood(got) != understood(wanted):
                sys.exit(f"{label} {kind}: reads {understood(got)}, onnxruntime reads {understood(wanted)} (error {error:.1e})")
        times = {kind: self.bench(package) for kind, package in packages.items()}
        feeds, peer = {name: array}, []
        for _ in range(5):
            session.run(None, feeds)
        start = time.perf_counter()
        while time.perf_counter() - start < 2:
            t = time.perf_counter()
            session.run(None, feeds)
            peer.append((time.perf_counter() - t) * 1e3)
        print(f"{'':14}{'reads':32}{'mean ms':>9}{'median ms':>11}{'std ms':>9}")
        for kind, t in times.items():
            print(f"{kind:14}{rows[kind][0]:32}{t['mean_ms']:9.3f}{t['median_ms']:11.3f}{t['std_ms']:9.3f}")
        print(f"{'onnxruntime':14}{understood(wanted):32}{statistics.mean(peer):9.3f}{statistics.median(peer):11.3f}{statistics.pstdev(peer):9.3f}", flush=True)


def main():
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("--bin", required=True, help="folder of the temper binaries")
    ap.add_argument("--models", required=True, help="folder of PP-OCR's .onnx files")
    ap.add_argument("--work", required=True, help="folder for packages and records")
    args = ap.parse_args()
    demo = Demo(args)
    print(f"The line of text is {TEXT!r} (drawn to {args.work}/recogniser.png).")
    for entry in MODELS:
        demo.model(*entry)
    temper = os.path.relpath(os.path.join(args.bin, "temper"))
    print("\nYour own model:\n"
          f"  {temper} tune model.onnx --time-budget 2m\n"
          f"  {temper} compile model.onnx -o model.package && {temper} bench model.package")


if __name__ == "__main__":
    main()
