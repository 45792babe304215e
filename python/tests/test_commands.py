"""What goes through the `temper` command: building, tuning, databases, locks."""

import _thread
import io
import json
import subprocess
import sys
import tempfile
import types

import numpy as np
import onnx
import pytest
from conftest import dense_of, save
from onnx import TensorProto, helper

import temper
from temper import _command, _tune

X = np.ones((2, 6), np.float32)


def line_of(*arguments):
    """The command's own error."""
    failed = subprocess.run([_command.binary(), *map(str, arguments)], capture_output=True, text=True)
    assert failed.returncode != 0
    return failed.stderr.strip().split("\n")[-1].removeprefix("temper: ")


def test_compiles_a_path_bytes_and_a_proto(dense):
    for model in (dense, str(dense), dense.read_bytes(), onnx.load(str(dense))):
        np.testing.assert_allclose(temper.compile(model, untuned=True).run(X)[0], dense_of(X), rtol=1e-5)


def test_shapes_fix_dynamic_inputs(files):
    path = save(files / "dynamic.onnx", [helper.make_node("Relu", ["x"], ["y"])],
                [("x", TensorProto.FLOAT, ("n", 3))], [("y", TensorProto.FLOAT, ("n", 3))])
    assert temper.compile(path, shapes={"x": (5, 3)}, untuned=True).inputs[0].shape == (5, 3)


def test_shapes_name_dimensions_that_the_model_does_not(files):
    path = save(files / "unnamed.onnx", [helper.make_node("Relu", ["x"], ["y"])],
                [("x", TensorProto.FLOAT, (None, 3))], [("y", TensorProto.FLOAT, (None, 3))])
    model = temper.compile(path, shapes={"x": ("n", 3)}, dims={"n": "1..4"}, untuned=True)
    for n in (1, 3, 4):
        x = np.full((n, 3), -1, np.float32)
        np.testing.assert_array_equal(model.run(x)[0], np.zeros((n, 3), np.float32))


def test_errors_are_typed_and_say_what_the_command_says(dense, pair, tmp_path):
    lock = tmp_path / "dense.lock"
    temper.Database().lock(dense, lock, untuned=True)
    damaged = tmp_path / "damaged.lock"
    damaged.write_text(lock.read_text()[:-20])
    changed = tmp_path / "changed.lock"
    pins = json.loads(lock.read_text())
    pins["entries" if "entries" in pins else "targets"][0]["digest"] = "0" * 64
    changed.write_text(json.dumps(pins))
    out = tmp_path / "package"
    for kind, arguments, options in [
        (temper.NotFoundError, ["none.onnx"], {}),
        (temper.InvalidArgumentError, [dense, "--target", "llvm:abacus"], {"target": "llvm:abacus"}),
        (temper.InvalidArgumentError, [dense, "--tf32", "on"], {"tf32": True}),
        (temper.InvalidArgumentError, [dense, "--bf16", "on", "--target", "llvm:haswell"],
         {"bf16": True, "target": "llvm:haswell"}),
        (temper.PreconditionError, [dense, "--min-coverage", "0.9"], {"min_coverage": 0.9}),
        (temper.PreconditionError, [pair, "--lock", lock], {"lock": lock}),
        (temper.Error, [dense, "--lock", damaged], {"lock": damaged}),
        (temper.Error, [dense, "--lock", changed], {"lock": changed}),
        (temper.NotFoundError, [dense, "--db", tmp_path / "none.db"], {"db": tmp_path / "none.db"}),
        (temper.UnavailableError, [dense, "--server", f"unix:{tmp_path}/none"], {"server": f"unix:{tmp_path}/none"}),
    ]:
        with pytest.raises(kind) as error:
            temper.build(arguments[0], out, **options)
        assert str(error.value) == line_of("compile", *arguments, "-o", out), arguments
        assert "\n" not in str(error.value)
        assert not out.exists()


def test_a_model_that_changed_comes_with_the_table_of_what_its_lock_lacks(dense, tmp_path):
    temper.Database().lock(dense, tmp_path / "dense.lock", untuned=True)
    model = onnx.load(str(dense))
    model.graph.node.append(helper.make_node("ReduceSum", ["y"], ["sum"]))
    model.graph.output.append(helper.make_tensor_value_info("sum", TensorProto.FLOAT, (1, 1)))
    with pytest.raises(temper.PreconditionError) as error:
        temper.compile(model, lock=tmp_path / "dense.lock")
    assert "kernels without a choice in the lock:" in error.value.__notes__[0]
    assert "temper tune" in error.value.__notes__[0] and "\n" not in str(error.value)


def test_bad_arguments_of_pythons_own(dense):
    with pytest.raises(temper.InvalidArgumentError, match="a model is a path, bytes or an onnx.ModelProto, not a int"):
        temper.compile(3)
    with pytest.raises(temper.InvalidArgumentError, match="^--min-coverage"):
        temper.compile(dense, min_coverage=7)
    with pytest.raises(temper.Error):
        temper.compile(b"this is no ONNX file")


@pytest.mark.parametrize("arguments, says", [
    ({"shapes": [("x", (2, 6))]}, "shapes is a list"),
    ({"shapes": {"x": "2,6"}}, "the shape of x is '2,6', not a sequence of whole numbers and names"),
    ({"shapes": {"x": (2.5, 6)}}, "not a sequence of whole numbers and names"),
    ({"shapes": {"x": None}}, "the shape of x is None"),
    ({"dims": {"n": 2.5}}, "the length of n is 2.5, not a whole number"),
    ({"dims": ["n"]}, "dims is a list"),
    ({"values": {"x": "1"}}, "the value of x is '1', not a number or a list of numbers"),
    ({"values": {"x": []}}, "not a number or a list of numbers"),
    ({"values": 3}, "values is a int"),
    ({"threads": 2.5}, "threads is 2.5, not a whole number from 0"),
    ({"threads": -1}, "threads is -1"),
    ({"threads": 1 << 40}, "not a whole number from 0"),
    ({"target": "a\0b"}, "an argument can not be given to a program"),
    ({"lock": ""}, "lock is empty"),
])
def test_arguments_of_other_kinds_are_refused_in_one_line(dense, arguments, says):
    with pytest.raises(temper.InvalidArgumentError) as error:
        temper.compile(dense, **arguments)
    assert says in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("path", ["", "a\0b", None, 3])
def test_what_is_no_path_is_refused_in_one_line(dense, path):
    calls = [lambda: temper.load(path), lambda: temper.compile(path), lambda: temper.build(dense, path),
             lambda: temper.Database("x.db").merge(path), lambda: temper.Database("x.db").lock(dense, path)]
    if path is not None:  # the user's own
        calls.append(lambda: temper.Database(path))
    for call in calls:
        with pytest.raises(temper.InvalidArgumentError, match="path"):
            call()


def test_limits_of_a_search_are_numbers(dense):
    for limit in ({"time_budget": "5m"}, {"min_gain": "1%"}, {"min_gain": [1]}):
        with pytest.raises(temper.InvalidArgumentError, match="not a number"):
            temper.tune(dense, **limit)


def test_a_program_that_can_not_be_started_is_named(monkeypatch, tmp_path, dense):
    program = tmp_path / "temper"
    program.write_text("no program")
    program.chmod(0o755)
    monkeypatch.setenv("TEMPER_BIN", str(tmp_path))
    with pytest.raises(temper.Error, match=f"cannot start {program}: Exec format error"):
        temper.compile(dense)


def test_where_nothing_temporary_can_be_written_it_is_said(monkeypatch, tmp_path, dense):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    for call in (lambda: temper.compile(dense), lambda: temper.build(dense.read_bytes(), tmp_path / "package"),
                 lambda: temper.tune(dense, trials=1, progress=False)):
        with pytest.raises(temper.ResourcesError, match="no place for temporary files"):
            call()


def test_an_editable_install_finds_the_programs_where_pip_put_them(monkeypatch, tmp_path):
    """`pip install -e` leaves the Python code where it is, and has no programs beside it."""
    program = _command.binary()
    monkeypatch.delenv("TEMPER_BIN")
    (tmp_path / "temper-0.1.0.dist-info").mkdir()
    (tmp_path / "temper-0.1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: temper\nVersion: 0.1.0\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(temper.NotFoundError, match="install temper with pip, or set TEMPER_BIN"):
        _command.binary("temper-no")
    (tmp_path / "temper" / "bin").mkdir(parents=True)
    (tmp_path / "temper" / "bin" / "temper").symlink_to(program)
    assert _command.binary() == str(tmp_path / "temper" / "bin" / "temper")


def test_the_version_is_that_of_the_programs():
    said = subprocess.run([_command.binary(), "--version"], capture_output=True, text=True, check=True).stdout
    assert said.startswith(f"temper {temper.__version__}, code generator ")


def test_a_missing_binary_is_named(monkeypatch, tmp_path, dense):
    monkeypatch.setenv("TEMPER_BIN", str(tmp_path))
    with pytest.raises(temper.NotFoundError, match=f"there is no temper in {tmp_path}"):
        temper.compile(dense)


def test_tunes_and_then_queries_merges_locks_and_compiles(dense, tmp_path):
    events = []
    db = tmp_path / "records.db"
    result = temper.tune(dense, db=db, trials=2, early_stopping=50, early_stopping_model=50, wait_for_device=30,
                         booster=False, progress=events.append)
    assert result.model == "dense" and result.trials >= 1 and result.tuned_ms > 0 and len(result.tasks) == 1
    assert result.speedup == pytest.approx(result.untuned_ms / result.tuned_ms)
    assert events[-1].state == "done" and events[-1].trials == result.trials and events[-1].kernels_ms > 0
    assert str(result).startswith("dense: ")

    database = temper.Database(db)
    records = list(database.list())
    assert len(records) >= result.trials
    assert list(database.list(device="nobody")) == []
    best, = database.best()
    assert best["workload"] == records[0]["workload"]
    other = temper.Database(tmp_path / "other.db")
    assert other.merge(database) == temper.Merged(added=len(records), known=0)
    assert other.merge(db) == temper.Merged(added=0, known=len(records))

    lines = database.export(tmp_path / "records.jsonl")
    assert len(lines.read_text().splitlines()) == len(records)
    assert temper.Database(tmp_path / "third.db").import_(lines) == temper.Merged(added=len(records), known=0)

    locked = database.lock(dense, tmp_path / "dense.lock")
    assert locked.kernels == 1 and locked.targets == 1 and locked.lock == tmp_path / "dense.lock"
    assert temper.compile(dense, db=db, strict=True).manifest["target"] == locked.target
    model = temper.compile(dense, lock=locked.lock)
    assert model.manifest["lock"] == locked.digest
    np.testing.assert_allclose(model.run(X)[0], dense_of(X), rtol=1e-4)


def test_a_database_knows_a_server_from_a_file(tmp_path):
    assert temper.Database("tuner:9190").server == "tuner:9190"
    assert temper.Database("unix:/run/temper").server == "unix:/run/temper"
    assert temper.Database("records.db").path.name == "records.db"
    assert temper.Database(tmp_path / "a:1").server is None
    with pytest.raises(temper.UnavailableError):
        list(temper.Database(f"unix:{tmp_path}/none").list())
    with pytest.raises(temper.NotFoundError):
        list(temper.Database(tmp_path / "none.db").best())
    with pytest.raises(temper.InvalidArgumentError, match="merge reads files"):
        temper.Database(tmp_path / "a.db").merge(temper.Database("tuner:9190"))


def test_keyboard_interrupt_ends_a_tune_and_keeps_what_was_measured(dense, tmp_path):
    db = tmp_path / "records.db"

    def interrupt(progress):
        if progress.trials > 0:
            _thread.interrupt_main()

    with pytest.raises(KeyboardInterrupt):
        temper.tune(dense, db=db, trials=100_000, time_budget=300, progress=interrupt)
    assert len(list(temper.Database(db).list())) >= 1


def test_what_a_progress_function_raises_ends_the_tune(dense, tmp_path):
    def refuse(progress):
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        temper.tune(dense, db=tmp_path / "records.db", trials=100_000, time_budget=300, progress=refuse)


def event(**values):
    return _tune.Progress(**{**dict(job=1, state="running", elapsed_s=5, eta_s=7, done=0.5, trials=40, failed=2,
                                    kernels_ms=2.0, untuned_ms=3.0, measured=4, tasks=4, expected_gain_ms=0,
                                    warnings=[]), **values})


def test_a_progress_says_of_how_much_its_times_are():
    assert "kernels 2.000 ms (untuned 3.000 ms; of 4 of 6 tasks)," in str(event(tasks=6))
    assert "kernels 20.0 µs (untuned 3.000 ms)," in str(event(kernels_ms=0.02))


def test_a_terminal_gets_one_line_that_is_drawn_over(monkeypatch):
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("COLUMNS", "120")
    display = _tune._display(True)
    display.show(event())
    display.show(event(done=1, state="done", eta_s=0))
    display.close()
    first, second = terminal.getvalue().split("\r")[1:]
    assert "█" * 10 + "░" * 10 in first
    assert "running  50 %, 40 trials (2 failed), kernels 2.000 ms (untuned 3.000 ms), 7 s left" in first
    assert "█" * 20 + " done 100 %" in second and second.endswith("\n") and terminal.getvalue().count("\n") == 1


def test_a_notebook_gets_one_display_that_is_updated(monkeypatch):
    pages = []

    class Handle:
        def update(self, page):
            pages.append(("update", page))

    def display(page, display_id):
        pages.append(("new", page))
        return Handle()

    ipython = types.ModuleType("IPython")
    ipython.get_ipython = lambda: types.SimpleNamespace(kernel=object())
    ipython.display = types.ModuleType("IPython.display")
    ipython.display.display, ipython.display.HTML = display, lambda text: text
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", ipython.display)
    shown = _tune._display(True)
    shown.show(event(state="<b>"))
    shown.show(event())
    shown.close()
    assert [how for how, _ in pages] == ["new", "update"]
    assert '<progress value="0.500"' in pages[0][1] and "&lt;b&gt;" in pages[0][1]


def test_nothing_is_shown_where_nothing_is_wanted(capfd):
    display = _tune._display(False)
    display.show(event())
    display.close()
    assert capfd.readouterr() == ("", "")


def test_the_session_looks_like_onnxruntimes(dense, pair, packages):
    session = temper.InferenceSession(str(dense), providers=["CPUExecutionProvider"], untuned=True)
    x, = session.get_inputs()
    assert (x.name, x.shape, x.type) == ("x", [2, 6], "tensor(float)")
    assert [output.name for output in session.get_outputs()] == ["y"]
    np.testing.assert_allclose(session.run(None, {"x": X})[0], dense_of(X), rtol=1e-5)
    session = temper.InferenceSession(packages / "pair")
    a = np.ones((3, 5), np.float32)
    difference, total = session.run(["difference", "sum"], {"a": a, "b": a})
    assert (difference == 0).all() and (total == 2).all()
    with pytest.raises(temper.InputError, match="the model has no output z; there are: sum, difference"):
        session.run(["z"], {"a": a, "b": a})
    with pytest.raises(temper.InputError, match="input b is missing"):
        session.run(None, {"a": a})
    with pytest.raises(temper.InvalidArgumentError, match="untuned come too late"):
        temper.InferenceSession(packages / "pair", untuned=True)
