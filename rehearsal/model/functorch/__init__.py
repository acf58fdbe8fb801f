"""A second module with its own library, which needs torch's."""

import torch as torch  # torch._C must be loaded before functorch's own module

from functorch._C import numel as numel
