// cuFFT: transforms of one, two and three dimensions, complex and real, batched, of odd lengths, in
// a stream; there and back.
//
// libraries: cufft

#include "check.h"

#include <cufft.h>

/* @same: the last bits are, too, from run to run: not so for small volumes */
static void there_and_back(
	const char *label, cufftHandle plan, int count, cudaStream_t stream, bool same = true)
{
	std::vector<float> numbers = random_floats(2 * count);
	buffer<float> data(numbers);

	CHECK(cudaDeviceSynchronize()); // the stream does not wait for the copy
	CHECK(cufftSetStream(plan, stream));
	CHECK(cufftExecC2C(plan, (cufftComplex *)data.at, (cufftComplex *)data.at, CUFFT_FORWARD));
	CHECK(cudaStreamSynchronize(stream));
	std::vector<float> there = data.read();
	CHECK(cufftExecC2C(plan, (cufftComplex *)data.at, (cufftComplex *)data.at, CUFFT_INVERSE));
	CHECK(cudaStreamSynchronize(stream));
	std::vector<float> back = data.read();
	if (same) {
		report(label, there);
		report(label, back);
	}
	CHECK(cufftDestroy(plan));
	/* What came back is the input times the number of elements of one transform. */
	double scale = (double)back[0] / numbers[0];
	for (size_t i = 0; i < back.size(); i++)
		EXPECT(back[i] / scale > numbers[i] - 1e-4 && back[i] / scale < numbers[i] + 1e-4);
	printf("%s of %d comes back\n", label, count);
}

int main()
{
	cudaStream_t stream;
	cufftHandle plan;
	int sizes[] = {100}, version;
	buffer<float> real(random_floats(1024 * 64));
	buffer<cufftComplex> spectrum(1024 * 33);
	buffer<cufftDoubleComplex> precise(4096);

	CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	for (int n : {1024, 65536, 1009, 30030}) {
		CHECK(cufftPlan1d(&plan, n, CUFFT_C2C, 1));
		there_and_back("line", plan, n, stream);
	}
	CHECK(cufftPlan2d(&plan, 96, 128, CUFFT_C2C));
	there_and_back("plane", plan, 96 * 128, stream);
	CHECK(cufftPlan3d(&plan, 32, 16, 20, CUFFT_C2C));
	there_and_back("volume", plan, 32 * 16 * 20, stream, false);
	CHECK(cufftPlanMany(&plan, 1, sizes, nullptr, 1, 100, nullptr, 1, 100, CUFFT_C2C, 77));
	there_and_back("batch", plan, 7700, stream);
	CHECK(cufftPlan2d(&plan, 1024, 64, CUFFT_R2C));
	CHECK(cufftExecR2C(plan, real, spectrum));
	report("real", spectrum.read());
	CHECK(cufftDestroy(plan));
	CHECK(cufftPlan1d(&plan, 4096, CUFFT_Z2Z, 1));
	CHECK(cufftExecZ2Z(plan, precise, precise, CUFFT_FORWARD));
	report("of zeros", precise.read());
	CHECK(cufftDestroy(plan));
	CHECK(cufftGetVersion(&version));
	printf("version %d\n", version);
	return 0;
}
