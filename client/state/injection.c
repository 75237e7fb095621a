// See injection.h. Runs on the thread of that cuInit. The tool stays loaded.

#include "client/state/injection.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "client/state/log.h"

#define ENTRY "InitializeInjection"

static void load(const char *path)
{
	void *tool = dlopen(path, RTLD_NOW);
	int (*entry)(void) = tool ? (int (*)(void))dlsym(tool, ENTRY) : NULL;

	if (entry)
		entry();
	else
		client_log(CLIENT_LOG_ERROR, "CUDA_INJECTION64_PATH=%.64s is not used: %.128s", path,
			tool ? "it has no function " ENTRY : dlerror());
}

void injection_start(void)
{
	static atomic_flag begun = ATOMIC_FLAG_INIT;
	const char *path = secure_getenv("CUDA_INJECTION64_PATH");

	/* The tool's own cuInit comes here, too. */
	if (path && *path && !atomic_flag_test_and_set(&begun))
		load(path);
}
