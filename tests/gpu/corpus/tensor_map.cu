// The tensor memory accelerator: tiles go in and out of shared memory by a tensor map that the
// driver encoded.

#include "check.h"

#include <cuda/barrier>

using barrier = cuda::barrier<cuda::thread_scope_block>;
namespace cde = cuda::device::experimental;

const int tile = 32;
/* Where a tile begins in memory has to be a multiple of 16 bytes; elsewhere it is an illegal
 * instruction. */
const int shift = 4;

__global__ void shift_tiles(const __grid_constant__ CUtensorMap in, const __grid_constant__ CUtensorMap out)
{
	__shared__ alignas(128) int part[tile][tile];
	__shared__ barrier arrived;
	barrier::arrival_token token;
	int x = blockIdx.x * tile, y = blockIdx.y * tile;

	if (threadIdx.x == 0) {
		init(&arrived, blockDim.x);
		cde::fence_proxy_async_shared_cta();
	}
	__syncthreads();
	if (threadIdx.x == 0) {
		cde::cp_async_bulk_tensor_2d_global_to_shared(part, &in, x - shift, y + 5, arrived);
		token = cuda::device::barrier_arrive_tx(arrived, 1, sizeof(part));
	} else {
		token = arrived.arrive();
	}
	arrived.wait(std::move(token));
	for (int i = threadIdx.x; i < tile * tile; i += blockDim.x)
		part[i / tile][i % tile] += 1000000;
	cde::fence_proxy_async_shared_cta();
	__syncthreads();
	if (threadIdx.x == 0) {
		cde::cp_async_bulk_tensor_2d_shared_to_global(&out, x, y, part);
		cde::cp_async_bulk_commit_group();
		cde::cp_async_bulk_wait_group_read<0>();
	}
	__syncthreads();
}

static CUresult encode(CUtensorMap *map, void *address, uint64_t width, uint64_t height, uint64_t pitch)
{
	const cuuint64_t sizes[2] = {width, height}, strides[1] = {pitch};
	const cuuint32_t box[2] = {tile, tile}, steps[2] = {1, 1};

	return cuTensorMapEncodeTiled(map, CU_TENSOR_MAP_DATA_TYPE_INT32, 2, address, sizes, strides, box,
		steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
		CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

int main()
{
	const int width = 200, height = 150, pitch = 224;
	std::vector<int> values(pitch * height), result;
	CUtensorMap in, out;

	for (size_t i = 0; i < values.size(); i++)
		values[i] = (int)i;
	buffer<int> source(values), target(values.size());
	CHECK(encode(&in, source, width, height, pitch * sizeof(int)));
	CHECK(encode(&out, target, width, height, pitch * sizeof(int)));
	shift_tiles<<<dim3((width + tile - 1) / tile, (height + tile - 1) / tile), 128>>>(in, out);
	CHECK(cudaGetLastError());
	result = target.read();
	for (int y = 0; y < height; y++)
		for (int x = 0; x < pitch; x++) {
			bool inside =
				x >= shift && y + 5 < height; // what is outside the tensor reads as zero
			int model = x >= width ? 0 : 1000000 + (inside ? (y + 5) * pitch + x - shift : 0);

			EXPECT(result[y * pitch + x] == model);
		}
	report("shifted", result);
	printf("odd address: %s\n",
		name_of(encode(&in, (char *)source.at + 4, width, height, pitch * sizeof(int))));
	printf("odd pitch: %s\n", name_of(encode(&in, source, width, height, 1001)));
	return 0;
}
