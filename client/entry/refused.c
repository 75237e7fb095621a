// The driver calls that frmps does not have: the REFUSED rows of client/api.def. Each function logs
// the refusal once and returns CUDA_ERROR_NOT_SUPPORTED, whatever its arguments; no output is
// written. A lookup alone, as the CUDA runtime makes for hundreds of such calls, logs nothing.
//
// Runs on the program's threads. Owns a "logged" flag per call.

#include "client/state/log.h"
#include "protocol/cuda_abi.h"

#include <stdatomic.h>
#include <stdbool.h>

/* Not inlined: the functions below are then a handful of instructions each. */
static __attribute__((noinline)) CUresult refuse(atomic_bool *said, const char *symbol, const char *reason)
{
	/* The plain load keeps threads that repeat a refused call from contending for the cache
	 * line. */
	if (!atomic_load_explicit(said, memory_order_relaxed) &&
		!atomic_exchange_explicit(said, true, memory_order_relaxed))
		client_log(CLIENT_LOG_ERROR, "%s is not supported (%s)", symbol, reason);
	return CUDA_ERROR_NOT_SUPPORTED;
}

/*
 * No parameters are declared: the caller passes the arguments of the call's real prototype in
 * registers and on its own stack, and this side reads none.
 */
#define MAKE_REFUSED(symbol, note)                                                                           \
	CUresult symbol(void) __attribute__((visibility("protected")));                                      \
	CUresult symbol(void)                                                                                \
	{                                                                                                    \
		static atomic_bool said;                                                                     \
		return refuse(&said, #symbol, note);                                                         \
	}
#define MAKE_FULL(symbol, note)
#define MAKE_LOCAL(symbol, note)

#define API(symbol, base, since, variant, kind, note) MAKE_##kind(symbol, note)
#include "client/api.def"
#undef API
