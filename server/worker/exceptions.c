// See exceptions.h. A driver that is to write a dump of an exception handles exceptions as for a
// debugger: warps that faulted are held, and the kernels of others go on. The service needs no more
// than that from the driver. The dump is never begun where the service handles exceptions itself
// (backend/cuda/contain.c). Where it cannot, the driver writes a small dump into a file that nobody
// reads, and goes on (skip_abort).

#include "server/worker/exceptions.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "server/role.h"

#define STRING(x)  STRING_(x)
#define STRING_(x) #x

static const char *const settings[] = {"CUDA_ENABLE_COREDUMP_ON_EXCEPTION=1",
	"CUDA_COREDUMP_FILE=/proc/self/fd/" STRING(HERITAGE_DUMP_FD),
	"CUDA_COREDUMP_GENERATION_FLAGS=skip_nonrelocated_elf_images,skip_global_memory,skip_shared_memory,"
	"skip_local_memory,skip_constbank_memory,skip_abort"};

#define COUNT(list) (sizeof(list) / sizeof((list)[0]))

/* Settings of the operator's environment under these names are not for executors. */
static bool is_ours(const char *entry)
{
	return !strncmp(entry, "CUDA_COREDUMP_", 14) || !strncmp(entry, "CUDA_ENABLE_COREDUMP_", 21) ||
	       !strncmp(entry, "CUDA_ENABLE_USER_TRIGGERED_COREDUMP", 35);
}

char **exceptions_environment(char *const *environment)
{
	size_t count = 0, used = 0;
	char **list;

	while (environment[count])
		count++;
	list = calloc(count + COUNT(settings) + 1, sizeof(*list));
	if (!list)
		return NULL;
	for (size_t i = 0; i < count; i++)
		if (!is_ours(environment[i]))
			list[used++] = environment[i];
	used = heritage_leave_for_user(list);
	for (size_t i = 0; i < COUNT(settings); i++)
		list[used++] = (char *)settings[i];
	list[used] = NULL;
	return list;
}

void exceptions_environment_free(char **environment)
{
	free(environment);
}
