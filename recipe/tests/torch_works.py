"""Test a tensor computation, the build's description of itself, and CUDA and MAGMA as this variant has them.

torch_works.py VERSION CUDA_VERSION|None
"""

import sys
import sysconfig
from pathlib import Path

import numpy
import torch

expected, cuda = sys.argv[1:]

matrix = torch.tensor([[3.0, 1.0], [1.0, 2.0]], requires_grad=True)
solution = torch.linalg.solve(matrix, torch.tensor([9.0, 8.0]))
assert numpy.allclose(solution.detach().numpy(), [2.0, 3.0]), solution
solution.sum().backward()
assert matrix.grad is not None
assert bool((matrix.grad != 0).any()), matrix.grad
assert float((torch.ones(4, 4) @ torch.ones(4, 4)).sum()) == 64.0

described = torch.__config__.show()
print(described)
assert "PyTorch built with" in described
assert torch.__version__.split("+")[0] == expected, (torch.__version__, expected)

assert torch.backends.cuda.is_built() == (cuda != "None"), (torch.backends.cuda.is_built(), cuda)
if cuda != "None":
    assert str(torch.version.cuda).startswith(cuda), (torch.version.cuda, cuda)
    # the installed flavour decides, not the build of libtorch; official wheels have MAGMA
    flavours = [path.name for path in Path(sys.prefix, "conda-meta").glob("libtorch-cuda-linalg-*.json")]
    print("linear algebra on GPUs:", *flavours or ["libtorch's own"])
    magma = not flavours or "_magma_" in flavours[0]
    assert torch.cuda.has_magma == magma, (torch.cuda.has_magma, flavours)

tag = sys.implementation.cache_tag
folder = Path(sysconfig.get_path("purelib"))
foreign = [
    path
    for name in ("torch", "torchgen", "functorch")
    for path in (folder / name).rglob("*.pyc")
    if tag not in path.name
]
assert not foreign, f"compiled by another Python than {tag}: {foreign[:5]}"
suffix = sysconfig.get_config_var("EXT_SUFFIX")
assert Path(torch._C.__file__).name.endswith(suffix), (torch._C.__file__, suffix)
