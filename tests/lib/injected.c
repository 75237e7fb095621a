// A tool that is loaded into a program by CUDA_INJECTION64_PATH: it asks the driver, and counts in
// the environment how often it was called.

#include <stdlib.h>

#include "protocol/cuda_abi.h"

extern CUresult cuInit(unsigned int flags);
extern CUresult cuDeviceGetCount(int *count);

int InitializeInjection(void);

__attribute__((visibility("default"))) int InitializeInjection(void)
{
	const char *before = getenv("FRMPS_TEST_INJECTED");
	int count = 0;

	if (cuInit(0) || cuDeviceGetCount(&count) || count < 1)
		return 0;
	setenv("FRMPS_TEST_INJECTED", before ? "again" : "once", 1);
	return 1;
}
