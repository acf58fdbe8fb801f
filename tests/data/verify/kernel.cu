// Two instances of a template, so that fatbins hold more than one kernel.
template <typename T>
__global__ void twice(T* out, const T* in, long count) {
  long i = blockIdx.x * static_cast<long>(blockDim.x) + threadIdx.x;
  if (i < count) out[i] = in[i] + in[i];
}

void twice_cuda(float* out, const float* in, long count) { twice<<<(count + 255) / 256, 256>>>(out, in, count); }
void twice_cuda(double* out, const double* in, long count) { twice<<<(count + 255) / 256, 256>>>(out, in, count); }
