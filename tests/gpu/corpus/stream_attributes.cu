// Attributes of streams: the window of persisting L2 accesses, the waiting policy, copies from
// stream to stream, limits of the cache.

#include "check.h"

__global__ void touch(int *data, int count)
{
	for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
		data[i]++;
}

int main()
{
	const int count = 1 << 20;
	buffer<int> data(count);
	cudaStream_t first, second;
	cudaStreamAttrValue value = {}, back = {};
	int most;

	CHECK(cudaStreamCreate(&first));
	CHECK(cudaStreamCreate(&second));
	CHECK(cudaDeviceGetAttribute(&most, cudaDevAttrMaxAccessPolicyWindowSize, 0));
	printf("largest window %d\n", most);
	CHECK(cudaDeviceSetLimit(cudaLimitPersistingL2CacheSize, 1 << 20));
	value.accessPolicyWindow.base_ptr = data.at;
	value.accessPolicyWindow.num_bytes = 1 << 20;
	value.accessPolicyWindow.hitRatio = 0.5f;
	value.accessPolicyWindow.hitProp = cudaAccessPropertyPersisting;
	value.accessPolicyWindow.missProp = cudaAccessPropertyStreaming;
	CHECK(cudaStreamSetAttribute(first, cudaStreamAttributeAccessPolicyWindow, &value));
	for (int i = 0; i < 20; i++)
		touch<<<64, 256, 0, first>>>(data, count);
	CHECK(cudaGetLastError());
	CHECK(cudaStreamGetAttribute(first, cudaStreamAttributeAccessPolicyWindow, &back));
	printf("window at the buffer: %s, %zu bytes, ratio %g, %d %d\n",
		back.accessPolicyWindow.base_ptr == data.at ? "yes" : "no", back.accessPolicyWindow.num_bytes,
		back.accessPolicyWindow.hitRatio, (int)back.accessPolicyWindow.hitProp,
		(int)back.accessPolicyWindow.missProp);
	CHECK(cudaStreamCopyAttributes(second, first));
	back = {};
	CHECK(cudaStreamGetAttribute(second, cudaStreamAttributeAccessPolicyWindow, &back));
	printf("copied: %zu bytes\n", back.accessPolicyWindow.num_bytes);
	value = {};
	CHECK(cudaStreamSetAttribute(first, cudaStreamAttributeAccessPolicyWindow, &value));
	CHECK(cudaCtxResetPersistingL2Cache());
	value.syncPolicy = cudaSyncPolicyBlockingSync;
	CHECK(cudaStreamSetAttribute(first, cudaStreamAttributeSynchronizationPolicy, &value));
	CHECK(cudaStreamGetAttribute(first, cudaStreamAttributeSynchronizationPolicy, &back));
	printf("policy %d\n", (int)back.syncPolicy);
	CHECK(cudaStreamGetAttribute(first, cudaStreamAttributePriority, &back));
	printf("priority %d\n", back.priority);
	touch<<<64, 256, 0, first>>>(data, count);
	CHECK(cudaGetLastError());
	CHECK(cudaStreamSynchronize(first));
	printf("touched %d\n", data.read()[count - 1]);
	value.accessPolicyWindow.num_bytes = (size_t)1 << 40;
	printf("too large a window: %s\n",
		name_of(cudaStreamSetAttribute(first, cudaStreamAttributeAccessPolicyWindow, &value)));
	return 0;
}
