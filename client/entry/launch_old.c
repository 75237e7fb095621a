// Entry points: launches as before CUDA 4.0, with the block's shape and the arguments set on the
// function beforehand. The library keeps these settings beside the function; a launch passes them
// to today's call, which checks them. Any thread; two threads that set up the same function at once
// get a mixture, as with the driver.

#include "client/entry/entry.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "client/state/function.h"
#include "client/state/instance.h"

/* The most bytes of arguments that such a function could have. */
#define ARGUMENT_BYTES 4096u

struct setup {
	struct setup *next;
	const void *handle;
	uint64_t serial; /* of the function: a later function may reuse the place */
	unsigned int block[3], shared_bytes;
	size_t argument_bytes;
	uint8_t arguments[ARGUMENT_BYTES];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct setup *setups; /* guarded by lock, with all contents */

/* Under the lock. NULL without memory. */
static struct setup *find(const struct client_function *function)
{
	struct setup *setup = setups;

	while (setup && setup->handle != function)
		setup = setup->next;
	if (!setup) {
		setup = calloc(1, sizeof(*setup));
		if (!setup)
			return NULL;
		setup->handle = function;
		setup->next = setups;
		setups = setup;
	}
	if (setup->serial != function->serial) {
		struct setup *next = setup->next;

		*setup = (struct setup){.next = next, .handle = function, .serial = function->serial};
		setup->block[0] = setup->block[1] = setup->block[2] = 1;
	}
	return setup;
}

/* Takes the lock, which is held on success. */
static CUresult begin(CUfunction handle, struct setup **ret_setup)
{
	struct client_function *function;
	CUresult r = process_enter_context();

	if (r == CUDA_SUCCESS)
		r = function_enter(handle, &function);
	if (r != CUDA_SUCCESS)
		return r;
	pthread_mutex_lock(&lock);
	*ret_setup = find(function);
	if (*ret_setup)
		return CUDA_SUCCESS;
	pthread_mutex_unlock(&lock);
	return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult end(CUresult r)
{
	pthread_mutex_unlock(&lock);
	return r;
}

CUDA_EXPORT CUresult cuFuncSetBlockShape(CUfunction function, int x, int y, int z)
{
	struct setup *setup;
	CUresult r = begin(function, &setup);

	if (r != CUDA_SUCCESS)
		return r;
	if (x <= 0 || y <= 0 || z <= 0)
		return end(CUDA_ERROR_INVALID_VALUE);
	setup->block[0] = (unsigned int)x;
	setup->block[1] = (unsigned int)y;
	setup->block[2] = (unsigned int)z;
	return end(CUDA_SUCCESS);
}

CUDA_EXPORT CUresult cuFuncSetSharedSize(CUfunction function, unsigned int bytes)
{
	struct setup *setup;
	CUresult r = begin(function, &setup);

	if (r != CUDA_SUCCESS)
		return r;
	setup->shared_bytes = bytes;
	return end(CUDA_SUCCESS);
}

CUDA_EXPORT CUresult cuParamSetSize(CUfunction function, unsigned int bytes)
{
	struct setup *setup;
	CUresult r = begin(function, &setup);

	if (r != CUDA_SUCCESS)
		return r;
	if (bytes > ARGUMENT_BYTES)
		return end(CUDA_ERROR_INVALID_VALUE);
	setup->argument_bytes = bytes;
	return end(CUDA_SUCCESS);
}

CUDA_EXPORT CUresult cuParamSetv(CUfunction function, int offset, void *value, unsigned int bytes)
{
	struct setup *setup;
	CUresult r = begin(function, &setup);

	if (r != CUDA_SUCCESS)
		return r;
	if (!value || offset < 0 || bytes > ARGUMENT_BYTES || (unsigned int)offset > ARGUMENT_BYTES - bytes)
		return end(CUDA_ERROR_INVALID_VALUE);
	memcpy(setup->arguments + offset, value, bytes);
	return end(CUDA_SUCCESS);
}

CUDA_EXPORT CUresult cuParamSeti(CUfunction function, int offset, unsigned int value)
{
	return cuParamSetv(function, offset, &value, sizeof(value));
}

CUDA_EXPORT CUresult cuParamSetf(CUfunction function, int offset, float value)
{
	return cuParamSetv(function, offset, &value, sizeof(value));
}

CUDA_EXPORT CUresult cuLaunchGridAsync(CUfunction function, int width, int height, CUstream stream)
{
	struct setup *setup, copy;
	CUresult r = begin(function, &setup);
	void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, copy.arguments, CU_LAUNCH_PARAM_BUFFER_SIZE,
		&copy.argument_bytes, CU_LAUNCH_PARAM_END};

	if (r != CUDA_SUCCESS)
		return r;
	copy = *setup;
	end(CUDA_SUCCESS);
	if (width <= 0 || height <= 0)
		return CUDA_ERROR_INVALID_VALUE;
	return cuLaunchKernel(function, (unsigned int)width, (unsigned int)height, 1, copy.block[0],
		copy.block[1], copy.block[2], copy.shared_bytes, stream, NULL, extra);
}

CUDA_EXPORT CUresult cuLaunchGrid(CUfunction function, int width, int height)
{
	return cuLaunchGridAsync(function, width, height, NULL);
}

CUDA_EXPORT CUresult cuLaunch(CUfunction function)
{
	return cuLaunchGridAsync(function, 1, 1, NULL);
}
