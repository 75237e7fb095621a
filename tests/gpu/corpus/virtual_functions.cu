// Objects with virtual functions, made with new and deleted on the device, called through their
// base class.

#include "check.h"

__device__ int destroyed;

struct shape {
	__device__ virtual int area() const = 0;
	__device__ virtual ~shape()
	{
		atomicAdd(&destroyed, 1);
	}
};

struct square : shape {
	int side;
	__device__ explicit square(int side_) : side(side_)
	{
	}
	__device__ int area() const override
	{
		return side * side;
	}
};

struct box : shape {
	int width, height;
	__device__ box(int width_, int height_) : width(width_), height(height_)
	{
	}
	__device__ int area() const override
	{
		return width * height;
	}
};

struct double_square : square {
	using square::square;
	__device__ int area() const override
	{
		return 2 * square::area();
	}
};

__global__ void make(shape **shapes)
{
	int i = threadIdx.x;

	if (i % 3 == 0)
		shapes[i] = new square(i);
	else if (i % 3 == 1)
		shapes[i] = new box(i, i + 1);
	else
		shapes[i] = new double_square(i);
}

__global__ void measure(shape **shapes, int *areas)
{
	areas[threadIdx.x] = shapes[threadIdx.x]->area();
}

__global__ void destroy(shape **shapes)
{
	delete shapes[threadIdx.x];
}

int main()
{
	buffer<shape *> shapes(96);
	buffer<int> areas(96);
	int count;

	make<<<1, 96>>>(shapes);
	measure<<<1, 96>>>(shapes, areas);
	destroy<<<1, 96>>>(shapes);
	CHECK(cudaGetLastError());
	std::vector<int> values = areas.read();
	for (int i = 0; i < 96; i++)
		EXPECT(values[i] == (i % 3 == 0 ? i * i : i % 3 == 1 ? i * (i + 1) : 2 * i * i));
	report("areas", values);
	CHECK(cudaMemcpyFromSymbol(&count, destroyed, sizeof(count)));
	printf("destroyed %d\n", count);
	return 0;
}
