// Pointers to device functions: in a table of device memory, read back and passed to kernels by the
// host, in a struct.

#include "check.h"

typedef float (*operation)(float, float);

__device__ float plus(float a, float b)
{
	return a + b;
}

__device__ float minus(float a, float b)
{
	return a - b;
}

__device__ float times(float a, float b)
{
	return a * b;
}

__device__ operation table[3] = {plus, minus, times};

struct step {
	operation apply;
	float by;
};

__global__ void apply(float *data, operation op, float by)
{
	data[threadIdx.x] = op(data[threadIdx.x], by);
}

__global__ void apply_all(float *data, const step *steps, int count)
{
	for (int i = 0; i < count; i++)
		data[threadIdx.x] = steps[i].apply(data[threadIdx.x], steps[i].by);
}

__global__ void apply_table(float *data)
{
	data[threadIdx.x] = table[threadIdx.x % 3](data[threadIdx.x], 2.0f);
}

int main()
{
	operation operations[3];
	std::vector<float> ramp(96), values;
	std::vector<step> steps;

	for (int i = 0; i < 96; i++)
		ramp[i] = (float)i;
	buffer<float> data(ramp);
	CHECK(cudaMemcpyFromSymbol(operations, table, sizeof(operations)));
	apply<<<1, 96>>>(data, operations[2], 3.0f);
	apply<<<1, 96>>>(data, operations[0], 10.0f);
	CHECK(cudaGetLastError());
	for (int i = 0; i < 30; i++)
		steps.push_back({operations[i % 2], (float)i});
	buffer<step> program(steps);
	apply_all<<<1, 96>>>(data, program, 30);
	apply_table<<<1, 96>>>(data);
	CHECK(cudaGetLastError());
	values = data.read();
	for (int i = 0; i < 96; i++) {
		float model = i * 3.0f + 10 - 15;

		EXPECT(values[i] == (i % 3 == 0 ? model + 2 : i % 3 == 1 ? model - 2 : model * 2));
	}
	report("values", values);
	return 0;
}
