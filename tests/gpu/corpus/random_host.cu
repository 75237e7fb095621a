// cuRAND called by the host: each generator with a fixed seed, several distributions, offsets, a
// stream, generation on the host.
//
// libraries: curand

#include "check.h"

#include <curand.h>

int main()
{
	const size_t count = 100000;
	const curandRngType_t kinds[] = {CURAND_RNG_PSEUDO_XORWOW, CURAND_RNG_PSEUDO_MRG32K3A,
		CURAND_RNG_PSEUDO_MTGP32, CURAND_RNG_PSEUDO_MT19937, CURAND_RNG_PSEUDO_PHILOX4_32_10,
		CURAND_RNG_QUASI_SOBOL32, CURAND_RNG_QUASI_SCRAMBLED_SOBOL32};
	buffer<float> numbers(count);
	buffer<unsigned> words(count);
	std::vector<float> host(count);
	cudaStream_t stream;
	curandGenerator_t generator;

	CHECK(cudaStreamCreate(&stream));
	for (curandRngType_t kind : kinds) {
		CHECK(curandCreateGenerator(&generator, kind));
		CHECK(curandSetStream(generator, stream));
		if (kind < CURAND_RNG_QUASI_DEFAULT)
			CHECK(curandSetPseudoRandomGeneratorSeed(generator, 20240229));
		printf("kind %d\n", (int)kind);
		CHECK(curandGenerateUniform(generator, numbers, count));
		report("uniform", numbers.read());
		CHECK(curandGenerateNormal(generator, numbers, count, 1.0f, 2.0f));
		report("normal", numbers.read());
		CHECK(curandGenerateLogNormal(generator, numbers, count, 0.0f, 0.5f));
		report("log-normal", numbers.read());
		CHECK(curandGenerate(generator, words, count));
		report("words", words.read());
		CHECK(curandGeneratePoisson(generator, words, count, 12.5));
		report("Poisson", words.read());
		CHECK(curandDestroyGenerator(generator));
	}
	CHECK(curandCreateGeneratorHost(&generator, CURAND_RNG_PSEUDO_PHILOX4_32_10));
	CHECK(curandSetPseudoRandomGeneratorSeed(generator, 7));
	CHECK(curandSetGeneratorOffset(generator, 1000));
	CHECK(curandGenerateUniform(generator, host.data(), count));
	report("on the host", host);
	CHECK(curandDestroyGenerator(generator));
	return 0;
}
