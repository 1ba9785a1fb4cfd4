"""Which operators of PyTorch's library a call dispatched, on how many elements, and whether the output is theirs.

The judge logs the reference once, a runner logs its candidate in one call. A dispatch mode sees every operator that
goes through PyTorch's dispatcher, from Python or from C++, whatever name the source called it by.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from kernelevolve.platforms.device import raw

MAX_OPERATORS = 200
"""Different names that a log keeps."""
_SAMPLE = 2**20
"""Elements of a storage that its checksum looks at."""

_EMPTY = frozenset(("empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided",
                    "resize", "set", "_empty_affine_quantized"))
"""Memory that is there to be written by someone, perhaps by the candidate's own kernels."""
_FREE = _EMPTY | frozenset((
    "zeros", "zeros_like", "new_zeros", "ones", "ones_like", "new_ones", "full", "full_like", "new_full", "fill",
    "zero", "copy", "clone", "_to_copy", "contiguous", "lift_fresh", "lift_fresh_copy", "_local_scalar_dense", "detach",
    "alias", "item", "is_same_size", "_reshape_alias", "_unsafe_view", "scalar_tensor", "_pin_memory", "record_stream",
))
"""Allocations, copies and the like: no work of anyone's."""
_FAMILIES = {
    **dict.fromkeys(("mm", "addmm", "bmm", "baddbmm", "addbmm", "mv", "addmv", "dot", "vdot", "matmul", "linear",
                     "_scaled_mm", "einsum", "_int_mm", "addr", "ger", "mkldnn_linear", "_mkl_linear"), "matmul"),
    **dict.fromkeys(("convolution", "_convolution", "convolution_overrideable", "cudnn_convolution",
                     "mkldnn_convolution", "conv1d", "conv2d", "conv3d", "_slow_conv2d_forward", "slow_conv3d",
                     "miopen_convolution", "cudnn_convolution_relu", "conv_transpose2d"), "convolution"),
    **dict.fromkeys(("_softmax", "softmax", "_safe_softmax"), "softmax"),
    **dict.fromkeys(("_log_softmax", "log_softmax"), "log_softmax"),
    **dict.fromkeys(("native_layer_norm", "layer_norm"), "layer_norm"),
    **dict.fromkeys(("native_group_norm", "group_norm"), "group_norm"),
    **dict.fromkeys(("_native_batch_norm_legit", "_native_batch_norm_legit_no_training", "native_batch_norm",
                     "cudnn_batch_norm", "_batch_norm_impl_index", "_batch_norm_with_update",
                     "miopen_batch_norm"), "batch_norm"),
    **dict.fromkeys(("_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_flash_attention",
                     "_scaled_dot_product_efficient_attention", "_scaled_dot_product_cudnn_attention",
                     "_scaled_dot_product_attention_math", "scaled_dot_product_attention"), "attention"),
}
"""Names that do the same work."""


class LibraryLog(TorchDispatchMode):
    """Counts operators while it is entered, and follows what they made.

    Args:
        given: Arguments and parameters: what a call starts from.
    """

    supports_higher_order_operators = True

    def __init__(self, given: Iterable[torch.Tensor]) -> None:
        super().__init__()
        self.counts: dict[str, int] = {}
        """Per operator, such as "aten._softmax", how often it ran."""
        self.elements: dict[str, int] = {}
        """Per family, elements that its operators read."""
        self._made = {_key(t): _checksum(t) for t in given if t.numel()}
        """Storages that hold what was given, or what library operators alone made of it, and their checksums."""
        self._given = set(self._made)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operator and note it."""
        kwargs = kwargs or {}
        schema = getattr(func, "_schema", None)
        if schema is None:  # an operator of higher order, such as a Triton kernel's wrapper
            return func(*args, **kwargs)
        namespace, _, name = schema.name.partition("::")
        plain = name.rstrip("_") or name
        read = [t for value, declared in _declared(schema, args, kwargs)
                if not _only_written(declared, plain) for t in _tensors((value,))]
        known = namespace in ("aten", "prims") and plain not in _EMPTY and all(map(self._is_library, read))
        result = func(*args, **kwargs)
        if namespace in ("aten", "prims") and plain not in _FREE and not getattr(func, "is_view", False) and read:
            label = f"{namespace}.{name}"
            if label in self.counts or len(self.counts) < MAX_OPERATORS:
                self.counts[label] = self.counts.get(label, 0) + 1
                kind = family(name)
                self.elements[kind] = self.elements.get(kind, 0) + sum(t.numel() for t in read)
        for made in _tensors((result,)):
            if known and made.numel():
                self._made[_key(made)] = _checksum(made)
            else:
                self._made.pop(_key(made), None)
                self._given.discard(_key(made))
        return result

    def _is_library(self, tensor: torch.Tensor) -> bool:
        """Whether it still holds what was given, or what library operators wrote."""
        return not tensor.numel() or self._made.get(_key(tensor)) == _checksum(tensor)

    def answer(self, outputs: list[Any]) -> dict[str, Any]:
        """The log as JSON values. Call it once the mode is left: {"counts", "elements", "library_only", "compiled"}."""
        plain = [t for t in outputs if type(t) in (torch.Tensor, torch.nn.Parameter) and t.layout == torch.strided
                 and t.numel() and _key(t) not in self._given]
        return {"counts": self.counts, "elements": self.elements,
                "library_only": bool(plain) and all(map(self._is_library, plain)), "compiled": compiled_frames()}


def family(name: str) -> str:
    """The name under which operators that do the same work are counted: "matmul" for mm, addmm, bmm; mul_ is mul."""
    plain = name.rstrip("_") or name
    return _FAMILIES.get(plain, plain)


def compiled_frames() -> int:
    """How many functions torch.compile has translated in this process. Their operators pass the dispatcher by."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    return int(dynamo.counters["frames"].get("total", 0)) if dynamo is not None else 0


def _declared(schema: Any, args: Any, kwargs: Any) -> Iterator[tuple[Any, Any]]:
    """Each argument's value with its declaration."""
    for value, declared in zip(args, schema.arguments, strict=False):
        yield value, declared
    names = {a.name: a for a in schema.arguments}
    for name, value in kwargs.items():
        if name in names:
            yield value, names[name]


def _only_written(declared: Any, name: str) -> bool:
    """Whether an argument's former content does not matter: an `out`, or the target of a copy."""
    written = declared.alias_info is not None and declared.alias_info.is_write
    return bool(written and (declared.kwarg_only or name in ("copy", "fill", "zero")))


def _tensors(values: Iterable[Any]) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            if value.layout == torch.strided:
                yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)


def _key(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage().data_ptr())


def _checksum(tensor: torch.Tensor) -> tuple[int, int]:
    """Two sums over the bits of the whole storage (of a sample, when it is large); the second knows their order."""
    if tensor.device.type == "meta":
        return 0, 0
    bits = raw(tensor.detach())
    bits = bits[: bits.numel() // 4 * 4].view(torch.int32) if bits.numel() >= 4 else bits
    bits = bits[:: max(1, bits.numel() // _SAMPLE)].to(torch.int64)
    places = torch.arange(1, bits.numel() + 1, device=bits.device)
    return int(bits.sum()), int((bits * places).sum())
