// Questions about peers and copies "between" devices, on however many there are: here a device and
// itself.

#include "check.h"

int main()
{
	int count, value;
	std::vector<uint32_t> words = random_words(100000);
	buffer<uint32_t> first(words), second(words.size());
	cudaMemcpy3DPeerParms copy = {};

	CHECK(cudaGetDeviceCount(&count));
	printf("devices %d\n", count);
	CHECK(cudaDeviceCanAccessPeer(&value, 0, 0));
	printf("access to itself %d\n", value);
	printf("attribute: %s\n",
		name_of(cudaDeviceGetP2PAttribute(&value, cudaDevP2PAttrAccessSupported, 0, 0)));
	cudaGetLastError();
	printf("enable: %s\n", name_of(cudaDeviceEnablePeerAccess(0, 0)));
	cudaGetLastError();
	printf("disable: %s\n", name_of(cudaDeviceDisablePeerAccess(0)));
	cudaGetLastError();
	printf("unknown device: %s\n", name_of(cudaDeviceCanAccessPeer(&value, 0, 1000)));
	cudaGetLastError();
	CHECK(cudaMemcpyPeer(second, 0, first, 0, first.bytes()));
	EXPECT(second.read() == words);
	CHECK(cudaMemset(second, 0, second.bytes()));
	CHECK(cudaMemcpyPeerAsync(second, 0, first, 0, first.bytes() / 2, 0));
	words.resize(words.size() / 2);
	words.resize(words.size() * 2, 0);
	EXPECT(second.read() == words);
	copy.srcPtr = make_cudaPitchedPtr(first, 400, 100, 500);
	copy.dstPtr = make_cudaPitchedPtr(second, 400, 100, 500);
	copy.extent = make_cudaExtent(200, 10, 2);
	copy.srcPos = make_cudaPos(40, 2, 0);
	CHECK(cudaMemcpy3DPeer(&copy));
	CHECK(cudaMemcpy3DPeerAsync(&copy, 0));
	report("copied", second.read());
	return 0;
}
