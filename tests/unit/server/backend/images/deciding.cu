// deciding.cubin: nvcc -arch=sm_90 -cubin; condition_setter.cubin: setter_text of
// server/backend/cuda/condition.c by ptxas -arch=sm_90 -c -maxrregcount 24.
__global__ void deciding(cudaGraphConditionalHandle handle, const unsigned *word)
{
	cudaGraphSetConditional(handle, *word < 5);
}
