#pragma once

// Marks the visible symbols of a library; all others are hidden.
#define C10_API __attribute__((visibility("default")))
#define TORCH_API C10_API
#define TORCH_CUDA_API C10_API
#define TORCH_PYTHON_API C10_API
