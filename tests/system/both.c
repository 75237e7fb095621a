// See both.h.

#include "tests/system/both.h"

#include <stdlib.h>

#include "tests/system/driver.h"

struct service both_service;

void both_start(void)
{
	setenv("FRMPS_HOST_DEVICES", "2", 1);
	setenv("FRMPS_HOST_FAULTS", "named", 1);
	ck_assert(service_start_configured(&both_service, "devices = all\n"));
}

void both_stop(void)
{
	if (both_service.pid)
		ck_assert_int_eq(service_stop(&both_service), 0);
}

const struct service *both_device(unsigned number)
{
	static struct service one;

	one = service_of_device(&both_service, number);
	return &one;
}

struct side sides[2];

void use(int ordinal)
{
	ck_cuda(cuCtxSetCurrent(sides[ordinal].context));
}

CUfunction function_of(int ordinal, const char *name)
{
	CUfunction function;

	ck_cuda(cuModuleGetFunction(&function, sides[ordinal].module, name));
	return function;
}

void open_side(int ordinal)
{
	struct side *side = &sides[ordinal];
	void *image = read_file(getenv("FRMPS_TEST_KERNELS"));

	ck_cuda(cuInit(0));
	ck_cuda(cuDevicePrimaryCtxRetain(&side->context, ordinal));
	use(ordinal);
	ck_cuda(cuModuleLoadData(&side->module, image));
	ck_cuda(cuStreamCreate(&side->stream, CU_STREAM_NON_BLOCKING));
	side->in = device_words(WORDS, 3 + (uint32_t)ordinal);
	side->out = device_words(WORDS, 0);
	free(image);
}

void both_open(void)
{
	open_side(0);
	open_side(1);
}

CUresult mix(int ordinal, CUdeviceptr out, CUdeviceptr in, uint32_t round, CUstream stream)
{
	uint64_t count = WORDS;
	void *arguments[] = {&out, &in, &round, &count};

	return cuLaunchKernel(function_of(ordinal, "mix"), 4, 1, 1, 64, 1, 1, 0, stream, arguments, NULL);
}

bool are_mixed(CUdeviceptr words, uint32_t factor, uint32_t round)
{
	uint32_t *result = malloc(WORDS * 4);
	bool are = cuMemcpyDtoH_v2(result, words, WORDS * 4) == CUDA_SUCCESS;

	for (uint32_t i = 0; are && i < WORDS; i++)
		are = result[i] == mixed(i * factor, round, i);
	free(result);
	return are;
}

bool works(int ordinal, uint32_t round)
{
	use(ordinal);
	ck_cuda(mix(ordinal, sides[ordinal].out, sides[ordinal].in, round, NULL));
	return are_mixed(sides[ordinal].out, 3 + (uint32_t)ordinal, round);
}
