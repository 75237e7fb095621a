// A function that calls itself and needs stack for each call.

#pragma once

// Frames that the compiler can neither merge nor turn into a loop.
__device__ __noinline__ unsigned descend(const volatile unsigned *seed, unsigned depth)
{
	volatile unsigned frame[32];

	for (int i = 0; i < 32; i++)
		frame[i] = *seed + depth * 31 + i;
	if (!depth)
		return frame[7];
	return descend(seed, depth - 1) * 3 + frame[depth % 32];
}
