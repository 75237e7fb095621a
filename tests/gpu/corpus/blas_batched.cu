// cuBLAS: many small products at once, by strides and by arrays of pointers, and triangular
// systems; scalars on the device.
//
// libraries: cublas

#include "check.h"

#include <cublas_v2.h>

int main()
{
	const int n = 24, batch = 100, each = n * n;
	std::vector<float> numbers = random_floats(each * batch), product;
	std::vector<float *> places(3 * batch);
	std::vector<float> scalars = {2, 0};
	buffer<float> a(numbers), b(random_floats(each * batch, 2)), c(each * batch), scalar(scalars);
	const float one = 1, none = 0;
	cublasHandle_t handle;

	for (int i = 0; i < batch; i++) {
		places[i] = a + i * each;
		places[batch + i] = b + (batch - 1 - i) * each;
		places[2 * batch + i] = c + i * each;
		for (int k = 0; k < n; k++)
			numbers[i * each + k * (n + 1)] += 10; // a well-conditioned diagonal
	}
	CHECK(cudaMemcpy(a, numbers.data(), a.bytes(), cudaMemcpyHostToDevice));
	buffer<float *> at(places);
	CHECK(cublasCreate(&handle));
	CHECK(cublasSgemmStridedBatched(handle, CUBLAS_OP_N, CUBLAS_OP_N, n, n, n, &one, a, n, each, b, n,
		each, &none, c, n, each, batch));
	report("by strides", c.read());
	CHECK(cublasSetPointerMode(handle, CUBLAS_POINTER_MODE_DEVICE));
	CHECK(cublasSgemmBatched(handle, CUBLAS_OP_N, CUBLAS_OP_T, n, n, n, scalar, (const float **)at.at, n,
		(const float **)at.at + batch, n, scalar + 1, at + 2 * batch, n, batch));
	product = c.read();
	report("by pointers", product);
	CHECK(cublasSetPointerMode(handle, CUBLAS_POINTER_MODE_HOST));
	CHECK(cublasStrsmBatched(handle, CUBLAS_SIDE_LEFT, CUBLAS_FILL_MODE_LOWER, CUBLAS_OP_N,
		CUBLAS_DIAG_NON_UNIT, n, n, &one, (const float **)at.at, n, at + 2 * batch, n, batch));
	report("triangular", c.read());
	CHECK(cublasDestroy(handle));
	return 0;
}
