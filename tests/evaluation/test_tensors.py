import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelevolve.evaluation.inside.tensors import flatten, layout, unflatten
from kernelevolve.platforms.device import Host

leaf_values = st.none() | st.booleans() | st.integers(-5, 5) | st.floats(allow_nan=False) | st.text(max_size=3)
DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.uint8,
          torch.bool, torch.complex64]


def tensor_trees():
    tensors = st.builds(lambda n, d: torch.arange(n).to(d), st.integers(0, 5), st.sampled_from(DTYPES))
    return st.recursive(leaf_values | tensors, lambda t: st.lists(t, max_size=3) | st.lists(t, max_size=3).map(tuple)
                        | st.dictionaries(st.text(max_size=3), t, max_size=3), max_leaves=8)


def same(a, b):
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    return a == b


@settings(max_examples=80, deadline=None)
@given(tensor_trees())
def test_a_tree_comes_back_as_it_went(tree):
    import json

    leaves: list[torch.Tensor] = []
    skeleton = json.loads(json.dumps(flatten(tree, leaves)))
    specs, size = layout(leaves)
    memory = Host().lend(size)
    memory.write(leaves, specs)
    assert same(tree, unflatten(skeleton, memory.tensors(specs)))
    memory.close()


def round_trip(leaves):
    specs, size = layout(leaves)
    memory = Host().lend(size)
    memory.write(leaves, specs)
    return memory.tensors(specs)


def test_strides_and_offsets_are_kept():
    base = torch.arange(24.0).reshape(4, 6)
    for view in (base.T, base[1:, ::2], base[:, :1].expand(4, 6), base.unsqueeze(0)):
        (copy,) = round_trip([view])
        assert copy.stride() == view.stride()
        assert torch.equal(copy, view)


def test_tensors_that_share_memory_share_it_on_the_other_side():
    base = torch.zeros(8)
    a, b, c = round_trip([base, base[4:], base])
    a[5] = 7
    assert b[1] == 7
    assert c is a


def test_tensors_that_do_not_share_memory_have_storages_of_their_own():
    a, b = round_trip([torch.zeros(8), torch.zeros(8)])
    assert a.untyped_storage().data_ptr() != b.untyped_storage().data_ptr()
    assert a.data_ptr() % 64 == 0
    assert b.data_ptr() % 64 == 0
