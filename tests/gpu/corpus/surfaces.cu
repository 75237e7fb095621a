// Surfaces: kernels write and read arrays of one, two and three dimensions, with each boundary mode
// that does not trap.

#include "check.h"

__global__ void write_2d(cudaSurfaceObject_t surface, int width, int height)
{
	int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;

	if (x < width && y < height)
		surf2Dwrite(make_int2(x * 3 + y, x ^ y), surface, x * (int)sizeof(int2), y);
}

__global__ void read_2d(cudaSurfaceObject_t surface, int2 *out, int width, int height)
{
	int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;

	if (x < width && y < height) {
		int2 near =
			surf2Dread<int2>(surface, (x + 5) * (int)sizeof(int2), y + 3, cudaBoundaryModeClamp);
		int2 zero =
			surf2Dread<int2>(surface, (x + 5) * (int)sizeof(int2), y + 3, cudaBoundaryModeZero);

		out[y * width + x] = make_int2(near.x * 7 + zero.x, near.y * 11 + zero.y);
	}
}

__global__ void use_3d(cudaSurfaceObject_t surface, int *out, int side)
{
	int x = threadIdx.x, y = blockIdx.x, z = blockIdx.y, value;

	surf3Dwrite(x + 100 * y + 10000 * z, surface, x * 4, y, z);
	surf3Dread(&value, surface, x * 4, y, z);
	out[(z * side + y) * side + x] = value;
}

__global__ void write_1d(cudaSurfaceObject_t surface)
{
	surf1Dwrite((unsigned char)(threadIdx.x * 3), surface, threadIdx.x);
}

static cudaSurfaceObject_t surface_of(cudaArray_t array)
{
	cudaResourceDesc resource = {}, back = {};
	cudaSurfaceObject_t surface;

	resource.resType = cudaResourceTypeArray;
	resource.res.array.array = array;
	CHECK(cudaCreateSurfaceObject(&surface, &resource));
	CHECK(cudaGetSurfaceObjectResourceDesc(&back, surface));
	EXPECT(back.res.array.array == array);
	return surface;
}

int main()
{
	const int width = 300, height = 50, side = 24;
	cudaChannelFormatDesc pairs = cudaCreateChannelDesc<int2>(), ints = cudaCreateChannelDesc<int>(),
			      bytes = cudaCreateChannelDesc<unsigned char>();
	cudaArray_t flat, volume, line;
	cudaSurfaceObject_t surface;
	buffer<int2> out(width * height);
	buffer<int> cells(side * side * side);
	std::vector<unsigned char> row(200);

	CHECK(cudaMallocArray(&flat, &pairs, width, height, cudaArraySurfaceLoadStore));
	surface = surface_of(flat);
	write_2d<<<dim3(2, height), 256>>>(surface, width, height);
	read_2d<<<dim3(2, height), 256>>>(surface, out, width, height);
	CHECK(cudaGetLastError());
	report("flat", out.read());
	CHECK(cudaDestroySurfaceObject(surface));
	CHECK(cudaMalloc3DArray(
		&volume, &ints, make_cudaExtent(side, side, side), cudaArraySurfaceLoadStore));
	surface = surface_of(volume);
	use_3d<<<dim3(side, side), side>>>(surface, cells, side);
	CHECK(cudaGetLastError());
	report("volume", cells.read());
	CHECK(cudaDestroySurfaceObject(surface));
	CHECK(cudaMallocArray(&line, &bytes, 200, 0, cudaArraySurfaceLoadStore));
	surface = surface_of(line);
	write_1d<<<1, 200>>>(surface);
	CHECK(cudaGetLastError());
	CHECK(cudaMemcpy2DFromArray(row.data(), 200, line, 0, 0, 200, 1, cudaMemcpyDeviceToHost));
	report("line", row);
	CHECK(cudaDestroySurfaceObject(surface));
	for (cudaArray_t array : {flat, volume, line})
		CHECK(cudaFreeArray(array));
	return 0;
}
