"""Tuning, and how far it is."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from . import _command, _errors
from ._command import PathLike, Shapes

_LINE_INTERVAL_S = 10  # where a line can not be drawn over
_BAR_CELLS = 20


def _time_text(ms: float) -> str:
    return f"{1e3 * ms:.1f} µs" if 0 < ms < 0.1 else f"{ms:.3f} ms"


@dataclass(frozen=True)
class Progress:
    """How far a job is. Times of the kernels are sums over the model; 0: not measured yet."""

    job: int
    state: str
    elapsed_s: float
    eta_s: float
    """0: not known."""
    done: float
    """The share of the search, from 0 to 1."""
    trials: int
    failed: int
    kernels_ms: float
    """Of the `measured` of `tasks` whose default was measured too, as is `untuned_ms`."""
    untuned_ms: float
    measured: int
    tasks: int
    expected_gain_ms: float
    """What going on is expected to gain."""
    warnings: list[str]

    def __str__(self) -> str:
        text = f"{self.state} {100 * self.done:3.0f} %, {self.trials} trials"
        if self.failed:
            text += f" ({self.failed} failed)"
        if self.kernels_ms > 0:
            text += f", kernels {_time_text(self.kernels_ms)} (untuned {_time_text(self.untuned_ms)}"
            text += f"; of {self.measured} of {self.tasks} tasks)" if self.measured < self.tasks else ")"
        if self.eta_s > 0:
            text += f", {self.eta_s:.0f} s left"
        return text


@dataclass(frozen=True)
class TuneResult:
    """What a job came to."""

    model: str
    target: str
    device: str
    trials: int
    seconds: float
    untuned_ms: float
    """The whole model with default configs, end to end; 0: not measured."""
    tuned_ms: float
    kept_default: bool
    """The tuned model was slower, and builds keep the default configs."""
    tasks: list[dict[str, Any]]
    """Each operator: workload, weight, trials, failures, untuned_ms, best_ms, template, config, why_done."""
    report: dict[str, Any]
    """All of it, as `temper tune --json` writes it."""

    @property
    def speedup(self) -> float:
        """Of the whole model, end to end; 1 where it was not measured."""
        return self.untuned_ms / self.tuned_ms if self.tuned_ms > 0 and self.untuned_ms > 0 else 1.0

    def __str__(self) -> str:
        text = f"{self.model}: {self.trials} trials in {self.seconds:.1f} s"
        if self.tuned_ms > 0:
            text += f"; untuned {_time_text(self.untuned_ms)}, tuned {_time_text(self.tuned_ms)} ({self.speedup:.2f}x)"
        return text + ("; the default configs are kept" if self.kept_default else "")


class _Display:
    """Shows progress where it can be seen: `show` at each event, `close` at the end."""

    def show(self, progress: Progress) -> None:
        pass

    def close(self) -> None:
        pass


class _Callback(_Display):
    def __init__(self, call: Callable[[Progress], object]):
        self._call = call

    def show(self, progress: Progress) -> None:
        self._call(progress)


class _Notebook(_Display):
    """One output that is drawn anew, by IPython's own display: no widgets are needed."""

    def __init__(self, display: Callable[..., Any], html: Callable[[str], Any]):
        self._display, self._html, self._handle = display, html, None

    def show(self, progress: Progress) -> None:
        page = self._html(f'<progress value="{progress.done:.3f}" max="1" style="width: 20em"></progress> '
                          f"{escape(str(progress))}")
        if self._handle is None:
            self._handle = self._display(page, display_id=True)
        else:
            self._handle.update(page)


class _Terminal(_Display):
    """One line that is drawn over."""

    def show(self, progress: Progress) -> None:
        full = round(progress.done * _BAR_CELLS)
        text = "█" * full + "░" * (_BAR_CELLS - full) + " " + str(progress)
        columns = shutil.get_terminal_size().columns
        sys.stderr.write(f"\r{text[: columns - 1]}\x1b[K")
        sys.stderr.flush()

    def close(self) -> None:
        sys.stderr.write("\n")


class _Lines(_Display):
    """A line now and then, for logs."""

    def __init__(self) -> None:
        self._last_s = time.monotonic()

    def show(self, progress: Progress) -> None:
        if time.monotonic() - self._last_s >= _LINE_INTERVAL_S:
            self._last_s = time.monotonic()
            print(progress, file=sys.stderr, flush=True)


def _display(progress: bool | Callable[[Progress], object]) -> _Display:
    if callable(progress):
        return _Callback(progress)
    if not progress:
        return _Display()
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if hasattr(shell, "kernel"):
        from IPython.display import HTML, display

        return _Notebook(display, HTML)
    return _Terminal() if sys.stderr is not None and sys.stderr.isatty() else _Lines()


def tune(
    model: Any,
    *,
    shapes: Shapes | None = None,
    dims: Mapping[str, int] | None = None,
    values: Mapping[str, Any] | None = None,
    db: PathLike | None = None,
    server: str | None = None,
    device: str | None = None,
    token_file: PathLike | None = None,
    ca: PathLike | None = None,
    target: str | None = None,
    cores: str | None = None,
    trials: int | None = None,
    trials_per_task: int | None = None,
    time_budget: float | None = None,
    min_gain: float | None = None,
    early_stopping: int | None = None,
    early_stopping_model: int | None = None,
    wait_for_device: float | None = None,
    tuner: str | None = None,
    seed: int | None = None,
    priority: int | None = None,
    winograd: bool = True,
    tf32: bool = False,
    bf16: bool = False,
    revalidate: bool = False,
    booster: bool = True,
    progress: bool | Callable[[Progress], object] = True,
) -> TuneResult:
    """Searches the fastest config of every operator of the model, by measurement; `temper tune`.

    Here, into the database `db` (None: the user's own), or on the `device` of a `server`. `model`, `shapes`, `dims`
    and `values` are as of `build`. `trials`, `time_budget` (seconds) and `min_gain` (0.01: end where less than 1 % is
    expected to be gained) limit the search, `trials_per_task` and `early_stopping` (after so many trials without a better
    one) each task, `early_stopping_model` the search likewise; without any it ends where less than half a percent is
    expected. `wait_for_device`: seconds for which a server's first worker of that device is waited for. Without
    `booster` the search starts from the draft alone.

    `progress`: a bar, in terminals and notebooks; or a function that is called with each Progress. KeyboardInterrupt
    ends the job, on a server too; what was measured is kept, and the same call goes on from there.
    """
    display = _display(progress)
    with _command.model_file(model) as path:
        arguments = ["tune", path, "--events", *_command.model_flags(shapes, dims, values, winograd, tf32, bf16),
                     *_command.flags(db=db, server=server, device=device, token_file=token_file, ca=ca, target=target,
                                     cores=cores, trials=trials, trials_per_task=trials_per_task,
                                     time_budget=_text(time_budget, "time_budget", lambda s: f"{s:.6f}s"),
                                     min_gain=_text(min_gain, "min_gain", lambda share: f"{100 * share:g}%"), tuner=tuner,
                                     early_stopping=early_stopping, early_stopping_model=early_stopping_model,
                                     wait_for_device=_text(wait_for_device, "wait_for_device", lambda s: f"{s:.6f}s"),
                                     seed=seed, priority=priority, revalidate=revalidate, no_booster=not booster)]
        on_server = _command.flags(server=server, token_file=token_file, ca=ca)
        report = _follow(arguments, display, on_server)
    return TuneResult(**{name: report[name] for name in TuneResult.__dataclass_fields__ if name != "report"},
                      report=report)


def _text(number: Any, name: str, text: Callable[[float], str]) -> str | None:
    try:
        return None if number is None else text(number + 0.0)
    except TypeError:
        raise _errors.InvalidArgumentError(f"{name} is {number!r}, not a number") from None


def _follow(arguments: Sequence[str], display: _Display, on_server: Sequence[str]) -> dict[str, Any]:
    """Runs the command to its end and shows its events; the report."""
    report: dict[str, Any] = {}
    latest: Progress | None = None
    with _command.temporary(tempfile.TemporaryFile) as stderr:
        # A group of its own: a terminal's Ctrl-C reaches Python alone, which then ends the command in order.
        process = _command.start(arguments, stderr, process_group=0)
        assert process.stdout is not None
        try:
            for line in process.stdout:
                said = json.loads(line) if line.startswith("{") else {}
                if "report" in said:
                    report = said["report"]
                elif "state" in said:
                    latest = Progress(**{name: said[name] for name in Progress.__dataclass_fields__})
                    display.show(latest)
            _command.finish(process, stderr)
        except BaseException:
            _end(process)
            if latest is not None and on_server and latest.state not in ("done", "failed", "cancelled"):
                _cancel(latest.job, on_server)
            raise
        finally:
            process.stdout.close()
            if latest is not None:
                display.close()
    return report


def _end(process: subprocess.Popen[str]) -> None:
    """It hands in what was measured, and stops its own children."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
    try:
        process.communicate()
    except BaseException:  # a second Ctrl-C
        process.kill()
        process.wait()
        raise


def _cancel(job: int, on_server: Sequence[str]) -> None:
    try:
        _command.run(["cancel", str(job), *on_server])
    except _errors.Error as error:
        print(f"temper: job {job} could not be cancelled: {error}", file=sys.stderr)
