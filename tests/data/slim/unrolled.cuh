// Enough machine code for whole pages of it to go, compressed or not: no two instructions are the same.
template <int times>
__global__ void unrolled(float* values) {
  float value = values[threadIdx.x];
#pragma unroll
  for (int i = 1; i < times; ++i) value = value * (i * 7919 % 104729 * 1.37f) + i * 611953 % 15485863 * 0.71f;
  values[threadIdx.x] = value;
}
template __global__ void unrolled<1500>(float*);
