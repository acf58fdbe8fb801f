"""Tries what there is in an environment, without a GPU; run by its interpreter, it prints one JSON object.

Each function is a check of the packages that its first line imports; where these are missing it is left out.
"""

# mypy: disable-error-code="import-not-found,import-untyped"
from __future__ import annotations

import ctypes
import glob
import importlib
import importlib.util
import json
import os
import sys
import tempfile
import traceback

HALF = """
#include <cuda_fp16.h>
extern "C" __global__ void twice(__half *x) { x[threadIdx.x] = __hadd(x[threadIdx.x], x[threadIdx.x]); }
"""
PATHFINDER = ("cublas", "cublasLt", "cufft", "curand", "cusolver", "cusparse", "nvJitLink", "nvrtc", "nvvm", "cudart",
              "cutensor", "cudss")  # fmt: skip
#: Modules that are documented for others than their authors, wherever they lie.
FOR_OTHERS = ("astropy.tests.helper", "django.test", "gensim.test.utils", "nltk.test.setup_fixt", "numpy.testing",
              "numpy.f2py.tests.util", "onnx.backend.test", "pandas.testing", "pandas.tests.extension.base",
              "scipy.special.tests.data", "sklearn.utils.estimator_checks", "statsmodels.datasets", "sympy.testing",
              "sympy.testing.runtests", "tensorflow.test", "torch.testing", "fsspec.tests.abstract",
              "networkx.classes.tests.dispatch_interface", "ase.test")  # fmt: skip


def site() -> str:
    """Return the folder of packages."""
    return next(path for path in sys.path if path.endswith("site-packages"))


def tensorflow_computes() -> object:
    """Multiply, differentiate, compile with XLA and fit on the CPU."""
    import tensorflow as tf

    x = tf.ones((3, 3))
    compiled = tf.function(lambda y: tf.reduce_sum(y @ y), jit_compile=True)
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(x, tf.ones((3, 1)), verbose=0)
    return float(compiled(x)), tf.test.is_built_with_cuda()


def tensorflow_finds_cuda() -> object:
    """Ask its loader of libraries for each one; StatusOr holds a status, 1 for success, and the handle."""
    import tensorflow

    folder = os.path.dirname(tensorflow.__file__)
    library = ctypes.CDLL(f"{folder}/libtensorflow_framework.so.2")
    found = {}
    for name in ("Cublas", "CublasLt", "Cufft", "Cusolver", "Cusparse", "Cudnn", "Cupti", "CudaRuntime"):
        method = f"Get{name}DsoHandle"
        function = library[f"_ZN3tsl8internal15CachedDsoLoader{len(method)}{method}Ev"]
        function.restype = ctypes.c_void_p
        answer = (ctypes.c_uint64 * 4)()
        function(ctypes.byref(answer))
        found[name] = answer[0] == 1
    return found


def jax_computes() -> object:
    """Compile, differentiate, decompose and transform on the CPU."""
    import jax
    import jax.numpy as jnp

    x = jnp.arange(9.0).reshape(3, 3)
    slope = jax.jit(jax.grad(lambda y: jnp.sum(jnp.sin(y) @ y)))(x)
    return float(slope.sum()) != 0, jnp.linalg.svd(x)[1].shape, jnp.fft.fft(x).shape


def jax_finds_cuda() -> object:
    """Load the plugin and what it links; its own loader of libraries needs a driver."""
    import jax_plugins.xla_cuda13 as plugin

    for name in ("xla_cuda_plugin.so",):
        ctypes.CDLL(os.path.join(os.path.dirname(plugin.__file__), name), mode=2)
    names = ("_linalg", "_prng", "_rnn", "_solver", "_sparse", "_triton", "_versions", "_hybrid")
    modules = [importlib.import_module(f"jax_cuda13_plugin.{name}") for name in names]
    versions = {}
    for name in sorted(dir(modules[6])):
        if name.endswith("_get_version") and "driver" not in name:
            versions[name] = outcome(getattr(modules[6], name))
    return versions


def cupy_compiles() -> object:
    """Compile kernels with NVRTC: plain, with CUDA's half precision, with CuPy's and CCCL's headers."""
    import cupy
    from cupy.cuda import compiler

    include = os.path.join(os.path.dirname(cupy.__file__), "_core", "include")
    folders = [include, *(f"{include}/cupy/_cccl/{one}" for one in ("libcudacxx", "cub", "thrust"))]
    folders += glob.glob(f"{site()}/nvidia/*/include")
    sources = {
        "plain": 'extern "C" __global__ void k(float *x) { x[0] = 1; }',
        "half": HALF,
        "carray": '#include <cupy/complex.cuh>\n#include <cupy/carray.cuh>\nextern "C" __global__ void k() {}',
        "cub": '#include <cub/block/block_reduce.cuh>\nextern "C" __global__ void k() {}',
    }
    options = ("-arch=compute_90", "--device-as-default-execution-space", *(f"-I{one}" for one in folders))

    def compiled(source: str) -> object:
        program = compiler._NVRTCProgram(source, "k.cu", (), (), name_expressions=None, method="ptx")
        return len(program.compile(options)[0]) > 200

    return {name: outcome(lambda source=source: compiled(source)) for name, source in sources.items()}


def nvrtc_compiles() -> object:
    """Compile a kernel with half precision with NVIDIA's own bindings; cuda.core's need a driver."""
    from cuda.bindings import nvrtc

    _, program = nvrtc.nvrtcCreateProgram(HALF.encode(), b"k.cu", 0, [], [])
    options = [f"-I{one}".encode() for one in glob.glob(f"{site()}/nvidia/*/include")]
    (status,) = nvrtc.nvrtcCompileProgram(program, 1 + len(options), [b"-arch=compute_90", *options])
    return str(status)


def numba_cuda_compiles() -> object:
    """Compile a function with numba-cuda, and find the library of the device runtime."""
    import numba_cuda  # noqa: F401
    from numba import cuda, types
    from numba.cuda.cudadrv.libs import get_cudalib

    source, _ = cuda.compile_ptx(lambda x: x * 2, (types.float32,), cc=(9, 0), device=True)
    return ".visible" in source, os.path.exists(get_cudalib("cudadevrt", static=True))


def pathfinder_finds() -> object:
    """Ask cuda-pathfinder for each library."""
    from cuda.pathfinder import load_nvidia_dynamic_lib

    return {name: outcome(lambda name=name: bool(load_nvidia_dynamic_lib(name))) for name in PATHFINDER}


def onnxruntime_runs() -> object:
    """Run a model on the CPU."""
    import numpy
    import onnxruntime
    from onnx import TensorProto, helper

    one = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])
    two = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])
    graph = helper.make_graph([helper.make_node("Add", ["x", "x"], ["y"])], "g", [one], [two])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": numpy.ones(2, "float32")})[
        0
    ].tolist(), onnxruntime.get_available_providers()


def science_computes() -> object:
    """Solve, fit, read, plot and train a little with each package."""
    import gensim
    import numpy
    import pandas
    import scipy.linalg
    import sklearn.linear_model
    import statsmodels.api
    from gensim.test.utils import common_texts

    x = numpy.arange(12.0).reshape(4, 3) ** 1.5
    fitted = sklearn.linear_model.Ridge().fit(x, x.sum(1))
    words = gensim.models.Word2Vec(common_texts, vector_size=4, min_count=1, seed=1, workers=1)
    fit = statsmodels.api.OLS(x.sum(1), x).fit()
    return (scipy.linalg.svdvals(x).shape, pandas.DataFrame(x).groupby(0).sum().shape, fitted.coef_.shape,
            len(words.wv), fit.params.shape)  # fmt: skip


def torch_computes() -> object:
    """Differentiate and solve on the CPU."""
    import torch

    x = torch.eye(3, requires_grad=True)
    torch.linalg.solve(x, torch.ones(3)).sum().backward()
    return x.grad.shape, torch.version.cuda


def bitsandbytes_quantizes() -> object:
    """Quantize on the CPU, and load the library for PyTorch's CUDA as far as that goes without a driver."""
    import bitsandbytes
    import torch
    from bitsandbytes.cextension import get_cuda_bnb_library_path
    from bitsandbytes.cuda_specs import CUDASpecs

    packed, _ = bitsandbytes.functional.quantize_4bit(torch.ones(64, 64), quant_type="nf4")
    major, minor = map(int, torch.version.cuda.split("."))
    specs = CUDASpecs((9, 0), f"{major}{minor}", (major, minor))
    path = get_cuda_bnb_library_path(specs)
    ctypes.CDLL(str(path))
    return packed.shape, os.path.basename(path)


def modules_for_others() -> object:
    """Import what packages offer to other people's tests."""
    found = {}
    for name in FOR_OTHERS:
        if importlib.util.find_spec(name.partition(".")[0]):
            found[name] = outcome(lambda name=name: bool(importlib.import_module(name)))
    return found


CHECKS = (tensorflow_computes, tensorflow_finds_cuda, jax_computes, jax_finds_cuda, cupy_compiles, nvrtc_compiles,
          numba_cuda_compiles, pathfinder_finds, onnxruntime_runs, science_computes, torch_computes,
          bitsandbytes_quantizes, modules_for_others)  # fmt: skip


def outcome(check) -> object:  # type: ignore[no-untyped-def]
    """Return what a check returns, or the error that it ends with."""
    try:
        return check()
    except ModuleNotFoundError as error:
        return f"no module {error.name}"
    except Exception as error:
        if os.environ.get("CHECKS_VERBOSE"):
            traceback.print_exc()
        return f"{type(error).__name__}: {str(error).partition(chr(10))[0][:150]}"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as home:
        os.environ.update(HOME=home, TF_CPP_MIN_LOG_LEVEL="3", CUPY_CACHE_DIR=home, JAX_PLATFORMS="cpu")
        answers = {check.__name__: outcome(check) for check in CHECKS}
        sys.stdout.write(json.dumps(answers, default=str) + "\n")
        sys.stdout.flush()
    os._exit(0)
