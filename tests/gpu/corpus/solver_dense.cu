// cuSOLVER: linear systems by LU and Cholesky, eigenvalues, singular values of dense matrices,
// checked by their residuals.
//
// libraries: cusolver

#include "check.h"

#include <cmath>
#include <cusolverDn.h>

const int n = 96;

static void systems(cusolverDnHandle_t handle, const std::vector<double> &matrix)
{
	std::vector<double> right(n, 1), x;
	int size, larger;

	for (bool cholesky : {false, true}) {
		buffer<double> a(matrix), b(right);
		buffer<int> pivots(n), info(1);

		CHECK(cusolverDnDgetrf_bufferSize(handle, n, n, a, n, &size));
		CHECK(cusolverDnDpotrf_bufferSize(handle, CUBLAS_FILL_MODE_LOWER, n, a, n, &larger));
		buffer<double> workspace(size > larger ? size : larger);
		if (cholesky) {
			CHECK(cusolverDnDpotrf(
				handle, CUBLAS_FILL_MODE_LOWER, n, a, n, workspace, larger, info));
			CHECK(cusolverDnDpotrs(handle, CUBLAS_FILL_MODE_LOWER, n, 1, a, n, b, n, info));
		} else {
			CHECK(cusolverDnDgetrf(handle, n, n, a, n, workspace, pivots, info));
			CHECK(cusolverDnDgetrs(handle, CUBLAS_OP_N, n, 1, a, n, pivots, b, n, info));
		}
		x = b.read();
		for (int row = 0; row < n; row++) {
			double sum = 0;

			for (int column = 0; column < n; column++)
				sum += matrix[column * n + row] * x[column];
			EXPECT(fabs(sum - 1) < 1e-9);
		}
		printf("info %d\n", info.read()[0]);
		report(cholesky ? "Cholesky" : "LU", x);
	}
}

static void spectra(cusolverDnHandle_t handle, const std::vector<double> &matrix)
{
	buffer<double> a(matrix), values(n), u(n * n), v(n * n), singular(n);
	buffer<int> info(1);
	double trace = 0, sum = 0;
	int size;

	CHECK(cusolverDnDsyevd_bufferSize(
		handle, CUSOLVER_EIG_MODE_VECTOR, CUBLAS_FILL_MODE_LOWER, n, a, n, values, &size));
	buffer<double> workspace(size);
	CHECK(cusolverDnDsyevd(handle, CUSOLVER_EIG_MODE_VECTOR, CUBLAS_FILL_MODE_LOWER, n, a, n, values,
		workspace, size, info));
	std::vector<double> eigenvalues = values.read();
	for (int i = 0; i < n; i++) {
		trace += matrix[i * n + i];
		sum += eigenvalues[i];
	}
	EXPECT(info.read()[0] == 0 && fabs(trace - sum) < 1e-8);
	printf("eigenvalues add up to the trace\n");
	CHECK(cudaMemcpy(a, matrix.data(), a.bytes(), cudaMemcpyHostToDevice));
	CHECK(cusolverDnDgesvd_bufferSize(handle, n, n, &size));
	buffer<double> room(size);
	CHECK(cusolverDnDgesvd(
		handle, 'A', 'A', n, n, a, n, singular, u, n, v, n, room, size, nullptr, info));
	std::vector<double> s = singular.read();
	EXPECT(info.read()[0] == 0);
	for (int i = 0; i < n; i++) // a positive definite matrix: the same numbers, the largest first
		EXPECT(fabs(s[i] - eigenvalues[n - 1 - i]) < 1e-8);
	printf("singular values are the eigenvalues\n");
}

int main()
{
	std::vector<float> numbers = random_floats(n * n);
	std::vector<double> matrix(n * n, 0);
	cusolverDnHandle_t handle;

	for (int row = 0; row < n; row++)
		for (int column = 0; column < n; column++)
			matrix[column * n + row] = (double)numbers[row * n + column] +
						   numbers[column * n + row] + (row == column ? 2.0 * n : 0);
	CHECK(cusolverDnCreate(&handle));
	systems(handle, matrix);
	spectra(handle, matrix);
	CHECK(cusolverDnDestroy(handle));
	return 0;
}
