// Choosing a backend. Tests and the demo bring one along that needs no GPU (tests/host/).

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "server/backend/backend.h"

const struct backend_ops *backend_find(const char *name)
{
	char file[NAME_MAX];
	void *module;

	if (!strcmp(name, backend_cuda.name))
		return &backend_cuda;
	snprintf(file, sizeof(file), "%s_backend.so", name);
	module = dlopen(*name == '/' ? name : file, RTLD_NOW | RTLD_LOCAL);
	return module ? dlsym(module, BACKEND_SYMBOL) : NULL;
}
