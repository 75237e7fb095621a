// cublasLt: a product of half matrices with a bias and a rectifier, its algorithm chosen by the
// library.
//
// libraries: cublasLt

#include "check.h"

#include <cublasLt.h>
#include <cuda_fp16.h>

int main()
{
	const int m = 256, n = 192, k = 320;
	std::vector<float> numbers = random_floats(k * (m + n)), shift = random_floats(m, 5);
	std::vector<__half> a, b, bias;
	cublasLtHandle_t handle;
	cublasLtMatmulDesc_t operation;
	cublasLtMatrixLayout_t layout_a, layout_b, layout_c;
	cublasLtMatmulPreference_t preference;
	cublasLtMatmulHeuristicResult_t found;
	cublasOperation_t transpose = CUBLAS_OP_T;
	cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_RELU_BIAS;
	const float one = 1, none = 0;
	size_t room = 4 << 20;
	int results;

	for (int i = 0; i < k * (m + n); i++)
		(i < k * m ? a : b).push_back(__float2half(numbers[i] - 0.5f));
	for (float value : shift)
		bias.push_back(__float2half(value));
	buffer<__half> device_a(a), device_b(b), device_bias(bias), c(m * n);
	buffer<char> workspace(room);
	void *place = device_bias.at;
	CHECK(cublasLtCreate(&handle));
	CHECK(cublasLtMatmulDescCreate(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F));
	CHECK(cublasLtMatmulDescSetAttribute(
		operation, CUBLASLT_MATMUL_DESC_TRANSA, &transpose, sizeof(transpose)));
	CHECK(cublasLtMatmulDescSetAttribute(
		operation, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof(epilogue)));
	CHECK(cublasLtMatmulDescSetAttribute(
		operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &place, sizeof(place)));
	CHECK(cublasLtMatrixLayoutCreate(&layout_a, CUDA_R_16F, k, m, k));
	CHECK(cublasLtMatrixLayoutCreate(&layout_b, CUDA_R_16F, k, n, k));
	CHECK(cublasLtMatrixLayoutCreate(&layout_c, CUDA_R_16F, m, n, m));
	CHECK(cublasLtMatmulPreferenceCreate(&preference));
	CHECK(cublasLtMatmulPreferenceSetAttribute(
		preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &room, sizeof(room)));
	CHECK(cublasLtMatmulAlgoGetHeuristic(
		handle, operation, layout_a, layout_b, layout_c, layout_c, preference, 1, &found, &results));
	EXPECT(results == 1);
	CHECK(cublasLtMatmul(handle, operation, &one, device_a, layout_a, device_b, layout_b, &none, c,
		layout_c, c, layout_c, &found.algo, workspace, room, 0));
	std::vector<__half> result = c.read();
	for (int row = 0; row < m; row += 17)
		for (int column = 0; column < n; column += 13) {
			double sum = __half2float(bias[row]);

			for (int i = 0; i < k; i++)
				sum += (double)__half2float(a[row * k + i]) * __half2float(b[column * k + i]);
			sum = sum > 0 ? sum : 0;
			float value = __half2float(result[column * m + row]);
			EXPECT(value > sum - 0.05 && value < sum + 0.05);
		}
	report("product", result);
	CHECK(cublasLtMatmulPreferenceDestroy(preference));
	for (cublasLtMatrixLayout_t layout : {layout_a, layout_b, layout_c})
		CHECK(cublasLtMatrixLayoutDestroy(layout));
	CHECK(cublasLtMatmulDescDestroy(operation));
	CHECK(cublasLtDestroy(handle));
	return 0;
}
