// Attributes of kernels: sizes, limits, versions, parameters, names, and what may be set.

#include "check.h"

__constant__ int table[100];

struct parameters {
	char bytes[100];
};

__global__ void small(int *out)
{
	*out = table[*out];
}

__global__ void large(parameters p, double factor, int *out)
{
	__shared__ int part[500];
	int local[50];

	for (int i = 0; i < 50; i++)
		local[i] = p.bytes[i] * (int)factor;
	part[threadIdx.x] = local[out[threadIdx.x] % 50];
	__syncthreads();
	out[threadIdx.x] = part[threadIdx.x ^ 1];
}

template <class K> static void describe(const char *label, K kernel)
{
	cudaFuncAttributes a;
	const char *name;
	cudaFunction_t function;
	size_t offset, size;

	CHECK(cudaFuncGetAttributes(&a, kernel));
	printf("%s: shared %zu, constant %zu, local %zu, threads %d, registers %d, ptx %d, binary %d\n",
		label, a.sharedSizeBytes, a.constSizeBytes, a.localSizeBytes, a.maxThreadsPerBlock, a.numRegs,
		a.ptxVersion, a.binaryVersion);
	printf("%s: dynamic %d, carve-out %d, cluster %d of %d %d %d, schedule %d, not portable %d\n", label,
		a.maxDynamicSharedSizeBytes, a.preferredShmemCarveout, a.clusterDimMustBeSet,
		a.requiredClusterWidth, a.requiredClusterHeight, a.requiredClusterDepth,
		a.clusterSchedulingPolicyPreference, a.nonPortableClusterSizeAllowed);
	CHECK(cudaFuncGetName(&name, (const void *)kernel));
	printf("%s: %s", label, name);
	CHECK(cudaGetFuncBySymbol(&function, (const void *)kernel));
	for (size_t i = 0; cuFuncGetParamInfo(function, i, &offset, &size) == CUDA_SUCCESS; i++)
		printf(", %zu at %zu", size, offset);
	printf("\n");
}

int main()
{
	cudaFuncAttributes a;

	describe("small", small);
	describe("large", large);
	CHECK(cudaFuncSetAttribute(small, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
	CHECK(cudaFuncSetAttribute(small, cudaFuncAttributeMaxDynamicSharedMemorySize, 1000));
	CHECK(cudaFuncSetAttribute(small, cudaFuncAttributeClusterSchedulingPolicyPreference,
		cudaClusterSchedulingPolicySpread));
	describe("changed", small);
	printf("not a kernel: %s\n", name_of(cudaFuncGetAttributes(&a, (const void *)main)));
	printf("negative: %s\n",
		name_of(cudaFuncSetAttribute(large, cudaFuncAttributeMaxDynamicSharedMemorySize, -5)));
	printf("last: %s\n", name_of(cudaGetLastError()));
	return 0;
}
