// See real.h, and the entry points that NVIDIA's library answers. Their parameters are all integers
// or pointers, six at most, so a single form passes all of these on: both machines that the service
// runs on pass the first six in registers, and a callee ignores the others.

#include "client/nvml/real.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/place.h"

typedef int forward_fn(uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t);

/* Paths, because the name alone would find this library. */
static const char *const places[] = {
	"/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1",
	"/usr/lib/aarch64-linux-gnu/libnvidia-ml.so.1",
	"/usr/lib64/libnvidia-ml.so.1",
	"/usr/lib/libnvidia-ml.so.1",
	"/usr/local/nvidia/lib64/libnvidia-ml.so.1",
};

enum real_state { REAL_UNKNOWN, REAL_NONE, REAL_THERE };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void *library;	      /* guarded by `lock`; NULL: not looked for, or not found */
static enum real_state state; /* guarded by `lock`; of the latest devices */

/* Opens a file; NULL if it is not NVIDIA's library or its driver does not answer. */
static void *open_file(const char *path)
{
	void *file = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	int (*init)(void) = file ? (int (*)(void))dlsym(file, "nvmlInit_v2") : NULL;

	if (init && !dlsym(file, "frmps_nvml") && init() == NVML_SUCCESS)
		return file;
	if (file)
		dlclose(file);
	return NULL;
}

static void *open_any(void)
{
	const char *given = getenv("FRMPS_NVML");
	void *file = NULL;

	if (given)
		return *given ? open_file(given) : NULL;
	for (size_t i = 0; !file && i < sizeof(places) / sizeof(places[0]); i++)
		file = open_file(places[i]);
	return file;
}

static nvml_device find_device(const char *uuid)
{
	int (*find)(const char *, nvml_device *) =
		library ? (int (*)(const char *, nvml_device *))dlsym(library, "nvmlDeviceGetHandleByUUID")
			: NULL;
	nvml_device device = NULL;

	return find && find(uuid, &device) == NVML_SUCCESS ? device : NULL;
}

bool real_open(const struct seen *seen, unsigned count, nvml_device *ret_devices)
{
	nvml_device devices[PLACE_DEVICES];
	bool all = true;

	pthread_mutex_lock(&lock);
	if (state == REAL_UNKNOWN)
		library = open_any();
	for (unsigned i = 0; all && i < count; i++)
		all = (devices[i] = find_device(seen[i].uuid));
	state = all ? REAL_THERE : REAL_NONE;
	pthread_mutex_unlock(&lock);
	if (all)
		memcpy(ret_devices, devices, count * sizeof(*devices));
	return all;
}

/* Return: the library's function; NULL with *ret_code */
static forward_fn *find_function(const char *name, int *ret_code)
{
	static const int codes[] = {[REAL_UNKNOWN] = NVML_ERROR_UNINITIALIZED,
		[REAL_NONE] = NVML_ERROR_NOT_SUPPORTED,
		[REAL_THERE] = NVML_ERROR_FUNCTION_NOT_FOUND};
	forward_fn *function;

	pthread_mutex_lock(&lock);
	function = state == REAL_THERE ? (forward_fn *)dlsym(library, name) : NULL;
	*ret_code = codes[state];
	pthread_mutex_unlock(&lock);
	return function;
}

static int forward(
	const char *name, uintptr_t a, uintptr_t b, uintptr_t c, uintptr_t d, uintptr_t e, uintptr_t f)
{
	int code;
	forward_fn *function = find_function(name, &code);

	return function ? function(a, b, c, d, e, f) : code;
}

int real_peer_status(nvml_device one, nvml_device other, int way, int *ret_status)
{
	return forward("nvmlDeviceGetP2PStatus", (uintptr_t)one, (uintptr_t)other, (uintptr_t)way,
		(uintptr_t)ret_status, 0, 0);
}

#define OWN(name)
#define REAL(name)                                                                                           \
	int name(uintptr_t a, uintptr_t b, uintptr_t c, uintptr_t d, uintptr_t e, uintptr_t f);              \
	__attribute__((visibility("default"))) int name(                                                     \
		uintptr_t a, uintptr_t b, uintptr_t c, uintptr_t d, uintptr_t e, uintptr_t f)                \
	{                                                                                                    \
		return forward(#name, a, b, c, d, e, f);                                                     \
	}
#include "client/nvml/nvml.def"
#undef OWN
#undef REAL
