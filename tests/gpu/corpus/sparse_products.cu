// cuSPARSE: products of a sparse matrix with a vector and a matrix, conversion from coordinates to
// rows, to dense.
//
// libraries: cusparse

#include "check.h"

#include <cusparse.h>

int main()
{
	const int rows = 1000, columns = 800, width = 16;
	std::vector<uint32_t> words = random_words(rows * columns);
	std::vector<int> row_of, offsets(1, 0), column_of;
	std::vector<float> values, vector = random_floats(columns, 3),
				   dense = random_floats(columns * width, 4), y;
	const float one = 1, none = 0;
	cusparseHandle_t handle;
	cusparseSpMatDescr_t matrix;
	cusparseDnVecDescr_t in, out;
	cusparseDnMatDescr_t many, product, full;
	size_t size;

	for (int row = 0; row < rows; row++) {
		for (int column = 0; column < columns; column++)
			if (words[row * columns + column] % 50 == 0) {
				row_of.push_back(row);
				column_of.push_back(column);
				values.push_back((float)(words[row * columns + column] % 1000) / 500 - 1);
			}
		offsets.push_back((int)values.size());
	}
	buffer<int> device_rows(row_of), device_offsets(rows + 1), device_columns(column_of);
	buffer<float> device_values(values), x(vector), result(rows), block(dense), wide(rows * width),
		all(rows * columns);
	CHECK(cusparseCreate(&handle));
	CHECK(cusparseXcoo2csr(
		handle, device_rows, (int)values.size(), rows, device_offsets, CUSPARSE_INDEX_BASE_ZERO));
	EXPECT(device_offsets.read() == offsets);
	CHECK(cusparseCreateCsr(&matrix, rows, columns, (int64_t)values.size(), device_offsets.at,
		device_columns.at, device_values.at, CUSPARSE_INDEX_32I, CUSPARSE_INDEX_32I,
		CUSPARSE_INDEX_BASE_ZERO, CUDA_R_32F));
	CHECK(cusparseCreateDnVec(&in, columns, x.at, CUDA_R_32F));
	CHECK(cusparseCreateDnVec(&out, rows, result.at, CUDA_R_32F));
	CHECK(cusparseSpMV_bufferSize(handle, CUSPARSE_OPERATION_NON_TRANSPOSE, &one, matrix, in, &none, out,
		CUDA_R_32F, CUSPARSE_SPMV_CSR_ALG2, &size));
	buffer<char> room(size + 1);
	CHECK(cusparseSpMV(handle, CUSPARSE_OPERATION_NON_TRANSPOSE, &one, matrix, in, &none, out, CUDA_R_32F,
		CUSPARSE_SPMV_CSR_ALG2, room.at));
	y = result.read();
	for (int row = 0; row < rows; row++) {
		double sum = 0;

		for (int i = offsets[row]; i < offsets[row + 1]; i++)
			sum += (double)values[i] * vector[column_of[i]];
		EXPECT(y[row] > sum - 1e-4 && y[row] < sum + 1e-4);
	}
	report("vector", y);
	CHECK(cusparseCreateDnMat(&many, columns, width, columns, block.at, CUDA_R_32F, CUSPARSE_ORDER_COL));
	CHECK(cusparseCreateDnMat(&product, rows, width, rows, wide.at, CUDA_R_32F, CUSPARSE_ORDER_COL));
	CHECK(cusparseSpMM_bufferSize(handle, CUSPARSE_OPERATION_NON_TRANSPOSE,
		CUSPARSE_OPERATION_NON_TRANSPOSE, &one, matrix, many, &none, product, CUDA_R_32F,
		CUSPARSE_SPMM_CSR_ALG3, &size));
	buffer<char> space(size + 1);
	CHECK(cusparseSpMM(handle, CUSPARSE_OPERATION_NON_TRANSPOSE, CUSPARSE_OPERATION_NON_TRANSPOSE, &one,
		matrix, many, &none, product, CUDA_R_32F, CUSPARSE_SPMM_CSR_ALG3, space.at));
	report("matrix", wide.read());
	CHECK(cusparseCreateDnMat(&full, rows, columns, rows, all.at, CUDA_R_32F, CUSPARSE_ORDER_COL));
	CHECK(cusparseSparseToDense_bufferSize(
		handle, matrix, full, CUSPARSE_SPARSETODENSE_ALG_DEFAULT, &size));
	buffer<char> last(size + 1);
	CHECK(cusparseSparseToDense(handle, matrix, full, CUSPARSE_SPARSETODENSE_ALG_DEFAULT, last.at));
	report("dense", all.read());
	CHECK(cusparseDestroySpMat(matrix));
	CHECK(cusparseDestroy(handle));
	return 0;
}
