// Kernel parameters of four bytes, of just 4 KiB, beyond it, and of the most there can be; many
// small ones of odd sizes.

#include "check.h"

template <int words> struct block {
	uint32_t word[words];
};

template <int words> __global__ void copy(block<words> in, uint32_t *out)
{
	for (int i = threadIdx.x; i < words; i += blockDim.x)
		out[i] = in.word[i] * 3 + 1;
}

__global__ void mixed(char a, double b, short c, const char *d, float e, char f, long long g, bool h, int3 i,
	char j, double *out)
{
	*out = a + b * 2 + c * 3 + (d == nullptr) * 5 + e * 7 + f * 11 + (double)g * 13 + h * 17 +
	       (i.x + i.y + i.z) * 19 + j * 23;
}

template <int words> static void run()
{
	std::vector<uint32_t> values = random_words(words), back;
	buffer<uint32_t> out(words);
	block<words> in;

	for (int round = 0; round < 50; round++) { // each launch has its own copy of the parameters
		for (int i = 0; i < words; i++)
			in.word[i] = values[i] + round;
		copy<<<1, 256>>>(in, out.at);
	}
	CHECK(cudaGetLastError());
	back = out.read();
	for (int i = 0; i < words; i++)
		EXPECT(back[i] == (values[i] + 49) * 3 + 1);
	printf("%d words: ", words);
	report("right", back);
}

int main()
{
	run<1>();
	run<1000>();
	run<1022>(); // with the pointer 4096 bytes
	run<1024>();
	run<4000>();
	run<8188>(); // with the pointer 32760 bytes
	buffer<double> out(1);
	mixed<<<1, 1>>>(1, 2.5, 3, nullptr, 4.25f, 5, 6000000000ll, true, make_int3(7, 8, 9), 10, out);
	CHECK(cudaGetLastError());
	printf("mixed %.3f\n", out.read()[0]);
	return 0;
}
