// An ordinary CUDA runtime program, built by nvcc with the static runtime library: copies, streams,
// events, a symbol, pinned memory, several kernels, several threads. Prints only what must be the
// same on every run, so that its output through the service can be compared with its native output
// byte by byte.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#define CHECK(call)                                                                                                    \
	do {                                                                                                           \
		cudaError_t error_ = (call);                                                                           \
		if (error_ != cudaSuccess) {                                                                           \
			printf("%s: %s (%d)\n", #call, cudaGetErrorString(error_), (int)error_);                       \
			exit(1);                                                                                       \
		}                                                                                                      \
	} while (0)

__constant__ uint32_t salt[4];
__device__ uint32_t counter;

__global__ void mix(uint32_t *data, size_t count, uint32_t round)
{
	for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count; i += (size_t)gridDim.x * blockDim.x) {
		uint32_t x = data[i] ^ salt[i & 3] ^ round;
		x ^= x << 13;
		x ^= x >> 17;
		x ^= x << 5;
		data[i] = x + (uint32_t)i;
	}
}

__global__ void saxpy(float a, const float *x, float *y, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i < n)
		y[i] = a * x[i] + y[i];
}

__global__ void block_sum(const float *x, float *out, int n)
{
	extern __shared__ float part[];
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	part[threadIdx.x] = i < n ? x[i] : 0;
	__syncthreads();
	for (int step = blockDim.x / 2; step > 0; step /= 2) {
		if (threadIdx.x < step)
			part[threadIdx.x] += part[threadIdx.x + step];
		__syncthreads();
	}
	if (threadIdx.x == 0)
		out[blockIdx.x] = part[0];
}

__global__ void count_up(uint32_t by)
{
	atomicAdd(&counter, by);
}

static uint64_t checksum(const void *bytes, size_t size)
{
	uint64_t hash = 1469598103934665603ull;
	for (size_t i = 0; i < size; i++)
		hash = (hash ^ ((const uint8_t *)bytes)[i]) * 1099511628211ull;
	return hash;
}

static void device_facts()
{
	cudaDeviceProp p;
	int count;

	CHECK(cudaGetDeviceCount(&count));
	CHECK(cudaGetDeviceProperties(&p, 0));
	printf("devices %d, %s, sm %d%d, %d SMs, %zu bytes, shared %zu, warp %d, pci %d:%d\n", count, p.name, p.major,
		p.minor, p.multiProcessorCount, p.totalGlobalMem, p.sharedMemPerBlock, p.warpSize, p.pciBusID,
		p.pciDeviceID);
}

static void integers()
{
	const size_t count = (1 << 22) + 7;
	const uint32_t values[4] = {1, 22, 333, 4444};
	std::vector<uint32_t> host(count);
	uint32_t *device;

	for (size_t i = 0; i < count; i++)
		host[i] = (uint32_t)(i * 2654435761u);
	CHECK(cudaMemcpyToSymbol(salt, values, sizeof(values)));
	CHECK(cudaMalloc(&device, count * 4));
	CHECK(cudaMemcpy(device, host.data(), count * 4, cudaMemcpyHostToDevice));
	for (uint32_t round = 0; round < 50; round++)
		mix<<<264, 256>>>(device, count, round);
	CHECK(cudaGetLastError());
	CHECK(cudaMemcpy(host.data(), device, count * 4, cudaMemcpyDeviceToHost));
	printf("integers %016llx\n", (unsigned long long)checksum(host.data(), count * 4));
	CHECK(cudaMemset(device, 0xa5, count * 4));
	CHECK(cudaMemcpy(host.data(), device, count * 4, cudaMemcpyDeviceToHost));
	printf("memset %016llx\n", (unsigned long long)checksum(host.data(), count * 4));
	CHECK(cudaFree(device));
}

static void floats_in_streams()
{
	const int n = 1 << 20, streams = 4;
	cudaStream_t stream[streams];
	cudaEvent_t done, begin, end;
	float *pinned, *x, *y, *sums, ms;
	std::vector<float> result(n / 256);

	CHECK(cudaMallocHost(&pinned, n * sizeof(float)));
	for (int i = 0; i < n; i++)
		pinned[i] = (float)(i % 1000) / 7;
	CHECK(cudaMalloc(&x, n * sizeof(float)));
	CHECK(cudaMalloc(&y, n * sizeof(float)));
	CHECK(cudaMalloc(&sums, n / 256 * sizeof(float)));
	CHECK(cudaEventCreate(&begin));
	CHECK(cudaEventCreate(&end));
	CHECK(cudaEventCreateWithFlags(&done, cudaEventDisableTiming));
	for (int i = 0; i < streams; i++)
		CHECK(cudaStreamCreate(&stream[i]));
	CHECK(cudaEventRecord(begin, stream[0]));
	CHECK(cudaMemcpyAsync(x, pinned, n * sizeof(float), cudaMemcpyHostToDevice, stream[0]));
	CHECK(cudaMemsetAsync(y, 0, n * sizeof(float), stream[0]));
	CHECK(cudaEventRecord(done, stream[0]));
	for (int i = 1; i < streams; i++)
		CHECK(cudaStreamWaitEvent(stream[i], done, 0));
	for (int i = 0; i < streams; i++)
		saxpy<<<n / streams / 256, 256, 0, stream[i]>>>(2.5f, x + i * (n / streams), y + i * (n / streams),
			n / streams);
	/* The legacy default stream waits for all of these and they wait for it. */
	block_sum<<<n / 256, 256, 256 * sizeof(float)>>>(y, sums, n);
	saxpy<<<n / 256, 256, 0, stream[1]>>>(1.0f, x, y, n);
	CHECK(cudaMemcpy(result.data(), sums, result.size() * sizeof(float), cudaMemcpyDeviceToHost));
	printf("sums %016llx\n", (unsigned long long)checksum(result.data(), result.size() * sizeof(float)));
	CHECK(cudaMemcpyAsync(pinned, y, n * sizeof(float), cudaMemcpyDeviceToHost, stream[1]));
	CHECK(cudaStreamSynchronize(stream[1]));
	printf("saxpy %016llx\n", (unsigned long long)checksum(pinned, n * sizeof(float)));
	CHECK(cudaEventRecord(end, stream[1]));
	CHECK(cudaEventSynchronize(end));
	CHECK(cudaEventElapsedTime(&ms, begin, end));
	printf("time passed: %s\n", ms > 0 && ms < 10000 ? "yes" : "no");
	for (int i = 0; i < streams; i++)
		CHECK(cudaStreamDestroy(stream[i]));
	CHECK(cudaFreeHost(pinned));
	CHECK(cudaFree(x));
	CHECK(cudaFree(y));
	CHECK(cudaFree(sums));
}

static void threads()
{
	uint32_t zero = 0, total;
	std::vector<std::thread> all;

	CHECK(cudaMemcpyToSymbol(counter, &zero, sizeof(zero)));
	for (int t = 0; t < 8; t++)
		all.emplace_back([t] {
			cudaStream_t stream;
			CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
			for (int i = 0; i < 500; i++)
				count_up<<<4, 32, 0, stream>>>(t + 1);
			CHECK(cudaStreamSynchronize(stream));
			CHECK(cudaStreamDestroy(stream));
		});
	for (auto &thread : all)
		thread.join();
	CHECK(cudaMemcpyFromSymbol(&total, counter, sizeof(total)));
	printf("counter %u\n", total);
}

static void rows()
{
	const size_t width = 1000, height = 333;
	std::vector<uint8_t> host(width * height), back(width * height);
	uint8_t *device;
	size_t pitch;

	for (size_t i = 0; i < host.size(); i++)
		host[i] = (uint8_t)(i * 7);
	CHECK(cudaMallocPitch(&device, &pitch, width, height));
	CHECK(cudaMemcpy2D(device, pitch, host.data(), width, width, height, cudaMemcpyHostToDevice));
	CHECK(cudaMemcpy2D(back.data(), width, device, pitch, width, height, cudaMemcpyDeviceToHost));
	printf("rows %016llx, pitch %zu\n", (unsigned long long)checksum(back.data(), back.size()), pitch);
	CHECK(cudaFree(device));
}

static void errors()
{
	void *nothing;
	cudaFuncAttributes attributes;
	int blocks;

	printf("too much memory: %s\n", cudaGetErrorString(cudaMalloc(&nothing, (size_t)1 << 45)));
	cudaGetLastError();
	mix<<<1, 4096>>>(nullptr, 0, 0);
	printf("block too large: %s\n", cudaGetErrorString(cudaGetLastError()));
	CHECK(cudaFuncGetAttributes(&attributes, block_sum));
	CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, block_sum, 256, 1024));
	printf("max threads %d, occupancy %d\n", attributes.maxThreadsPerBlock, blocks);
	printf("stream query: %s\n", cudaGetErrorString(cudaStreamQuery(0)));
	CHECK(cudaDeviceSynchronize());
}

int main()
{
	device_facts();
	integers();
	floats_in_streams();
	threads();
	rows();
	errors();
	CHECK(cudaDeviceReset());
	printf("end\n");
	return 0;
}
