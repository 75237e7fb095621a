// cuBLAS: vector operations, products of single, double, half and 8-bit matrices, in a stream of
// its own, with a workspace.
//
// libraries: cublas

#include "check.h"

#include <cublas_v2.h>
#include <cuda_fp16.h>

int main()
{
	const int n = 256;
	std::vector<float> numbers = random_floats(n * n), more = random_floats(n * n, 9), product;
	std::vector<double> doubles(numbers.begin(), numbers.end());
	std::vector<__half> halves(numbers.begin(), numbers.end());
	buffer<float> a(numbers), b(more), c(n * n);
	buffer<double> da(doubles), dc(n * n);
	buffer<__half> ha(halves), hc(n * n);
	buffer<char> workspace(32 << 20);
	const float one = 1, none = 0;
	const double done = 1, dnone = 0;
	cublasHandle_t handle;
	cudaStream_t stream;
	float dot, norm;
	int largest;

	CHECK(cublasCreate(&handle));
	CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	CHECK(cublasSdot(handle, n * n, a, 1, b, 1, &dot));
	CHECK(cublasSnrm2(handle, n * n, a, 1, &norm));
	CHECK(cublasIsamax(handle, n * n, a, 1, &largest));
	printf("dot %a, norm %a, largest at %d\n", dot, norm, largest);
	for (bool own : {false, true}) {
		if (own) {
			CHECK(cublasSetStream(handle, stream));
			CHECK(cublasSetWorkspace(handle, workspace, workspace.bytes()));
		}
		CHECK(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_T, n, n, n, &one, a, n, b, n, &none, c, n));
		product = c.read();
		for (int i = 0; i < n; i += 31) {
			double sum = 0;

			for (int k = 0; k < n; k++)
				sum += (double)numbers[k * n + i] * more[k * n + 7];
			EXPECT(product[7 * n + i] > sum - 1e-2 && product[7 * n + i] < sum + 1e-2);
		}
		report("single", product);
		CHECK(cublasDgemm(
			handle, CUBLAS_OP_N, CUBLAS_OP_N, n, n, n, &done, da, n, da, n, &dnone, dc, n));
		report("double", dc.read());
		CHECK(cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, n, n, n, &one, ha, CUDA_R_16F, n, ha,
			CUDA_R_16F, n, &none, hc, CUDA_R_16F, n, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
		report("half", hc.read());
		CHECK(cublasSetMathMode(handle, CUBLAS_TF32_TENSOR_OP_MATH));
		CHECK(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, n, n, n, &one, a, n, b, n, &none, c, n));
		report("tf32", c.read());
		CHECK(cublasSetMathMode(handle, CUBLAS_DEFAULT_MATH));
		CHECK(cublasSgemv(handle, CUBLAS_OP_N, n, n, &one, a, n, b, 1, &none, c, 1));
		report("vector", c.read());
	}
	CHECK(cublasDestroy(handle));
	return 0;
}
