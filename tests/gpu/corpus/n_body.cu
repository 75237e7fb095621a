// Bodies that attract each other, a hundred steps between two buffers: many launches whose results
// feed the next.

#include "check.h"

const int width = 128;

__global__ void step(const float4 *from, float4 *to, float4 *velocity, int count, float dt)
{
	__shared__ float4 part[width];
	int i = blockIdx.x * width + threadIdx.x;
	float4 mine = from[i], v = velocity[i];
	float3 force = {0, 0, 0};

	for (int tile = 0; tile < count; tile += width) {
		part[threadIdx.x] = from[tile + threadIdx.x];
		__syncthreads();
		for (int k = 0; k < width; k++) {
			float dx = part[k].x - mine.x, dy = part[k].y - mine.y, dz = part[k].z - mine.z;
			float distance = dx * dx + dy * dy + dz * dz + 0.01f;
			float pull = part[k].w * rsqrtf(distance) / distance;

			force.x += dx * pull;
			force.y += dy * pull;
			force.z += dz * pull;
		}
		__syncthreads();
	}
	v.x += force.x * dt;
	v.y += force.y * dt;
	v.z += force.z * dt;
	velocity[i] = v;
	to[i] = make_float4(mine.x + v.x * dt, mine.y + v.y * dt, mine.z + v.z * dt, mine.w);
}

int main()
{
	const int count = 4096, steps = 100;
	std::vector<float> numbers = random_floats(count * 4);
	std::vector<float4> bodies(count), end;
	double before[3] = {}, after[3] = {};

	memcpy(bodies.data(), numbers.data(), count * sizeof(float4));
	for (auto &body : bodies) {
		body.w *= 1e-3f;
		before[0] += body.x * body.w;
		before[1] += body.y * body.w;
		before[2] += body.z * body.w;
	}
	buffer<float4> from(bodies), to(count), velocity(count);
	for (int i = 0; i < steps; i++)
		step<<<count / width, width>>>(
			(i % 2 ? to : from).at, (i % 2 ? from : to).at, velocity, count, 1e-3f);
	CHECK(cudaGetLastError());
	end = from.read();
	for (auto &body : end) {
		after[0] += body.x * body.w;
		after[1] += body.y * body.w;
		after[2] += body.z * body.w;
	}
	for (int i = 0; i < 3; i++) // the centre of mass stays where it is
		EXPECT(after[i] - before[i] < 1e-3 && before[i] - after[i] < 1e-3);
	report("bodies", end);
	report("velocities", velocity.read());
	return 0;
}
