import pytest
import torch

from kernelevolve.evaluation.content import Content, Pool
from kernelevolve.evaluation.inside.tensors import unflatten
from kernelevolve.evaluation.trials import Factory

PROBLEM = """
import torch

class Model(torch.nn.Module):
    def forward(self, *args):
        return args[0]

def get_inputs():
    {inputs}
"""


def content_of(tmp_path, inputs, **changes):
    path = tmp_path / "problem.py"
    path.write_text(PROBLEM.format(inputs=inputs))
    factory = Factory(path, None)
    return Content(factory, *factory.arguments(1), **{"sets": 4, "seeds": list(range(2, 66)), "input_bytes": 2**30,
                                                      **changes})


def test_no_two_contents_are_alike_and_what_a_slot_holds_can_be_made_again(tmp_path):
    content = content_of(tmp_path, "return [torch.randn(5, 7), torch.randint(0, 9, (4,)), torch.randn(3).bfloat16()]")
    pool = Pool(content, 6)
    seen = set()
    for _ in range(20):
        pool.refresh([1, 2, 3])
        for slot in (1, 2, 3):
            held = pool.memory.tensors(pool.described[slot]["specs"])
            args, leaves = content.leaves(pool.mixes[slot])
            assert [t.dtype for t in unflatten(args, leaves)] == [torch.float32, torch.int64, torch.bfloat16]
            assert all(torch.equal(a, b) for a, b in zip(held, leaves, strict=True))
            seen.add(held[0].numpy().tobytes())
    assert len(seen) == 60
    assert pool.memory.breached(pool.specs) is None


@pytest.mark.parametrize(("inputs", "holds"), [
    ("a = torch.randn(6, 6); return [a + a.T]", lambda t: torch.equal(t, t.T)),
    ("return [torch.randn(6, 6).triu()]", lambda t: torch.equal(t, t.triu())),
    ("return [torch.randn(6, 6).softmax(-1)]", lambda t: torch.allclose(t.sum(-1), torch.ones(6))),
    ("return [torch.rand(40) * 0.5 + 1]", lambda t: bool((t >= 1).all() and (t <= 1.5).all())),
])
def test_a_mix_keeps_what_an_honest_kernel_may_rely_on(tmp_path, inputs, holds):
    content = content_of(tmp_path, inputs)
    assert content.changes
    for slot in range(8):
        assert holds(content.leaves(content.fresh(slot))[1][0])


@pytest.mark.parametrize("inputs", [
    "return [torch.randint(0, 9, (40,))]", "return [torch.rand(40).sort().values]", "return [torch.ones(9) < 0]",
    "return [torch.full((4, 4), float('-inf')).triu(1)]",
])
def test_what_may_not_be_changed_comes_from_more_draws_unchanged(tmp_path, inputs):
    content = content_of(tmp_path, inputs)
    assert not content.changes
    assert len(content.draws) == 32
    _, (leaf,) = content.leaves(content.fresh(3))
    assert any(torch.equal(leaf, draw.leaves[0]) for draw in content.draws)


def test_views_of_one_storage_stay_views_of_one_storage(tmp_path):
    content = content_of(tmp_path, "base = torch.randn(4, 9); return [base[:, 1:], base[:, :-1]]")
    pool = Pool(content, 3)
    left, right = pool.memory.tensors(pool.described[2]["specs"])
    assert left.untyped_storage().data_ptr() == right.untyped_storage().data_ptr()
    assert torch.equal(left[:, :-1], right[:, 1:])
    again = content.leaves(pool.mixes[2])[1]
    assert torch.equal(again[0], left)
    assert torch.equal(again[1], right)


def test_inputs_of_changing_size_are_scaled_because_none_fits_another(tmp_path):
    content = content_of(tmp_path, "return [torch.randn(int(torch.randint(50, 99, ())))]", sets=3)
    for slot in range(3):
        _, (leaf,) = content.leaves(content.fresh(slot))
        share = leaf / content.draws[slot].leaves[0]
        assert 0.4 < float(share.min()) <= float(share.max()) < 1
        assert torch.allclose(share, share[0])


def test_memory_bounds_draws_and_slots(tmp_path):
    content = content_of(tmp_path, "return [torch.randn(1000)]", input_bytes=30_000)
    assert len(content.draws) == 2
    assert content.slots(4, 30_000) == 2
    assert content_of(tmp_path, "return [torch.randn(8)]").slots(4, 2**30) == 128
