#pragma once

// The functions that libtorch_cuda takes from libcaffe2_nvrtc, which it opens when it needs them.
struct NVRTC {
  // Writes a kernel's C++ source for an element-wise expression into `out`; gives its length.
  int (*write_source)(const char* name, const char* expression, char* out, int capacity);
};

extern "C" __attribute__((visibility("default"))) const NVRTC* load_nvrtc();
