// See exceptions.h. The driver can be told to handle exceptions of kernels as for a debugger and to write a
// dump. While it does so, the kernels of others go on and end; a dump of everything would take long, so all
// is left out of it that can be, and nobody needs the process to end by itself (skip_abort). What is left
// says which kernel it was. With on_fault = fast the same makes a fault known within milliseconds, and the dump
// still says which kernel it was when the executor has left the device long since.

#include "server/failover/exceptions.h"

#include <stdlib.h>
#include <string.h>

#include "server/backend/backend.h"
#include "server/role.h"

#define STRING(x)  STRING_(x)
#define STRING_(x) #x

/* Before it stops the device the driver copies the code of everything that is loaded four times (libcudadebugger, in
 * this process): most of the pause where there is much. It takes less in memory that the C library has in large pages
 * and does not give back: beside two PyTorch programs with 100 MB each 322 ms instead of 594 (either of the two alone:
 * 543 and 470; one fault each), beside four of them 856 ms instead of 995 (six faults each; H200, driver 580). An
 * executor holds 36 MiB more for it, and some 90 more with such a program. */
#define TUNABLES "GLIBC_TUNABLES="
#define MALLOC                                                                                               \
	TUNABLES "glibc.malloc.hugetlb=1:glibc.malloc.mmap_max=0:"                                           \
		 "glibc.malloc.trim_threshold=17179869184:glibc.malloc.top_pad=67108864"

static const char *const modes[] = {[false] = BACKEND_ON_FAULT "=fast", [true] = BACKEND_ON_FAULT "=default"};
static const char *const settings[] = {"CUDA_ENABLE_COREDUMP_ON_EXCEPTION=1",
	"CUDA_COREDUMP_FILE=/proc/self/fd/" STRING(HERITAGE_DUMP_FD),
	"CUDA_COREDUMP_GENERATION_FLAGS=skip_nonrelocated_elf_images,skip_global_memory,skip_shared_memory,"
	"skip_local_memory,skip_constbank_memory,skip_abort",
	MALLOC};

#define COUNT(list) (sizeof(list) / sizeof((list)[0]))

/* What the operator's environment says about these is not for executors. */
static bool is_ours(const char *entry)
{
	return !strncmp(entry, BACKEND_ON_FAULT "=", sizeof(BACKEND_ON_FAULT)) ||
	       !strncmp(entry, "CUDA_COREDUMP_", 14) || !strncmp(entry, "CUDA_ENABLE_COREDUMP_", 21) ||
	       !strncmp(entry, "CUDA_ENABLE_USER_TRIGGERED_COREDUMP", 35);
}

/* What the operator's environment says about memory is. */
static bool is_tunables(const char *entry)
{
	return !strncmp(entry, TUNABLES, sizeof(TUNABLES) - 1);
}

char **exceptions_environment(char *const *environment, bool graceful)
{
	size_t count = 0, used = 0;
	bool tuned = false;
	char **list;

	while (environment[count])
		count++;
	list = calloc(count + COUNT(settings) + 2, sizeof(*list));
	if (!list)
		return NULL;
	for (size_t i = 0; i < count; i++) {
		tuned |= is_tunables(environment[i]);
		if (!is_ours(environment[i]))
			list[used++] = environment[i];
	}
	list[used++] = (char *)modes[graceful];
	for (size_t i = 0; i < COUNT(settings); i++)
		if (!tuned || !is_tunables(settings[i]))
			list[used++] = (char *)settings[i];
	return list;
}

void exceptions_environment_free(char **environment)
{
	free(environment);
}
