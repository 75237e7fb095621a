// A module for the host backend that crashes whoever loads it.

#include <signal.h>

static __attribute__((constructor)) void crash(void)
{
	raise(SIGSEGV);
}
