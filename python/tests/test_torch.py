"""torch.compile's backend and what goes between PyTorch and Temper. `run.sh --torch` runs these."""

import os
import subprocess
import sys
import threading
import tomllib
import warnings
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: python/tests/run.sh --torch installs it")
nn = torch.nn

import temper  # noqa: E402
import temper.torch  # noqa: E402


@pytest.fixture(autouse=True)
def anew():
    torch._dynamo.reset()
    torch.manual_seed(1)


@pytest.fixture
def runs(monkeypatch):
    """The models that ran, one entry for each run."""
    ran, run = [], temper.Model.run

    def counted(self, *inputs, **options):
        ran.append(self)
        return run(self, *inputs, **options)

    monkeypatch.setattr(temper.Model, "run", counted)
    return ran


@pytest.fixture
def no_warning():
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="temper")
        yield


def compiled(module, **options):
    return torch.compile(module, backend=temper.torch.backend, options={"untuned": True, **options})


def close(got, wanted):
    torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-4)


def small_net():
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(288, 4))
    net[1].running_mean.uniform_()
    return net.eval()


X = (2, 3, 8, 8)


def test_a_net_runs_in_temper_and_says_what_pytorch_says(runs, no_warning):
    net = small_net()
    fast = compiled(net)
    with torch.inference_mode():
        for _ in range(3):
            x = torch.randn(X)
            close(fast(x), net(x))
    assert len(set(runs)) == 1 and runs[0].copies == 0
    assert len(runs) == 3  # the first to check it
    assert [port.shape for port in runs[0].inputs] == [X]  # parameters and buffers are constants


def test_a_new_shape_is_another_model(runs, no_warning):
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4)).eval()
    fast = compiled(net)
    with torch.no_grad():
        for size in (8, 9, 12, 9, 8, 12):
            x = torch.randn(2, 3, size, size)
            close(fast(x), net(x))
    # The first graph is for 8 alone; the second is for any size, and torch.compile prefers it from then on.
    assert {model.inputs[0].shape[2] for model in runs} == {8, 9, 12} and len(set(runs)) <= 4


def test_after_too_many_shapes_pytorch_runs_it_and_it_is_told_once(runs):
    net = nn.Linear(6, 4).eval()
    fast = torch.compile(net, backend=temper.torch.backend, options={"untuned": True}, dynamic=True)
    with torch.no_grad(), pytest.warns(UserWarning, match="it was built 8 times") as told:
        for rows in [*range(2, 14), *range(2, 14)]:
            x = torch.randn(rows, 6)
            close(fast(x), net(x))
    assert len([w for w in told if "temper" in str(w.message)]) == 1
    assert len(set(runs)) == 8 and len(runs) == 16  # those that were built are used further


def test_changed_parameters_are_seen(runs, no_warning):
    net, x = nn.Linear(6, 4), torch.randn(3, 6)
    fast = compiled(net.eval())
    with torch.no_grad():
        close(fast(x), net(x))
        net.load_state_dict({"weight": torch.ones(4, 6), "bias": torch.zeros(4)})
        close(fast(x), x.sum(1, keepdim=True).expand(3, 4))
        net.bias.add_(1)
        close(fast(x), x.sum(1, keepdim=True).expand(3, 4) + 1)
        net.bias = nn.Parameter(torch.full((4,), 2.0))
        close(fast(x), x.sum(1, keepdim=True).expand(3, 4) + 2)
        close(fast(x), net(x))
    assert len(set(runs)) == 4


def left(function, *args, why):
    """Calls it twice: it is left to PyTorch, which one line says once."""
    fast = compiled(function)
    with pytest.warns(UserWarning) as told:
        first = fast(*args)
        second = fast(*args)
    lines = [str(w.message) for w in told if str(w.message).startswith("temper")]
    assert len(lines) == 1 and "\n" not in lines[0]
    assert lines[0].startswith("temper leaves a graph to PyTorch: ") and why in lines[0]
    return first, second


def test_what_needs_gradients_is_left_to_pytorch():
    net, x = nn.Linear(6, 4), torch.randn(3, 6)
    first, _ = left(net, x, why="it needs gradients; call it in torch.inference_mode()")
    first.sum().backward()
    close(net.weight.grad, x.sum(0).expand(4, 6))
    left(lambda a: a.sin() + 1, torch.randn(3, requires_grad=True), why="it needs gradients")


@torch.no_grad()
def test_an_operator_that_is_not_there_is_left_to_pytorch():
    a = torch.randn(4, 4)
    close(left(lambda x: torch.linalg.qr(x)[1] + 1, a, why="torch.onnx.export: ")[0], torch.linalg.qr(a)[1] + 1)
    close(left(lambda x: torch.nonzero_static(x, size=3) + 1, a, why="")[0], torch.nonzero_static(a, size=3) + 1)


@torch.no_grad()
def test_what_changes_its_inputs_is_left_to_pytorch():
    def add(x, y):
        x.add_(1)
        return x * y

    x, y = torch.zeros(3), torch.ones(3)
    first, second = left(add, x, y, why="it changes its inputs")
    assert x.tolist() == [2, 2, 2] and first.tolist() == [1, 1, 1] and second.tolist() == [2, 2, 2]


def test_what_changes_inference_tensors_is_left_to_pytorch():
    with torch.inference_mode():
        x = torch.ones(3)
        first, second = left(lambda a: a.mul_(2) + 1, x, why="it changes its inputs")
    assert x.tolist() == [4, 4, 4] and first.tolist() == [3, 3, 3] and second.tolist() == [5, 5, 5]


def test_parameters_that_may_change_unseen_are_left_to_pytorch():
    with torch.inference_mode():
        net, x = nn.Linear(6, 4).eval(), torch.randn(3, 6)
        close(left(net, x, why="its parameters were made in torch.inference_mode()")[1], net(x))


@torch.no_grad()
def test_a_norm_that_is_training_counts_each_call_once():
    norm, same, x = nn.BatchNorm1d(4), nn.BatchNorm1d(4), torch.randn(5, 4)
    for got in left(norm, x, why="it changes its inputs"):
        close(got, same(x))
    torch.testing.assert_close(norm.running_mean, same.running_mean)
    assert norm.num_batches_tracked == same.num_batches_tracked


@torch.no_grad()
def test_views_of_inputs_stay_views():
    x = torch.zeros(2, 3)
    first, _ = left(lambda a: (a.t(), a + 1), x, why="it gives out an input, or a view of one")
    x.fill_(7)
    assert (first[0] == 7).all()


@torch.no_grad()
def test_random_numbers_are_pytorchs():
    x = torch.ones(64)
    torch.manual_seed(3)
    first, second = left(nn.Dropout(0.5), x, why="")
    torch.manual_seed(3)
    plain = nn.Dropout(0.5)
    assert torch.equal(first, plain(x)) and torch.equal(second, plain(x))


@torch.no_grad()
def test_what_is_not_on_the_cpu_is_left_to_pytorch():
    assert left(lambda a: a + 1, torch.empty(3, device="meta"), why="on meta, not a dense one")[0].device.type == "meta"


@torch.no_grad()
def test_empty_tensors_are_left_to_pytorch():
    assert left(lambda a: a * 2, torch.ones(0, 3), why="")[0].shape == (0, 3)


def test_both_sides_of_a_graph_break_run_in_temper(runs, no_warning):
    def halves(x):
        y = x.exp() + 1
        torch._dynamo.graph_break()
        return y.tanh() * 2

    x = torch.randn(3, 4)
    with torch.no_grad():
        close(compiled(halves)(x), (x.exp() + 1).tanh() * 2)
    assert len(set(runs)) == 2


@pytest.mark.parametrize("change", [
    lambda x: x.transpose(2, 3), lambda x: x.to(memory_format=torch.channels_last), lambda x: x[..., ::2],
    lambda x: x[:, :1].expand(-1, 3, -1, -1), lambda x: torch.randn(x.numel() + 1)[1:].reshape(x.shape)])
def test_inputs_lie_as_they_like(change, runs, no_warning):
    x = change(torch.randn(2, 3, 8, 8))
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()).eval()
    with torch.no_grad():
        fast = compiled(net)
        for _ in range(2):
            close(fast(x), net(x))
    assert len(set(runs)) == 1


def test_outputs_come_in_the_form_they_have(runs, no_warning):
    def several(a, b=None):
        return {"sum": a + 1, "rest": (a * 2, None, [a.sum(1) > 0])}, 5

    a = torch.randn(3, 4)
    with torch.no_grad():
        got, wanted = compiled(several)(a), several(a)
    close(got[0]["sum"], wanted[0]["sum"])
    close(got[0]["rest"][0], wanted[0]["rest"][0])
    assert got[0]["rest"][1] is None and torch.equal(got[0]["rest"][2][0], wanted[0]["rest"][2][0]) and got[1] == 5
    assert len(set(runs)) == 1


def test_the_same_output_twice(runs, no_warning):
    def twice(a):
        b = a + 1
        return b, b * 2, b

    a = torch.randn(3)
    with torch.no_grad():
        for got, wanted in zip(compiled(twice)(a), twice(a)):
            close(got, wanted)


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16", "int64", "int32"])
def test_other_types_come_and_go(dtype, runs, no_warning):
    a = torch.arange(12).reshape(3, 4).to(getattr(torch, dtype))
    with torch.no_grad():
        got = compiled(lambda x: (x + x).reshape(4, 3))(a)
    assert got.dtype == a.dtype and torch.equal(got, (a + a).reshape(4, 3)) and len(set(runs)) == 1


def test_types_mix_as_they_do_in_pytorch(runs, no_warning):
    def mixed(a, b, c):
        return a * b, c / 2, a > 0, c.sum()

    args = torch.randn(3), torch.arange(3), torch.tensor([1, 2, 3], dtype=torch.int32)
    with torch.no_grad():
        for got, wanted in zip(compiled(mixed)(*args), mixed(*args)):
            torch.testing.assert_close(got, wanted)


def test_numbers_are_arguments_too(no_warning):
    def scaled(x, factor, by):
        return x * factor + by

    fast, x = compiled(scaled), torch.randn(4)
    with torch.no_grad():
        for factor, by in ((2, 0.5), (3, 0.5), (4, 0.25), (2, 0.5)):
            close(fast(x, factor, by), scaled(x, factor, by))


def test_threads_share_a_compiled_module(no_warning):
    net = small_net()
    fast, errors = compiled(net), []
    with torch.inference_mode():
        fast(torch.randn(X))

    def work(seed):
        try:
            with torch.inference_mode():
                for step in range(20):
                    x = torch.randn(X, generator=torch.Generator().manual_seed(100 * seed + step))
                    close(fast(x), net(x))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_an_encoder_runs_in_temper(norm_first, masked, runs, no_warning):
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, norm_first=norm_first, activation="gelu")
    net = layer.eval() if masked else nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    x, mask = torch.randn(2, 6, 32), [torch.triu(torch.ones(6, 6, dtype=torch.bool), 1)] if masked else []
    with torch.inference_mode():
        close(compiled(net)(x, *mask), net(x, *mask))
    assert len(set(runs)) == 1


def test_attention_runs_in_temper(runs, no_warning):
    net = nn.MultiheadAttention(32, 4, batch_first=True).eval()
    x, padding = torch.randn(2, 6, 32), torch.tensor([[False] * 6, [False] * 4 + [True] * 2])
    with torch.inference_mode():
        for options in ({}, {"need_weights": False}, {"key_padding_mask": padding}):
            got, wanted = compiled(net)(x, x, x, **options), net(x, x, x, **options)
            close(got[0], wanted[0])
            assert (got[1] is None) == (wanted[1] is None)
            torch._dynamo.reset()
    assert len(set(runs)) == 3


def test_options_are_those_of_compile_and_what_was_asked_for_is_not_left_to_pytorch(tmp_path):
    net, x = nn.Linear(6, 4).eval(), torch.randn(3, 6)
    with torch.no_grad():
        with pytest.raises(temper.PreconditionError, match="coverage"):
            torch.compile(net, backend=temper.torch.backend, options={"min_coverage": 0.9})(x)
        torch._dynamo.reset()
        with pytest.raises(temper.NotFoundError, match="no.lock"):
            torch.compile(net, backend=temper.torch.backend, options={"lock": tmp_path / "no.lock"})(x)
        torch._dynamo.reset()
        with pytest.raises(TypeError, match="colour"):
            torch.compile(net, backend=temper.torch.backend, options={"colour": "red"})(x)


def test_a_graph_is_tuned_first_where_that_is_asked_for(tmp_path, runs, no_warning):
    net, x = nn.Linear(64, 48).eval(), torch.randn(16, 64)
    db = tmp_path / "records.db"
    options = {"db": db, "tune": {"trials": 8, "progress": False}}
    with torch.no_grad():
        close(torch.compile(net, backend=temper.torch.backend, options=options)(x), net(x))
    assert runs and len(list(temper.Database(db).best())) >= 1


def test_what_was_tuned_by_its_export_is_what_the_graph_asks_for(tmp_path, runs):
    net, x = nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 16)).eval(), torch.randn(16, 64)
    db = tmp_path / "records.db"
    temper.tune(temper.torch.export(net, x), db=db, trials=16, progress=False)
    with torch.no_grad():
        torch.compile(net, backend=temper.torch.backend, options={"db": db})(x)
    exported = temper.compile(temper.torch.export(net, x), db=db)
    keys = [{kernel["workload"] for kernel in model.manifest["kernels"]} for model in (runs[0], exported)]
    assert keys[0] == keys[1]


def test_an_export_has_the_names_of_forward(tmp_path, no_warning):
    class Two(nn.Module):
        def forward(self, left, right, scale=1.0):
            return left @ right * scale

    left_, right = torch.randn(3, 4), torch.randn(4, 2)
    for inputs in ((left_, right), {"right": right, "left": left_}, {"left": left_, "right": right, "scale": 1}):
        model = temper.compile(temper.torch.export(Two(), inputs, tmp_path / "two.onnx"), untuned=True)
        assert sorted(port.name for port in model.inputs) == ["left", "right"]
        result, = model.run({"left": left_, "right": right}).values()
        close(torch.from_numpy(result), left_ @ right)
    assert (tmp_path / "two.onnx").stat().st_size > 0

    class Any(nn.Module):
        def forward(self, *tensors):
            return tensors[0] + tensors[1]

    with pytest.raises(temper.InvalidArgumentError, match="have no names"):
        temper.torch.export(Any(), (left_, left_))


def test_tensors_are_used_in_place(dense_model):
    x, y = torch.randn(2, 6), torch.empty(2, 4)
    assert x.data_ptr() % 64 == 0 and y.data_ptr() % 64 == 0
    dense_model.run({"x": x}, out={"y": y})
    assert dense_model.copies == 0
    np.testing.assert_array_equal(dense_model.run(x)[0], y.numpy())
    again = torch.from_dlpack(dense_model.run(x)[0])
    assert torch.equal(again, y)


def test_the_installed_package_registers_the_backend(tmp_path):
    """pip writes pyproject.toml's entry points where torch.compile looks for them."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    info = tmp_path / f"temper-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: temper\nVersion: {project['version']}\n")
    (info / "entry_points.txt").write_text("".join(
        f"[{group}]\n" + "".join(f"{name} = {where}\n" for name, where in points.items())
        for group, points in project["entry-points"].items()))
    program = """
import torch
assert "temper" in torch._dynamo.list_backends()
import sys
if sys.argv[1] == "imported":
    import temper.torch
net, x = torch.nn.Linear(6, 4).eval(), torch.randn(3, 6)
with torch.inference_mode():
    torch.testing.assert_close(torch.compile(net, backend="temper", options={"untuned": True})(x), net(x))
print("ran in", sys.modules["temper.torch"].backend.__module__)
"""
    paths = os.pathsep.join([str(tmp_path), str(Path(temper.__file__).parents[1])])
    for how in ("imported", "found"):
        done = subprocess.run([sys.executable, "-W", "error:temper", "-c", program, how], text=True,
                              env={**os.environ, "PYTHONPATH": paths}, capture_output=True, check=False)
        assert done.stdout == "ran in temper.torch\n", done.stderr


def test_the_question_answering_example_goes_from_text_to_answer():
    script = Path(temper.__file__).parents[2] / "examples" / "question_answering.py"
    text, question = "Max lives in Oslo since June.", "Where does Max live?"
    done = subprocess.run([sys.executable, str(script), text, question, "--steps", "2"], text=True,
                          capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(question)
    said = done.stdout.removeprefix(question).rsplit(" (", 1)[0].strip()
    assert said and said in text  # two steps of training teach it no more
