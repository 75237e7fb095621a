// A weak definition of every driver call that the shim implements, so that a test program can link
// the table of client/entry/proc_address.c with only some of them. A strong definition elsewhere
// wins; calling one of these means that a test reached further than it meant to, and fails with
// CUDA_ERROR_UNKNOWN.

#include "protocol/cuda_abi.h"

#define FAKE(symbol)                                                                                         \
	CUresult symbol(void) __attribute__((weak));                                                         \
	CUresult symbol(void)                                                                                \
	{                                                                                                    \
		return CUDA_ERROR_UNKNOWN;                                                                   \
	}
#define FAKE_FULL(symbol)  FAKE(symbol)
#define FAKE_LOCAL(symbol) FAKE(symbol)
#define FAKE_REFUSED(symbol)

#define API(symbol, base, since, variant, kind, note) FAKE_##kind(symbol)
#include "client/api.def"
#undef API
