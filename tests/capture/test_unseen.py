"""Work of ours inside a program's transforms: they take no part in it, and go on as if it had never been."""

from __future__ import annotations

from typing import Any

import pytest

from gobrrr.capture.hooks.transform_guard import unseen

torch = pytest.importorskip("torch")


def state() -> tuple[int, str, str]:
    """What a transform of torch.func keeps of its own in a thread."""
    keys = torch._C._dispatch_tls_local_include_set(), torch._C._dispatch_tls_local_exclude_set()
    return torch._C._functorch.get_dynamic_layer_stack_depth(), *map(str, keys)


@pytest.mark.parametrize("fails", [False, True])
def test_transforms_take_no_part_in_our_work_and_come_back(fails: bool) -> None:
    seen: list[Any] = []

    def cube(x: Any, look: bool = True) -> Any:
        if look:
            before = state()
            try:
                with unseen():
                    drawn = torch.rand(3, generator=torch.Generator().manual_seed(0)) * 2  # vmap would refuse it
                    seen.append((state()[0], torch._C._functorch.is_functorch_wrapped_tensor(drawn)))
                    if fails:
                        raise OSError
            except OSError:
                pass
            seen.append(state() == before and before[0] == 3)
        return (x * x * x).sum()

    def gradients(look: bool) -> Any:
        inner = torch.func.grad(lambda v: cube(v, look).sum())
        return torch.func.vmap(torch.func.grad(lambda v: inner(v).sum()))(torch.arange(6.0).reshape(2, 3))

    looked = gradients(True)
    assert seen == [(0, False), True]
    assert torch.equal(looked, 6 * torch.arange(6.0).reshape(2, 3)) and torch.equal(looked, gradients(False))
