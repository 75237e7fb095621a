// Prices of options by a closed formula: exponentials, logarithms and roots in single and double
// precision, put-call parity.

#include "check.h"

#include <cmath>

template <class T> __device__ T normal(T x)
{
	return (T)0.5 * erfc(-x * (T)0.70710678118654752);
}

template <class T>
__global__ void price(const T *spot, const T *strike, const T *years, T *call, T *put, int count)
{
	const T rate = (T)0.02, volatility = (T)0.3;

	for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
		T root = sqrt(years[i]), discount = exp(-rate * years[i]);
		T d1 = (log(spot[i] / strike[i]) + (rate + volatility * volatility / 2) * years[i]) /
		       (volatility * root);
		T d2 = d1 - volatility * root;

		call[i] = spot[i] * normal(d1) - strike[i] * discount * normal(d2);
		put[i] = strike[i] * discount * normal(-d2) - spot[i] * normal(-d1);
	}
}

template <class T> static void run(const char *label, double tolerance)
{
	const int count = 200000;
	std::vector<float> numbers = random_floats(3 * count);
	std::vector<T> spot, strike, years, call, put;

	for (int i = 0; i < count; i++) {
		spot.push_back((T)(5 + 25 * numbers[3 * i]));
		strike.push_back((T)(1 + 99 * numbers[3 * i + 1]));
		years.push_back((T)(0.25 + 9.75 * numbers[3 * i + 2]));
	}
	buffer<T> s(spot), k(strike), t(years), c(count), p(count);
	for (int round = 0; round < 20; round++)
		price<<<200, 128>>>(s.at, k.at, t.at, c.at, p.at, count);
	CHECK(cudaGetLastError());
	call = c.read();
	put = p.read();
	for (int i = 0; i < count; i++)
		EXPECT(std::fabs(call[i] - put[i] - spot[i] + strike[i] * std::exp(-0.02 * years[i])) <
			tolerance);
	printf("%s\n", label);
	report("calls", call);
	report("puts", put);
}

int main()
{
	run<float>("single", 1e-3);
	run<double>("double", 1e-10);
	return 0;
}
