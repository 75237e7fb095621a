// What the two translation units of separate_compilation.cu have in common.

#pragma once

extern __device__ int shared_counter;
extern __constant__ int shared_factor;

__device__ int other_function(int value);
__global__ void other_kernel(int *data);
