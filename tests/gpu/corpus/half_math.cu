// Arithmetic of halves, pairs of halves and bfloat16: conversions, fused operations, functions,
// comparisons.

#include "check.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

__global__ void halves(const float *in, float *out, int count)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i >= count)
		return;
	__half a = __float2half(in[i]), b = __float2half(in[(i + 1) % count] + 1);
	__half2 pair = __halves2half2(a, b), other = __float2half2_rn(0.75f);
	float *mine = out + i * 8;

	mine[0] = __half2float(__hfma(a, b, a));
	mine[1] = __half2float(__hdiv(a, b));
	mine[2] = __half2float(hsqrt(b));
	mine[3] = __half2float(hexp(a));
	pair = __hfma2(pair, other, pair);
	mine[4] = __low2float(pair) + __high2float(pair);
	mine[5] = __hgt(a, b) + 2 * __hle(a, b);
	mine[6] = __half2float(__hmax(a, __float2half(0.5f)));
	mine[7] = __half2float(a * b - a / b);
}

__global__ void brains(const float *in, float *out, int count)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i >= count)
		return;
	__nv_bfloat16 a = __float2bfloat16(in[i]), b = __float2bfloat16(in[(i + 1) % count] + 1);
	__nv_bfloat162 pair = __halves2bfloat162(a, b);
	float *mine = out + i * 4;

	mine[0] = __bfloat162float(__hfma(a, b, a));
	mine[1] = __bfloat162float(hsqrt(b)) + __bfloat162float(hlog(b));
	pair = __hmul2(pair, pair);
	mine[2] = __low2float(pair) - __high2float(pair);
	mine[3] = __bfloat162float(a + b * a);
}

int main()
{
	const int count = 20000;
	std::vector<float> numbers = random_floats(count), back;
	buffer<float> in(numbers), out(count * 8), second(count * 4);

	halves<<<(count + 127) / 128, 128>>>(in, out, count);
	brains<<<(count + 127) / 128, 128>>>(in, second, count);
	CHECK(cudaGetLastError());
	back = out.read();
	for (int i = 0; i < count; i++) {
		float a = __half2float(__float2half(numbers[i]));

		EXPECT(back[i * 8 + 5] == 2 && back[i * 8 + 6] == (a > 0.5f ? a : 0.5f));
	}
	report("halves", back);
	report("bfloat16", second.read());
	return 0;
}
