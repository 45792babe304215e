#!/usr/bin/env python3
"""Looks at a dashboard with headless Chromium: how long each page takes, what axe and the console say, screenshots.

    bench/dashboard/browse.py big.db [--build build] [--times 20] [--most-ms 300] [--shots DIR]
    bench/dashboard/browse.py http://127.0.0.1:9191 [--token-file FILE]

The first serves a database by the build's bench_dashboard, which fills it once: 1,000 jobs, 200 devices, a million
records. Wants `pip install playwright axe-playwright-python` and Debian's chromium. Every page is looked at light and
dark, on a desktop and on a phone. Ends with 1 where axe or the console has a finding, a page is wider than its window,
or one is slower than --most-ms (p95, from the start of the navigation to the last thing drawn).
"""
import argparse
import contextlib
import math
import pathlib
import subprocess
import sys

try:
    from axe_playwright_python.sync_playwright import Axe
    from playwright.sync_api import Error, sync_playwright
except ImportError as error:
    sys.exit(f"{error}: pip install playwright axe-playwright-python")

SIZES = {"desktop": (1280, 900), "phone": (390, 844)}
# Resolves once the page is drawn and two frames have passed, with the time since the navigation began.
DRAWN = """() => new Promise((done) => {
  const main = document.getElementById("main");
  const look = () => {
    if (main.getAttribute("aria-busy") !== "false") return requestAnimationFrame(look);
    requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now())));
  };
  look();
})"""


def percentile(values, share):
    """The least value that so great a share of all does not exceed."""
    return sorted(values)[math.ceil(share * len(values)) - 1]


@contextlib.contextmanager
def served(what, build):
    """The address of a dashboard: `what` itself, or that of a server of the database `what`."""
    if what.startswith(("http://", "https://")):
        yield what.rstrip("/")
        return
    program = build / "bin" / "bench_dashboard"
    if not program.exists():
        sys.exit(f"there is no {program}: build the target bench_dashboard with -DTEMPER_BENCH=ON")
    with subprocess.Popen([program, what], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        line = server.stdout.readline()  # it ends with its stdin, which the block closes
        if not line.startswith("pages at "):
            sys.exit(f"{program} serves nothing")
        yield line.split()[-1]


def log_in(page, url, token):
    page.goto(url)
    page.evaluate(DRAWN)
    page.fill("input[name=token]", token)
    page.click("text=Log in >> nth=-1")
    page.wait_for_selector("#content")


def look(page, where, findings):
    """What axe finds on the page that is drawn, and whether it fits its window."""
    page.evaluate(DRAWN)
    for violation in Axe().run(page).response["violations"]:
        nodes = "; ".join(node["html"][:120] for node in violation["nodes"][:3])
        findings.append(f"axe, {where}: {violation['id']}: {violation['help']}: {nodes}")
    if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
        findings.append(f"{where}: wider than the window")


def inspect(browser, url, pages, args, findings):
    """Every page in both schemes and sizes."""
    for scheme in ("light", "dark"):
        for size, (width, height) in SIZES.items():
            context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": height})
            page = context.new_page()
            where = ""
            page.on("console", lambda m: findings.append(f"console, {where}: {m.type}: {m.text}"))
            page.on("pageerror", lambda e: findings.append(f"script, {where}: {e}"))
            page.on("request", lambda r: r.url.startswith((url, "data:")) or
                    findings.append(f"a request beyond the server: {r.url}"))
            if args.token_file:
                log_in(page, url, args.token_file.read_text().strip())
            for name in pages:
                where = f"{name}, {size}, {scheme}"
                page.goto("about:blank")
                page.goto(f"{url}/#/{name}")
                look(page, where, findings)
                if args.shots:
                    args.shots.mkdir(parents=True, exist_ok=True)
                    page.screenshot(path=args.shots / f"{name.replace('/', '-')}-{size}-{scheme}.png")
            context.close()


def measure(browser, url, pages, args, findings):
    context = browser.new_context(viewport={"width": SIZES["desktop"][0], "height": SIZES["desktop"][1]})
    page = context.new_page()
    if args.token_file:
        log_in(page, url, args.token_file.read_text().strip())
    for name in pages:
        times = []
        for _ in range(args.times):
            page.goto("about:blank")
            page.goto(f"{url}/#/{name}")
            times.append(page.evaluate(DRAWN))
        p95 = percentile(times, 0.95)
        print(f"{name:10} median {percentile(times, 0.5):6.0f} ms   p95 {p95:6.0f} ms", flush=True)
        if p95 > args.most_ms:
            findings.append(f"{name}: p95 {p95:.0f} ms, more than {args.most_ms:.0f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", help="a database to serve, or a dashboard's URL")
    parser.add_argument("--build", type=pathlib.Path, default="build", help="the folder whose bench_dashboard serves")
    parser.add_argument("--token-file", type=pathlib.Path, help="log in with this token")
    parser.add_argument("--times", type=int, default=20, help="navigations of each page")
    parser.add_argument("--most-ms", type=float, default=300, help="the most that a page's p95 may be")
    parser.add_argument("--shots", type=pathlib.Path, help="where screenshots go")
    parser.add_argument("--job", type=int, default=1, help="the job whose page is looked at")
    parser.add_argument("--chromium", default="/usr/bin/chromium")
    args = parser.parse_args()

    pages = ["jobs", f"job/{args.job}", "devices", "records", "failures"]
    findings = []
    try:
        with served(args.what, args.build) as url, sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=args.chromium, args=["--no-sandbox"])
            inspect(browser, url, pages, args, findings)
            measure(browser, url, pages, args, findings)
            browser.close()
    except Error as error:
        sys.exit(f"Chromium: {error.message.splitlines()[0]}")
    for finding in findings:
        print(finding)
    print(f"{len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
