import pytest
import torch

from kernelevolve import errors
from kernelevolve.evaluation.trials import DISTRIBUTIONS, Factory
from tests.evaluation.problems import ADD, HEAD


def factory(tmp_path, source, case=None):
    path = tmp_path / "problem.py"
    path.write_text(HEAD + source)
    return Factory(path, case)


def trials(f, loaded=False):
    weights = f.weights(1, loaded=loaded)
    return {name: f.trial(weights, 2, name) for name in ("as given", *DISTRIBUTIONS)}


def test_the_truth_is_float64_and_more_accurate_than_the_reference(tmp_path):
    trial = trials(factory(tmp_path, ADD))["as given"]
    assert trial.truth[0].dtype == torch.float64
    assert 0 < float((trial.truth[0] - trial.reference[0].double()).norm()) < 1e-5


def test_the_same_seed_makes_the_same_trial_and_another_seed_another(tmp_path):
    f = factory(tmp_path, ADD)
    weights = f.weights(1, loaded=False)
    a, b, c = f.trial(weights, 5), f.trial(weights, 5), f.trial(weights, 6)
    assert torch.equal(a.leaves[0], b.leaves[0])
    assert not torch.equal(a.leaves[0], c.leaves[0])


def test_a_distribution_under_which_the_reference_is_not_finite_is_skipped_and_said_so(tmp_path):
    f = factory(tmp_path, ADD.replace("x + y", "torch.log(x) + y").replace("torch.randn", "torch.rand"))
    found = trials(f)
    assert found["zero mean"] is None
    assert "not finite" in f.skipped["zero mean"]
    assert found["large"] is not None


def test_integer_inputs_and_sorted_boundaries_are_left_as_given(tmp_path):
    f = factory(tmp_path, """
class Model(nn.Module):
    def forward(self, x, boundaries):
        return torch.bucketize(x, boundaries)
def get_inputs():
    return [torch.rand(50), torch.arange(10) / 10]
""")
    for name, trial in trials(f).items():
        assert torch.equal(trial.leaves[1], torch.arange(10) / 10), name
    g = factory(tmp_path, ADD.replace("torch.randn(8, 16)", "torch.randint(0, 9, (4,))"))
    assert trials(g)["large"] is None
    assert g.skipped["large"] == "no floating-point input to change"


def test_loaded_weights_change_constant_parameters_only(tmp_path):
    f = factory(tmp_path, """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(4), nn.Linear(4, 4)
        self.register_buffer("keys", torch.arange(3))
    def forward(self, x):
        return self.linear(self.norm(x))
def get_inputs():
    return [torch.randn(2, 4)]
""")
    a, b = f.weights(3, loaded=False).state, f.weights(3, loaded=True).state
    changed = {k for k in a if not torch.equal(a[k], b[k])}
    assert changed == {"norm.weight", "norm.bias"}


def test_aliased_inputs_stay_aliased_and_mutation_by_the_reference_is_seen(tmp_path):
    f = factory(tmp_path, """
class Model(nn.Module):
    def forward(self, x, y):
        x.add_(1)
        return x + y
def get_inputs():
    x = torch.randn(4)
    return [x, x]
""")
    trial = trials(f)["as given"]
    assert trial.mutates
    assert trial.specs[0] == trial.specs[1]
    assert torch.allclose(trial.reference[0], 2 * (trial.leaves[0] + 1))


def test_a_reference_that_returns_a_view_is_known_to_do_so(tmp_path):
    trial = trials(factory(tmp_path, ADD.replace("x + y", "x.T")))["as given"]
    assert trial.views == [True]


def test_cases_override_the_files_globals(tmp_path):
    source = "n = 3\nCASES = {'tuned': {'n': 5}, 'held_out': {'n': 7}}\n" + ADD.replace("8, 16", "n")
    assert trials(factory(tmp_path, source))["as given"].reference[0].shape == (5,)
    assert trials(factory(tmp_path, source, "held_out"))["as given"].reference[0].shape == (7,)
    with pytest.raises(errors.UnknownNameError, match="held_out"):
        factory(tmp_path, source, "other")


@pytest.mark.parametrize(("source", "message"), [
    ("class Model(:", "does not import"),
    ("class Model: pass", "no get_inputs"),
    (ADD.replace("x + y", "x @ y"), "the reference fails on its own inputs"),
])
def test_a_file_that_cannot_be_used_says_why(tmp_path, source, message):
    with pytest.raises(errors.ProblemError, match=message):
        trials(factory(tmp_path, source))


NET = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)
        self.zero = nn.Parameter(torch.zeros(4))
        self.sorted = nn.Parameter(torch.arange(4.0))
        self.register_buffer("mask", torch.tensor([0.0, 1.0, 1.0, float("-inf")]))
    def forward(self, x):
        return self.norm(self.linear(x)) + self.zero * self.sorted
def get_inputs():
    return [torch.randn(6, 4)]
"""


def test_refreshed_weights_change_what_training_changes_and_its_twin(tmp_path):
    f = factory(tmp_path, NET)
    old = f.weights(1, loaded=True)
    before = f.trial(old, 5)
    new = f.refresh(old, 7)
    after = f.trial(new, 5)
    same = {name for name in old.state if torch.equal(old.state[name], new.state[name])}
    assert same == {"mask"}  # the count of batches is new because the reference ran
    assert torch.equal(new.state["sorted"], new.state["sorted"].sort().values)
    assert bool((new.state["norm.running_var"] > 0).all())
    assert (old.build, old.refreshed, new.refreshed) == (new.build, False, True)
    assert old.version != new.version
    assert not torch.allclose(before.reference[0], after.reference[0], rtol=1e-2)
    assert float((after.reference[0] - after.truth[0]).norm() / after.truth[0].norm()) < 1e-5


def test_the_same_weights_again_are_a_model_of_their_own(tmp_path):
    f = factory(tmp_path, NET)
    first = f.weights(1, loaded=False)
    again = f.again(first)
    assert again.model is not first.model
    assert (again.build, again.version) == (first.build, first.version)
    assert all(torch.equal(again.state[name], value) for name, value in first.state.items())
    f.refresh(again, 3)
    assert torch.equal(first.model.linear.weight, first.state["linear.weight"])


def test_where_nothing_is_trained_nothing_is_refreshed(tmp_path):
    f = factory(tmp_path, ADD)
    weights = f.weights(1, loaded=True)
    assert f.refresh(weights, 3) is weights
    assert f.again(weights) is weights


def test_the_references_operators_are_counted(tmp_path):
    f = factory(tmp_path, ADD.replace("x + y", "torch.softmax(x @ y.T, -1) * 2"))
    weights = f.weights(1, loaded=False)
    counted = f.library(weights, f.trial(weights, 2))
    assert counted["counts"] == {"aten.mm": 1, "aten._softmax": 1, "aten.mul": 1}
    assert counted["elements"] == {"matmul": 2 * 8 * 16, "softmax": 64, "mul": 64}
