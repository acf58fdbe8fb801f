// libcaffe2_nvrtc: in PyTorch it opens NVRTC; in the model it has one dummy function.
extern "C" __attribute__((visibility("default"))) int load_nvrtc() { return 0; }
