// Opening the driver under test. See driver.h.

#include "bench/lib/driver.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

struct driver cu;

/* empty: nothing. spin(out, ns): one thread of each block waits ns nanoseconds of the device's timer, then
 * the last thing each does is to store the timer at *out, if out is not null. */
static const char ptx[] = ".version 8.0\n.target sm_80\n.address_size 64\n"
			  ".visible .entry empty() { ret; }\n"
			  ".visible .entry spin(.param .u64 out, .param .u64 ns) {\n"
			  "  .reg .u64 %begin, %now, %ns, %out; .reg .pred %more, %none;\n"
			  "  ld.param.u64 %ns, [ns]; ld.param.u64 %out, [out];\n"
			  "  mov.u64 %begin, %globaltimer;\n"
			  "again: mov.u64 %now, %globaltimer;\n"
			  "  sub.u64 %now, %now, %begin; setp.lt.u64 %more, %now, %ns; @%more bra again;\n"
			  "  setp.eq.u64 %none, %out, 0; @%none bra done;\n"
			  "  mov.u64 %now, %globaltimer; st.global.u64 [%out], %now;\n"
			  "done: ret; }\n";

void driver_check(CUresult result, const char *what)
{
	if (result == CUDA_SUCCESS)
		return;
	fprintf(stderr, "bench: %s failed with %d\n", what, (int)result);
	exit(1);
}

static void *symbol(void *library, const char *name)
{
	void *at = dlsym(library, name);

	if (!at) {
		fprintf(stderr, "bench: no %s in libcuda.so.1\n", name);
		exit(1);
	}
	return at;
}

void driver_open(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW);
	CUdevice device;
	CUcontext context;

	if (!library) {
		fprintf(stderr, "bench: %s\n", dlerror());
		exit(77);
	}
#define D(s, name, arguments) *(void **)&cu.name = symbol(library, #s);
#include "bench/lib/driver.def"
#undef D
	driver_check(cu.init(0), "cuInit");
	driver_check(cu.device_get(&device, 0), "cuDeviceGet");
	driver_check(cu.retain(&context, device), "cuDevicePrimaryCtxRetain");
	driver_check(cu.set_current(context), "cuCtxSetCurrent");
}

void *driver_read_file(const char *path)
{
	FILE *file = fopen(path, "rb");
	char *bytes = NULL;
	long size = -1;

	if (file && fseek(file, 0, SEEK_END) == 0)
		size = ftell(file);
	if (size >= 0)
		bytes = calloc(1, (size_t)size + 1);
	if (bytes) {
		rewind(file);
		if (fread(bytes, 1, (size_t)size, file) != (size_t)size)
			size = -1;
	}
	if (!bytes || size < 0) {
		perror(path);
		exit(1);
	}
	fclose(file);
	return bytes;
}

CUmodule driver_module(void)
{
	const char *path = getenv("FRMPS_BENCH_MODULE");
	void *image = path ? driver_read_file(path) : NULL;
	CUmodule module;

	driver_check(cu.module_load(&module, image ? image : ptx), "cuModuleLoadData");
	free(image);
	return module;
}

CUfunction driver_function(CUmodule module, const char *name)
{
	CUfunction function;

	driver_check(cu.function(&function, module, name), name);
	return function;
}

uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}
