#!/usr/bin/env python3
"""Looks at a dashboard with headless Chromium: how long each page takes, what axe and the console say, screenshots.

    bench/dashboard/browse.py http://127.0.0.1:9191 [--token-file FILE] [--times 20] [--shots DIR]

Wants `pip install playwright axe-playwright-python` and Debian's chromium. Ends with 1 where axe or the console has a
finding, or a page is slower than --most-ms (p95, from the start of the navigation to the last thing drawn).
"""
import argparse
import math
import pathlib
import sys

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import sync_playwright

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


def log_in(page, url, token):
    page.goto(url)
    page.evaluate(DRAWN)
    page.fill("input[name=token]", token)
    page.click("text=Log in >> nth=-1")
    page.wait_for_selector("#content")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("url")
    parser.add_argument("--token-file", type=pathlib.Path, help="log in with this token")
    parser.add_argument("--times", type=int, default=20, help="navigations of each page")
    parser.add_argument("--most-ms", type=float, default=300)
    parser.add_argument("--shots", type=pathlib.Path, help="where screenshots go")
    parser.add_argument("--job", type=int, default=1, help="the job whose page is looked at")
    parser.add_argument("--chromium", default="/usr/bin/chromium")
    args = parser.parse_args()

    pages = ["jobs", f"job/{args.job}", "devices", "records", "failures"]
    findings = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=args.chromium, args=["--no-sandbox"])
        for scheme in ("light", "dark"):
            for size, (width, height) in SIZES.items():
                context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": height})
                page = context.new_page()
                where = ""
                page.on("console", lambda m: findings.append(f"console, {where}: {m.type}: {m.text}"))
                page.on("pageerror", lambda e: findings.append(f"script, {where}: {e}"))
                page.on("request", lambda r: r.url.startswith((args.url, "data:")) or
                        findings.append(f"a request beyond the server: {r.url}"))
                if args.token_file:
                    log_in(page, args.url, args.token_file.read_text().strip())
                for name in pages:
                    where = f"{name}, {size}, {scheme}"
                    page.goto("about:blank")
                    page.goto(f"{args.url}/#/{name}")
                    page.evaluate(DRAWN)
                    for violation in Axe().run(page).response["violations"]:
                        nodes = "; ".join(node["html"][:120] for node in violation["nodes"][:3])
                        findings.append(f"axe, {where}: {violation['id']}: {violation['help']}: {nodes}")
                    if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
                        findings.append(f"{where}: wider than the window")
                    if args.shots:
                        args.shots.mkdir(parents=True, exist_ok=True)
                        page.screenshot(path=args.shots / f"{name.replace('/', '-')}-{size}-{scheme}.png")
                context.close()
        context = browser.new_context(viewport={"width": SIZES["desktop"][0], "height": SIZES["desktop"][1]})
        page = context.new_page()
        if args.token_file:
            log_in(page, args.url, args.token_file.read_text().strip())
        for name in pages:
            times = []
            for _ in range(args.times):
                page.goto("about:blank")
                page.goto(f"{args.url}/#/{name}")
                times.append(page.evaluate(DRAWN))
            p95 = percentile(times, 0.95)
            print(f"{name:10} median {percentile(times, 0.5):6.0f} ms   p95 {p95:6.0f} ms")
            if p95 > args.most_ms:
                findings.append(f"{name}: p95 {p95:.0f} ms")
        browser.close()
    for finding in findings:
        print(finding)
    print(f"{len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
