"""The operators that come with the package: each loads, has teeth, exports, and does what its definition says."""

from __future__ import annotations

import types
from collections.abc import Callable

import pytest
import torch

import kernelevolve
import kernelevolve.problems as problems
from kernelevolve.problems.module import ProblemModule
from kernelevolve.problems.suites import find

SUITE = find("cpu")
NAMES = list(SUITE.paths())
WANTED = {
    "rms_norm", "layer_norm_residual", "softmax", "log_softmax_nll", "gelu_bias", "swiglu", "rotary_embedding",
    "cumulative_sum", "masked_mean_ragged", "map_id", "merge_bucketized_dense", "batch_event_truncate", "embedding_bag",
    "top_k_gate", "conv1d_small", "matmul_epilogue",
}


def read(name: str) -> ProblemModule:
    path = SUITE.path(name)
    return ProblemModule(path.read_text(), str(path))


def test_the_suite_has_the_promised_operators() -> None:
    assert set(NAMES) >= WANTED
    assert SUITE.version() == kernelevolve.__version__


@pytest.mark.parametrize("name", NAMES)
def test_it_loads_and_its_check_has_teeth(name: str) -> None:
    problem = problems.load(f"cpu/{name}")
    assert problem.weak == ""
    assert len(problem.cases) >= 3, "one tuned setting and two held out"
    tensors = [*problem.inputs, *problem.parameters, *problem.outputs]
    size = sum(t.numel * getattr(torch, t.dtype).itemsize for t in tensors)
    written = sum(t.numel * getattr(torch, t.dtype).itemsize for t in problem.outputs)
    assert written < problem.bytes_min <= size


@pytest.mark.parametrize("name", NAMES)
def test_it_says_what_it_is_where_it_occurs_and_why_this_size(name: str) -> None:
    module = types.ModuleType(name)
    exec(SUITE.path(name).read_text(), module.__dict__)
    assert module.__doc__ is not None
    assert "Where:" in module.__doc__
    assert "Size:" in module.__doc__


@pytest.mark.parametrize("name", NAMES)
def test_it_exports_with_fake_tensors(name: str) -> None:
    module = read(name)
    model, inputs = module.model(0), module.inputs(0)
    program = torch.export.export(model, tuple(inputs), strict=False)
    assert len(list(program.graph.nodes)) > len(inputs)


def run(name: str, arguments: list, inputs: list, kind: str = "Model") -> object:
    """Model (or the class of that name) on given values."""
    return getattr(read(name).module, kind)(*arguments)(*inputs)


def forms(name: str) -> list[str]:
    """Model and its other forms, by class name."""
    return ["Model", *(kind.__name__ for kind in read(name).references.values())]


@pytest.mark.parametrize("kind", forms("map_id"))
def test_map_id_finds_known_ids_and_gives_0_to_others(kind: str) -> None:
    module = read("map_id").module
    model = getattr(module, kind)(5)
    model.mapping = torch.tensor([100, 200, 300, 400, 500])
    assert model(torch.tensor([100, 300, 500, 200, 999])).tolist() == [1, 3, 5, 2, 0]
    assert model(torch.tensor([-7, 99, 501, 400])).tolist() == [0, 0, 0, 4]


@pytest.mark.parametrize("kind", forms("merge_bucketized_dense"))
def test_merge_bucketized_dense_shifts_each_feature_by_its_offset(kind: str) -> None:
    values = torch.tensor([[0.1, 0.4, 0.8], [0.2, 0.5, 0.9]])
    out = run("merge_bucketized_dense", [[[0.3, 0.6], [0.4, 0.7]]], [values], kind)
    assert out.tolist() == [[0, 1, 2], [3, 4, 5]]  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", forms("merge_bucketized_dense"))
def test_a_value_on_a_border_falls_left_of_it(kind: str) -> None:
    borders = [[0.25, 0.5, 0.75], [0.5]]
    out = run("merge_bucketized_dense", [borders], [torch.tensor([[0.25, 0.75], [0.5, 0.51]])], kind)
    assert out.tolist() == [[0, 2], [4, 5]]  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", forms("batch_event_truncate"))
def test_batch_event_truncate_keeps_the_first_events_of_each_user(kind: str) -> None:
    outer = torch.tensor([3, 4, 1])
    inner_a, values_a = torch.tensor([1, 0, 2, 0, 3, 1, 1, 1]), torch.arange(1, 10)
    inner_b, values_b = torch.ones(8, dtype=torch.int64), torch.arange(1, 9)
    out = run("batch_event_truncate", [2], [outer, inner_a, values_a, inner_b, values_b], kind)
    assert [t.tolist() for t in out] == [  # type: ignore[attr-defined]
        [2, 2, 1], [1, 0, 0, 3, 1], [1, 4, 5, 6, 9], [1, 1, 1, 1, 1], [1, 2, 4, 5, 8],
    ]


@pytest.mark.parametrize("kind", forms("batch_event_truncate"))
def test_batch_event_truncate_handles_users_without_events_and_a_limit_that_cuts_nothing(kind: str) -> None:
    inputs = [torch.tensor(v) for v in ([0, 2, 0], [2, 1], [7, 8, 9], [0, 1], [5])]
    out = run("batch_event_truncate", [4], inputs, kind)
    assert [t.tolist() for t in out] == [t.tolist() for t in inputs]  # type: ignore[attr-defined]


def loop_masked_mean(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    return torch.stack([row[:n].mean(0) for row, n in zip(x, lengths.tolist(), strict=True)])


def loop_embedding_bag(model: torch.nn.Module, indices: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    ends = [*offsets.tolist()[1:], len(indices)]
    return torch.stack([model.table[indices[a:b]].sum(0) for a, b in zip(offsets.tolist(), ends, strict=True)])


def loop_rotary(model: torch.nn.Module, q: torch.Tensor, k: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
    half = q.shape[-1] // 2
    angle = position.double().unsqueeze(1) * 10000.0 ** (-torch.arange(half, dtype=torch.float64) / half)
    turned = torch.complex(q[..., :half].double(), q[..., half:].double()) * torch.polar(torch.ones_like(angle), angle)
    return torch.cat((turned.real, turned.imag), -1).float()


@pytest.mark.parametrize(("name", "definition"), [
    ("masked_mean_ragged", lambda model, x, lengths: loop_masked_mean(x, lengths)),
    ("embedding_bag", loop_embedding_bag),
    ("rotary_embedding", loop_rotary),
    ("rms_norm", lambda m, x: x / (x.double().pow(2).mean(-1, keepdim=True) + 1e-6).sqrt().float() * m.weight),
    ("dot_interaction", lambda m, x: torch.stack(
        [x[:, i].mul(x[:, j]).sum(-1) for i in range(x.shape[1]) for j in range(i)], dim=1)),
    ("max_pool2d", lambda m, x: torch.nn.functional.pad(x, (1, 1, 1, 1), value=-torch.inf)
        .unfold(2, 3, 2).unfold(3, 3, 2).amax((-1, -2))),
    ("batch_norm_add_relu", lambda m, x, r: ((x - m.mean.view(-1, 1, 1)) / (m.variance.view(-1, 1, 1) + 1e-5).sqrt()
        * m.weight.view(-1, 1, 1) + m.bias.view(-1, 1, 1) + r).clamp(min=0)),
])
def test_it_agrees_with_its_definition(name: str, definition: Callable[..., torch.Tensor]) -> None:
    module = read(name)
    model, inputs = module.model(3), module.inputs(3)
    with torch.no_grad():
        out = model(*inputs)
        out = out[0] if isinstance(out, tuple) else out
        torch.testing.assert_close(out, definition(model, *inputs), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_held_out_cases_keep_the_weights_shapes_or_the_model_is_rebuilt(name: str) -> None:
    module = read(name)
    for case in module.cases:
        module.use_case(case)
        model, inputs = module.model(1), module.inputs(1)
        module.check_forward(model, inputs)
        assert all(t.numel() for t in inputs)
